"""Flows in the store: started all at once, looked at and operated as one.

A flow is a job of its own (task `flow`) that no worker runs: it is blocked until all of its jobs have ended, and ends
with them (`completion.py`). Its jobs have its id and a number: `ID.0`, `ID.1`, … so that all are found without a
list. They are stored blocked, before the flow's own job, whose insert starts it (`creation.py`).

Each operation of several writes has one that decides. An error before it means that nothing happened; after it, what is
left to do is written down (`Pending`), and any worker does it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol, cast

import msgspec

from ..core import internal as extras
from ..core.errors import HoldfastError, InvalidJob, OutcomeUnknown, StoreUnavailable, WrongState
from ..core.flow_rules import FlowEnd, cancelling, member, number_in, unneeded
from ..core.internal import Extra
from ..core.job import TERMINAL, UNDECODABLE, NewJob, Record, State
from ..core.lifecycle import retry as new_life
from ..core.operations import Change
from ..core.validation import checked_text
from ..core.waiting import Waiting, all_of, beginning_of, end_of
from ..tasks.handle import BlockingHandle, Handle
from ..views import Job, job_seen, states_named
from .builder import Flow, Node, Work, grown
from .completion import JOBS_MOST, UNKNOWN, About, again, counting, gathering, number_kept
from .creation import ENDED, QUEUE, TASK, Pending, digest_of, nonce_of, pending
from .release import FlowEnds, mentioning

if TYPE_CHECKING:
    from ..client.enqueue import Enqueuing

ID_LENGTH = 500
"""Characters of a flow's id, at the most: those of its jobs are longer."""
STATES = TERMINAL | {State.BLOCKED}
"""Those that a flow can be in: no worker runs it."""


class FlowStatus(msgspec.Struct, frozen=True):
    """A flow in numbers."""

    id: str
    name: str
    state: str
    jobs: int
    created_at: datetime
    error: str | None = None
    counts: dict[str, int] = {}
    """Its jobs by state; empty in a list of flows."""
    ended: FlowEnd | None = None
    """How it ended, where it has; its `error` says the same to people."""
    cancelling: bool = False
    """It has not ended, and is being cancelled."""


class FlowPage(msgspec.Struct, frozen=True):
    """Some flows, newest first; `cursor` fetches the next page, None where this was the last."""

    flows: list[FlowStatus]
    cursor: str | None


class BlockingFlow(Protocol):
    """A handle on a flow for blocking code; its methods are those of `FlowHandle`."""

    id: str

    def handle(self, node: Node | int) -> BlockingHandle[Any]:
        """A handle on one of its jobs."""
        ...

    def status(self) -> FlowStatus:
        """How far it is."""
        ...

    def jobs(self) -> list[Job]:
        """All of its jobs that are kept, in the order in which they were added."""
        ...

    def wait(self, timeout: float | None = None) -> FlowStatus:
        """Wait until all of its jobs have ended, however they did."""
        ...

    def cancel(self) -> bool:
        """Cancel every job that has not ended; False where the flow has."""
        ...

    def retry(self) -> int:
        """Run what died again, and then what was not run because of it; how many jobs."""
        ...


class BlockingFlows(Protocol):
    """An app's blocking side, as far as flows need it."""

    def wrap_flow(self, handle: FlowHandle, /) -> BlockingFlow:
        """A handle on a flow for blocking code."""
        ...


