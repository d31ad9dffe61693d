"""A clock that tests advance manually."""

from __future__ import annotations

from ..core.clock import MICROS

EPOCH = 1_750_000_000 * MICROS
"""Where a manual clock starts: a day in June 2025, in microseconds."""


class ManualClock:
    """A holdfast.core.clock.Clock for tests: time passes only by `advance`."""

    def __init__(self, now: int = EPOCH) -> None:
        self._now = now
        self._monotonic = 1_000.0
        self._boot = 1_000 * MICROS
        self._boots = 1

    def now(self) -> int:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    def boot(self) -> int:
        return self._boot

    def boot_id(self) -> str:
        return f"boot-{self._boots}"

    def advance(self, seconds: float) -> None:
        """Let time pass, on all three clocks."""
        if seconds < 0:
            raise ValueError("advance() takes no negative seconds: use jump_wall() to set the wall clock back")
        micros = round(seconds * MICROS)
        self._now += micros
        self._boot += micros
        self._monotonic += seconds

    def jump_wall(self, seconds: float) -> None:
        """Set the wall clock forward or back, as an operator or NTP does; no time passes."""
        self._now += round(seconds * MICROS)

    def reboot(self) -> None:
        """Start the boot clock again under a new name, as a machine that was restarted; the wall clock continues."""
        self._boot = MICROS
        self._boots += 1
