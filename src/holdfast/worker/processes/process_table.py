"""Which processes live, by what they are and not by their number alone; and the sweep of what a dead worker left.

A process id is given again and again. Together with the moment it started it names one process for good.
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
"""Looks at the process table, at the most, for what was being forked meanwhile."""
_TICK = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
"""Nanoseconds."""


def start_of(pid: int) -> str | None:
    """When a process started, in the machine's own words; None where there is none (or only its remains)."""
    if sys.platform == "linux":
        try:
            fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            return None
        # The kernel tells it by the time since boot of whoever asks.
        return None if fields[0] in (b"Z", b"X") else str(int(fields[19]) - boot_offset() // _TICK)
    asked = subprocess.run(["/bin/ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, check=False)
    return asked.stdout.decode().strip() or None


@cache
def own_start() -> str:
    """When this process started."""
    return start_of(os.getpid()) or "unknown"


os.register_at_fork(after_in_child=own_start.cache_clear)


def lives(pid: int, start: str) -> bool:
    """Whether the very process that had this id and this start is still there."""
    found = start_of(pid)
    if found is None or found == start:
        return found is not None
    # Seen from two time namespaces, the start is rounded to ticks differently. No id comes again within two of them.
    return found.isdigit() and start.isdigit() and abs(int(found) - int(start)) <= 1


def signal_process(pid: int, start: str, number: int) -> bool:
    """Signal that very process, never another that has got its id since; False if it is gone."""
    if hasattr(os, "pidfd_open"):
        try:
            handle = os.pidfd_open(pid)
        except OSError:
            return False
        with closing(os.fdopen(handle, "rb", buffering=0)):
            # The handle names one process; if that is the one we mean now, it is so when the signal arrives.
            if not lives(pid, start):
                return False
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, number)
                return True
        return False
    if not lives(pid, start):
        return False
    with suppress(ProcessLookupError):
        os.kill(pid, number)
        return True
    return False


def memory_of_tree(pid: int) -> int:
    """Bytes that a process and its descendants have in use; 0 where the machine does not say."""
    total = 0
    with suppress(OSError, ValueError, IndexError):
        total = int(Path(f"/proc/{pid}/statm").read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        for thread in Path(f"/proc/{pid}/task").iterdir():
            for child in (thread / "children").read_text().split():
                total += memory_of_tree(int(child))
    return total


def marker(job: str, fence: int) -> str:
    """The mark of one claim's processes."""
    return f"{os.getpid()}:{own_start()}:{_namespace()}:{job}:{fence}"


def marked() -> list[tuple[int, str]]:
    """Every process of this user that runs in some job, with its mark. Linux only: [] elsewhere."""
    if not Path("/proc").is_dir():
        return []
    pids = [int(folder.name) for folder in Path("/proc").iterdir() if folder.name.isdigit()]
    return [(pid, mark) for pid in pids if (mark := mark_of(pid)) is not None]


def mark_of(pid: int) -> str | None:
    """The mark that a process of this user carries."""
    prefix, folder = f"{MARKER}=".encode(), Path(f"/proc/{pid}")
    with suppress(OSError):
        if folder.stat().st_uid == os.getuid():
            for entry in (folder / "environ").read_bytes().split(b"\0"):
                if entry.startswith(prefix):
                    return entry[len(prefix) :].decode("utf-8", "replace")
    return None


def kill_marked(mark: str) -> int:
    """Kill everything that carries this mark, until nothing does; how many there were."""
    return _kill(mark.__eq__)


def sweep() -> int:
    """Kill what jobs of workers that are gone have left running on this machine; how many there were."""
    return _kill(_forsaken)


def _forsaken(mark: str) -> bool:
    """Whether the worker that it names is gone. One in a container of this machine has ids that mean nothing here."""
    worker, start, namespace, *_ = (*mark.split(":", 3), "", "")
    return worker.isdigit() and namespace == _namespace() and not lives(int(worker), start)


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
        struck = {(pid, at) for pid, at in found if at is not None and signal_process(pid, at, signal.SIGKILL)}
        if not struck:
            break
        killed |= struck
        sleep(0.01)
    return len(killed)
