"""Flows in the store: start, read and operate them.

A flow has its own job (task `flow`) that no worker runs: it is blocked until all jobs of the flow have ended, and then
ends (`completion.py`). The ids of the jobs are its id and a number: `ID.0`, `ID.1`, … so that they are found without a
list. They are stored blocked, before the flow's own job, whose insert starts the flow (`creation.py`).

Each operation of several writes has one that decides. An error before it means that nothing happened; after it, the
pending work is written (`Pending`), and any worker does it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeVar, cast, overload

import msgspec

from ..client.audited import audited
from ..client.enqueue import Enqueue
from ..client.handles import Handles
from ..client.inspection import Inspection
from ..client.runtime import Runtime, on_app_loop
from ..client.session import Session
from ..core import internal as extras
from ..core.errors import HoldfastError, InvalidJob, InvalidState, JobNotFound, OutcomeUnknown, StoreUnavailable
from ..core.flow_rules import GROWN, QUEUE, TASK, cancelling, failed, has_grown, member, number_in, unneeded
from ..core.internal import Internal
from ..core.job import TERMINAL, NewJob, Record, State
from ..core.lifecycle import retry as reset
from ..core.operations import Change, Patch
from ..core.settings import Settings
from ..core.validation import checked_limit, checked_text
from ..core.waiting import Waiting, all_of, beginning_of, end_of
from ..store.group_commit import PAGE
from ..store.protocol import records_of
from ..tasks.handle import BlockingHandle, Handle
from ..tasks.registry import Registry
from ..views import Job, job_view, states_named
from .builder import Flow, Node, Work, grown
from .completion import again
from .creation import ENDED, Creation, Pending, digest_of, fits_one_commit, nonce_of, pending
from .graph import GRAPH_PAGE, FlowGraph, FlowProgress, graph, progress
from .members import MAX_FLOW_JOBS, About, FlowJobs, counting, gathering, number_kept
from .release import Release, mentioning, with_results
from .status import FlowPage, FlowStatus, status_of

R = TypeVar("R")
ID_LENGTH = 500
"""Maximum characters of a flow's id: those of its jobs are longer."""
STATES = TERMINAL | {State.BLOCKED}
"""The states of a flow: no worker runs it."""


class BlockingFlow(Protocol):
    """A handle on a flow for blocking code; its methods are those of `FlowHandle`."""

    id: str

    @overload
    def handle(self, node: Node[R]) -> BlockingHandle[R]: ...
    @overload
    def handle(self, node: int) -> BlockingHandle[Any]: ...

    def status(self) -> FlowStatus:
        """The counts of the flow."""
        ...

    def jobs(self) -> list[Job]:
        """All of its stored jobs, in the order in which they were added."""
        ...

    def wait(self, timeout: float | None = None) -> FlowStatus:
        """Wait until all of its jobs have ended, with any outcome."""
        ...

    def results(self, timeout: float | None = None) -> list[Any]:
        """Wait until all of its jobs have ended; their results, in the order in which they were added."""
        ...

    def cancel(self) -> bool:
        """Cancel every job that has not ended; False if the flow has."""
        ...

    def retry(self) -> int:
        """Retry its dead jobs, and then their dependents that did not run; returns how many jobs."""
        ...


class BlockingFlows(Protocol):
    """An app's blocking side, as far as flows need it."""

    def wrap_flow(self, handle: FlowHandle, /) -> BlockingFlow: ...