class FlowHandle:
    """One flow, in any process: `app.flow(id)` makes one from an id alone."""

    def __init__(self, app: Enqueuing, id: str, flow: Flow | None = None) -> None:
        self._app = app
        self._flow = flow
        self.id = id

    def __repr__(self) -> str:
        return f"FlowHandle({self.id!r})"

    @property
    def sync(self) -> BlockingFlow:
        """The same handle for blocking code."""
        return cast("BlockingFlows", self._app.sync).wrap_flow(self)

    def handle(self, node: Node | int) -> Handle[Any]:
        """A handle on one of its jobs."""
        if isinstance(node, Node):
            if self._flow not in (None, node.flow):
                raise InvalidJob(f"{node!r} is of another flow than {self.id}")
            return Handle(self._app, member(self.id, node.number), node.call.task.decode_result)
        if type(node) is not int or node < 0:
            raise InvalidJob(f"a job of a flow is meant by its node or its number, not {node!r:.100}")
        return Handle(self._app, member(self.id, node))

    async def status(self) -> FlowStatus:
        """How far it is."""
        return await self._app.at_home(lambda: Flows(self._app).status(self.id))

    async def jobs(self) -> list[Job]:
        """All of its jobs that are kept, in the order in which they were added."""
        return [job_seen(record) for record in await self._app.at_home(lambda: Flows(self._app).members(self.id))]

    async def wait(self, timeout: float | None = None) -> FlowStatus:
        """Wait until all of its jobs have ended, however they did. TimeoutError where they have not in time."""
        await self._app.ended(self.id, timeout)
        return await self.status()

    async def cancel(self) -> bool:
        """Cancel every job that has not ended; False where the flow has."""
        return await self._app.at_home(lambda: Flows(self._app).cancel(self.id))

    async def retry(self) -> int:
        """Run what died again, from attempt 0, and then what was not run because of it; how many jobs."""
        return await self._app.at_home(lambda: Flows(self._app).retry(self.id))


