"""A look at a process from outside: its memory, its CPU time and how often it wakes up."""

from __future__ import annotations

import subprocess
from contextlib import suppress
from pathlib import Path


def family(pid: int) -> list[int]:
    """A process and all its descendants: a supervisor and its workers, a server and its backends."""
    asked = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False)
    return [pid, *[one for child in asked.stdout.split() for one in family(int(child))]]


def resident_megabytes(pid: int) -> float:
    """Resident memory in millions of bytes."""
    return _status(pid, "VmRSS", "rss") * 1024 / 1e6


def peak_megabytes(pid: int) -> float:
    """The most that was resident since the process began, or since `reset_peak`; elsewhere than on Linux, now."""
    return _status(pid, "VmHWM", "rss") * 1024 / 1e6


def reset_peak(pid: int) -> None:
    with suppress(OSError):  # not on Linux, or the process of another user
        Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="ascii")


def proportional_megabytes(pid: int) -> float:
    """Memory in millions of bytes, where pages that several processes share are divided among them (PSS)."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    except OSError:
        return resident_megabytes(pid)
    return int(next(line for line in lines if line.startswith("Pss:")).split()[1]) * 1024 / 1e6


def _status(pid: int, name: str, column: str) -> int:
    """Kibibytes by a name of /proc, or by a column of `ps`."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
        return int(next(line for line in lines if line.startswith(f"{name}:")).split()[1])
    except OSError:
        return int(_ps(pid, column))


def wake_ups(pid: int) -> int:
    """How often threads that live have gone to sleep and were woken, so far; 0 where only Linux would know."""
    found = 0
    for thread in Path(f"/proc/{pid}/task").glob("*/status"):
        with suppress(OSError):  # it has ended
            found += int(thread.read_text(encoding="ascii").partition("\nvoluntary_ctxt_switches:")[2].split()[0])
    return found


def cpu_seconds(pid: int) -> float:
    """CPU time of all threads that live, so far."""
    threads = list(Path(f"/proc/{pid}/task").glob("*/schedstat"))
    if threads:
        return sum(int(thread.read_text(encoding="ascii").split()[0]) for thread in threads) / 1e9
    *hours, minutes, seconds = _ps(pid, "time").replace("-", ":").split(":")
    return sum(int(part) * 3600 for part in hours[-1:]) + int(minutes) * 60 + float(seconds)


def _ps(pid: int, column: str) -> str:
    return subprocess.run(["ps", "-o", f"{column}=", "-p", str(pid)], capture_output=True, text=True, check=True).stdout
