"""Group commit: while one write is in flight, later operations gather, and leave together the moment it returns.

No timer and no added latency when idle; under load a hundred callers share one transaction. An operation that fails
inside a batch fails alone. A caller that was cancelled leaves nothing behind: a claim it never received is given back.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from typing import Any

import msgspec

from ..core.clock import Entropy
from ..core.errors import HoldfastError, OutcomeUnknown, StoreUnavailable
from ..core.job import NewJob
from ..core.lifecycle import Outcome, settle
from ..core.operations import Ask, Change, Claims, Inserted, Note, Settlement
from ..core.settings import Settings
from .protocol import Answers, Batch, Store

logger = logging.getLogger("holdfast")
PAGE = 1000
"""Operations of one batch, so that a flood does not delay the first of them for long. Whoever reads or writes many jobs
takes as many at a time."""
RESENDS = (0.05, 0.2, 1.0)
"""Seconds before each repeat of a batch whose outcome is unknown."""

KINDS = Batch.__struct_fields__

Guard = Callable[[Sequence[NewJob], Sequence[Change]], Awaitable[Sequence[Change]]]
guard: ContextVar[Guard | None] = ContextVar("holdfast_guard", default=None)
"""Looks at all jobs and changes that a caller is about to write, and raises, or answers with the changes to make.

