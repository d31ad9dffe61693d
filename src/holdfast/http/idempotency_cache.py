"""Cache of answers by request id, for clients that did not receive the answer to their request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from ..core.clock import Clock
from ..core.errors import InvalidJob
from .call import Answer

KEPT_SECONDS = 60.0
"""Seconds for which an answer is cached: longer than a client repeats a request."""
KEPT_BYTES = 64 * 1024**2
"""Maximum bytes of cached answers; beyond, the oldest are dropped."""
ENTRY = 500
"""Approximate bytes of an entry in addition to the body."""
REQUEST_LIMIT = 64
"""Maximum characters of a request's id."""


class IdempotencyCache:
    """Executes each request id once, and caches the answer.

    The cache is local to this process: behind a load balancer, another server may get the repeated request. The store
    protocol defines which calls are safe to repeat; this cache only makes repeats rare.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[str, asyncio.Task[Answer]] = {}
        self._kept: dict[str, tuple[float, int]] = {}
        """Answered requests, oldest first: time and bytes."""
        self._bytes = 0

    async def once(self, request: str, make: Callable[[], Coroutine[Any, Any, Answer]]) -> Answer:
        """The answer to a request, executed unless it already was. It continues if the client disconnects."""
        if len(request) > REQUEST_LIMIT:
            raise InvalidJob(f"nothing was done: the id of a store call must have at most {REQUEST_LIMIT} characters")
        task = self._known.get(request)
        if task is None:
            task = self._known[request] = asyncio.create_task(make())
            task.add_done_callback(lambda done: self._keep(request, done))
        return await asyncio.shield(task)

    async def again(self, request: str) -> Answer | None:
        """The answer to an earlier request, awaited if it is still executing; None if unknown."""
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
