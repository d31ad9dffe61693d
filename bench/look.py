"""A look at a process from outside: its memory and its CPU time."""

from __future__ import annotations

import subprocess
from pathlib import Path


def working_process(pid: int) -> int:
    """The process that does the work: the child of a supervisor that has one, else the process itself."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    except OSError:
        children = _children(pid)
    return int(children[0]) if children else pid


def _children(pid: int) -> list[str]:
    asked = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False)
    return asked.stdout.split()


def resident_megabytes(pid: int) -> float:
    """Resident memory in millions of bytes."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
        kibibytes = int(next(line for line in lines if line.startswith("VmRSS:")).split()[1])
    except OSError:
        kibibytes = int(_ps(pid, "rss"))
    return kibibytes * 1024 / 1e6


def cpu_seconds(pid: int) -> float:
    """CPU time of all threads that live, so far."""
    threads = list(Path(f"/proc/{pid}/task").glob("*/schedstat"))
    if threads:
        return sum(int(thread.read_text(encoding="ascii").split()[0]) for thread in threads) / 1e9
    *hours, minutes, seconds = _ps(pid, "time").replace("-", ":").split(":")
    return sum(int(part) * 3600 for part in hours[-1:]) + int(minutes) * 60 + float(seconds)


def _ps(pid: int, column: str) -> str:
    return subprocess.run(["ps", "-o", f"{column}=", "-p", str(pid)], capture_output=True, text=True, check=True).stdout
