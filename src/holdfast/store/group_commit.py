"""Group commit: operations that arrive while a write is in flight are collected and written together when it returns.

There is no timer and no added latency when idle; under load a hundred callers share one transaction. An operation that
fails inside a batch fails alone. A claim whose caller was cancelled before it received the jobs is released.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextvars import ContextVar, copy_context
from typing import Any, TypeVar

import msgspec

from ..core.clock import Entropy
from ..core.errors import HoldfastError, OutcomeUnknown, StoreUnavailable
from ..core.job import NewJob
from ..core.lifecycle import Outcome, settle
from ..core.operations import Ask, Change, Claims, Inserted, Note, Settlement
from ..core.settings import Settings
from .protocol import Answers, Batch, Store
from .sizes import batch_bytes, changes_bytes, job_bytes, jobs_bytes, note_bytes, settlement_bytes

logger = logging.getLogger("holdfast")
PAGE = 1000
"""Operations of one batch, at most, so that the first of many is not delayed for long; also the page size of reads."""
BATCH_BYTES = 8 * 1024**2
"""Bytes of one batch, at most, unless its last operation alone has more: bounds the memory of client and server."""
RESENDS = (0.05, 0.2, 1.0)
"""Seconds before each repeat of a batch whose outcome is unknown."""

KINDS = Batch.__struct_fields__

Guard = Callable[[Sequence[NewJob], Sequence[Change]], Awaitable[Sequence[Change]]]
guard: ContextVar[Guard | None] = ContextVar("holdfast_guard", default=None)
"""Checks the jobs and changes that a caller is about to write: raises, or returns the changes to make.

