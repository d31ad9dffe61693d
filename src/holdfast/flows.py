"""Flows in the store: started all at once, looked at and operated as one.

A flow is a job of its own (task `flow`) that no worker runs: it is blocked until all of its jobs have ended, and ends
with them (`flow_ends.py`). Its jobs have its id and a number: `ID.0`, `ID.1`, … so that all are found without a list.
All of them are stored blocked. One change then makes the flow begin: before it nothing runs, after it everything will.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from . import extra as extras
from .errors import HoldfastError, InvalidJob, JobNotFound, WrongState
from .flow import Flow, Node, Work, all_of, beginning_of, end_of, grown, member
from .flow_ends import ENDED, MAKING, PAGE, QUEUE, TASK, About, FlowEnds, again, counting, gathering, unneeded
from .handle import Handle
from .job import TERMINAL, Change, NewJob, Patch, Record, State
from .lifecycle import cancel
from .lifecycle import retry as new_life
from .view import Job, job_seen

if TYPE_CHECKING:
    from .app import Holdfast


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


class FlowPage(msgspec.Struct, frozen=True):
    """Some flows, newest first; `cursor` fetches the next page, None where this was the last."""

    flows: list[FlowStatus]
    cursor: str | None


class FlowHandle:
    """One flow, in any process: `app.flow(id)` makes one from an id alone."""

    def __init__(self, app: Holdfast, id: str) -> None:
        self._app = app
        self.id = id

    def __repr__(self) -> str:
        return f"FlowHandle({self.id!r})"

    def handle(self, node: Node | int) -> Handle[Any]:
        """A handle on one of its jobs."""
        if isinstance(node, Node):
            return Handle(self._app, member(self.id, node.number), node.call.task.decode_result)
        return Handle(self._app, member(self.id, node))

    async def status(self) -> FlowStatus:
        """How far it is."""
        return await self._app.at_home(lambda: self._app.flows.status(self.id))

    async def jobs(self) -> list[Job]:
        """All of its jobs that are kept, in the order in which they were added."""
        return [job_seen(record) for record in await self._app.at_home(lambda: self._app.flows.members(self.id))]

    async def wait(self, timeout: float | None = None) -> FlowStatus:
        """Wait until all of its jobs have ended, however they did. TimeoutError where they have not in time."""
        await self._app.ended(self.id, timeout)
        return await self.status()

    async def cancel(self) -> bool:
        """Cancel every job that has not ended; False where the flow has."""
        return await self._app.at_home(lambda: self._app.flows.cancel(self.id))

    async def retry(self) -> int:
        """Run what died again, from attempt 0, and then what was not run because of it; how many jobs."""
        return await self._app.at_home(lambda: self._app.flows.retry(self.id))


class Flows(FlowEnds):
    """The flows of a store."""

    # -- enqueue

    async def start(self, flow: Flow) -> FlowHandle:
        """Store a flow and begin it: all of it, or nothing."""
        app = self._app
        await app.open()
        if not flow.nodes:
            raise InvalidJob("a flow needs at least one job")
        settings = app.session.fresh_settings()
        id = app.entropy.uuid7(app.clock.now())
        jobs = [self._job(id, node) for node in flow.nodes]
        about = msgspec.json.encode(About(flow.name, len(jobs)))
        own = NewJob(id, TASK, QUEUE, about, max_attempts=settings.max_attempts, waits=MAKING, extra=gathering(id))
        await self._insert([own, *jobs])
        await app.put_record(ENDED, id, b"{}")
        await self._change([Change(id, State.BLOCKED, 0, Patch(state=State.BLOCKED, waits=all_of(id)))])
        if "sweeps" not in app.session.store.features:  # else whoever has the store does
            await self.free([id])
        return FlowHandle(app, id)

    def _job(self, flow: str, node: Node) -> NewJob:
        call, app = node.call, self._app
        about = node.about(flow)
        job = app.new_job(app.session.settings, call.task, call.options, call.args, call.kwargs, holes=about.holes)
        if job.extra is not None:
            said = extras.read(job.extra)
            about = msgspec.structs.replace(about, expires_at=said.expires_at, expires_in=said.expires_in)
        if node.all_but is not None:
            waits = all_of(flow)
        else:
            waits = end_of(member(flow, max(node.parents))) if node.parents else beginning_of(flow)
        return msgspec.structs.replace(
            job, id=member(flow, node.number), waits=waits, extra=extras.write(about), nonce=app.entropy.token()
        )

    async def _insert(self, jobs: Sequence[NewJob]) -> None:
        for start in range(0, len(jobs), PAGE):
            for answer in await self._app.insert_all(jobs[start : start + PAGE]):
                if isinstance(answer, HoldfastError):
                    await self._forget(jobs[0].id, len(jobs) - 1)
                    raise answer

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
        node.number = await self._reserve(flow)
        job = msgspec.structs.replace(self._job(flow, node), waits=end_of(record.id) if node.parents else None)
        [id] = await self._app.insert_all([job])
        if isinstance(id, HoldfastError):
            raise id
        return Handle(self._app, id, node.call.task.decode_result)

    async def _reserve(self, flow: str) -> int:
        """A number for one more job of a flow."""
        store = self._app.session.store
        while True:
            kept = (await store.records(counting(flow))).get("jobs")
            if kept is None:
                [own] = await store.get([flow])
                if own is None:
                    raise JobNotFound(flow)
                jobs, version = msgspec.json.decode(own.payload, type=About).jobs, 0
            else:
                jobs, version = msgspec.json.decode(kept.value, type=int), kept.version
            if await store.put_record(counting(flow), "jobs", str(jobs + 1).encode(), version):
                return jobs

    # -- observe and operate

    async def _own(self, id: str) -> Record:
        record = await self._app.record(id)
        if record.task != TASK:
            raise InvalidJob(f"job {id} is not a flow")
        return record

    async def members(self, id: str) -> list[Record]:
        """All jobs of a flow that are kept, in order."""
        own = await self._own(id)
        return [record async for record in self._members(id, await self._count(own))]

    async def list(
        self, *, state: str | Sequence[str] | None = None, limit: int = 100, cursor: str | None = None
    ) -> FlowPage:
        """A page of flows, newest first. One that has not ended is blocked."""
        page = await self._app.jobs(state=state, queue=QUEUE, task=TASK, limit=limit, cursor=cursor)
        return FlowPage([_status(job) for job in page.jobs], page.cursor)

    async def status(self, id: str) -> FlowStatus:
        """A flow in numbers."""
        own = await self._own(id)
        jobs = await self._count(own)
        counts: dict[str, int] = {}
        async for record in self._members(id, jobs):
            counts[record.state] = counts.get(record.state, 0) + 1
        return msgspec.structs.replace(_status(job_seen(own)), jobs=jobs, counts=counts)

    async def cancel(self, id: str) -> bool:
        """Cancel every job of a flow that has not ended."""
        own = await self._own(id)
        if own.state in TERMINAL:
            return False
        await self._change([Change(id, own.state, own.fence, Patch(meta={"cancelled": True}))])
        jobs, rules = await self._count(own), self._app.session.rules
        while True:
            wishes = [cancel(r, rules) async for r in self._members(id, jobs) if r.state not in TERMINAL]
            changes = [wish for wish in wishes if wish is not None]
            if not changes:
                break
            for at in range(0, len(changes), PAGE):
                await self._change(changes[at : at + PAGE])
        await self.repair()
        return True

    async def retry(self, id: str, which: str | None = None) -> int:
        """Run the dead jobs of a flow again (or one of them), and then what was not run because of them.

        A flow that was cancelled goes on with everything that had not ended well.
        """
        own = await self._own(id)
        if own.state == State.SUCCEEDED:
            raise WrongState(id, own.state, "all of its jobs have ended well: there is nothing to retry")
        jobs = await self._count(own)
        if own.state in TERMINAL:
            patch = msgspec.structs.replace(again(own), state=State.BLOCKED, waits=all_of(id), extra=gathering(id))
            patch = msgspec.structs.replace(patch, meta={"cancelled": False})
            await self._change([Change(id, own.state, own.fence, patch)])
            await self._keep(id, jobs, None)
        lives: list[Change] = []
        waiting: list[Change] = []
        async for record in self._members(id, jobs):
            extra = extras.read(record.extra)
            if record.state == State.DEAD and which in (None, record.id):
                lives.append(new_life(record))
            elif record.state == State.CANCELLED and not unneeded(record):
                waits = end_of(member(id, max(extra.after)[0])) if extra.after else beginning_of(id)
                waits = all_of(id) if extra.all_but is not None else waits
                patch = msgspec.structs.replace(again(record), state=State.BLOCKED, waits=waits)
                waiting.append(Change(record.id, record.state, record.fence, patch))
        # First what waits, then what it waits for; and a look at all parents, some of which may have ended long ago.
        await self._change(waiting)
        await self._change(lives)
        await asyncio.gather(*(self._app.put_record(ENDED, each, b"{}") for each in await self._awaited(id, waiting)))
        await self.repair()
        return len(lives) + len(waiting)

    async def _awaited(self, flow: str, waiting: Sequence[Change]) -> list[str]:
        """The ended jobs that others wait for again: their end is told once more."""
        wanted = {c.patch.waits for c in waiting if c.patch is not None}
        ids = [what.removeprefix("job:") for what in wanted if isinstance(what, str) and what.startswith("job:")]
        ended = [record.id for record in await self._get(ids) if record.state in TERMINAL]
        return [*ended, flow]


def _status(own: Job) -> FlowStatus:
    about = msgspec.convert(own.payload, About)
    return FlowStatus(own.id, about.name, own.state, about.jobs, own.created_at, own.error)
