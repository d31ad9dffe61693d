"""Reads for people: jobs, queues, workers, and why a job does not run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, overload

import msgspec

from ..core.errors import InvalidJob
from ..core.job import State
from ..core.operations import Holder, QueueStats
from ..core.validation import checked_cursor, checked_limit
from ..store.protocol import Finding
from ..views import Job, WorkerInfo, job_view, known_state, states_named, with_listeners, worker_info
from .runtime import Runtime, on_app_loop
from .search import find_page, reading_from, where_of
from .session import Session

if TYPE_CHECKING:
    from .explain import Explanation
    from .reasons import Reasons


class Page(msgspec.Struct, frozen=True):
    """A page of jobs, newest first; `cursor` fetches the next page, None on the last one."""

    jobs: list[Job]
    cursor: str | None


class Stats(msgspec.Struct, frozen=True):
    """The counts of a store."""

    queues: list[QueueStats]
    workers: int
    warnings: tuple[Finding, ...] = ()
    """Current conditions of the store that may lose jobs, each with `what` and `advice`."""

    @property
    def counts(self) -> dict[str, int]:
        """Jobs by state, over all queues, zeros included."""
        totals = {state.value: 0 for state in State}
        for queue in self.queues:
            for state, count in queue.counts.items():
                totals[known_state(state)] += count
        return totals


class Inspection:
    """Read-only operations on a store."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    @on_app_loop
    async def jobs(
        self,
        session: Session,
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
        with reading_from(cursor):
            found = await find_page(session.store, where, checked_cursor(cursor), limit)
        return Page([job_view(record) for record in found.records], found.cursor)

    @on_app_loop
    async def stats(self, session: Session) -> Stats:
        """Counts by queue and state, and the number of live workers."""
        queues = await session.store.stats()
        workers = await _live_workers(session)
        return Stats(with_listeners(queues, workers), len(workers), await session.health.warnings())

    @on_app_loop
    async def queues(self, session: Session) -> tuple[list[QueueStats], int, tuple[Finding, ...]]:
        """The counts of every queue, the store's time, and current conditions that may lose jobs."""
        store = session.store
        queues = with_listeners(await store.stats(), await _live_workers(session))
        return queues, await store.now(), await session.health.warnings()

    @on_app_loop
    async def workers(self, session: Session) -> list[WorkerInfo]:
        """The live workers (and manual claims), by node and pid."""
        holders = await session.store.holders()
        seen = [worker_info(one) for one in holders if one.alive and (one.jobs or one.holder.kind == "worker")]
        return sorted(seen, key=lambda one: (one.node, one.pid, one.id))

    @overload
    async def explain(self, id: str) -> Explanation: ...
    @overload
    async def explain(self, id: None = None, *, queue: str | None = None) -> Reasons: ...
    @on_app_loop
    async def explain(
        self, session: Session, id: str | None = None, *, queue: str | None = None
    ) -> Explanation | Reasons:
        """Why a job is not running; without an id: why the jobs of a queue, or of the whole store, wait."""
        if id is None:
            from .reasons import reasons  # late: few programs ask

            return await reasons(session, queue)
        if queue is not None:
            raise InvalidJob("explain() takes a job's id or queue=, not both; leave one out")
        from .explain import explain  # late, as above

        return await explain(session, id)


async def _live_workers(session: Session) -> list[Holder]:
    seen = await session.store.holders()
    return [one.holder for one in seen if one.alive and one.holder.kind == "worker"]
