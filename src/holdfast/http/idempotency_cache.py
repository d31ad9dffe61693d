"""Answers that are kept for a while, by request id, for a client that never received them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from ..core.clock import Clock
from ..core.errors import InvalidJob
from .call import Answer

KEPT_SECONDS = 60.0
"""Seconds for which an answer is remembered: longer than a client repeats a request."""
KEPT_BYTES = 64 * 1024**2
"""Bytes of answers that are remembered together; beyond, the oldest are forgotten."""
ENTRY = 500
"""Bytes that an answer takes beside its body, about."""
REQUEST_LIMIT = 64
"""Characters of a request's id."""


class Recall:
    """Makes each request once, however often it comes, and remembers what it was answered.

    Only this process does: behind a balancer another one may be asked, and then nobody knows. What is safe to be sent
    again is in the store protocol; this only spares most clients from it.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[str, asyncio.Task[Answer]] = {}
        self._kept: dict[str, tuple[float, int]] = {}
        """Those that are answered, oldest first: when, and how many bytes."""
        self._bytes = 0

    async def once(self, request: str, make: Callable[[], Coroutine[Any, Any, Answer]]) -> Answer:
        """The answer to this request, which is made now unless it was. It goes on when its client is gone."""
        if len(request) > REQUEST_LIMIT:
            raise InvalidJob(f"a request's id has at most {REQUEST_LIMIT} characters, not {len(request)}")
        task = self._known.get(request)
        if task is None:
            task = self._known[request] = asyncio.create_task(make())
            task.add_done_callback(lambda done: self._keep(request, done))
        return await asyncio.shield(task)

    async def again(self, request: str) -> Answer | None:
        """The answer to a request that came before, awaited where it is being made; None where it is not known."""
        task = self._known.get(request)
        return None if task is None else await asyncio.shield(task)

    def _keep(self, request: str, task: asyncio.Task[Answer]) -> None:
        if task.cancelled() or task.exception() is not None:
            del self._known[request]
            return
        now = self._clock.monotonic()
        size = len(task.result().body) + ENTRY
        self._kept[request] = (now, size)
        self._bytes += size
        while self._kept:
            oldest = next(iter(self._kept))
            at, size = self._kept[oldest]
            if now - at <= KEPT_SECONDS and self._bytes <= KEPT_BYTES:
                return
            del self._kept[oldest], self._known[oldest]
            self._bytes -= size
