"""One thread per connection: whole operations go there and their answers come back, one hop each way."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from ...core.errors import StoreUnavailable
from ..callers import AppThread
from .fork import Limiter

T = TypeVar("T")


class Withdrawn(Exception):
    """Nobody waits for this operation any more, and it has not begun."""


class Ticket(Generic[T]):
    """One operation on its way. Whoever calls `take` first has it: the thread to do it, or the loop to give it up."""

    __slots__ = ("_free", "future", "since", "work")

    def __init__(self, work: Callable[[Ticket[T]], T], future: asyncio.Future[T], since: float) -> None:
        self.work = work
        self.future = future
        self.since = since
        self._free = [True]

    def take(self) -> bool:
        try:
            return self._free.pop()
        except IndexError:
            return False

    def begin(self) -> None:
        """On the thread, just before the first effect: raises Withdrawn where the loop has given it up."""
        if not self.take():
            raise Withdrawn


class Line:
    """A thread that does operations in order, for one event loop.

    1. `run` sends an operation there and awaits its answer.
    2. `after`, where given, is called on the thread after each operation, once the answer is on its way.
    3. An operation that could not begin within `patience` seconds is given up with StoreUnavailable.
    4. `close` is the last thing that the thread does, also where the loop was closed or whoever asked was cancelled.
    """

    def __init__(
        self,
        name: str,
        limiter: Limiter,
        *,
        patience: float,
        blocked: str,
        close: Callable[[], object],
        after: Callable[[], None] | None = None,
    ) -> None:
        self._limiter = limiter
        self._queue: SimpleQueue[Ticket[Any] | None] = SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._patience = patience
        self._blocked = blocked
        self._close = close
        self._after = after
        self._pending: set[Ticket[Any]] = set()
        self._watch: asyncio.TimerHandle | None = None
        # A daemon, so that a program that forgot to close still ends.
        self._thread = AppThread(self._work, name)
        self._thread.start()

    def run(self, work: Callable[[Ticket[T]], T]) -> asyncio.Future[T]:
        """Do `work` on the thread; the future is its answer."""
        loop = self._loop
        ticket = Ticket(work, loop.create_future(), loop.time())
        self._pending.add(ticket)
        if self._watch is None:
            self._watch = loop.call_later(self._patience / 4, self._give_up)
        self._queue.put(ticket)
        return ticket.future

    def end(self) -> None:
        """Let the thread end after what is under way."""
        self._queue.put(None)
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    def _give_up(self) -> None:
        late = self._loop.time() - self._patience
        for ticket in [ticket for ticket in self._pending if ticket.since <= late and ticket.take()]:
            self._pending.discard(ticket)
            if not ticket.future.done():
                ticket.future.set_exception(StoreUnavailable(self._blocked))
        self._watch = self._loop.call_later(self._patience / 4, self._give_up) if self._pending else None

    def _work(self) -> None:
        try:
            self._work_off()
        finally:
            with self._limiter.held, suppress(sqlite3.Error):
                self._close()

    def _work_off(self) -> None:
        get, call = self._queue.get, self._loop.call_soon_threadsafe
        while (ticket := get()) is not None:
            answer, error = None, None
            try:
                with self._limiter.held:
                    answer = ticket.work(ticket)
            except Withdrawn:
                continue
            except BaseException as raised:  # noqa: BLE001  # it belongs to the caller, not to this thread
                error = raised
            try:
                call(self._deliver, ticket, answer, error)
            except RuntimeError:
                return  # the loop is closed: nobody is left to answer
            del ticket, answer, error
            if self._after is not None:
                with self._limiter.held:
                    self._after()

    def _deliver(self, ticket: Ticket[T], answer: T, error: BaseException | None) -> None:
        self._pending.discard(ticket)
        if ticket.future.done():
            return
        if error is None:
            ticket.future.set_result(answer)
        else:
            ticket.future.set_exception(error)
