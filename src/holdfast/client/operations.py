"""Operations on one job, queue or task: the same rules for Python, command line, HTTP and dashboard."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from ..codec.meta import checked_meta
from ..core import internal as extra
from ..core import lifecycle
from ..core.clock import moment
from ..core.damage import damage_of
from ..core.errors import InvalidJob, InvalidState, StoreUnavailable
from ..core.job import TERMINAL, Record
from ..core.operations import Change, Where
from ..core.validation import checked_name
from ..core.writes import Writes
from ..observe.actors import note_before, note_changed, note_left
from ..store.protocol import records_of
from ..tasks.registry import Registry
from ..views import Job, job_view
from . import signals, unique
from .audited import audited
from .pauses import active_pauses, checked_pause
from .runtime import Runtime, on_app_loop
from .search import find_page
from .session import Session

logger = logging.getLogger("holdfast")
TRIES = 100
"""Tries of a guarded change of one job before it fails with StoreUnavailable."""


class OperatedFlows(Protocol):
    """The operations on flows that operations on a job need."""

    def cancel(self, id: str) -> Coroutine[Any, Any, bool]: ...

    def process_now(self, ended: Sequence[str], /) -> Coroutine[Any, Any, object]: ...

    def retry(self, id: str, which: Collection[str] | None = None) -> Coroutine[Any, Any, int]: ...

    def retry_jobs(self, id: str, which: Collection[str] | None = None) -> Coroutine[Any, Any, set[str]]: ...

    def delete(self, own: Record) -> Coroutine[Any, Any, None]: ...

    def store_follow_ups(self, ended: Sequence[Record], /) -> Coroutine[Any, Any, dict[str, BaseException]]: ...

    def in_the_making(self) -> Coroutine[Any, Any, set[str]]: ...


class Operations:
    """The operations on one job, queue or task.

    `flows`: for jobs of flows. `is_scheduled`: whether a schedule uses a queue, or a task.
    """

    def __init__(
        self,
        runtime: Runtime,
        registry: Registry,
        *,
        flows: Callable[[], OperatedFlows],
        is_scheduled: Callable[[Session, Where], Coroutine[Any, Any, bool]],
    ) -> None:
        self._runtime = runtime
        self._registry = registry
        self._flows = flows
        self._is_scheduled = is_scheduled

    @audited("cancel")
    @on_app_loop
    async def cancel(self, session: Session, id: str) -> bool:
        """Cancel a waiting job, ask a running one to stop; False if it had ended. For a flow: all of its jobs."""
        record = await session.record(id)
        if extra.is_flow(record):
            return await self._flows().cancel(id)
        if await self.change(session, id, lambda now: lifecycle.cancel(now, session.rules), record):
            if extra.flow_of(record) is not None:
                await self._flows().process_now([id])
            return True
        return (await session.record(id)).cancel  # already requested, and not ended

    @audited("retry")
    @on_app_loop
    async def retry(self, session: Session, id: str) -> Job:
        """Run an ended job again, from attempt 0, keeping its history; or a waiting one at once.

        For a flow: its dead jobs, and then their dependents that did not run. A job of a flow: with its dependents.
        """
        record = await session.record(id)
        if damaged := damage_of(record):
            wanted = f"its stored data cannot be decoded ({', '.join(damaged)}), so it cannot run; delete the job"
            raise InvalidState(id, record.state, wanted)
        if (rival := (await unique.rivals(session, [record])).get(id)) is not None:
            wanted = f"its key {record.key!r} now belongs to job {rival!r}; wait until that job ends, or cancel it"
            raise InvalidState(id, record.state, wanted)
        flow = extra.read(record.extra).flow
        with Writes(f"the retry of job {id!r}", "read the job before you retry it again", retry_safe=False) as writes:
            if flow is not None and (flow == id or (record.state in TERMINAL and await _kept(session, flow))):
                await self._flows().retry(flow, None if flow == id else [id])
            else:
                await self.change(session, id, lifecycle.retry)
            writes.made += 1
            return job_view(await session.record(id))

    @audited("delete")
    @on_app_loop
    async def delete(self, session: Session, id: str) -> None:
        """Delete a job that is not running and whose flow, if any, has ended. For a flow: all of its jobs."""
        record = await session.record(id)
        if await self.needed(session, [record]):
            flow = extra.read(record.extra).flow
            wanted = f"flow {flow} has not ended and may need it; cancel the flow or wait until it ends"
            raise InvalidState(id, record.state, wanted)
        if extra.is_flow(record):
            await self._flows().delete(record)
            self._runtime.events.changed(record, lifecycle.delete(record))
        else:
            await self.change(session, id, lifecycle.delete)

    async def needed(self, session: Session, records: Sequence[Record]) -> set[str]:
        """Those of the given jobs that a flow may still need."""
        flows = {r.id: extra.read(r.extra).flow for r in records}
        wanted = sorted({flow for flow in flows.values() if flow is not None})
        own = await session.store.get(wanted) if wanted else []
        over = {flow.id for flow in own if flow is not None and flow.state in TERMINAL}
        if None in own:  # deleted, or not started yet
            gone = {flow for flow, one in zip(wanted, own, strict=True) if one is None}
            over |= gone - await self._flows().in_the_making()
        return {id for id, flow in flows.items() if flow is not None and flow not in over}

    @audited("update_meta")
    @on_app_loop
    async def update_meta(self, session: Session, id: str, meta: Mapping[str, Any]) -> None:
        """Merge into the meta of a job that has not ended."""
        added = checked_meta(meta)
        await self.change(session, id, lambda record: lifecycle.update_meta(record, added))

    @on_app_loop
    async def signal(self, session: Session, name: str, value: Any = None) -> int:
        """Wake every job that waits for this signal, and pass it the value; returns how many.

        The signal is kept for key_retention seconds, for jobs that wait later. Sending it again replaces the value.
        """
        return await signals.send(session, name, value)

    async def change(
        self,
        session: Session,
        id: str,
        decide: Callable[[Record], Change | None],
        seen: Record | None = None,
        *,
        edited: bool = False,
    ) -> bool:
        """Change a job as `decide` says, again if it has changed meanwhile; False if it decides for no change.

        `seen`: the job as it was just read.
        """
        for _ in range(TRIES):
            record, seen = seen or await session.record(id), None
            change = decide(record)
            if change is None:
                return False
            if record.extra is not None and record.state in TERMINAL:
                failed = await self._flows().store_follow_ups([record])
                if failed:
                    failed[id].add_note(f"job {id!r} was not changed, because its follow-up could not be stored")
                    raise failed[id]
            due = moment(record.run_at)
            note_before(state=record.state, run_at=due, queue=record.queue, priority=record.priority)
            if (await session.commit.change([change]))[0]:
                note_changed(record)
                self._runtime.events.changed(record, change, edited=edited)
                return True
        raise StoreUnavailable(f"job {id!r} changed during each of {TRIES} tries; nothing was written: try again")

    @audited("pause")
    @on_app_loop
    async def pause(
        self,
        session: Session,
        queue: str | None = None,
        *,
        task: str | None = None,
        where: Mapping[str, Any] | None = None,
    ) -> bool:
        """Start no more jobs of a queue, a task, or a task with certain arguments; running jobs continue.

        A queue is paused at once. Jobs of a task are deferred when they are claimed; workers notice the pause within
        about a poll interval. False if no job, live worker, schedule or task of this app has that queue or task: it is
        paused anyway, and a warning is logged, since the name may be misspelled.
        """
        named = _named(queue, task, where)
        if named == "queue":
            name = checked_name(queue, "queue")
            known = await self._is_known(session, Where(queue=name))
            note_before(paused=name in await records_of(session.store, "pause"))
            written = msgspec.json.encode({"id": session.entropy.token()})  # which pause it is, for undo
            await session.store.put_record("pause", name, written)
        else:
            pause = checked_pause(task, where)
            name, known = pause.task, await self._is_known(session, Where(task=pause.task))
            note_before(paused=pause.name in (paused.name for paused in await active_pauses(session.store)))
            written = await session.task_pauses.set(pause)
        note_left(written)
        if not known:
            logger.warning(
                "%s %r is paused, but no job, worker, schedule or task of this app uses it: check the spelling",
                named,
                name,
            )
        return known

    async def _is_known(self, session: Session, where: Where) -> bool:
        """Whether any job, worker, schedule or task has a queue, or a task."""
        tasks = self._registry.tasks
        if where.task in tasks or any(task.options.queue == where.queue for task in tasks.values() if where.queue):
            return True
        store = session.store
        if (await find_page(store, where, None, 1)).records:
            return True
        if any(
            where.queue in seen.holder.queues or where.task in seen.holder.tasks
            for seen in await store.holders()
            if seen.alive
        ):
            return True
        return await self._is_scheduled(session, where)

    @audited("resume")
    @on_app_loop
    async def resume(
        self,
        session: Session,
        queue: str | None = None,
        *,
        task: str | None = None,
        where: Mapping[str, Any] | None = None,
    ) -> bool:
        """Lift a pause, named as it was set. False if nothing of that name was paused."""
        if _named(queue, task, where) == "task":
            pause = checked_pause(task, where)
            note_before(paused=pause.name in (paused.name for paused in await active_pauses(session.store)))
            return await session.task_pauses.lift(pause)
        name = checked_name(queue, "queue")
        paused = name in await records_of(session.store, "pause")
        note_before(paused=paused)
        await session.store.put_record("pause", name, None)
        return paused


async def _kept(session: Session, id: str) -> bool:
    return (await session.store.get([id]))[0] is not None


def _named(queue: str | None, task: str | None, where: Mapping[str, Any] | None) -> str:
    if (queue is None) == (task is None):
        raise InvalidJob("pause and resume: give exactly one of a queue and task=")
    if where is not None and task is None:
        raise InvalidJob("where= requires task=: it selects jobs of a task by their arguments")
    return "task" if queue is None else "queue"