class FlowHandle:
    """One flow, in any process: `app.flows.handle(id)` makes one from an id alone."""

    def __init__(self, flows: Flows, id: str, flow: Flow | None = None) -> None:
        self._flows = flows
        self._flow = flow
        self.id = id

    def __repr__(self) -> str:
        return f"FlowHandle({self.id!r})"

    @property
    def sync(self) -> BlockingFlow:
        """The same handle for blocking code."""
        return cast("BlockingFlows", self._flows.sync).wrap_flow(self)

    @overload
    def handle(self, node: Node[R]) -> Handle[R]: ...
    @overload
    def handle(self, node: int) -> Handle[Any]: ...
    def handle(self, node: Node[Any] | int) -> Handle[Any]:
        """A handle on one of its jobs."""
        if isinstance(node, Node):
            if self._flow not in (None, node.flow):
                raise InvalidJob(f"{node!r} belongs to another flow, not to {self.id!r}; use a node of this flow")
            return self._flows.job_handle(member(self.id, node.number), node.call.task.decode_result)
        if type(node) is not int or node < 0:
            raise InvalidJob(f"a job of a flow must be given as its node or its number, not {node!r:.100}")
        return self._flows.job_handle(member(self.id, node))

    async def status(self) -> FlowStatus:
        """The counts of the flow."""
        return await self._flows.status(self.id)

    async def jobs(self) -> list[Job]:
        """All of its stored jobs, in the order in which they were added."""
        return [job_view(record) for record in await self._flows.members(self.id)]

    async def wait(self, timeout: float | None = None) -> FlowStatus:
        """Wait until all of its jobs have ended, with any outcome. TimeoutError if they have not in time."""
        await self._flows.ended(self.id, timeout)
        return await self.status()

    async def results(self, timeout: float | None = None) -> list[Any]:
        """Wait until all of its jobs have ended; their results, in the order in which they were added.

        None for a job without a result, also for one that did not have to run or succeed. If the flow did not succeed:
        raises JobFailed or JobCancelled for its first such job. TimeoutError if it has not ended in time.
        """
        own = await self._flows.ended(self.id, timeout)
        found = {number_in(self.id, record.id): record for record in await self._flows.members(self.id)}
        if own.state != State.SUCCEEDED:
            bad = next((record for record in found.values() if failed(record)), own)
            return self.handle(0).decode(bad)  # raises
        return [self._result(number, found.get(number)) for number in range(max(found, default=-1) + 1)]

    def _result(self, number: int, record: Record | None) -> Any:
        if record is None or record.state != State.SUCCEEDED:
            return None
        nodes = [] if self._flow is None else self._flow.nodes
        return (self.handle(nodes[number]) if number < len(nodes) else self.handle(number)).decode(record)

    async def cancel(self) -> bool:
        """Cancel every job that has not ended; False if the flow has."""
        return await self._flows.cancel(self.id)

    async def retry(self) -> int:
        """Retry its dead jobs, from attempt 0, and then their dependents that did not run; returns how many jobs."""
        return await self._flows.retry(self.id)


