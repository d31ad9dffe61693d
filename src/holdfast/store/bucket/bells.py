"""Bells of a bucket store, rung from the engine's thread, heard on the loop of whoever listens."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable


class Bell:
    """One listener; may be rung from any thread."""

    def __init__(self, bells: Bells, topics: frozenset[str]) -> None:
        self._bells = bells
        self.topics = topics
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    def ring(self) -> None:
        with contextlib.suppress(RuntimeError):  # its loop was closed: nobody listens any more
            self._loop.call_soon_threadsafe(self._event.set)

    async def wait(self, timeout: float) -> None:
        try:
            async with asyncio.timeout(timeout):
                await self._event.wait()
        except TimeoutError:
            pass
        self._event.clear()

    def close(self) -> None:
        self._bells.remove(self)


class Bells:
    """All listeners of one engine."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bells: set[Bell] = set()
        self.heard: Callable[[], object] = _nobody
        """Called, on whatever thread, when somebody begins to listen."""

    def __bool__(self) -> bool:
        return bool(self._bells)

    def make(self, topics: frozenset[str]) -> Bell:
        bell = Bell(self, topics)
        with self._lock:
            self._bells.add(bell)
        with contextlib.suppress(RuntimeError):  # the engine has ended
            self.heard()
        return bell

    def remove(self, bell: Bell) -> None:
        with self._lock:
            self._bells.discard(bell)

    def ring(self, topics: set[str]) -> None:
        with self._lock:
            rung = [bell for bell in self._bells if not bell.topics.isdisjoint(topics)]
        for bell in rung:
            bell.ring()


def _nobody() -> None:
    """There is no engine yet."""
