"""Runs synchronous task functions in threads."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

from ...core.clock import Clock
from .ahead import NotStarted
from .run import Run

Call = tuple[asyncio.Future[Any], Run | None, contextvars.Context, Callable[..., Any], tuple[Any, ...], dict[str, Any]]


class Threads:
    """As many threads as the worker has slots, started when they are needed.

    Calls that end while the loop is busy are answered together: a wake-up of the loop for each of them would cost more
    than a short task. The threads are daemons: one that ignores its cancellation does not keep the process.
    """

    def __init__(self, count: int, clock: Clock) -> None:
        self._loop = asyncio.get_running_loop()
        self._count = count
        self._clock = clock
        self._threads: list[threading.Thread] = []
        self._calls: SimpleQueue[Call | None] = SimpleQueue()
        self._ended: deque[tuple[asyncio.Future[Any], Any, BaseException | None]] = deque()
        self._unanswered = 0
        """Calls whose answer the loop has not seen; counted on the loop."""
        self.answered = 0
        """Calls whose answer it has seen."""
        self._notified = False
        """Whether the loop is about to look at what has ended."""
        self._closed = False

    @property
    def waiting(self) -> int:
        """Calls that wait for a thread."""
        return self._calls.qsize()

    def call(
        self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], run: Run | None = None
    ) -> asyncio.Future[Any]:
        """Call a function in a thread; for a run that was claimed ahead, unless it is taken back before."""
        if self._closed:
            raise RuntimeError("the worker has stopped, so this function was not called")
        future = self._loop.create_future()
        self._unanswered += 1
        if run is not None and run.ahead is not None:
            run.ahead.future = future
        self._send((future, run, contextvars.copy_context(), fn, args, kwargs))
        return future

    def _send(self, call: Call) -> None:
        """Pass a call to a thread."""
        if len(self._threads) < min(self._count, self._unanswered):
            thread = threading.Thread(target=self._work, name=f"holdfast-task_{len(self._threads)}", daemon=True)
            thread.start()
            self._threads.append(thread)
        self._calls.put(call)

    def resize(self, count: int) -> None:
        """Start up to so many threads; those beyond it stay, without calls."""
        self._count = count

    def close(self) -> None:
        """Accept no more calls; running threads are not waited for."""
        self._closed = True
        with suppress(Empty):
            while (call := self._calls.get_nowait()) is not None:
                call[0].cancel()
        for _ in self._threads:
            self._calls.put(None)

    def _work(self) -> None:
        """Make calls until the end; in a thread."""
        while (call := self._calls.get()) is not None:
            self._make(call)
            del call  # not kept until the next one

    def _make(self, call: Call) -> None:
        """Make one call, and tell the loop how it ended."""
        value, error = None, None
        future, run, context, fn, args, kwargs = call
        if run is not None and run.ahead is not None and not run.ahead.start():
            error = NotStarted()
        elif not future.cancelled():
            began = self._clock.monotonic()
            if run is not None:
                run.thread = threading.get_ident()
            try:
                value = context.run(fn, *args, **kwargs)
            except (StopIteration, GeneratorExit) as raised:
                # A future cannot carry these: the waiting coroutine would take them for its own end.
                error = RuntimeError(
                    f"the task raised {raised!r}, which asyncio cannot pass on: raise another exception"
                )
                error.__cause__ = raised
            except BaseException as raised:  # noqa: BLE001  # whatever user code raises ends that one job
                error = raised
            if run is not None:
                run.thread = None
                run.took = self._clock.monotonic() - began
        self._ended.append((future, value, error))
        del call, future, run, context, fn, args, kwargs, value, error  # a traceback has this frame: no cycles
        if not self._notified:
            self._notified = True
            with suppress(RuntimeError):  # the loop was closed under the worker
                self._loop.call_soon_threadsafe(self._answer)

    def _answer(self) -> None:
        # First: a call that ends from now on notifies again.
        self._notified = False
        while self._ended:
            future, value, error = self._ended.popleft()
            self._unanswered -= 1
            self.answered += 1
            if future.done():
                continue  # cancelled meanwhile
            if error is None:
                future.set_result(value)
            else:
                future.set_exception(error)
