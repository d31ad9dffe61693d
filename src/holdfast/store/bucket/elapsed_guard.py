"""Elapsed-time guard: an upper bound of the time since a moment, which protects against paused writers."""

from __future__ import annotations

from typing import NamedTuple

from ...core.clock import MICROS, Clock


class Moment(NamedTuple):
    """One instant on three clocks of a machine. Each may stop or jump, but not all at once."""

    monotonic: float
    boot: int
    wall: int

    @classmethod
    def of(cls, clock: Clock) -> Moment:
        return cls(clock.monotonic(), clock.boot(), clock.now())

    def until(self, later: Moment) -> float:
        """Seconds from here to `later`: the largest of the three answers."""
        return max(
            later.monotonic - self.monotonic, (later.boot - self.boot) / MICROS, (later.wall - self.wall) / MICROS
        )
