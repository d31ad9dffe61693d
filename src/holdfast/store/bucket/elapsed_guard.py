"""How much time has passed, at the most: what the guard against paused writers believes."""

from __future__ import annotations

from typing import NamedTuple

from ...core.clock import MICROS, Clock


class Moment(NamedTuple):
    """One instant on all three clocks of a machine. Any of them may stand still or jump; not all at once, unnoticed."""

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