A server sets it while it works for a client, so that every way to write a job passes the same check."""
Waiter = asyncio.Future[Any]
Callback = Callable[[bool | HoldfastError], None]


class GroupCommit:
    """The one door through which an app's or a worker's operations reach its store."""

    def __init__(self, store: Store, entropy: Entropy) -> None:
        self._store = store
        self._entropy = entropy
        self._loop = asyncio.get_running_loop()
        self._inserts: deque[tuple[Sequence[NewJob], Waiter]] = deque()
        self._notes: deque[tuple[Note, Waiter]] = deque()
        self._settles: deque[tuple[Settlement, Callback]] = deque()
        self.hear_of_ends: set[Callable[[str], None]] = set()
        """Whoever wants to know which jobs ended that others wait for (`Settlement.record_end`)."""
        self._changes: deque[tuple[Sequence[Change], Waiter]] = deque()
        self._asks: deque[tuple[Ask, Waiter]] = deque()
        self._batches: deque[tuple[Batch, Waiter]] = deque()
        self._busy = False
        self._writes = 0
        self._idle: list[Waiter] = []

    # -- the operations

    async def insert(self, jobs: Sequence[NewJob]) -> list[Inserted]:
        """Enqueue these jobs, in one commit. Alone, they go straight to the store, on the caller's own task."""
        if (check := guard.get()) is not None:
            await check(jobs, ())
        waiter = self._loop.create_future()
        if self._busy:
            self._inserts.append((jobs, waiter))
            return await waiter
        self._busy = True
        turn = _Turn()
        turn.inserts.append((jobs, waiter))
        try:
            await self._write(turn)
        finally:
            self._go_on()
        return waiter.result()

    async def note(self, note: Note) -> bool:
        """Write what a running job says of itself; False if its claim has ended."""
        waiter = self._loop.create_future()
        self._notes.append((note, waiter))
        self._start()
        return await waiter

    def note_soon(self, note: Note) -> None:
        """A note that nobody waits for; it is written before an end that is handed in right after it."""
        waiter = self._loop.create_future()
        waiter.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._notes.append((note, waiter))
        self._start()

    def settle_soon(self, end: Settlement, done: Callback) -> None:
        """End a claim; `done` is called with whether it was written, or with the error that kept it from being."""
        self._settles.append((end, done))
        self._start()

    async def settle(self, end: Settlement) -> bool:
        """End a claim; False if somebody else has ended it."""
        waiter = self._loop.create_future()
        self.settle_soon(end, lambda answer: _resolve(waiter, answer))
        return await waiter

    async def check(self, changes: Sequence[Change]) -> None:
        """Raise where this caller may not make one of these changes: for an operation that writes something before."""
        if (check := guard.get()) is not None:
            await check((), changes)

    async def change(self, changes: Sequence[Change]) -> list[bool]:
        """Make an operator's changes; False for each job that was no longer as it was seen."""
        if (check := guard.get()) is not None:
            changes = await check((), changes)
        waiter = self._loop.create_future()
        self._changes.append((changes, waiter))
        self._start()
        return await waiter

    async def claim(self, ask: Ask) -> Claims:
        """Claim jobs. If the caller is cancelled while the claim is under way, what it took is given back."""
        waiter = self._loop.create_future()
        self._asks.append((ask, waiter))
        self._start()
        try:
            return await waiter
        except asyncio.CancelledError:
            # Cancelled after the answer was there but before the caller woke: nobody else knows of these claims.
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self.give_back(waiter.result())
            raise

    async def write(self, batch: Batch) -> Answers:
        """A whole batch that others gathered, such as a remote store's: it shares a commit, and keeps its own order.

        It is answered or fails as a whole, as by the store itself; to send it again is its sender's business.
        """
        if (check := guard.get()) is not None and (batch.inserts or batch.changes):
            batch = msgspec.structs.replace(batch, changes=await check(batch.inserts, batch.changes))
        waiter = self._loop.create_future()
        self._batches.append((batch, waiter))
        self._start()
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                for claims in waiter.result().asks:
                    self.give_back(claims)
            raise

    async def drain(self) -> None:
        """Wait until everything that was handed in so far has been answered; what comes later is not waited for."""
        waiting = sum(map(len, self._queues()))
        last = self._writes + 2 + waiting // PAGE
        while self._busy and self._writes < last:
            waiter = self._loop.create_future()
            self._idle.append(waiter)
            await waiter

    # -- the writer

    def _start(self) -> None:
        if not self._busy:
            self._busy = True
            self._drainer = self._loop.create_task(self._drain())

    def _go_on(self) -> None:
        """A write is over: take what gathered meanwhile, or rest."""
        if self._loop.is_closed():
            return  # it ended with a write under way, which is only now let go: nobody waits any more
        self._busy = False
        self._count_write()
        if any(self._queues()):
            self._start()

    def _queues(self) -> tuple[deque[Any], ...]:
        return (self._settles, self._asks, self._inserts, self._notes, self._changes, self._batches)

    def _count_write(self) -> None:
        self._writes += 1
        idle, self._idle = self._idle, []
        for waiter in idle:
            _resolve(waiter, None)

    async def _drain(self) -> None:
        try:
            while turn := self._gather():
                await self._write(turn)
                self._count_write()
        finally:
            self._go_on()

    def _gather(self) -> _Turn | None:
        """Everything that waits, up to the limit; nothing that its caller has given up."""
        turn = _Turn()
        room = PAGE
        room = _take(self._settles, turn.settles, room)
        room = _take(self._notes, turn.notes, room)
        room = _take(self._changes, turn.changes, room, len)
        room = _take(self._inserts, turn.inserts, room, len)
        # Batches have room of their own: neither a flood here nor one from afar keeps the other waiting.
        _take(self._batches, turn.batches, PAGE, _size)
        # Asks go last and need no room: they ride with whatever is being written.
        _take(self._asks, turn.asks, PAGE)
        return turn or None

    async def _write(self, turn: _Turn) -> None:
        try:
            answers = await self._store.write(turn.batch())
        except OutcomeUnknown as error:
            await self._send_again(turn, error)
        except StoreUnavailable as error:
            turn.fail(error)
        except Exception as error:  # noqa: BLE001  # whatever a driver or a user's own store raises
            # Not the store's state but something in the batch: find it by writing each operation on its own.
            parts = turn.split()
            if len(parts) == 1 and turn.batches:
                _resolve(turn.batches[0][1], error)  # its sender takes it apart
            elif len(parts) == 1:
                turn.fail(error if isinstance(error, HoldfastError) else _unexpected(error))
            for part in parts if len(parts) > 1 else ():
                await self._write(part)
        else:
            self._answer(turn, answers)

    async def _send_again(self, turn: _Turn, error: OutcomeUnknown) -> None:
        """The answer was lost. Inserts and settlements are recognised when they come again. A claim is not, so its
        caller is told, and whatever was taken is given back when the holder next compares what it holds. Nor is a
        change: one that is refused when it comes again may have been made the first time.
        """
        for _, waiter in (*turn.asks, *turn.batches):
            _resolve(waiter, error)
        turn.asks.clear()
        turn.batches.clear()
        for pause in RESENDS if turn else ():
            await asyncio.sleep(pause)
            try:
                answers = await self._store.write(turn.batch())
            except Exception:  # noqa: BLE001, S112  # whatever it is now, the outcome of the first write stays unknown
                continue
            at = 0
            for changes, waiter in turn.changes:
                if not all(answers.changes[at : at + len(changes)]):
                    _resolve(waiter, error)  # it is refused now, and it may be the first write that moved the job
                at += len(changes)
            self._answer(turn, answers)
            return
        turn.fail(error)

    def _answer(self, turn: _Turn, answers: Answers) -> None:
        if turn.batches:
            answers = self._answer_batches(turn, answers)
        at = 0
        for jobs, waiter in turn.inserts:
            if not waiter.done():
                waiter.set_result(answers.inserts[at : at + len(jobs)])
            at += len(jobs)
        for (_, waiter), answer in zip(turn.notes, answers.notes, strict=True):
            _resolve(waiter, answer)
        for (end, done), answer in zip(turn.settles, answers.settles, strict=True):
            _tell(done, answer)
            if end.record_end and answer:
                self.tell_of_end(end.id)
        at = 0
        for changes, waiter in turn.changes:
            _resolve(waiter, answers.changes[at : at + len(changes)])
            at += len(changes)
        for (_, waiter), claims in zip(turn.asks, answers.asks, strict=True):
            if waiter.done():
                self.give_back(claims)
            else:
                waiter.set_result(claims)

    def _answer_batches(self, turn: _Turn, answers: Answers) -> Answers:
        """Hand each batch its part of the answers, which stands behind those of the turn's own operations: these."""
        own = {kind: len(operations) for kind, operations in turn.own().items()}
        at = dict(own)
        for batch, waiter in turn.batches:
            part = Answers()
            for kind in KINDS:
                begin, at[kind] = at[kind], at[kind] + len(getattr(batch, kind))
                setattr(part, kind, getattr(answers, kind)[begin : at[kind]])
            for end, answer in zip(batch.settles, part.settles, strict=True):
                if end.record_end and answer:
                    self.tell_of_end(end.id)
            if not waiter.done():
                waiter.set_result(part)
                continue
            for claims in part.asks:
                self.give_back(claims)
        return Answers(**{kind: getattr(answers, kind)[: own[kind]] for kind in KINDS})

    def tell_of_end(self, id: str) -> None:
        """Tell whoever hears of ends."""
        for hears in self.hear_of_ends:
            hears(id)

    def give_back(self, claims: Claims) -> None:
        """Release claims that nobody will run."""
        for record in claims.records:
            end = settle(record, Outcome.released(), Settings().rules, nonce=self._entropy.token(), fraction=0.0)
            self.settle_soon(end, _ignore)