The HTTP server sets it while it serves a client, so that every write of a job passes the same check."""
T = TypeVar("T")
Waiter = asyncio.Future[Any]
Callback = Callable[[bool | HoldfastError], None]


class GroupCommit:
    """Writes all operations of an app or a worker to its store."""

    def __init__(self, store: Store, entropy: Entropy) -> None:
        self._store = store
        self._entropy = entropy
        self._loop = asyncio.get_running_loop()
        self._inserts: deque[tuple[Sequence[NewJob], Waiter]] = deque()
        self._notes: deque[tuple[Note, Waiter]] = deque()
        self._settles: deque[tuple[Settlement, Callback]] = deque()
        self.end_callbacks: set[Callable[[str], None]] = set()
        """Called with the id of each job that ended and that other jobs wait for (`Settlement.record_end`)."""
        self._changes: deque[tuple[Sequence[Change], Waiter]] = deque()
        self._asks: deque[tuple[Ask, Waiter]] = deque()
        self._batches: deque[tuple[Batch, Waiter]] = deque()
        self._busy = False
        self._context = copy_context()
        """Of the writer: not that of a task whose operation starts it."""
        self._writes = 0
        self._idle: list[Waiter] = []

    # -- the operations

    async def insert(self, jobs: Sequence[NewJob], unknown: OutcomeUnknown | None = None) -> Sequence[Inserted]:
        """Enqueue these jobs in one commit. When no write is in flight, the caller's own task writes them.

        `unknown`: the error of an earlier write of the same jobs. They are sent again, alone, and if that fails too,
        the error is this one: they may be stored.
        """
        if (check := guard.get()) is not None:
            await check(jobs, ())
        if unknown is not None:
            return await self._insert_after(unknown, jobs)
        if self._busy:
            waiter = self._loop.create_future()
            self._inserts.append((jobs, waiter))
            return await waiter
        self._busy = True
        try:
            return (await self._store.write(Batch(jobs))).inserts
        except Exception as error:  # noqa: BLE001  # as in `_write`
            return await self._insert_after(error, jobs)
        finally:
            self._finish()

    async def _insert_after(self, error: Exception, jobs: Sequence[NewJob]) -> Sequence[Inserted]:
        """The answer to jobs whose write failed with this error."""
        group, waiter = _Group(), self._loop.create_future()
        group.inserts.append((jobs, waiter))
        await self._handle(group, error)
        return waiter.result()

    async def note(self, note: Note) -> bool:
        """Write the progress, meta or output of a running job; False if its claim has ended."""
        return await self._pass_in(self._notes, note)

    def note_soon(self, note: Note) -> None:
        """Write a note without waiting for the answer; before a settlement that is passed in right after it."""
        waiter = self._pass_in(self._notes, note)
        waiter.add_done_callback(lambda done: done.cancelled() or done.exception())

    def settle_soon(self, end: Settlement, done: Callback) -> None:
        """End a claim; `done` is called with whether it was written, or with the error that prevented it."""
        self._settles.append((end, done))
        self._start()

    async def settle(self, end: Settlement) -> bool:
        """End a claim; False if it has already ended."""
        waiter = self._loop.create_future()
        self.settle_soon(end, lambda answer: _resolve(waiter, answer))
        return await waiter

    async def check(self, changes: Sequence[Change]) -> None:
        """Raise if this caller may not make one of these changes: for an operation that first writes something else."""
        if (check := guard.get()) is not None:
            await check((), changes)

    async def change(self, changes: Sequence[Change]) -> list[bool]:
        """Make an operator's changes; False for each job that no longer is as the change expects."""
        if isinstance(changes, Change):  # the writer would fail later, and leave its callers without an answer
            raise TypeError("change() takes a list of changes, not one Change")
        if (check := guard.get()) is not None:
            changes = await check((), changes)
        return await self._pass_in(self._changes, changes)

    async def claim(self, ask: Ask) -> Claims:
        """Claim jobs. If the caller is cancelled before it receives them, they are released."""
        return await self._delivered(self._pass_in(self._asks, ask), lambda claims: [claims])

    async def write(self, batch: Batch) -> Answers:
        """Write a whole batch, such as one of a remote store: it shares a commit, and keeps its own order.

        It is answered or fails as a whole, as by the store itself; repeating it is up to its sender.
        """
        if (check := guard.get()) is not None and (batch.inserts or batch.changes):
            batch = msgspec.structs.replace(batch, changes=await check(batch.inserts, batch.changes))
        return await self._delivered(self._pass_in(self._batches, batch), lambda answers: answers.asks)

    def _pass_in(self, queue: deque[tuple[T, Waiter]], operation: T) -> Waiter:
        waiter = self._loop.create_future()
        queue.append((operation, waiter))
        self._start()
        return waiter

    async def _delivered(self, waiter: Waiter, claims_in: Callable[[Any], Sequence[Claims]]) -> Any:
        try:
            return await waiter
        except asyncio.CancelledError:
            # Cancelled after the answer arrived but before the caller resumed: nothing else knows these claims.
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                for claims in claims_in(waiter.result()):
                    self.give_back(claims)
            raise

    async def drain(self) -> None:
        """Wait until all operations passed in so far have been answered; not for later ones."""
        waiting = len(self._settles) + len(self._notes) + len(self._asks)
        waiting += sum(len(jobs) for jobs, _ in self._inserts) + sum(len(changes) for changes, _ in self._changes)
        waiting += sum(_size(batch) for batch, _ in self._batches)
        size = sum(bytes_of(operation) for queue, bytes_of in self._measured() for operation, _ in queue)
        # Two writes together exceed PAGE or BATCH_BYTES.
        last = self._writes + 2 + 2 * waiting // PAGE + 2 * size // BATCH_BYTES
        while self._busy and self._writes < last:
            waiter = self._loop.create_future()
            self._idle.append(waiter)
            await waiter

    # -- the writer

    def _start(self) -> None:
        if not self._busy:
            self._busy = True
            self._drainer = self._loop.create_task(self._drain(), context=self._context)

    def _finish(self) -> None:
        """Mark the writer as idle after a write, and start again if operations have arrived meanwhile."""
        if self._loop.is_closed():
            return  # the loop ended with a write in flight, which is collected only now: nothing waits for it
        self._busy = False
        self._count_write()
        if any(self._queues()):
            self._start()

    def _queues(self) -> tuple[deque[Any], ...]:
        return (self._settles, self._asks, self._inserts, self._notes, self._changes, self._batches)

    def _measured(self) -> tuple[tuple[deque[Any], Callable[[Any], int]], ...]:
        return (
            (self._settles, settlement_bytes),
            (self._notes, note_bytes),
            (self._changes, changes_bytes),
            (self._inserts, jobs_bytes),
            (self._batches, batch_bytes),
        )

    def _count_write(self) -> None:
        self._writes += 1
        idle, self._idle = self._idle, []
        for waiter in idle:
            _resolve(waiter, None)

    async def _drain(self) -> None:
        try:
            while group := self._gather():
                await self._write(group)
                self._count_write()
        finally:
            self._finish()

    def _gather(self) -> _Group | None:
        """The operations of the next write, up to the limits, except for cancelled callers."""
        group = _Group()
        # Each kind has separate limits, so that many small operations of one do not hold back a large one of another.
        _Room().take(self._notes, group.notes, note_bytes)
        unwritten = {note.id for note, _ in self._notes}
        _Room().take(self._settles, group.settles, settlement_bytes, after=unwritten)
        _Room().take(self._changes, group.changes, changes_bytes, len)
        _Room().take(self._inserts, group.inserts, jobs_bytes, len)
        _Room().take(self._batches, group.batches, batch_bytes, _size)
        # Asks come last and do not count against the limits.
        _Room().take(self._asks, group.asks, _nothing)
        return group or None

    async def _write(self, group: _Group) -> None:
        try:
            answers = await self._store.write(group.batch())
        except Exception as error:  # noqa: BLE001  # whatever a driver or a user's own store raises
            await self._handle(group, error)
        else:
            self._answer(group, answers)

    async def _handle(self, group: _Group, error: Exception) -> None:
        """Answer a group whose write failed."""
        if isinstance(error, OutcomeUnknown):
            await self._resend(group, error)
            return
        if isinstance(error, StoreUnavailable):
            group.fail(error)
            return
        # An operation in the batch is the cause, not the store's state: find it by writing each one alone.
        parts = group.split()
        if len(parts) == 1 and group.batches:
            _resolve(group.batches[0][1], error)  # its sender splits it
        elif len(parts) == 1:
            group.fail(error if isinstance(error, HoldfastError) else _unexpected(error))
        for part in parts if len(parts) > 1 else ():
            await self._write(part)

    async def _resend(self, group: _Group, error: OutcomeUnknown) -> None:
        """Write a group again whose answer was lost. Stores recognise repeated inserts and settlements. A repeated
        claim is not recognised, so its caller gets the error; jobs that it took are released when the holder's next
        heartbeat lists its claims. Nor is a change: one that is refused now may have been made the first time.
        """
        for _, waiter in (*group.asks, *group.batches):
            _resolve(waiter, error)
        group.asks.clear()
        group.batches.clear()
        for pause in RESENDS if group else ():
            await asyncio.sleep(pause)
            try:
                answers = await self._store.write(group.batch())
            except Exception:  # noqa: BLE001, S112  # whatever it is now, the outcome of the first write stays unknown
                continue
            at = 0
            for changes, waiter in group.changes:
                if not all(answers.changes[at : at + len(changes)]):
                    _resolve(waiter, error)  # it is refused now, maybe because the first write made it
                at += len(changes)
            self._answer(group, answers)
            return
        group.fail(error)

    def _answer(self, group: _Group, answers: Answers) -> None:
        if group.batches:
            answers = self._answer_batches(group, answers)
        at = 0
        for jobs, waiter in group.inserts:
            if not waiter.done():
                waiter.set_result(answers.inserts[at : at + len(jobs)])
            at += len(jobs)
        for (_, waiter), answer in zip(group.notes, answers.notes, strict=True):
            _resolve(waiter, answer)
        for (end, done), answer in zip(group.settles, answers.settles, strict=True):
            _call(done, answer)
            if end.record_end and answer:
                self.notify_end(end.id)
        at = 0
        for changes, waiter in group.changes:
            _resolve(waiter, answers.changes[at : at + len(changes)])
            at += len(changes)
        for (_, waiter), claims in zip(group.asks, answers.asks, strict=True):
            if waiter.done():
                self.give_back(claims)
            else:
                waiter.set_result(claims)

    def _answer_batches(self, group: _Group, answers: Answers) -> Answers:
        """Pass each batch its part of the answers. Returns the part before: of the group's single operations."""
        own = {kind: len(operations) for kind, operations in group.own().items()}
        at = dict(own)
        for batch, waiter in group.batches:
            part = Answers()
            for kind in KINDS:
                begin, at[kind] = at[kind], at[kind] + len(getattr(batch, kind))
                setattr(part, kind, getattr(answers, kind)[begin : at[kind]])
            for end, answer in zip(batch.settles, part.settles, strict=True):
                if end.record_end and answer:
                    self.notify_end(end.id)
            if not waiter.done():
                waiter.set_result(part)
                continue
            for claims in part.asks:
                self.give_back(claims)
        return Answers(**{kind: getattr(answers, kind)[: own[kind]] for kind in KINDS})

    def notify_end(self, id: str) -> None:
        """Call all of `end_callbacks` with the id of a job that ended."""
        for callback in self.end_callbacks:
            callback(id)

    def give_back(self, claims: Claims) -> None:
        """Release claims whose caller was cancelled."""
        for record in claims.records:
            end = settle(record, Outcome.released(), Settings().rules, nonce=self._entropy.token(), fraction=0.0)
            self.settle_soon(end, _ignore)


