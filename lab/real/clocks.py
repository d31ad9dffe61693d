"""Wrong wall clocks: each process may have one that is off, and that jumps while it runs."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from random import Random

MINUTE = 60
OFFSETS = (-61 * MINUTE, 61 * MINUTE, 26 * 60 * MINUTE)
"""Seconds. None of them equals a threshold in the code, so that a comparison with one is not met by chance."""
LATE = max(OFFSETS) + 20 * MINUTE
"""A clock ahead of all others: what a wrong one has put off is due by it."""


class WrongClock:
    """The wall clock of one process, read from a file that the lab writes."""

    def __init__(self, file: Path, offset: int) -> None:
        self._file = file
        self.set(offset)

    def set(self, offset: int) -> None:
        """Seconds from the right time, from now on; negative is behind."""
        fresh = self._file.with_suffix(".new")
        fresh.write_text(f"{offset:+d}s\n")
        fresh.replace(self._file)  # a reader sees the old offset or the new one, never half of it

    def jump(self, chance: Random) -> None:
        """Be right, or wrong by another offset."""
        self.set(chance.choice((0, *OFFSETS)))

    @property
    def env(self) -> dict[str, str]:
        """What the process is started with. Monotonic and boot clocks stay right: they are the kernel's own."""
        return {
            "LD_PRELOAD": faketime() or "",
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }


def faketime() -> str | None:
    """The library that shifts a process's wall clock, where it is installed and fits this machine."""
    spec = find_spec("libfaketime")
    if spec is None or spec.origin is None or os.uname().machine != "x86_64":
        return None
    library = Path(spec.origin).parent / "vendor" / "libfaketime" / "src" / "libfaketime.so.1"
    return str(library) if library.exists() else None
