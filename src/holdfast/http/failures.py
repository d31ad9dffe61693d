"""Throttling of wrong tokens: a log line, and an answer delayed more and more, by address.

Only 401 answers are delayed; requests with a valid token from the same address are not.
"""

from __future__ import annotations

import asyncio
import logging

from ..core.clock import Clock
from .limits import LOG_EVERY

logger = logging.getLogger("holdfast.http")
FREE = 5
"""Wrong tokens of one address that are answered without delay."""
FIRST_DELAY, LONGEST_DELAY = 0.1, 5.0
"""First and maximum delay in seconds; each delay is twice the one before."""
FORGOTTEN = 300.0
"""Seconds without a wrong token after which the count of an address is reset."""
ADDRESSES = 10_000
"""Maximum number of tracked addresses; the least recent are dropped."""
ANSWERS_WAITING = 256
"""Maximum number of delayed answers; further ones are sent at once."""


class _Address:
    count = 0
    last = 0.0
    logged = float("-inf")


class Failures:
    """Counts wrong tokens by address and delays their answers."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[str, _Address] = {}
        """By address, least recent failure first."""
        self._waiting = 0

    async def throttle(self, address: str) -> None:
        """Record a wrong token from an address, and sleep until it may be answered."""
        delay = self.delay(address)
        if delay and self._waiting < ANSWERS_WAITING:
            self._waiting += 1
            try:
                await asyncio.sleep(delay)
            finally:
                self._waiting -= 1

    def delay(self, address: str) -> float:
        """Record a wrong token from an address; returns the seconds until it may be answered."""
        now = self._clock.monotonic()
        seen = self._known.pop(address, None)
        if seen is None or now - seen.last > FORGOTTEN:
            seen = _Address()
        self._known[address] = seen
        if len(self._known) > ADDRESSES:
            del self._known[next(iter(self._known))]
        seen.count, seen.last = seen.count + 1, now
        if now - seen.logged >= LOG_EVERY:
            seen.logged = now
            logger.warning(
                "request from %s refused: wrong token (wrong tokens from this address so far: %d); correct the token of"
                " this client, or block the address",
                address,
                seen.count,
            )
        return 0.0 if seen.count <= FREE else min(LONGEST_DELAY, FIRST_DELAY * 2.0 ** min(30, seen.count - FREE - 1))