class _Group:
    """The operations of one write, each with the caller to answer."""

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
        """The operations that were passed in one by one, by kind."""
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
            _call(done, error)

    def split(self) -> list[_Group]:
        """One group for each operation, in the order in which a batch applies them: notes before the end of a claim."""
        parts: list[_Group] = []
        for name in ("inserts", "notes", "settles", "changes", "batches", "asks"):
            for operation in getattr(self, name):
                part = _Group()
                getattr(part, name).append(operation)
                parts.append(part)
        return parts


def pages(jobs: Iterable[NewJob], max_jobs: int = PAGE) -> Iterator[tuple[list[NewJob], int]]:
    """The jobs in order, in lists that each fit one batch, with the bytes of each list."""
    page: list[NewJob] = []
    size = 0
    for job in jobs:
        needed = job_bytes(job)
        if page and (len(page) == max_jobs or size + needed > BATCH_BYTES):
            yield page, size
            page, size = [], 0
        page.append(job)
        size += needed
    if page:
        yield page, size


def _size(batch: Batch) -> int:
    """The operations of a batch that count against the limit."""
    return len(batch.inserts) + len(batch.notes) + len(batch.settles) + len(batch.changes)


def _nothing(_: Ask) -> int:
    return 0


class _Room:
    """How much one write still has room for: operations and bytes."""

    def __init__(self) -> None:
        self._operations, self._bytes = PAGE, BATCH_BYTES

    def take(
        self,
        waiting: deque[Any],
        into: list[Any],
        bytes_of: Callable[[Any], int],
        size: Callable[[Any], int] | None = None,
        after: AbstractSet[str] = frozenset(),
    ) -> None:
        """Move operations as long as they fit, except for cancelled callers. Into an empty room anything fits.

        `after`: the jobs whose settlements must wait for a later write, because their notes do.
        """
        while waiting and self._operations > 0:
            operation, waiter = waiting[0]
            if isinstance(waiter, asyncio.Future) and waiter.cancelled():
                waiting.popleft()
                continue
            needed = bytes_of(operation)
            if needed > self._bytes < BATCH_BYTES:
                self._operations = 0  # what follows waits too, so that nothing large is overtaken forever
            elif after and operation.id in after:
                return
            else:
                into.append(waiting.popleft())
                self._operations -= 1 if size is None else size(operation)
                self._bytes -= needed


def _call(done: Callback, answer: bool | HoldfastError) -> None:
    try:
        done(answer)
    except Exception:
        # All callers share the writer: an error of one callback must not end it.
        logger.exception(
            "internal error in Holdfast: the callback %r raised an exception after the store answered %r to the write"
            " of a job's outcome; report this traceback as a bug",
            done,
            answer,
        )


def _resolve(waiter: Waiter, answer: Any) -> None:
    if waiter.done():
        return
    if isinstance(answer, BaseException):
        waiter.set_exception(answer)
    else:
        waiter.set_result(answer)


def _unexpected(error: Exception) -> HoldfastError:
    wrapped = OutcomeUnknown(
        f"unexpected error of the store: {type(error).__name__}: {error}; the write may have happened: check the store"
        " before you repeat the call"
    )
    wrapped.__cause__ = error
    return wrapped


def _ignore(answer: bool | HoldfastError) -> None:
    """Ignore the answer to a release for a cancelled caller: if it failed, the job is recovered when the lease ends."""