class Flows(FlowEnds):
    """The flows of a store."""

    # -- enqueue

    async def start(self, flow: Flow, id: str | None = None) -> FlowHandle:
        """Store a flow and begin it: all of it, or nothing. The same id and the same jobs are the same flow."""
        app = self._app
        if not flow.nodes:
            raise InvalidJob("a flow needs at least one job")
        if len(flow.nodes) > JOBS_MOST:
            raise InvalidJob(f"a flow has at most {JOBS_MOST} jobs, not {len(flow.nodes)}")
        if id is not None and "." in checked_text(id, "id", ID_LENGTH):
            raise InvalidJob(f"the id of a flow has no dot, unlike {id!r}: its jobs are called ID.0, ID.1 and so on")
        settings = app.session.fresh_settings()
        chosen, id = id is not None, id or app.entropy.uuid7(app.clock.now())
        forgiven = flow.forgiven()
        jobs = [self._job(id, node, node.about(id, forgiven=node.number in forgiven)) for node in flow.nodes]
        digest = digest_of(flow.name, jobs)
        nonce, about = nonce_of(id, digest), msgspec.json.encode(About(flow.name, len(jobs), digest=digest))
        own = NewJob(id, TASK, QUEUE, about, max_attempts=settings.max_attempts, waits=all_of(id), extra=gathering(id))
        own, *jobs = (msgspec.structs.replace(job, nonce=nonce) for job in (own, *jobs))
        await self._make(own, jobs, chosen=chosen)
        if "sweeps" not in app.session.store.features:
            await self.carry_on([id])
        else:  # whoever has the store does, and hears of it, or looks
            with suppress(HoldfastError):
                await app.put_record(ENDED, id, b"{}")
        return FlowHandle(app, id, flow)

    def _job(self, flow: str, node: Node, about: Extra) -> NewJob:
        call, app = node.call, self._app
        job = app.new_job(app.session.settings, call.task, call.options, call.args, call.kwargs, holes=about.holes)
        if job.extra is not None:
            said = extras.read(job.extra)
            about = msgspec.structs.replace(about, expires_at=said.expires_at, expires_in=said.expires_in)
        if node.all_but is not None:
            waits = all_of(flow)
        else:
            waits = end_of(member(flow, max(node.parents))) if node.parents else beginning_of(flow)
        return msgspec.structs.replace(job, id=member(flow, node.number), waits=waits, extra=extras.write(about))

    # -- add to a flow that runs

    async def add(
        self, record: Record, work: Work, args: tuple[Any, ...], kwargs: dict[str, Any], after: Iterable[str]
    ) -> Handle[Any]:
        """Add a job to the flow of a running one.

        One that comes after others waits for the running one first, whose end is told: so whatever becomes of this
        process, nothing is left waiting.
        """
        flow = extras.read(record.extra).flow
        if flow is None:
            raise InvalidJob(f"job {record.id} belongs to no flow")
        node = grown(flow, work, args, kwargs, after)
        try:
            node.number = await self._reserve(flow)
        except OutcomeUnknown as error:
            raise StoreUnavailable(f"no job was added to flow {flow}: {error}") from error
        job = self._job(flow, node, node.about(flow))
        waits = end_of(record.id) if node.parents else None
        job = msgspec.structs.replace(job, waits=waits, nonce=self._app.entropy.token())
        try:
            [id] = await self._app.insert_all([job])
        except OutcomeUnknown as error:  # another call adds another job, unless its key stands for this one
            text = f"job {job.id} may have been added to flow {flow}: {error}"
            raise OutcomeUnknown(text, (job.id,), retry_safe=job.key is not None) from error
        if id != job.id:  # refused, or its key stands for a job that was added before
            await self._give_back(flow, node.number)
        if isinstance(id, HoldfastError):
            raise id
        if not id.startswith(f"{flow}."):
            raise InvalidJob(f"key {job.key!r} stands for job {id}, which is not of flow {flow}; choose another")
        if node.parents:
            await self.carry_on([record.id])  # nothing, unless its claim was lost and another has ended it
        return Handle(self._app, id, node.call.task.decode_result)

    async def _reserve(self, flow: str) -> int:
        """A number for one more job of a flow."""
        store = self._app.session.store
        while True:
            own = await self._own(flow)
            if own.state in TERMINAL or cancelling(own.meta):
                raise WrongState(flow, own.state, "it has ended or was cancelled: nothing can be added to it")
            kept = (await store.records(counting(flow))).get("jobs")
            known = None if kept is None else number_kept(kept)
            jobs = await self._count(own) if known is None else known
            version = 0 if kept is None else kept.version
            if await store.put_record(counting(flow), "jobs", str(jobs + 1).encode(), version):
                return jobs

    async def _give_back(self, flow: str, number: int) -> None:
        """A number was not used. Where others have taken the next ones, it is a gap, which does no harm."""
        with suppress(HoldfastError):
            kept = (await self._app.session.store.records(counting(flow))).get("jobs")
            if kept is not None and number_kept(kept) == number + 1:
                await self._app.session.store.put_record(counting(flow), "jobs", str(number).encode(), kept.version)

    # -- observe and operate

    async def members(self, id: str) -> list[Record]:
        """All jobs of a flow that are kept, in order."""
        own = await self._own(id)
        return [record async for record in self._members(id, await self._count(own))]

    async def list(
        self, *, state: str | Sequence[str] | None = None, limit: int = 100, cursor: str | None = None
    ) -> FlowPage:
        """A page of flows, newest first. One that has not ended is blocked."""
        named = states_named(state)
        if wrong := [word for word in named if word not in STATES]:
            raise InvalidJob(f"a flow is one of {', '.join(sorted(STATES))}, and never {', '.join(wrong)}")
        page = await self._app.jobs(state=state, queue=QUEUE, task=TASK, limit=limit, cursor=cursor)
        return FlowPage([_status(job) for job in page.jobs], page.cursor)

    async def in_the_making(self) -> set[str]:
        """The flows whose jobs are stored, or being stored, and that are not started yet."""
        left = await self._app.session.store.records(ENDED)
        return {id for id, kept in left.items() if pending(kept).making is not None}

    async def status(self, id: str) -> FlowStatus:
        """A flow in numbers."""
        own = await self._own(id)
        jobs = await self._count(own)
        counts: dict[str, int] = {}
        async for record in self._members(id, jobs):
            state = str(record.state)
            counts[state] = counts.get(state, 0) + 1
        return msgspec.structs.replace(_status(job_seen(own)), jobs=jobs, counts=counts)

    async def cancel(self, id: str) -> bool:
        """Cancel every job of a flow that has not ended."""
        own = await self._own(id)
        if own.state in TERMINAL:
            return False
        await self._leave(id, lambda left: msgspec.structs.replace(left, cancel=True))
        await self.carry_on([id])
        return True

    async def delete(self, own: Record) -> None:
        """Remove a flow that has ended, and its jobs. Itself first: from then on nobody can retry it."""
        jobs = await self._count(own)
        await self._leave(own.id, lambda left: msgspec.structs.replace(left, delete=jobs))
        await self.carry_on([own.id])
        with suppress(StoreUnavailable):
            if any(kept.state not in TERMINAL for kept in await self._get([own.id])):
                raise WrongState(own.id, own.state, "it was retried meanwhile, and goes on; look again")

    async def retry(self, id: str, which: Collection[str] | None = None) -> int:
        """Run the dead jobs of a flow again (or some of its jobs), and then what was not run because of them.

        A flow that was cancelled goes on with everything that had not ended well. Says how many jobs that are.
        """
        return len(await self.retry_jobs(id, which))

    async def retry_jobs(self, id: str, which: Collection[str] | None = None) -> set[str]:
        """The same; the ids of the jobs that were changed."""
        own = await self._own(id)
        lives: list[Change] = []
        waiting: list[Change] = []
        taken: set[int] = set()
        awaited: set[Waiting] = set()
        async for record in self._members(id, await self._count(own)):
            extra, asked = extras.read(record.extra), which is None or record.id in which
            after = bool(taken) if extra.all_but is not None else any(number in taken for number, _ in extra.after)
            cancelled = record.state == State.CANCELLED and not unneeded(record) and (asked or after)
            if cancelled or (record.state == State.DEAD and asked and after):
                waits = end_of(member(id, max(extra.after)[0])) if extra.after else beginning_of(id)
                waits = all_of(id) if extra.all_but is not None else waits
                patch = msgspec.structs.replace(again(record), state=State.BLOCKED, waits=waits)
                waiting.append(Change(record.id, record.state, record.fence, patch))
                awaited.add(waits)
            elif record.state == State.DEAD and asked:
                lives.append(new_life(record))
            else:
                awaited.update([record.waits] if record.waits is not None else [])
                continue
            taken.add(number_in(id, record.id))
        if not taken and (which is not None or own.state == State.SUCCEEDED):
            [meant, *_] = await self._get(which or ()) or [own]
            raise WrongState(meant.id, meant.state, "it has not failed: there is nothing to retry")
        await self._app.session.commit.check([*lives, *waiting])  # before anything is written
        # First the parents, for whoever has decided about what waits for them looks at them again (`_taken_back`); and
        # then at all of them, some of which may have ended long ago.
        parents = sorted(what.name for what in awaited if what.kind == "dependency")
        await self._leave(id, lambda left: mentioning(Pending(also=left.also), parents))
        try:
            await self._reopen(id)
            written = [*await self._change(lives), *await self._change(waiting)]
            await self._reopen(id)  # it may have ended before it knew of them
        except (StoreUnavailable, OutcomeUnknown) as error:
            text = f"some jobs of flow {id} may have been retried, and others not: {error}; retry the flow to go on"
            raise OutcomeUnknown(text, (id,)) from error
        await self.carry_on([id, *parents])
        return {change.id for change, done in zip([*lives, *waiting], written, strict=True) if done}


def _status(own: Job) -> FlowStatus:
    try:
        about = msgspec.convert(own.payload, About)
    except UNDECODABLE:
        about = UNKNOWN
    over, jobs = own.state in TERMINAL, about.jobs + about.grown
    return FlowStatus(
        own.id, about.name, own.state, jobs, own.created_at, own.error,
        ended=about.ended if over else None, cancelling=not over and cancelling(own.meta),
    )  # fmt: skip
