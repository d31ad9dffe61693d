"""Creates flows: by one commit if possible, else step by step; and abandons flows that were never started.

1. One commit (`make_at_once`) if no insert can be rejected: at most one page of jobs, a generated id, no key, no limit
   of depth, no hook that inserts jobs one by one. The first jobs are ready at once, and nothing is left to do.
2. Step by step (`make`). The announcement is a record (`Pending.making`), written before any job. The flow's own job is
   inserted last: before that no job of the flow runs, after it all will. Repeated with the same id, both steps find
   their own work.
3. A flow whose announcement does not change while a process watches it for an hour is abandoned. It is never deleted:
   another own job is inserted under its id, already cancelled. An id is taken once, so either the creator starts the
   flow, or it gets an error.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

import msgspec

from ..client.session import Session
from ..core.clock import Clock
from ..core.errors import HoldfastError, InvalidState, JobExists, OutcomeUnknown, StoreUnavailable
from ..core.flow_rules import CANCELLING, QUEUE, TASK
from ..core.job import TERMINAL, UNDECODABLE, NewJob, State
from ..core.operations import Change
from ..core.waiting import all_of
from ..store.group_commit import BATCH_BYTES, pages
from ..store.protocol import Versioned, records_of
from ..store.sizes import jobs_bytes
from .members import PAGE, About, FlowJobs, Jobs, about_flow, counting, gathering

Insert = Callable[[Sequence[NewJob]], Coroutine[Any, Any, Sequence[str | HoldfastError]]]
ENDED = "ended"
"""The record kind of pending work, by the id of a flow, or of a job of a flow that has ended."""
AWAITED = "awaited"
"""The record kind of jobs, by their ids, that jobs of other flows wait for: their ends may not be recorded."""
ABANDONED = 3600.0
"""Seconds for which an announcement must be watched, unchanged, before its flow is abandoned."""
LONGEST_GAP = 60.0
"""Maximum seconds between two reads that count as watched: a process that was stopped has watched nothing."""


class Making(msgspec.Struct, frozen=True):
    """The announcement of a flow."""

    name: str
    jobs: Jobs
    token: int
    """Random number of the creating process, so that no two announcements are equal."""


class Pending(msgspec.Struct, frozen=True, omit_defaults=True):
    """Pending work for a flow, or for the end of a job: the value of a record of kind `ended`."""

    also: tuple[str, ...] = ()
    """Other jobs to process with it."""
    making: Making | None = None
    """It is not started yet."""
    cancel: bool = False
    """Its jobs must be cancelled."""
    delete: Jobs | None = None
    """It is deleted, and this many jobs of it must be."""


_decode = msgspec.json.Decoder(Pending).decode


def pending(kept: Versioned | bytes | None) -> Pending:
    """Decodes a record; empty if it cannot be decoded."""
    try:
        return Pending() if kept is None else _decode(kept.value if isinstance(kept, Versioned) else kept)
    except UNDECODABLE:
        return Pending()


class MakingWatch:
    """How long one process has watched each announcement without a change, by its monotonic clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._looked_at = clock.monotonic()
        self._unchanged: dict[str, tuple[Versioned, float]] = {}

    def abandoned(self, records: Mapping[str, Versioned]) -> list[str]:
        """The announced flows that are considered abandoned."""
        now = self._clock.monotonic()
        watched, self._looked_at = min(now - self._looked_at, LONGEST_GAP), now
        unchanged: dict[str, tuple[Versioned, float]] = {}
        for id, kept in records.items():
            if pending(kept).making is not None:
                before, seconds = self._unchanged.get(id, (None, 0.0))
                unchanged[id] = (kept, seconds + watched if kept == before else 0.0)
        self._unchanged = unchanged
        return [id for id, (_, seconds) in unchanged.items() if seconds >= ABANDONED]


