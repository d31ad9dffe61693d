"""Calls to an event loop of another thread, awaited or blocking; and the background loop of an app.

No caller waits for ever: if that loop ends first, the error states whether the call had begun.
"""

from __future__ import annotations

import asyncio
import math
import sys
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Generic, Protocol, TypeVar

from ..core.errors import OutcomeUnknown
from ..store.callers import AppThread

R = TypeVar("R")
LOOP_EVERY = 1.0
"""Seconds between two checks whether the target loop still runs."""
CALLS_LINGER = 5.0
"""Seconds for which calls may continue after an app was closed, before they are cancelled."""


class NotStarted(Exception):
    """That loop ended, or the app left it, before the call began: nothing was done, and another loop can run it."""


class LoopEnded(OutcomeUnknown):
    """That loop ended during the call."""

    retry_safe = False

    def __init__(self) -> None:
        message = (
            "the app's event loop ended during a call; the call may have written: check the store before you repeat it"
        )
        super().__init__(message, retry_safe=False)


class Answer(Protocol):
    """What a blocking caller waits for: a lock that is held until the call has ended."""

    def acquire(self, *, timeout: float) -> bool: ...

    def release(self) -> None: ...


def held_lock() -> Answer:
    """A lock that is held."""
    lock = threading.Lock()
    lock.acquire()
    return lock


class LoopCall(Generic[R]):
    """A coroutine on its way to another thread's loop. It is taken once: by that loop, or by its withdrawal."""

    __slots__ = ("_coroutine", "_free", "_notify", "_undelivered", "task")

    def __init__(
        self,
        coroutine: Coroutine[Any, Any, R],
        notify: Callable[[asyncio.Task[R]], object],
        undelivered: Callable[[R], object] | None = None,
    ) -> None:
        self._coroutine = coroutine
        self._free = [True]
        self._notify = notify
        self._undelivered = undelivered
        self.task: asyncio.Task[R] | None = None

    def send(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            loop.call_soon_threadsafe(self._start)
        except RuntimeError:  # it is closed
            self.withdraw()
            raise NotStarted from None

    def _start(self) -> None:
        if self._take():
            self.task = asyncio.get_running_loop().create_task(self._coroutine)
            self.task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[R]) -> None:
        if not task.cancelled():
            task.exception()  # its caller may be gone, so the exception would be reported as never retrieved
        self._notify(task)

    def _take(self) -> bool:
        try:
            return self._free.pop()
        except IndexError:
            return False

    def withdraw(self) -> bool:
        """Withdraw it; False if it has begun."""
        if not self._take():
            return False
        self._coroutine.close()
        return True

    def cancel(self, loop: asyncio.AbstractEventLoop) -> None:
        """Cancel it: its caller no longer waits."""
        if not self.withdraw():
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        if self.task is not None:
            self.task.cancel()
            self.task.add_done_callback(self._drop)

    def _drop(self, task: asyncio.Task[R]) -> None:
        if not task.cancelled() and task.exception() is None and self._undelivered is not None:
            self._undelivered(task.result())

    def lost(self) -> Exception:
        """The error to raise if the loop has ended."""
        return NotStarted() if self.withdraw() else LoopEnded()

    def result(self) -> R:
        """The result, after the task has ended."""
        assert self.task is not None
        if self.task.cancelled():
            raise LoopEnded
        return self.task.result()


async def call_on_loop(
    coroutine: Coroutine[Any, Any, R], loop: asyncio.AbstractEventLoop, undelivered: Callable[[R], object] | None = None
) -> R:
    """Run a coroutine on another thread's loop, with this caller's context variables, and await its result.

    `undelivered` is called there with the result of a call whose caller was cancelled meanwhile.
    """
    here = asyncio.get_running_loop()
    answered = here.create_future()

    def notify(_: object) -> None:
        with suppress(RuntimeError):  # the caller's loop has ended
            here.call_soon_threadsafe(wake)

    def wake() -> None:
        if not answered.done():
            answered.set_result(None)

    def look() -> None:
        nonlocal watch
        if loop.is_running():
            watch = here.call_later(LOOP_EVERY, look)
        elif not answered.done():
            answered.set_exception(call.lost())

    call = LoopCall(coroutine, notify, undelivered)
    call.send(loop)
    watch = here.call_later(LOOP_EVERY, look)
    try:
        await answered
    except asyncio.CancelledError:
        call.cancel(loop)
        raise
    finally:
        watch.cancel()
    return call.result()


def run_on_loop(
    coroutine: Coroutine[Any, Any, R],
    loop: asyncio.AbstractEventLoop,
    undelivered: Callable[[R], object] | None,
    answered: Answer,
) -> R:
    """The same, blocking: one lock instead of a chain of futures. Interrupting the wait cancels the call."""
    call = LoopCall(coroutine, lambda _: answered.release(), undelivered)
    call.send(loop)
    try:
        while not answered.acquire(timeout=LOOP_EVERY):
            if not loop.is_running() or sys.is_finalizing():
                raise call.lost()  # noqa: TRY301
    except BaseException:
        call.cancel(loop)
        raise
    return call.result()


class BackgroundLoop:
    """An event loop on its own daemon thread, so that a program that does not close it still exits."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        self._linger: float | None = None
        self._running = threading.Event()
        self.thread = AppThread(self._run, "holdfast-loop", runs_loop=True)
        self.thread.start()
        self._running.wait()

    def stop(self, linger: float | None = CALLS_LINGER) -> None:
        """Stop when no call is left; calls left after `linger` seconds are cancelled. From any thread."""
        self._linger = linger
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self._stopping.set)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_until_complete(self._serve())
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        finally:
            self.loop.close()

    async def _serve(self) -> None:
        self._running.set()
        await self._stopping.wait()
        deadline = math.inf if self._linger is None else self.loop.time() + self._linger
        while left := self._others():  # including those that arrived meanwhile
            rest = deadline - self.loop.time()
            if rest <= 0:
                for task in left:
                    task.cancel()
            await asyncio.wait(left, timeout=rest if 0 < rest < math.inf else None)

    def _others(self) -> set[asyncio.Task[Any]]:
        return asyncio.all_tasks() - {task for task in (asyncio.current_task(),) if task is not None}
