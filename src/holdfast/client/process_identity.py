"""Identifies the process of a claim, and proves that it has ended.

A pid alone does not identify a process: it is reused, and differs in every container. Together with the boot, the pid
and time namespaces, and the start time it identifies one process uniquely; and only a process of the same boot and
namespaces can look for it. Linux only: elsewhere no process is identified, and none is known to have ended.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from pathlib import Path

from ..core.clock import Clock


def own_process(clock: Clock) -> str:
    """This process, as `boot/pid namespace/time namespace/start`; "" where it cannot be identified."""
    return _identity(os.getpid(), clock.boot_id())


def is_gone(pid: int, identity: str, clock: Clock) -> bool:
    """Whether this process has provably ended; False if the calling process cannot know."""
    place, _, start = identity.rpartition("/")
    if pid <= 0 or not start or place != own_process(clock).rpartition("/")[0]:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        pass  # it exists and belongs to another user; or no such pid can exist, so the identity is invalid
    return _ended(pid) or _start(pid) not in (None, start)


@cache
def _identity(pid: int, boot_id: str) -> str:
    """Cached by pid: a forked child is another process."""
    if sys.platform != "linux" or boot_id in ("", "unknown"):
        return ""
    try:
        if str(Path("/proc/self").readlink()) != str(pid):  # the /proc of another namespace of pids
            return ""
        places = [str(Path(f"/proc/self/ns/{name}").readlink()) for name in ("pid", "time")]
    except OSError:
        return ""
    start = _start(pid)
    return "" if start is None else "/".join((boot_id, *places, start))


def _stat(pid: int) -> list[bytes]:
    """The fields of a process from its state on; [] where it cannot be seen."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return []


def _start(pid: int) -> str | None:
    fields = _stat(pid)
    return fields[19].decode() if len(fields) > 19 else None


def _ended(pid: int) -> bool:
    """Whether the process is a zombie and has no other running thread."""
    fields = _stat(pid)
    if not fields or fields[0] not in (b"Z", b"X"):
        return False
    try:
        return [thread.name for thread in Path(f"/proc/{pid}/task").iterdir()] == [str(pid)]
    except OSError:
        return False
