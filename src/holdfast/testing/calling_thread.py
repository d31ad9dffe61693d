"""Runs plain functions in the thread that waits for their jobs, as the blocking code of a test does."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

from ..client.loop_calls import Answer
from ..worker import Worker
from ..worker.run.run import Run
from ..worker.run.thread import Call, Threads

_waiting: ContextVar[WaitingCaller | None] = ContextVar("holdfast_waiting_caller", default=None)
"""The blocking caller that waits for the code of this context."""
_thread = threading.local()
"""`busy`: the blocking caller that makes a call in this thread."""
SHORT_CALL = 0.2
"""Seconds after which a blocking call inside another one may wait for jobs that only their thread can run."""


class WaitingCaller:
    """What a blocking caller waits for. Meanwhile it makes the calls that it is given."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._interrupted: KeyboardInterrupt | None = None
        self._outer: WaitingCaller | None = getattr(_thread, "busy", None)
        self.waits = True
        _waiting.set(self)  # of the coroutine that the caller is about to send to the loop

    def post(self, call: Callable[[], None]) -> None:
        """Make this call in the caller's thread."""
        self._calls.put(call)

    def release(self) -> None:
        self.waits = False
        self._calls.put(None)

    def acquire(self, *, timeout: float) -> bool:
        outer = self._outer
        try:
            return self._next(timeout if outer is None else SHORT_CALL)
        except Empty:
            if outer is not None:
                outer.make_one()
            return False

    def _next(self, timeout: float) -> bool:
        """Make the next call; True if there is none because the wait is over."""
        call = self._calls.get(timeout=timeout)
        if call is None:
            return True
        call()
        if self._interrupted is not None:
            raise KeyboardInterrupt from self._interrupted
        return False

    def make_one(self) -> None:
        """Make a call inside another, which may wait for it."""
        with suppress(Empty):
            if self._next(0):
                self._calls.put(None)

    def run(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call a function in its job's context, in which this caller does not wait: it is busy with this call."""
        _waiting.set(None)
        before, _thread.busy = getattr(_thread, "busy", None), self
        try:
            return fn(*args, **kwargs)
        except KeyboardInterrupt as interrupted:
            self._interrupted = interrupted
            raise
        finally:
            _thread.busy = before


class CallingThread(Threads):
    """Calls functions in the thread of the blocking caller; in separate threads if an event loop awaits them."""

    def _send(self, call: Call) -> None:
        caller = _waiting.get()
        if caller is None or not caller.waits:
            super()._send(call)
            return
        future, run, context, fn, args, kwargs = call
        restart = None if run is None or not run.timers else self._stopped_timeout(run.timers, run)

        def make() -> None:
            if restart is not None:
                self._loop.call_soon_threadsafe(restart)
            self._make((future, run, context, partial(caller.run, fn), args, kwargs))

        caller.post(make)

    def _stopped_timeout(self, timers: dict[str, asyncio.TimerHandle], run: Run) -> Callable[[], None] | None:
        """Stop the timeout of a run, which waits for other functions; returns what starts it again."""
        if (timer := timers.get("timeout")) is None:
            return None
        left = timer.when() - self._loop.time()
        timer.cancel()

        def restart() -> None:
            timers["timeout"] = self._loop.call_later(left, run.stop, "timeout")

        return restart


class BenchWorker(Worker):
    """A worker that runs plain functions in the thread of its blocking caller."""

    threads_class = CallingThread


def new_answer() -> Answer:
    """What blocking callers of an app wait for in a test."""
    return WaitingCaller()