class Creation:
    """Stores a new flow, or abandons one. `insert` stores jobs, with the app's hooks around each."""

    def __init__(self, session: Session, insert: Insert) -> None:
        self._session = session
        self._insert = insert
        self._jobs = FlowJobs(session)

    async def make_at_once(self, own: NewJob, jobs: Sequence[NewJob]) -> None:
        """Store and start a flow by one commit: one call of `insert` is never split."""
        try:
            answers = await self._insert([*jobs, own])
        except OutcomeUnknown as error:
            raise _perhaps_started(own.id, error, retry_safe=False) from error
        except StoreUnavailable as error:
            raise _not_started(own.id, error) from error
        for answer in answers:
            if isinstance(answer, HoldfastError):
                raise answer

    async def make(self, own: NewJob, jobs: Sequence[NewJob], *, chosen: bool) -> None:
        """Store a flow and start it. `chosen`: the id is the caller's, who may have tried before."""
        try:
            for number, (page, _) in enumerate(pages(jobs)):
                if (chosen or number) and await self._started(own):
                    return
                await self._announce(own)
                for answer in await self._insert(page):
                    if isinstance(answer, HoldfastError):
                        raise answer
        except (StoreUnavailable, OutcomeUnknown) as error:
            raise _not_started(own.id, error) from error
        except InvalidState:
            await self._withdraw(own.id, len(jobs))
            raise
        except HoldfastError as error:
            if not chosen:
                await self._withdraw(own.id, len(jobs))
            elif isinstance(error, JobExists):
                raise JobExists(own.id) from error
            raise  # with a chosen id, another process may store the same flow: a repeated call continues
        try:
            [answer] = await self._insert([own])
        except OutcomeUnknown as error:
            raise _perhaps_started(own.id, error, retry_safe=chosen) from error
        except StoreUnavailable as error:
            raise _not_started(own.id, error) from error
        if isinstance(answer, HoldfastError):
            try:
                await self._started(own)
            except InvalidState:
                await self._withdraw(own.id, len(jobs))
                raise
            raise answer

    async def _started(self, own: NewJob) -> bool:
        """Whether the same flow has been started before. JobExists if another flow has its id."""
        [found] = await self._session.store.get([own.id])
        if found is None:
            return False
        if found.task == TASK and about_flow(found).abandoned:
            raise _given_up(own.id, found.state)
        if found.task != TASK or about_flow(found).digest != msgspec.json.decode(own.payload, type=About).digest:
            raise JobExists(own.id)
        return True

    async def _announce(self, own: NewJob) -> None:
        """Write that a flow is being created, replacing what another process wrote about it."""
        about, store = msgspec.json.decode(own.payload, type=About), self._session.store
        value = msgspec.json.encode(Pending(making=Making(about.name, about.jobs, self._session.entropy.token())))
        kept = None
        while not await store.put_record(ENDED, own.id, value, 0 if kept is None else kept.version):
            kept = (await records_of(store, ENDED)).get(own.id)
            if (jobs := pending(kept).delete) is not None:
                await remove_ended(self._session, own.id, jobs)  # of a flow that had the same id

    async def _withdraw(self, id: str, jobs: int) -> None:
        """Delete the jobs of a flow that will not start; jobs that cannot be deleted now are abandoned later."""
        try:
            waiting = [r async for r in self._jobs.members(id, jobs) if r.state == State.BLOCKED and r.fence == 0]
            await self._jobs.change([Change(r.id, r.state, r.fence, None) for r in waiting])
            kept = (await records_of(self._session.store, ENDED)).get(id)
            if kept is not None:
                await self._session.store.put_record(ENDED, id, None, kept.version)
        except HoldfastError:
            pass


async def remove_ended(session: Session, id: str, jobs: int) -> None:
    """Delete the jobs of a deleted flow."""
    members = FlowJobs(session)
    ended = [r async for r in members.members(id, jobs) if r.state in TERMINAL]
    await members.change([Change(r.id, r.state, r.fence, None) for r in ended])
    await session.store.put_record(counting(id), "jobs", None)


async def give_up(session: Session, id: str, making: Making) -> None:
    """Take the id of an abandoned flow, with an own job whose cancellation is requested."""
    about, nonce = About(making.name, making.jobs, abandoned=True), session.entropy.token()
    own = NewJob(
        id, TASK, QUEUE, msgspec.json.encode(about), nonce=nonce, meta=CANCELLING, waiting_for=all_of(id),
        extra=gathering(id),
    )  # fmt: skip
    await session.commit.insert([own])  # rejected if it was started meanwhile


def fits_one_commit(jobs: Sequence[NewJob]) -> bool:
    """Whether one commit can store all jobs of a new flow, and no store can reject one of them."""
    if len(jobs) >= PAGE or jobs_bytes(jobs) >= BATCH_BYTES:
        return False
    return all(job.key is None and job.max_depth is None for job in jobs)


def digest_of(name: str, jobs: Sequence[NewJob]) -> str:
    """Distinguishes two flows: by their names, and the tasks, arguments and order of their jobs."""
    parts = [name.encode(), *(part for job in jobs for part in (job.task.encode(), job.payload, job.extra or b""))]
    return hashlib.blake2b(msgspec.msgpack.encode(parts), digest_size=16).hexdigest()


def nonce_of(id: str, digest: str) -> int:
    """The nonce of a flow's jobs: the same for the same flow, in every process that enqueues it."""
    made = hashlib.blake2b(f"{id} {digest}".encode(), digest_size=8).digest()
    return int.from_bytes(made, "big") >> 2 | 1


def _not_started(id: str, error: HoldfastError) -> StoreUnavailable:
    return StoreUnavailable(
        f"flow {id} was not started, and none of its jobs will run; enqueue it again. The step that failed: {error}"
    )


def _perhaps_started(id: str, error: HoldfastError, *, retry_safe: bool) -> OutcomeUnknown:
    text = f"flow {id} may have been started; enqueue_flow(flow, id={id!r}) makes sure that it is: {error}"
    return OutcomeUnknown(text, (id,), retry_safe=retry_safe)


def _given_up(id: str, state: str) -> InvalidState:
    why = "this flow was abandoned: its jobs were stored, but it was not started within an hour; none of its jobs ran"
    return InvalidState(id, state, f"{why}. Enqueue the flow again with another id")
