"""CPU and memory of this process, for its heartbeats."""

from __future__ import annotations

import os

import msgspec

from ..core.operations import Holder


class ProcessUsage:
    """Measures the process between heartbeats."""

    def __init__(self) -> None:
        self._used, self._at = _times()

    def measured(self, holder: Holder) -> Holder:
        """The holder with what its process uses. For display only: no decision depends on it."""
        used, at = _times()
        cores = (used - self._used) / (at - self._at) if at > self._at else 0.0
        self._used, self._at = used, at
        return msgspec.structs.replace(holder, cpu=round(cores, 3), memory=resident() or 0)


def resident() -> int | None:
    """Resident memory of this process in bytes; None if the platform does not report it."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


def _times() -> tuple[float, float]:
    """Seconds of CPU that this process has used, and of real time."""
    times = os.times()
    return times.user + times.system, times.elapsed
