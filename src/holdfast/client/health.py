"""Conditions of an open store that may lose jobs. A server's settings can change, so they are checked repeatedly."""

from __future__ import annotations

import logging

from ..core.clock import Clock
from ..store.protocol import Finding, Store, Warns

logger = logging.getLogger("holdfast")
CHECK_EVERY = 30.0
"""Seconds between two checks of a store."""


class Health:
    """The warnings of one store. A new warning is logged, and so is its end."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._checked_at: float | None = None
        self._found: tuple[Finding, ...] = ()

    async def warnings(self) -> tuple[Finding, ...]:
        """Current conditions that may lose jobs, at most CHECK_EVERY seconds old."""
        store, now = self._store, self._clock.monotonic()
        if not isinstance(store, Warns):
            return ()
        if self._checked_at is None or now - self._checked_at >= CHECK_EVERY:
            before, self._found = self._found, tuple(await store.warnings())
            self._checked_at = now
            for one in self._found:
                if one not in before:
                    logger.warning("the %s store: %s; %s", store.name, one.what, one.advice)
            for one in before:
                if one not in self._found:
                    logger.info("the %s store: warning cleared: %s", store.name, one.what)
        return self._found
