"""One thread per connection: it runs whole operations, and passes their answers back to the event loop."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from ...core.errors import StoreUnavailable
from ..callers import AppThread, marked, may_be_interrupted
from .fork import ForkLock

T = TypeVar("T")
LOOK_EVERY = 1.0
"""Seconds between two checks of a blocking caller whether its operation can still begin."""


class Withdrawn(Exception):
    """The caller no longer waits for this operation, and it has not begun."""


class Ticket(Generic[T]):
    """A pending operation. The first caller of `take` decides: the thread runs it, or the loop gives it up."""

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
        """Called on the thread just before the first effect; raises Withdrawn if the loop has given it up."""
        if not self.take():
            raise Withdrawn


class BlockingTicket(Ticket[T]):
    """A pending operation whose caller waits without an event loop."""

    __slots__ = ("_answered", "answer", "error")

    def __init__(self, work: Callable[[Ticket[T]], T]) -> None:
        self.work = work
        self._free = [True]
        self.answer: T | None = None
        self.error: BaseException | None = None
        self._answered = threading.Lock()
        self._answered.acquire()

    def deliver(self, answer: T | None, error: BaseException | None) -> None:
        self.answer, self.error = answer, error
        self._answered.release()

    def wait(self, seconds: float) -> bool:
        return self._answered.acquire(timeout=seconds)


class OperationThread:
    """A thread that runs operations in order, for one event loop.

    1. `run` passes an operation to the thread and returns a future of its answer.
    2. `after`, if given, is called on the thread after each operation, once its answer has been passed back.
    3. An operation that could not begin within `patience` seconds fails with StoreUnavailable.
    4. The thread calls `close` last, also if the loop was closed or the caller was cancelled.
    5. `run_blocking` runs an operation for another thread, which waits for its answer.
    6. `run_here` runs one on the caller's own thread while this one is idle. If `due` says so then, `after` follows.
    """

    def __init__(
        self,
        name: str,
        fork_lock: ForkLock,
        *,
        patience: float,
        blocked: str,
        close: Callable[[], object],
        after: Callable[[], None] | None = None,
        due: Callable[[], bool] = bool,
    ) -> None:
        self._fork_lock = fork_lock
        self._queue: SimpleQueue[Ticket[Any] | None] = SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._patience = patience
        self._blocked = blocked
        self._close = close
        self._after = after
        self._due = due
        self._pending: set[Ticket[Any]] = set()
        self._busy = False
        """Whether the thread has an operation, which may still wait for the connection."""
        self._watch: asyncio.TimerHandle | None = None
        # A daemon, so that a program that does not close the store still ends.
        self._thread = AppThread(self._work, name)
        self._thread.start()

    def run(self, work: Callable[[Ticket[T]], T]) -> asyncio.Future[T]:
        """Run `work` on the thread; a future of its answer."""
        loop = self._loop
        ticket = Ticket(work, loop.create_future(), loop.time())
        self._pending.add(ticket)
        if self._watch is None:
            self._watch = loop.call_later(self._patience / 4, self._give_up)
        self._queue.put(ticket)
        return ticket.future

    def run_blocking(self, work: Callable[[Ticket[T]], T]) -> T | None:
        """Run `work` on the thread, and wait for its answer. None: it was not run, because others wait already.

        From any thread. If the wait is interrupted, `work` is not run unless it has begun.
        """
        if self._pending or not self._queue.empty():
            return None
        ticket, late = BlockingTicket(work), self._loop.time() + self._patience
        self._queue.put(ticket)
        try:
            while not ticket.wait(LOOK_EVERY):
                if not self._thread.is_alive() and ticket.take():
                    return None
                if self._loop.time() > late and ticket.take():
                    raise StoreUnavailable(self._blocked)
        finally:
            ticket.take()  # if the wait was interrupted
        if ticket.error is not None:
            raise ticket.error
        return ticket.answer

    def run_here(self, work: Callable[[], T | None]) -> T | None:
        """Run `work` on the caller's thread; None if it did not run, because others use or wait for the connection.

        Any statement may raise: the exception of a signal handler, or one that another thread has set.
        """
        # A caller that finds the connection free again and again would keep out an operation that waits for it.
        if self._busy or self._pending or not self._queue.empty() or may_be_interrupted():
            return None
        lock = self._fork_lock.lock
        try:
            if not lock.acquire(blocking=False):
                return None
            marked.writing = self._fork_lock
            answer = work()
            if self._due():
                self._queue.put(BlockingTicket(lambda _: None))
            return answer
        finally:
            marked.writing = None
            try:  # noqa: SIM105  # a signal may raise in `suppress`, and after a check
                lock.release()
            except RuntimeError:
                pass  # another thread has it

    def end(self) -> None:
        """Make the thread end after the operations passed in so far."""
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
            with self._fork_lock.lock, suppress(sqlite3.Error):
                self._close()

    def _work_off(self) -> None:
        get, call = self._queue.get, self._loop.call_soon_threadsafe
        while (ticket := get()) is not None:
            self._busy = True
            answer, error = None, None
            try:
                with self._fork_lock.lock:
                    answer = ticket.work(ticket)
            except Withdrawn:
                self._busy = False
                continue
            except BaseException as raised:  # noqa: BLE001  # it belongs to the caller, not to this thread
                error = raised
            try:
                if isinstance(ticket, BlockingTicket):
                    ticket.deliver(answer, error)
                else:
                    call(self._deliver, ticket, answer, error)
            except RuntimeError:
                return  # the loop is closed: no caller is left
            del ticket, answer, error
            if self._after is not None:
                with self._fork_lock.lock:
                    self._after()
            self._busy = False

    def _deliver(self, ticket: Ticket[T], answer: T, error: BaseException | None) -> None:
        self._pending.discard(ticket)
        if ticket.future.done():
            return
        if error is None:
            ticket.future.set_result(answer)
        else:
            ticket.future.set_exception(error)