class _Turn:
    """What one write carries, with whom to tell."""

    def __init__(self) -> None:
        self.inserts: list[tuple[Sequence[NewJob], Waiter]] = []
        self.notes: list[tuple[Note, Waiter]] = []
        self.settles: list[tuple[Settlement, Callback]] = []
        self.changes: list[tuple[Sequence[Change], Waiter]] = []
        self.asks: list[tuple[Ask, Waiter]] = []
        self.batches: list[tuple[Batch, Waiter]] = []

    def __bool__(self) -> bool:
        return bool(self.inserts or self.notes or self.settles or self.changes or self.asks or self.batches)

    def own(self) -> dict[str, list[Any]]:
        """The operations that were handed in one by one, by kind."""
        return {
            "inserts": [job for jobs, _ in self.inserts for job in jobs],
            "notes": [note for note, _ in self.notes],
            "settles": [end for end, _ in self.settles],
            "changes": [change for changes, _ in self.changes for change in changes],
            "asks": [ask for ask, _ in self.asks],
        }

    def batch(self) -> Batch:
        """Everything as one batch. Kinds are applied in order, so each batch within keeps its own."""
        kinds = self.own()
        for batch, _ in self.batches:
            for kind, operations in kinds.items():
                operations.extend(getattr(batch, kind))
        return Batch(**kinds)

    def fail(self, error: HoldfastError) -> None:
        for _, waiter in (*self.inserts, *self.notes, *self.changes, *self.asks, *self.batches):
            _resolve(waiter, error)
        for _, done in self.settles:
            _tell(done, error)

    def split(self) -> list[_Turn]:
        parts: list[_Turn] = []
        for name in ("settles", "notes", "changes", "inserts", "batches", "asks"):
            for operation in getattr(self, name):
                part = _Turn()
                getattr(part, name).append(operation)
                parts.append(part)
        return parts


def _size(batch: Batch) -> int:
    """The operations of a batch that take room."""
    return len(batch.inserts) + len(batch.notes) + len(batch.settles) + len(batch.changes)


def _take(waiting: deque[Any], into: list[Any], room: int, size: Callable[[Any], int] | None = None) -> int:
    while waiting and room > 0:
        operation = waiting.popleft()
        if isinstance(operation[1], asyncio.Future) and operation[1].cancelled():
            continue
        into.append(operation)
        room -= 1 if size is None else size(operation[0])
    return room


def _tell(done: Callback, answer: bool | HoldfastError) -> None:
    try:
        done(answer)
    except Exception:
        # The writer serves everybody: one caller's defect must not end it.
        logger.exception("a callback after a settlement raised")


def _resolve(waiter: Waiter, answer: Any) -> None:
    if waiter.done():
        return
    if isinstance(answer, BaseException):
        waiter.set_exception(answer)
    else:
        waiter.set_result(answer)


def _unexpected(error: Exception) -> HoldfastError:
    wrapped = StoreUnavailable(f"the store failed: {type(error).__name__}: {error}")
    wrapped.__cause__ = error
    return wrapped


def _ignore(answer: bool | HoldfastError) -> None:
    """A claim given back for a caller that is gone: if it fails, the lease's end gives it back."""
