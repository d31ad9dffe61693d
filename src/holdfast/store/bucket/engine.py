"""The engine of a bucket store: writes pending requests together, reads fresh state, and notifies listeners.

It creates no threads or clocks: it runs on one event loop with the given bucket, clock and entropy, so that a
test can run many engines in virtual time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from ...core.clock import Clock, Entropy
from ...core.errors import HoldfastError, OutcomeUnknown, StoreUnavailable
from ...core.job import NewJob
from ...core.operations import Holder
from ..protocol import WATCH, Answers
from ..stalls import Stalls
from . import payload_storage
from .compactor import Compactor
from .contents import Contents
from .doctor import check_conditional_writes
from .folder import Folder
from .log import FELL_BEHIND, Log, Stale, from_snapshot
from .log_format import Batched, Revived, pack
from .protocol import Bucket
from .replica import Done, Replica
from .requests import Counted
from .timings import Timings
from .watch import Watch
from .write_request import WriteRequest
from .writer import Writer

logger = logging.getLogger("holdfast")
T = TypeVar("T")
OPERATIONS = 5000
"""Operations of one entry, about, so that the first of many is not delayed for long."""


class Engine:
    """Opened once, used by every store object of a process that shares it.

    1. `write` queues requests; one task takes all pending ones and writes them as one batch.
    2. `view` brings the state up to the log's head; concurrent callers share one read.
    3. While there are listeners, the log is polled, less often while nothing happens.
    4. After commits the compactor checks whether a snapshot is due.
    """

    def __init__(self, bucket: Bucket, clock: Clock, entropy: Entropy, timings: Timings) -> None:
        self.bucket = Counted(bucket)
        self.clock = clock
        self.timings = timings
        self._entropy = entropy
        self.log = Log(self.bucket, clock, timings, self._applied, from_snapshot)
        self._writer = Writer(self.bucket, self.log, clock, entropy)
        self.contents = Contents(self.bucket, self.log, entropy)
        self.watch = Watch(clock)
        self.stalls = Stalls()
        self._compactor = Compactor(
            self.bucket, self.log, self.contents, entropy=entropy, clock=clock, timings=timings, write=self.write
        )
        self._requests: list[WriteRequest] = []
        self._wake = asyncio.Event()
        self._transitions_until = 0.0
        self.notify: Callable[[set[str]], None] = lambda _topics: None
        self.listened: Callable[[], bool] = lambda: False
        self.listener_added = asyncio.Event()
        """Set when a listener was added."""
        self._looking: asyncio.Task[Replica] | None = None
        self._next_look: asyncio.Task[Replica] | None = None
        self._tasks: dict[asyncio.Task[Any], None] = {}
        """In the order of their start; they are cancelled in this order."""
        self._happened = False
        self._looked_at = 0.0
        self._pause = timings.look_soonest

    @property
    def replica(self) -> Replica:
        return self.log.replica

    # -- lifetime

    async def open(self) -> None:
        """Join the log."""
        self._transitions_until = self.clock.monotonic() + WATCH
        await self.log.join(self.log.replica)
        if self.replica.position == 0 and not isinstance(self.bucket.inner, Folder):
            await check_conditional_writes(self.bucket, self._entropy)
        self._look()
        self._spawn(self._write_what_waits())
        self._spawn(self._look_around())

    async def close(self) -> None:
        """Write the watched times to the log, and stop."""
        if watched := self.watch.worth_recording(self.replica, self.timings.watch_least):
            with contextlib.suppress(HoldfastError):
                await self.write(WriteRequest(watches=watched))
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._writer.close()

    def _spawn(self, work: Coroutine[Any, Any, T], *, quiet: bool = False) -> asyncio.Task[T]:
        """Start a task that ends with the engine; logs its errors unless `quiet`."""

        def ended(task: asyncio.Task[T]) -> None:
            self._tasks.pop(task, None)
            if not task.cancelled() and task.exception() is not None and not quiet:
                logger.error(
                    "internal error: a background task of %s failed; restart this process and report the traceback",
                    self.bucket,
                    exc_info=task.exception(),
                )

        task = asyncio.ensure_future(work)
        self._tasks[task] = None
        task.add_done_callback(ended)
        return task

    def _applied(self, replica: Replica, done: dict[tuple[str, int], Done]) -> None:
        self._writer.applied(replica, done)
        jobs = replica.jobs
        if jobs.notified and replica is self.replica:  # else listeners would not find the change
            notified, jobs.notified = jobs.notified, set()
            self.notify(notified)
            self._happened = True

    # -- reading

    async def view(self) -> Replica:
        """The state at a time after this call."""
        if self._next_look is None:
            self._next_look = self._spawn(self._look_after(self._looking), quiet=True)
        return await asyncio.shield(self._next_look)

    async def recent(self) -> Replica:
        """The state for callers that ask repeatedly: while the log is polled, the state of the last poll."""
        age = asyncio.get_running_loop().time() - self._looked_at
        if self.listened() and age <= self._pause * 1.5:
            return self.replica
        return await self.view()

    async def _look_after(self, before: asyncio.Task[Replica] | None) -> Replica:
        if before is not None:
            await asyncio.wait([before])
        # New callers from here on need another read: what this one reads may be older than their call.
        self._looking, self._next_look = self._next_look, None
        return await self._follow()

    async def _follow(self) -> Replica:
        self._update_recording()
        while True:
            replica = self.replica
            try:
                await self.log.follow()
                await self.log.trust()
            except Stale:
                logger.warning(FELL_BEHIND, self.bucket)
                await self.log.join(replica)
                continue
            if self.replica is replica:
                self._look()
                return replica

    def _look(self) -> None:
        """Called when the state has just been found to be the log's."""
        self.watch.look(self.replica)
        self._looked_at = asyncio.get_running_loop().time()

    def record_transitions(self) -> None:
        """Transitions were read: keep recording them for a while."""
        self._transitions_until = self.clock.monotonic() + WATCH
        self._update_recording()

    def _update_recording(self) -> None:
        self.replica.jobs.records_transitions = self.clock.monotonic() < self._transitions_until

    async def _look_around(self) -> None:
        """Poll the log while there are listeners: often after a change, less often while nothing happens."""
        while True:
            if not self.listened():
                self.listener_added.clear()
                await self.listener_added.wait()
                self._pause = self.timings.look_soonest
            leases = [known.lease / 8 for known in self.replica.jobs.holders.values()]
            await asyncio.sleep(min(self._pause, *leases) if leases else self._pause)
            try:
                await self.view()
            except HoldfastError as error:
                logger.debug("reading the log of %s failed, retrying: %s", self.bucket, error)
            later = min(self.timings.look_latest, self._pause * 1.5)
            self._pause, self._happened = self.timings.look_soonest if self._happened else later, False
            if watched := self.watch.long_silent(self.replica):
                await self._quietly(WriteRequest(watches=watched))

    async def _quietly(self, request: WriteRequest) -> None:
        with contextlib.suppress(HoldfastError):
            await self.write(request)

    # -- writing

    async def write(self, request: WriteRequest) -> Done:
        """Write a request, together with all other pending ones; its answers."""
        self._requests.append(request)
        self._wake.set()
        await asyncio.wait([request.future], timeout=self.timings.patience)
        if request.future.done():
            return request.future.result()
        if request in self._requests:
            self._requests.remove(request)
            raise StoreUnavailable(
                f"{self.bucket} did not answer in {self.timings.patience:g} s; nothing was written. Check the bucket,"
                " then try again"
            )
        raise OutcomeUnknown(
            f"{self.bucket} did not answer in {self.timings.patience:g} s; the write may have happened: check the store"
            " before you repeat the call"
        )

    async def _write_what_waits(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._requests or await self._writer.adopt():
                requests = self._take()
                try:
                    await self._commit(requests)
                except Exception as error:  # noqa: BLE001  # raised by the callers of `write`
                    self.watch.begin_anew()
                    for request in requests:
                        _fail(request, error)
                if self._compactor.is_due():
                    self._spawn(self._compactor.keep())

    def _take(self) -> list[WriteRequest]:
        taken: list[WriteRequest] = []
        room = OPERATIONS
        while self._requests and room > 0:
            request = self._requests.pop(0)
            room -= len(request)
            if not request.future.done():
                taken.append(request)
        return taken

    async def _commit(self, requests: list[WriteRequest]) -> None:
        if not requests or not (requests := await self._answer_empty_asks(requests)):
            return
        self._update_recording()
        while True:
            done = await self._writer.write(await self._batch(requests))
            if not done.refused:
                break
            if done.refused != "old":
                raise StoreUnavailable(
                    f"{self.bucket}: nothing was written, because the encoded batch {done.refused}. Report this error"
                )
        self._look()
        for request, part in zip(requests, _split(done, requests), strict=True):
            self._spawn(self._deliver(request, part))

    async def _answer_empty_asks(self, requests: list[WriteRequest]) -> list[WriteRequest]:
        """If all requests only ask for jobs and there are none, answer them without a write. The requests to write."""
        if not all(request.only_asks for request in requests):
            return requests
        if not any(self._finds(request, self.clock.now()) for request in requests):
            await self.recent()
        now, jobs = self.clock.now(), self.replica.jobs
        if any(self._finds(request, now) for request in requests):
            return requests
        for request in requests:
            claims = [jobs.claim(ask, now, _never) for ask in request.batch.asks]
            _resolve(request, Done(answers=Answers(asks=claims)))
        return []

    def _finds(self, request: WriteRequest, now: int) -> bool:
        return any(self.replica.jobs.finds(ask, now) for ask in request.batch.asks)

    async def _batch(self, requests: list[WriteRequest]) -> Batched:
        """All requests as one batch."""
        base = self.replica.position  # before anything is read: later entries were not seen
        inserts = [new for request in requests for new in request.batch.inserts]
        settles = [end for request in requests for end in request.batch.settles]
        changes = [change for request in requests for change in request.batch.changes]
        asks = [ask for request in requests for ask in request.batch.asks]
        heartbeats = [holder for request in requests for holder in request.heartbeats]
        revives = await self._revives(inserts, [change.id for change in changes])
        inserts = [await self.contents.outgoing(new, "payload") for new in inserts]
        settles = [await self.contents.outgoing(end, "result") for end in settles]
        changes = [await self.contents.outgoing_change(change) for change in changes]
        patches = [change.patch for change in changes if change.patch is not None]
        values = [new.payload for new in inserts] + [end.result for end in settles]
        values += [value for patch in patches for value in (patch.payload, patch.result) if isinstance(value, bytes)]
        replica = self.replica
        return Batched(
            "",
            0,
            base,
            self.clock.now(),
            bool(changes or any(new.nonce for new in inserts)),
            any(payload_storage.own_key(value) for value in values),
            revives,
            pack(inserts),
            pack([note for request in requests for note in request.batch.notes]),
            pack(settles),
            pack(changes),
            pack(asks),
            sorted({ask.holder.id for ask in asks if self._half_spent(replica, ask.holder)}),
            [holder for request in requests for holder in request.leaves],
            heartbeats,
            [put for request in requests for put in request.records],
            [tidy for request in requests for tidy in request.tidies],
            [watched for request in requests for watched in request.watches],
            self.bucket.take(),
            [segment for request in requests for segment in request.segments],
            [mark for request in requests for mark in request.marks],
        )

    def _half_spent(self, replica: Replica, holder: Holder) -> bool:
        known = replica.jobs.holders.get(holder.id)
        return known is not None and self.watch.silent(replica, known) > holder.lease / 2

    async def _revives(self, inserts: list[NewJob], changed: list[str]) -> list[Revived]:
        """The archived jobs that an operator changes, or whose id a new job has."""
        wanted = {new.id for new in inserts if new.nonce} | set(changed)
        replica = self.replica
        if not replica.archived:
            return []
        living = replica.jobs.jobs
        ended = [await self.contents.ended(replica, id) for id in sorted(wanted) if id not in living]
        return [Revived(each[0], each[1], each[2]) for each in ended if each is not None]

    async def _deliver(self, request: WriteRequest, done: Done) -> None:
        try:
            for claims in done.answers.asks:
                await self.contents.fill(claims.records)
        except HoldfastError as error:
            # The claims were made, but cannot be delivered: the holder's next heartbeat finds and releases them.
            message = f"{error}; jobs were claimed but not received; the next heartbeat of the worker releases them"
            _fail(request, OutcomeUnknown(message))
        else:
            _resolve(request, done)


def _split(done: Done, requests: list[WriteRequest]) -> list[Done]:
    """The answers of each request."""
    answers = done.answers
    inserts, notes, settles = iter(answers.inserts), iter(answers.notes), iter(answers.settles)
    changes, asks = iter(answers.changes), iter(answers.asks)
    heartbeats, records, tidied = iter(done.heartbeats), iter(done.records), iter(done.tidied)
    return [
        Done(
            "",
            Answers(
                [next(inserts) for _ in request.batch.inserts],
                [next(notes) for _ in request.batch.notes],
                [next(settles) for _ in request.batch.settles],
                [next(changes) for _ in request.batch.changes],
                [next(asks) for _ in request.batch.asks],
            ),
            [next(heartbeats) for _ in request.heartbeats],
            [next(records) for _ in request.records],
            [next(tidied) for _ in request.tidies],
        )
        for request in requests
    ]


def _never(holder: Holder) -> bool:  # noqa: ARG001  # a claim that takes nothing renews no lease
    return False


def _resolve(request: WriteRequest, done: Done) -> None:
    if not request.future.done():
        request.future.set_result(done)


def _fail(request: WriteRequest, error: Exception) -> None:
    if not request.future.done():
        unknown = (
            f"unexpected error of the store: {type(error).__name__}: {error}; the write may have happened: check the"
            " store before you repeat the call"
        )
        request.future.set_exception(error if isinstance(error, HoldfastError) else OutcomeUnknown(unknown))
        request.future.exception()
