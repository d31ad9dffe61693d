"""The listener that every store makes: it rings once for whatever happened since its listener last looked."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

LINGER = 2.0
"""Seconds for which a store stays subscribed when nobody listens any more: the next listener comes soon, as a rule."""


class LocalListener:
    """A listener for these topics, on the loop of whoever listens. `let_go` is told when it is closed."""

    def __init__(self, topics: frozenset[str], let_go: Callable[[Any], object]) -> None:
        self.topics = topics
        self.event = asyncio.Event()
        """Set to ring it, on its own loop."""
        self._loop = asyncio.get_running_loop()
        self._let_go = let_go

    def notify(self) -> None:
        """Ring it from any thread."""
        with contextlib.suppress(RuntimeError):  # its loop was closed: nobody listens any more
            self._loop.call_soon_threadsafe(self.event.set)

    async def wait(self, timeout: float) -> None:
        await wait_for(self.event, timeout)

    def close(self) -> None:
        self._let_go(self)


async def wait_for(event: asyncio.Event, timeout: float) -> None:
    """Wait until a listener's event is set, `timeout` seconds at most, and clear it."""
    if not event.is_set():
        try:
            async with asyncio.timeout(timeout):
                await event.wait()
        except TimeoutError:
            pass
    event.clear()
