"""The listener that every store returns: one wake-up for all notifications since the last wait."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

LINGER = 2.0
"""Seconds for which a store stays subscribed without listeners: usually the next listener comes soon."""


class LocalListener:
    """A listener for these topics, on the loop that makes it. `closed` is called with it when it is closed.

    `reliable` is given its topics; see `Listener.reliable`.
    """

    def __init__(
        self,
        topics: frozenset[str],
        closed: Callable[[Any], object],
        reliable: Callable[[frozenset[str]], bool] = lambda _: False,
    ) -> None:
        self.topics = topics
        self._reliable = reliable
        self.event = asyncio.Event()
        """Set to notify the listener from its own loop."""
        self._loop = asyncio.get_running_loop()
        self._closed = closed

    def notify(self) -> None:
        """Notify the listener from any thread."""
        with contextlib.suppress(RuntimeError):  # its loop was closed
            self._loop.call_soon_threadsafe(self.event.set)

    @property
    def reliable(self) -> bool:
        return self._reliable(self.topics)

    async def wait(self, timeout: float) -> bool:
        return await wait_for(self.event, timeout)

    def close(self) -> None:
        self._closed(self)


async def wait_for(event: asyncio.Event, timeout: float) -> bool:
    """Wait until a listener's event is set, `timeout` seconds at most, and clear it; returns whether it was set."""
    if not event.is_set():
        try:
            async with asyncio.timeout(timeout):
                await event.wait()
        except TimeoutError:
            pass
    notified = event.is_set()
    event.clear()
    return notified