class Flows:
    """The flows of a store."""

    def __init__(
        self, runtime: Runtime, registry: Registry, enqueue: Enqueue, handles: Handles, inspection: Inspection
    ) -> None:
        self._runtime = runtime
        self._registry = registry
        self._enqueue = enqueue
        self._inspection = inspection
        self._handles = handles
        self.ended = handles.ended
        self.job_handle = handles.handle

    @property
    def sync(self) -> object:
        return self._handles.sync

    def handle(self, id: str) -> FlowHandle:
        """A handle on a flow, from its id alone."""
        return FlowHandle(self, id)

    def release(self, session: Session) -> Release:
        """Processes the ends of jobs, for a worker."""
        return Release(session, self._registry, self._enqueue.insert_all)

    # -- enqueue

    @on_app_loop
    async def enqueue(self, session: Session, flow: Flow, id: str | None = None) -> FlowHandle:
        """Store and start a flow, all of it or nothing. The same id and the same jobs are the same flow."""
        if not flow.nodes:
            raise InvalidJob(f"flow {flow.name!r} has no job, so it was not stored; add one with flow.add(task)")
        if len(flow.nodes) > MAX_FLOW_JOBS:
            raise InvalidJob(
                f"flow {flow.name!r} was not stored: a flow can have at most {MAX_FLOW_JOBS} jobs, not"
                f" {len(flow.nodes)}; split it"
            )
        if id is not None and "." in checked_text(id, "id", ID_LENGTH):
            raise InvalidJob(
                f"flow {flow.name!r} was not stored: its id must have no dot, unlike {id!r}, because the ids of its"
                " jobs are ID.0, ID.1, …"
            )
        settings = session.fresh_settings()
        chosen, id = id is not None, id or session.entropy.uuid7(session.clock.now())
        tolerated = flow.tolerated()
        jobs = [
            self._job(settings, id, node, node.about(id, tolerated=node.number in tolerated)) for node in flow.nodes
        ]
        digest = digest_of(flow.name, jobs)
        about = About(flow.name, len(jobs), digest=digest, chosen=chosen)
        nonce, about = nonce_of(id, digest), msgspec.json.encode(about)
        own = NewJob(
            id, TASK, QUEUE, about, max_attempts=settings.max_attempts, waiting_for=all_of(id), extra=gathering(id)
        )
        own, *jobs = (msgspec.structs.replace(job, nonce=nonce) for job in (own, *jobs))
        creation = Creation(session, self._enqueue.insert_all)
        outside = sorted({parent for node in flow.nodes for parent in node.outside})
        if outside:
            await _check_outside(session, id, outside)
        if not chosen and not outside and not self._enqueue.hooks and fits_one_commit(jobs):
            first = {node.number for node in flow.nodes if node.is_first}
            ready = [msgspec.structs.replace(j, waiting_for=None) if n in first else j for n, j in enumerate(jobs)]
            await creation.make_at_once(own, ready)
            return FlowHandle(self, id, flow)
        await creation.make(own, jobs, chosen=chosen)
        if "sweeps" not in session.store.features:
            await self.release(session).process_now([id])
        else:  # the server does, when it is notified or polls
            with suppress(HoldfastError):
                await session.store.put_record(ENDED, id, b"{}")
        return FlowHandle(self, id, flow)

    def _job(self, settings: Settings, flow: str, node: Node[Any], about: Internal) -> NewJob:
        call = node.call
        job = self._enqueue.new_job(settings, call.task, call.options, call.args, call.kwargs, holes=about.holes)
        if node.allow_unfinished is not None:
            waiting_for = all_of(flow)
        else:
            waiting_for = end_of(member(flow, max(node.parents))) if node.parents else beginning_of(flow)
        return msgspec.structs.replace(
            job, id=member(flow, node.number), waiting_for=waiting_for, extra=extras.added(job.extra, about)
        )

    # -- add to a flow that runs

    @on_app_loop
    async def add(
        self,
        session: Session,
        record: Record,
        work: Work[Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        after: Iterable[str],
    ) -> Handle[Any]:
        """Add a job to the flow of a running one.

        A job that comes after others waits for the running one first, whose end is recorded: so if this process
        crashes, no job is left waiting.
        """
        flow = extras.read(record.extra).flow
        if flow is None:
            raise InvalidJob(
                f"job {record.id} belongs to no flow, so ctx.add_to_flow() added no job; enqueue the new job instead"
            )
        node = grown(flow, work, args, kwargs, after)
        try:
            node.number = await _reserve(session, flow)
        except OutcomeUnknown as error:
            raise StoreUnavailable(
                f"no job was added to flow {flow}, because its number in the flow was not confirmed; add the job again."
                f" The step that failed: {error}"
            ) from error
        job = self._job(session.settings, flow, node, node.about(flow))
        waiting_for = end_of(record.id) if node.parents else None
        job = msgspec.structs.replace(job, waiting_for=waiting_for, nonce=session.entropy.token())
        try:
            [id] = await self._enqueue.insert_all([job])
        except OutcomeUnknown as error:  # a repeated call adds another job, unless it has a key
            text = f"job {job.id} may have been added to flow {flow}; look for it before you add it again: {error}"
            raise OutcomeUnknown(text, (job.id,), retry_safe=job.key is not None) from error
        if id != job.id:  # rejected, or its key belongs to a job that was added before
            await _give_back(session, flow, node.number)
        if isinstance(id, HoldfastError):
            raise id
        if not id.startswith(f"{flow}."):
            raise InvalidJob(
                f"no job was added to flow {flow}: key {job.key!r} belongs to job {id}, which is not in this flow; use"
                " another key"
            )
        left = [record.id] if node.parents else []
        with suppress(HoldfastError):
            [own] = await session.store.get([flow])
            if own is not None and own.state in TERMINAL:
                await self.release(session).write_pending(flow, lambda left: left)
                left.append(flow)
        if left:  # nothing, unless its claim was lost and another has ended it
            await self.release(session).process_now(left)
        return self._handles.handle(id, node.call.task.decode_result)

    # -- observe and operate

    @on_app_loop
    async def members(self, session: Session, id: str) -> list[Record]:
        """All stored jobs of a flow, in order."""
        jobs = FlowJobs(session)
        return [record async for record in jobs.members(id, await jobs.count(await jobs.own(id)))]

    async def list(
        self, *, state: str | Sequence[str] | None = None, limit: int = 100, cursor: str | None = None
    ) -> FlowPage:
        """A page of flows, newest first. One that has not ended is blocked."""
        named = states_named(state)
        if wrong := [word for word in named if word not in STATES]:
            raise InvalidJob(f"a flow is never {' or '.join(wrong)}; use one of the states {', '.join(sorted(STATES))}")
        page = await self._inspection.jobs(state=state, queue=QUEUE, task=TASK, limit=limit, cursor=cursor)
        return FlowPage([status_of(job) for job in page.jobs], page.cursor)

    @on_app_loop
    async def in_the_making(self, session: Session) -> set[str]:
        """The flows whose jobs are stored, or being stored, and that are not started yet."""
        left = await records_of(session.store, ENDED)
        return {id for id, kept in left.items() if pending(kept).making is not None}

    @on_app_loop
    async def status(self, session: Session, id: str) -> FlowStatus:
        """The counts of a flow."""
        members = FlowJobs(session)
        own = await members.own(id)
        jobs = await members.count(own)
        counts: dict[str, int] = {}
        async for record in members.members(id, jobs):
            state = str(record.state)
            counts[state] = counts.get(state, 0) + 1
        return msgspec.structs.replace(status_of(job_view(own)), jobs=jobs, counts=counts)

    @on_app_loop
    async def graph(self, session: Session, id: str, *, start: int = 0, limit: int = GRAPH_PAGE) -> FlowGraph:
        """A page of the jobs of a flow, with their parents, states and times; `start` is the number of the first."""
        if type(start) is not int or start < 0:
            raise InvalidJob(f"start must be the number of a job of the flow, 0 or more, not {start!r:.100}")
        return await graph(session, id, start, checked_limit(limit))

    @on_app_loop
    async def progress(self, session: Session, ids: Sequence[str]) -> dict[str, FlowProgress]:
        """How many jobs of these flows (1,000 at most) have ended, by the ids of the flows.

        It reads about 2,000 jobs: the number for a flow of more than 500 jobs is estimated from 100 of them, and
        unended flows are left out when all 2,000 are read.
        """
        if len(ids) > PAGE:
            raise InvalidJob(f"progress() takes at most {PAGE} flows, not {len(ids)}; split the list")
        return await progress(session, [checked_text(id, "the id of a flow") for id in ids])

    @audited("flow.cancel")
    @on_app_loop
    async def cancel(self, session: Session, id: str) -> bool:
        """Cancel every job of a flow that has not ended."""
        own, release = await FlowJobs(session).own(id), self.release(session)
        if own.state in TERMINAL:
            return False
        await release.write_pending(id, lambda left: msgspec.structs.replace(left, cancel=True))
        await release.process_now([id])
        return True

    @on_app_loop
    async def delete(self, session: Session, own: Record) -> None:
        """Delete a flow that has ended, and its jobs. Its own job first: from then on it cannot be retried."""
        members, release = FlowJobs(session), self.release(session)
        jobs = await members.count(own)
        await release.write_pending(own.id, lambda left: msgspec.structs.replace(left, delete=jobs))
        await release.process_now([own.id])
        with suppress(StoreUnavailable):
            for kept in await members.get([own.id]):
                if kept.state not in TERMINAL:
                    wanted = "the flow was retried meanwhile, so it was not deleted; cancel the flow, then delete it"
                    raise InvalidState(own.id, kept.state, wanted)

    @audited("flow.retry")
    async def retry(self, id: str, which: Collection[str] | None = None) -> int:
        """Retry the dead jobs of a flow (or some of its jobs), and then their dependents that did not run.

        A cancelled flow continues with all jobs that had not succeeded. Returns how many.
        """
        return len(await self.retry_jobs(id, which))

    @on_app_loop
    async def process_now(self, session: Session, ended: Sequence[str]) -> None:
        """Process the end of these jobs."""
        await self.release(session).process_now(ended)

    @on_app_loop
    async def store_follow_ups(self, session: Session, ended: Sequence[Record]) -> dict[str, BaseException]:
        """Before these jobs are retried or deleted: store their follow-ups, if that is pending; returns the errors."""
        return await self.release(session).store_follow_ups(ended)

    @on_app_loop
    async def with_results(self, session: Session, record: Record) -> bytes:
        """The payload of a job with its parents' results filled in."""
        return await with_results(session, record)

    @on_app_loop
    async def retry_jobs(self, session: Session, id: str, which: Collection[str] | None = None) -> set[str]:
        """As `retry`; returns the ids of the jobs that were changed."""
        jobs, release = FlowJobs(session), self.release(session)
        own = await jobs.own(id)
        resets: list[Change] = []
        waiting: list[Change] = []
        taken: set[int] = set()
        awaited: set[Waiting] = set()
        async for record in jobs.members(id, await jobs.count(own)):
            extra, asked = extras.read(record.extra), which is None or record.id in which
            after = (
                bool(taken) if extra.allow_unfinished is not None else any(number in taken for number, _ in extra.after)
            )
            cancelled = record.state == State.CANCELLED and not unneeded(record) and (asked or after)
            if cancelled or (record.state == State.DEAD and asked and after):
                waiting_for = end_of(member(id, max(extra.after)[0])) if extra.after else beginning_of(id)
                waiting_for = all_of(id) if extra.allow_unfinished is not None else waiting_for
                patch = msgspec.structs.replace(again(record), state=State.BLOCKED, waiting_for=waiting_for)
                waiting.append(Change(record.id, record.state, record.fence, patch))
                awaited.add(waiting_for)
            elif record.state == State.DEAD and asked:
                resets.append(reset(record))
            else:
                awaited.update([record.waiting_for] if record.waiting_for is not None else [])
                continue
            taken.add(number_in(id, record.id))
        if not taken and (which is not None or own.state == State.SUCCEEDED):
            [meant, *_] = await jobs.get(which or ()) or [own]
            raise InvalidState(meant.id, meant.state, "it has not failed, so there is nothing to retry")
        await session.commit.check([*resets, *waiting])  # before anything is written
        # First the parents, because a process that decides about their dependents reads them again (`_taken_back`);
        # then all dependents, some of which may have ended long ago.
        parents = sorted(what.name for what in awaited if what.kind == "dependency")
        await release.write_pending(id, lambda left: mentioning(Pending(also=left.also), parents))
        try:
            written = await release.reopen(id, [*resets, *waiting])
        except (StoreUnavailable, OutcomeUnknown) as error:
            text = f"some jobs of flow {id} may have been retried, and others not; retry the flow again: {error}"
            raise OutcomeUnknown(text, (id,)) from error
        await release.process_now([id, *parents])
        return {change.id for change, done in zip([*resets, *waiting], written, strict=True) if done}


async def _check_outside(session: Session, flow: str, ids: Sequence[str]) -> None:
    """JobNotFound, or InvalidJob, if a new flow cannot wait for one of these jobs."""
    jobs = FlowJobs(session)
    found = {record.id: record for record in await jobs.get([flow, *ids])}
    for id in ids:
        if id not in found and flow not in found:  # a flow that was stored before may have outlived its parents
            raise JobNotFound(id)
        if id in found and extras.is_flow(found[id]):
            raise InvalidJob(f"after() cannot wait for flow {id}, only for jobs: pass the handle of one of its jobs")


async def _reserve(session: Session, flow: str) -> int:
    """A number for one more job of a flow."""
    store, jobs_of = session.store, FlowJobs(session)
    while True:
        own = await jobs_of.own(flow)
        if own.state in TERMINAL or cancelling(own.meta):
            raise InvalidState(
                flow,
                own.state,
                "it is a flow that has ended or is being cancelled; no job was added: enqueue the job without the flow",
            )
        if not has_grown(own.meta):
            mark = Change(flow, own.state, own.fence, Patch(meta=GROWN), expected_task=TASK)
            if not (await jobs_of.change([mark]))[0]:
                continue  # it has just ended
        kept = (await records_of(store, counting(flow))).get("jobs")
        known = None if kept is None else number_kept(kept)
        jobs = await jobs_of.count(own) if known is None else known
        version = 0 if kept is None else kept.version
        if await store.put_record(counting(flow), "jobs", str(jobs + 1).encode(), version):
            return jobs


async def _give_back(session: Session, flow: str, number: int) -> None:
    """Release an unused number. If others have taken the next ones, it is a harmless gap."""
    with suppress(HoldfastError):
        kept = (await records_of(session.store, counting(flow))).get("jobs")
        if kept is not None and number_kept(kept) == number + 1:
            await session.store.put_record(counting(flow), "jobs", str(number).encode(), kept.version)
