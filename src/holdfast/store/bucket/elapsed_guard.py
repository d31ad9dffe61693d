"""Elapsed-time guard: an upper bound of the time that has passed, which protects against paused writers."""

from __future__ import annotations

from typing import NamedTuple

from ...core.clock import MICROS, Clock


class Instant(NamedTuple):
    """One instant on three clocks of a machine. Each may stop or jump, but not all at once."""

    monotonic: float
    boot: int
    wall: int

    @classmethod
    def of(cls, clock: Clock) -> Instant:
        return cls(clock.monotonic(), clock.boot(), clock.now())

    def until(self, later: Instant) -> float:
        """Seconds from this instant to `later`: the largest difference of the three clocks."""
        return max(
            later.monotonic - self.monotonic, (later.boot - self.boot) / MICROS, (later.wall - self.wall) / MICROS
        )
