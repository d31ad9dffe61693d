"""Process table: identifies processes by id and start time, and kills processes that crashed workers left behind.

Process ids are reused. Together with the start time they identify one process.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from functools import cache
from pathlib import Path
from time import sleep

from ...core.clock import boot_offset

MARKER = "HOLDFAST_JOB"
"""The environment variable by which a job's processes are found: `worker pid:its start:pid namespace:job:fence`."""
SWEEP_ROUNDS = 20
"""Scans of the process table, at most, to find processes that were forked meanwhile."""
_TICK = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
"""Nanoseconds of one clock tick."""


def start_of(pid: int) -> str | None:
    """The start time of a process, as the system reports it; None if there is none, or only a zombie."""
    if sys.platform == "linux":
        try:
            fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            return None
        # The kernel reports it relative to the boot time of the reader's time namespace.
        return None if fields[0] in (b"Z", b"X") else str(int(fields[19]) - boot_offset() // _TICK)
    asked = subprocess.run(["/bin/ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, check=False)
    return asked.stdout.decode().strip() or None


@cache
def own_start() -> str:
    return start_of(os.getpid()) or "unknown"


os.register_at_fork(after_in_child=own_start.cache_clear)


def is_alive(pid: int, start: str) -> bool:
    """Whether exactly the process with this id and start time is still alive."""
    found = start_of(pid)
    if found is None or found == start:
        return found is not None
    # Two time namespaces round the start to ticks differently. No id is reused within two ticks.
    return found.isdigit() and start.isdigit() and abs(int(found) - int(start)) <= 1


def signal_process(pid: int, start: str, number: int) -> bool:
    """Signal exactly that process, never one that reused its id; False if it has ended."""
    if hasattr(os, "pidfd_open"):
        try:
            handle = os.pidfd_open(pid)
        except OSError:
            return False
        with closing(os.fdopen(handle, "rb", buffering=0)):
            # The handle refers to one process: if it matches now, it still does when the signal arrives.
            if not is_alive(pid, start):
                return False
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, number)
                return True
        return False
    if not is_alive(pid, start):
        return False
    with suppress(ProcessLookupError):
        os.kill(pid, number)
        return True
    return False


def memory_of_tree(pid: int) -> int:
    """Resident memory of a process and its descendants in bytes; 0 if the platform does not report it."""
    total = 0
    with suppress(OSError, ValueError, IndexError):
        total = int(Path(f"/proc/{pid}/statm").read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        for thread in Path(f"/proc/{pid}/task").iterdir():
            for child in (thread / "children").read_text().split():
                total += memory_of_tree(int(child))
    return total


def marker(job: str, fence: int) -> str:
    """The marker of one claim's processes."""
    return f"{os.getpid()}:{own_start()}:{_namespace()}:{job}:{fence}"


def marked() -> list[tuple[int, str]]:
    """Every process of this user that belongs to a job, with its marker. Linux only: [] elsewhere."""
    if not Path("/proc").is_dir():
        return []
    pids = [int(folder.name) for folder in Path("/proc").iterdir() if folder.name.isdigit()]
    return [(pid, mark) for pid in pids if (mark := mark_of(pid)) is not None]


def mark_of(pid: int) -> str | None:
    """The marker of a process of this user; None if it has none."""
    prefix, folder = f"{MARKER}=".encode(), Path(f"/proc/{pid}")
    with suppress(OSError):
        if folder.stat().st_uid == os.getuid():
            for entry in (folder / "environ").read_bytes().split(b"\0"):
                if entry.startswith(prefix):
                    return entry[len(prefix) :].decode("utf-8", "replace")
    return None


def kill_marked(mark: str) -> int:
    """Kill all processes with this marker; returns how many there were."""
    return _kill(mark.__eq__)


def sweep() -> int:
    """Kill processes on this machine that belong to jobs of ended workers; returns how many there were."""
    return _kill(_is_orphaned)


def _is_orphaned(mark: str) -> bool:
    """Whether the marker's worker has ended. Ids of other pid namespaces (containers) are not comparable."""
    worker, start, namespace, *_ = (*mark.split(":", 3), "", "")
    return worker.isdigit() and namespace == _namespace() and not is_alive(int(worker), start)


@cache
def _namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid").strip("pid:[]")  # noqa: PTH115  # it is not a path
    except OSError:
        return "0"


def _kill(wanted: Callable[[str], bool]) -> int:
    killed: set[tuple[int, str]] = set()
    for _ in range(SWEEP_ROUNDS):  # again, for what was being forked meanwhile
        found = [(pid, start_of(pid)) for pid, mark in marked() if wanted(mark) and pid != os.getpid()]
        signalled = {(pid, at) for pid, at in found if at is not None and signal_process(pid, at, signal.SIGKILL)}
        if not signalled:
            break
        killed |= signalled
        sleep(0.01)
    return len(killed)
