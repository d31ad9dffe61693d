"""Ends that other threads wait for: of a task on a loop, and of a loop itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from ..core.clock import SystemClock
from .loop_calls import CALLS_LINGER, LOOP_EVERY, BackgroundLoop, NotStarted


class Ending:
    """The end of a task of one loop, for all threads; and of the app's background loop, if one is given."""

    def __init__(self, loop: asyncio.AbstractEventLoop, background: BackgroundLoop | None = None) -> None:
        self._loop = loop
        self._background = background
        self._over: Future[None] = Future()
        self._task: asyncio.Task[Any] | None = None
        """Kept alive for its own coroutine, which has this object. Where a loop is closed half-way, the collector ends
        the coroutine, and Python 3.11 crashes if the last reference to the task is that of a timeout inside it."""

    def start(self, work: Callable[[], Coroutine[Any, Any, object]], linger: float | None = CALLS_LINGER) -> None:
        """Start on the loop, from any thread; afterwards, stop the app's background loop (see its `stop`)."""

        def begin() -> None:
            task = self._loop.create_task(work())
            if background is not None:
                stop = background.stop
                task.add_done_callback(lambda _: stop(linger))
            self.follow(task)

        background = self._background
        if asyncio._get_running_loop() is self._loop:  # pyright: ignore[reportPrivateUsage]  # noqa: SLF001
            begin()
        else:
            with suppress(RuntimeError):  # it is closed, which the waiter will see
                self._loop.call_soon_threadsafe(begin)

    def follow(self, task: asyncio.Task[Any]) -> None:
        """End when this task ends."""
        self._task = task
        task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[Any]) -> None:
        self._task = None
        error = NotStarted() if task.cancelled() else task.exception()
        if error is None:
            self._over.set_result(None)
        else:
            self._over.set_exception(error)

    def done(self) -> bool:
        return self._over.done()

    async def ended(self) -> bool:
        """Wait for the task, and raise its error; False if its loop has ended first."""
        over = asyncio.wrap_future(self._over)
        over.add_done_callback(lambda over: over.cancelled() or over.exception())  # the waiter may be cancelled
        while not over.done():
            if not self._loop.is_running() and not self._over.done():
                return False
            await asyncio.wait([over], timeout=LOOP_EVERY)
        over.result()
        return True

    async def thread_ended(self) -> None:
        """Wait until the app's background loop has ended too; not on that loop itself."""
        background = self._background
        if background is not None and background.loop is not asyncio.get_running_loop():
            while background.thread.is_alive():  # noqa: ASYNC110  # a thread sets no event of this loop as it ends
                await asyncio.sleep(0.001)

    def wait(self, limit: float | None = None) -> bool:
        """The same, blocking; False also if it has not ended within `limit` seconds."""
        clock = SystemClock()
        deadline = None if limit is None else clock.monotonic() + limit
        while not self._over.done():
            left = LOOP_EVERY if deadline is None else min(LOOP_EVERY, deadline - clock.monotonic())
            if left <= 0 or not self._loop.is_running():
                return False
            with suppress(TimeoutError):
                self._over.exception(left)
        if self._background is not None:
            self._background.thread.join(None if deadline is None else max(0.0, deadline - clock.monotonic()))
        self._over.result()
        return True


class LoopEnd:
    """Calls `close` when the running loop is shut down, as `asyncio.run` and servers do.

    A loop closes its async generators at shutdown: this is one that waits for that.
    """

    def __init__(self, close: Callable[[], Awaitable[object]]) -> None:
        self._close: Callable[[], Awaitable[object]] | None = close
        self._generator: AsyncGenerator[None, None] | None = None

    async def watch(self) -> None:
        self._generator = self._wait()
        await anext(self._generator)

    async def _wait(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            if self._close is not None:
                await self._close()

    def cancel(self) -> None:
        """Stop waiting. From any thread."""
        self._close, generator, self._generator = None, self._generator, None
        if generator is not None:
            with suppress(StopIteration, RuntimeError):  # it is being closed by the loop at this moment
                generator.aclose().__await__().__next__()
