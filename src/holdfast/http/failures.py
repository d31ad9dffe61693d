"""Wrong tokens: a line in the log, and an answer that comes later and later, by address.

A token that is right is never slowed down, whatever else comes from its address: only the answer 401 waits.
"""

from __future__ import annotations

import asyncio
import logging

from ..core.clock import Clock
from .limits import LOG_EVERY

logger = logging.getLogger("holdfast.http")
FREE = 5
"""Wrong tokens of one address that are answered at once."""
FIRST_DELAY, LONGEST_DELAY = 0.1, 5.0
"""Seconds that the next one waits, and that none waits beyond; each waits twice as long as the one before."""
FORGOTTEN = 300.0
"""Seconds without a wrong token after which an address begins anew."""
ADDRESSES = 10_000
"""Addresses that are remembered; beyond, those that failed longest ago are forgotten."""
ANSWERS_WAITING = 256
"""Answers that wait at the same time, each on a connection of its own; beyond, they are given at once."""


class _Address:
    count = 0
    last = 0.0
    said = float("-inf")


class Failures:
    """Counts wrong tokens, and makes those who send many of them wait."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[str, _Address] = {}
        """By when they last failed, oldest first."""
        self._waiting = 0

    async def throttle(self, address: str) -> None:
        """Note that a wrong token came from here; returns when that may be answered."""
        delay = self.delay(address)
        if delay and self._waiting < ANSWERS_WAITING:
            self._waiting += 1
            try:
                await asyncio.sleep(delay)
            finally:
                self._waiting -= 1

    def delay(self, address: str) -> float:
        """Note that a wrong token came from here; the seconds after which that may be answered."""
        now = self._clock.monotonic()
        seen = self._known.pop(address, None)
        if seen is None or now - seen.last > FORGOTTEN:
            seen = _Address()
        self._known[address] = seen
        if len(self._known) > ADDRESSES:
            del self._known[next(iter(self._known))]
        seen.count, seen.last = seen.count + 1, now
        if now - seen.said >= LOG_EVERY:
            seen.said = now
            logger.warning("a wrong token from %s was refused (%d from there so far)", address, seen.count)
        return 0.0 if seen.count <= FREE else min(LONGEST_DELAY, FIRST_DELAY * 2.0 ** min(30, seen.count - FREE - 1))
