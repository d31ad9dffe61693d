"""OBSERVE and operate: what command line, HTTP and dashboard ask of an app, so that they cannot disagree."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload

import msgspec

from ..codec.meta import checked_meta
from ..core import internal as extra
from ..core import lifecycle
from ..core.damage import damage_of
from ..core.errors import HoldfastError, InvalidJob, StoreUnavailable, WrongState
from ..core.job import TERMINAL, Record, State
from ..core.operations import Change, Holder, Minute, Moves, Printed, QueueStats, Where
from ..core.validation import checked_cursor, checked_filter, checked_limit, checked_name, checked_seconds, checked_text
from ..core.writes import Writes
from ..observe.events import Handler
from ..store.protocol import Finding, Versioned
from ..views import Job, WorkerSeen, job_seen, state_seen, states_named, with_listeners, worker_seen
from . import signals
from . import unique as once
from .pauses import KIND as PAUSES
from .pauses import Pause, checked_pause, read
from .runtime import Home, carried

if TYPE_CHECKING:
    from ..tasks.registry import Registry

logger = logging.getLogger("holdfast")
H = TypeVar("H", bound=Handler)
OUTPUT_PAGE = 1 << 20
"""Bytes of output that one call reads, about."""
MOVES_DEFAULT = 1000
"""Moves that one call answers, unless told otherwise."""
TRIES = 100
"""Changes of one job that may each come too late; somebody else changes it no more often than that."""


class Page(msgspec.Struct, frozen=True):
    """Some jobs, newest first; `cursor` fetches the next page, None where this was the last."""

    jobs: list[Job]
    cursor: str | None


class Stats(msgspec.Struct, frozen=True):
    """A store in numbers."""

    queues: list[QueueStats]
    workers: int
    warnings: tuple[Finding, ...] = ()
    """What may lose jobs as the store is now: each says `what`, and has `advice`."""

    @property
    def counts(self) -> dict[str, int]:
        """Jobs by state, over all queues, zeros included."""
        totals = {state.value: 0 for state in State}
        for queue in self.queues:
            for state, count in queue.counts.items():
                totals[state_seen(state)] += count
        return totals


class OperatedFlows(Protocol):
    """What operating on a job asks of the flows that it may belong to."""

    def cancel(self, id: str) -> Coroutine[Any, Any, bool]:
        """Cancel every job of a flow that has not ended."""
        ...

    def carry_on(self, ended: Sequence[str], /) -> Coroutine[Any, Any, object]:
        """Do what follows from the end of these jobs."""
        ...

    def retry(self, id: str, which: Collection[str] | None = None) -> Coroutine[Any, Any, int]:
        """Run the dead jobs of a flow again, or some of its jobs."""
        ...

    def retry_jobs(self, id: str, which: Collection[str] | None = None) -> Coroutine[Any, Any, set[str]]:
        """The same; the ids of the jobs that were changed."""
        ...

    def delete(self, own: Record) -> Coroutine[Any, Any, None]:
        """Remove a flow that has ended, and its jobs."""
        ...

    def in_the_making(self) -> Coroutine[Any, Any, set[str]]:
        """The flows whose jobs are stored, or being stored, and that are not started yet."""
        ...


class Operating(Home):
    """The observing and operating half of an app."""

    registry: Registry

    # -- observe

    @overload
    def on(self, name: str, handler: Handler, /) -> None: ...
    @overload
    def on(self, name: str, /) -> Callable[[H], H]: ...
    def on(self, name: str, handler: Any = None, /) -> Any:
        """Have every event of this name (`*`: of any) handed to a plain function; also as a decorator.

        It is called in this process, usually on the app's loop, after the store has written what it tells of: be quick.
        """

        def listen(handler: H) -> H:
            self.events.on(name, handler)
            return handler

        return listen if handler is None else self.events.on(name, handler)

    @carried
    async def job(self, id: str) -> Job:
        """One job as it is now."""
        return job_seen(await self.session.record(id))

    @carried
    async def record(self, id: str) -> Record:
        """One job as the store keeps it."""
        return await self.session.record(id)

    @carried
    async def ended(self, id: str, timeout: float | None = None) -> Record:
        """The stored job once it has ended; TimeoutError where it has not in time."""
        return await self.session.ended(id, timeout)

    @carried
    async def jobs(
        self,
        *,
        state: str | Sequence[str] | None = None,
        queue: str | None = None,
        task: str | None = None,
        tag: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page:
        """A page of jobs that match, newest first."""
        where, limit = where_of(states_named(state), queue, task, tag), checked_limit(limit)
        try:
            found = await self.session.store.find(where, checked_cursor(cursor), limit)
        except (ValueError, OverflowError) as error:
            if cursor is None or isinstance(error, HoldfastError):
                raise
            raise InvalidJob(f"this cursor is not one that a page gave: {cursor!r:.100}") from None
        return Page([job_seen(record) for record in found.records], found.cursor)

    @carried
    async def output(self, id: str, position: int = 0) -> list[Printed]:
        """What a job has printed from a position on (1 MiB or a little more at a time); see also `follow_output`."""
        if type(position) is not int or position < 0:
            raise InvalidJob(f"position is a number of bytes, not {position!r:.100}")
        return await self.session.store.output(checked_text(id, "id"), position, OUTPUT_PAGE)

    @carried
    async def now(self) -> int:
        """The store's own wall clock, in microseconds since 1970."""
        return await self.session.store.now()

    @carried
    async def stats(self) -> Stats:
        """Counts by queue and state, and the number of live workers."""
        queues = await self.session.store.stats()
        workers = await self._live_workers()
        return Stats(with_listeners(queues, workers), len(workers), await self.session.health.warnings())

    @carried
    async def queues(self) -> tuple[list[QueueStats], int, tuple[Finding, ...]]:
        """Every queue in numbers, the store's time, and what may lose jobs as the store is now."""
        store = self.session.store
        queues = with_listeners(await store.stats(), await self._live_workers())
        return queues, await store.now(), await self.session.health.warnings()

    async def _live_workers(self) -> list[Holder]:
        seen = await self.session.store.holders()
        return [one.holder for one in seen if one.alive and one.holder.kind == "worker"]

    @carried
    async def workers(self) -> list[WorkerSeen]:
        """The live workers (and claims by hand), by node and pid."""
        holders = await self.session.store.holders()
        seen = [worker_seen(one) for one in holders if one.alive and (one.jobs or one.holder.kind == "worker")]
        return sorted(seen, key=lambda one: (one.node, one.pid, one.id))

    @carried
    async def moves(self, since: str | None = None, limit: int = MOVES_DEFAULT) -> Moves:
        """What jobs did since the cursor of an earlier answer; None: from now on. See `Store.moves`."""
        try:
            return await self.session.store.moves(checked_cursor(since), limit)
        except (ValueError, OverflowError) as error:
            if since is None or isinstance(error, HoldfastError):
                raise
            raise InvalidJob(f"this cursor is not one that moves gave: {since!r:.100}") from None

    @carried
    async def minutes(self, since: timedelta | float) -> list[Minute]:
        """How claims ended, minute by minute, over this long until now."""
        return await self.session.store.minutes(
            await self.session.store.now() - int(checked_seconds(since, "since") * 1_000_000)
        )

    # -- operate

    @property
    def flows(self) -> OperatedFlows:
        """Jobs that wait for each other."""
        raise NotImplementedError

    async def cancel(self, id: str) -> bool:
        """End a waiting job, ask a running one to stop; False if it had ended already. Of a flow: all of its jobs."""
        record = await self.record(id)
        if extra.is_flow(record):
            return await self.at_home(lambda: self.flows.cancel(id))
        if await self._change(id, lambda record: lifecycle.cancel(record, self.session.rules)):
            if extra.flow_of(record) is not None:
                await self.at_home(lambda: self.flows.carry_on([id]))
            return True
        return (await self.record(id)).cancel  # asked for already, and not ended

    async def retry(self, id: str) -> Job:
        """Run an ended job again, from attempt 0, its history kept; or a waiting one at once.

        Of a flow: what died, and then what was not run because of it. A job of a flow takes along what waited for it.
        """
        record = await self.record(id)
        if damaged := damage_of(record):
            wanted = f"what is stored of it cannot be decoded ({', '.join(damaged)}), so it cannot run; delete it"
            raise WrongState(id, record.state, wanted)
        if (rival := (await self._rivals([record])).get(id)) is not None:
            wanted = f"its key {record.key!r} belongs to job {rival!r} by now, which lives; let that end, or cancel it"
            raise WrongState(id, record.state, wanted)
        flow = extra.read(record.extra).flow
        with Writes(
            f"the retry of job {id!r}", "look at the job before you retry it again", retry_safe=False
        ) as writes:
            if flow is not None and (flow == id or (record.state in TERMINAL and await self._kept(flow))):
                await self.at_home(lambda: self.flows.retry(flow, None if flow == id else [id]))
            else:
                await self._change(id, lifecycle.retry)
            writes.made += 1
            return await self.job(id)

    @carried
    async def _rivals(self, records: Sequence[Record]) -> dict[str, str]:
        return await once.rivals(self.session, records)

    @carried
    async def _kept(self, id: str) -> bool:
        return (await self.session.store.get([id]))[0] is not None

    async def delete(self, id: str) -> None:
        """Remove a job that is not running, and whose flow, if it is of one, has ended. Of a flow: all of its jobs."""
        record = await self.record(id)
        if await self._needed([record]):
            flow = extra.read(record.extra).flow
            raise WrongState(id, record.state, f"flow {flow} has not ended, and may need it; cancel the flow first")
        if extra.is_flow(record):
            await self.at_home(lambda: self.flows.delete(record))
            self.events.changed(record, lifecycle.delete(record))
        else:
            await self._change(id, lifecycle.delete)

    @carried
    async def _needed(self, records: Sequence[Record]) -> set[str]:
        """Those of some jobs that a flow may still need."""
        flows = {r.id: extra.read(r.extra).flow for r in records}
        wanted = sorted({flow for flow in flows.values() if flow is not None})
        own = await self.session.store.get(wanted) if wanted else []
        over = {flow.id for flow in own if flow is not None and flow.state in TERMINAL}
        if None in own:  # deleted, or not started yet
            gone = {flow for flow, one in zip(wanted, own, strict=True) if one is None}
            over |= gone - await self.flows.in_the_making()
        return {id for id, flow in flows.items() if flow is not None and flow not in over}

    async def annotate(self, id: str, /, **meta: Any) -> None:
        """Add to the meta of a job that lives."""
        added = checked_meta(meta)
        await self._change(id, lambda record: lifecycle.annotate(record, added))

    @carried
    async def signal(self, name: str, value: Any = None) -> int:
        """Wake every job that waits for this signal, and hand it the value; how many.

        It is kept for as long as keys are, for those who wait later. Sent again, it has the newer value.
        """
        return await signals.send(self.session, name, value)

    @carried
    async def _change(self, id: str, decide: Callable[[Record], Change | None]) -> bool:
        for _ in range(TRIES):
            record = await self.session.record(id)
            change = decide(record)
            if change is None:
                return False
            if (await self.session.commit.change([change]))[0]:
                self.events.changed(record, change)
                return True
        raise StoreUnavailable(f"job {id!r} was not changed: the store refused {TRIES} times; nothing was written")

    @carried
    async def pause(
        self, queue: str | None = None, *, task: str | None = None, where: Mapping[str, Any] | None = None
    ) -> bool:
        """Start no more jobs of a queue, or of a task, or of a task with certain arguments; those that run go on.

        A queue stands still at once. A task's jobs are put aside as they come up; workers hear of it within about a
        poll interval. False where no job, live worker, schedule or task of this app has that queue or task: it is
        paused all the same, and logged as a warning, since the name may be misspelled.
        """
        named = _named(queue, task, where)
        if named == "queue":
            name = checked_name(queue, "queue")
            known = await self._is_known(Where(queue=name))
            await self.put_record("pause", name, b"true")
        else:
            pause = checked_pause(task, where)
            name, known = pause.task, await self._is_known(Where(task=pause.task))
            await self.session.holds.set(pause)
        if not known:
            logger.warning(
                "%s %r is paused, but no job, worker, schedule or task here has that name: is it misspelled?",
                named,
                name,
            )
        return known

    async def _is_known(self, where: Where) -> bool:
        """Whether anything here has a queue, or a task."""
        tasks = self.registry.tasks
        if where.task in tasks or any(task.options.queue == where.queue for task in tasks.values() if where.queue):
            return True
        store = self.session.store
        if (await store.find(where, None, 1)).records:
            return True
        if any(
            where.queue in seen.holder.queues or where.task in seen.holder.tasks
            for seen in await store.holders()
            if seen.alive
        ):
            return True
        return await self._is_scheduled(where)

    async def _is_scheduled(self, where: Where) -> bool:
        """Whether a schedule has a queue, or a task."""
        raise NotImplementedError

    @carried
    async def resume(
        self, queue: str | None = None, *, task: str | None = None, where: Mapping[str, Any] | None = None
    ) -> bool:
        """Start them again; name what was paused as it was named then. False where nothing of that name was paused."""
        if _named(queue, task, where) == "task":
            return await self.session.holds.lift(checked_pause(task, where))
        name = checked_name(queue, "queue")
        paused = name in await self.records("pause")
        await self.put_record("pause", name, None)
        return paused

    @carried
    async def paused_tasks(self) -> list[Pause]:
        """The pauses of tasks that hold, by name; `stats` tells of those of queues."""
        return [pause for pause in read(await self.records(PAUSES)) if pause.resumed_at is None]

    @carried
    async def records(self, kind: str) -> dict[str, Versioned]:
        """The small shared records of a kind."""
        return await self.session.store.records(kind)

    @carried
    async def put_record(self, kind: str, name: str, value: bytes | None, expect: int | None = None) -> bool:
        """Set a small shared record; see `Store.put_record`."""
        written = await self.session.store.put_record(kind, name, value, expect)
        if kind in ("config", self.session.feed.kind):
            await self.session.refresh_after_a_write()  # others see it within seconds, whoever sets it at once
        return written


def _named(queue: str | None, task: str | None, where: Mapping[str, Any] | None) -> str:
    if (queue is None) == (task is None):
        raise InvalidJob("name either a queue or a task=")
    if where is not None and task is None:
        raise InvalidJob("where= goes with task=: it names arguments")
    return "task" if queue is None else "queue"


def where_of(
    states: tuple[str, ...], queue: str | None, task: str | None, tag: str | None, *, finished_before: int | None = None
) -> Where:
    """What a store is asked for, of names that a caller gave."""
    checked = [checked_filter(value, what) for value, what in ((queue, "queue"), (task, "task"), (tag, "tag"))]
    return Where(states, *checked, finished_before=finished_before)
