"""Bulk operations: search, count, and retry, cancel, move and delete of many jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Unpack

import msgspec

from ..core import internal as extra
from ..core.errors import InvalidJob
from ..core.job import WAITING, State
from ..core.validation import (
    checked_cursor,
    checked_limit,
    checked_name,
    checked_new_task,
    checked_rate,
    checked_seconds,
    checked_text,
)
from ..core.writes import Writes
from ..views import job_view, moment, states_named
from .audited import audited
from .bulk_change import ACTIONS, BulkChange, BulkOptions, Changed, OnProgress
from .claims import ManualClaims
from .operations import OperatedFlows, Operations
from .pauses import Pause, active_pauses
from .runtime import Runtime, on_app_loop
from .search import CHUNK, WINDOW, Filter, Search, SearchResult, Sought, named, reading_from, search, where_of
from .session import Session

COUNTED = 50_000
"""Maximum number of jobs that are read to count matches."""
CHANGE_LIMIT = 1000
"""Maximum number of jobs that one call of `change` changes."""


class Count(msgspec.Struct, frozen=True):
    """How many jobs match."""

    count: int
    exact: bool
    """False: there are at least this many; counting stopped there."""
    looked: int
    """Jobs that were read; 0 if the store keeps the count."""
    until: datetime
    """The store's time. As `until` of a filter it excludes jobs that are enqueued later."""
    cursor: str | None = None
    """Continues with the jobs that were not read, with the same filter and this `until`; None: done."""


class Bulk:
    """The bulk operations of an app."""

    def __init__(
        self, runtime: Runtime, operations: Operations, claims: ManualClaims, flows: Callable[[], OperatedFlows]
    ) -> None:
        self._runtime = runtime
        self._operations = operations
        self._claims = claims
        self._flows = flows

    @on_app_loop
    async def paused_tasks(self, session: Session) -> list[Pause]:
        """The active pauses of tasks, by name; `app.stats` has those of queues."""
        return await active_pauses(session.store)

    @on_app_loop
    async def search(self, session: Session, wanted: Filter, *, limit: int = 50, cursor: str | None = None) -> Search:
        """The jobs that match, newest first, among the next 10,000; the cursor continues from there.

        A text that is an id, the key of an unfinished job or the id of a worker first finds its jobs, however old.
        """
        sought = Sought(wanted)
        first = {record.id: record for record in await named(session.store, sought)}
        found = await _look(session, sought, cursor, checked_limit(limit), WINDOW)
        rest = [record for record in found.records if record.id not in first]
        begin = list(first.values()) if cursor is None else []
        back_to = None if found.back_to is None else moment(found.back_to)
        views = [job_view(record) for record in (*begin, *rest)]
        return Search(views, found.cursor, found.looked, back_to, len(begin))

    @on_app_loop
    async def count(self, session: Session, wanted: Filter, *, cursor: str | None = None) -> Count:
        """How many jobs match: by the store's own count, or among the next 50,000; the cursor continues from there."""
        sought, store = Sought(wanted), session.store
        until = moment(await store.now())
        if sought.counted:
            where = sought.where
            queues = [one for one in await store.stats() if where.queue is None or one.name == where.queue]
            states = where.states or tuple(State)
            return Count(sum(one.counts.get(state, 0) for one in queues for state in states), True, 0, until)
        sought = Sought(msgspec.structs.replace(wanted, until=wanted.until or until))
        count, looked = 0, 0
        while True:
            found = await _look(session, sought, cursor, CHUNK, COUNTED - looked)
            count, looked, cursor = count + len(found.records), looked + found.looked, found.cursor
            if cursor is None or looked >= COUNTED:
                return Count(count, cursor is None, looked, until, cursor)

    @audited("bulk.change")
    @on_app_loop
    async def change(
        self,
        session: Session,
        action: str,
        wanted: Filter | None = None,
        *,
        ids: Sequence[str] = (),
        all: bool = False,  # noqa: A002  # the field of the HTTP API
        to: str | None = None,
        rate: float | str | None = None,
        spaced: int = 0,
        cursor: str | None = None,
        dry_run: bool = False,
    ) -> Changed:
        """Cancel, retry, move or delete the jobs of these ids, or one step of all that match; the cursor continues.

        A move gives waiting and dead jobs the task `to`. A filter with nothing but `until` matches every job, and needs
        `all`. `rate`: retried jobs become due at this rate, as in `retry_dead`; `spaced` is how many the earlier steps
        have retried. `dry_run`: count the matches, and change nothing.
        """
        if action not in ACTIONS:
            raise InvalidJob(
                f"nothing was changed: the action must be one of {', '.join(ACTIONS)}, not {action!r:.100}"
            )
        if (action == "move") != (to is not None):
            raise InvalidJob(
                "nothing was changed: the action 'move' needs to=, the name of the new task"
                if to is None
                else "nothing was changed: to= can be given only with the action 'move'"
            )
        if rate is not None and action != "retry":
            raise InvalidJob("nothing was changed: rate= can be given only with the action 'retry'")
        if type(spaced) is not int or spaced < 0:
            raise InvalidJob(
                f"nothing was changed: spaced= must be how many jobs earlier calls have retried, not {spaced!r:.100}"
            )
        spacing = 0.0 if rate is None else 1 / checked_rate(rate)
        if isinstance(ids, str) or not isinstance(ids, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidJob(f"nothing was changed: ids= must be a list of ids, not {ids!r:.100}")
        if wanted is None and all and not ids:
            wanted = Filter()
        if (wanted is None) == (not ids):
            raise InvalidJob(f"nothing was changed: to {action} jobs, give either a filter or ids")
        if len(ids) > CHANGE_LIMIT:
            raise InvalidJob(
                f"nothing was changed: one call takes at most {CHANGE_LIMIT} ids, not {len(ids)}; split them"
            )
        task = "" if to is None else checked_new_task(to)
        change = self._begin(session, action, to=task, spacing=spacing, spaced=spaced)
        if wanted is None:
            records = await session.store.get(list(dict.fromkeys(checked_text(id, "an id") for id in ids)))
            found = SearchResult([record for record in records if record is not None], None, len(records), None)
            gone = len(records) - len(found.records)
        else:
            sought, gone = Sought(wanted), 0
            if sought.everything and not all:
                raise InvalidJob(
                    f"nothing was changed: the filter is empty, so every job matches; to {action} every job, set"
                    " all= to true"
                )
            if all and not sought.everything:
                raise InvalidJob("nothing was changed: give either a filter that restricts the jobs, or all=, not both")
            found = await _look(session, sought, cursor, CHANGE_LIMIT, WINDOW)
            change = self._begin(session, action, states=sought.where.states, to=task, spacing=spacing, spaced=spaced)
        tally = change.tally
        tally.matched, tally.looked = len(found.records), found.looked
        if dry_run:
            return tally.seen(found.cursor)
        if gone:
            tally.skip("not_found", number=gone)
        records = found.records
        if wanted is not None and wanted.scope is not None:  # other jobs of the same flow may be outside
            records = [record for record in records if extra.read(record.extra).flow is None]
            if len(records) < len(found.records):
                tally.skip("scope", number=len(found.records) - len(records))
        then = "read the jobs before you retry them again" if action == "retry" else f"{action} the jobs again"
        with Writes(f"the {action} of {tally.matched} jobs", then, retry_safe=action != "retry") as writes:
            await change.page(records, writes)
        return tally.seen(found.cursor)

    @audited("bulk.retry_dead")
    @on_app_loop
    async def retry_dead(
        self,
        session: Session,
        *,
        queue: str | None = None,
        rate: float | str | None = None,
        dry_run: bool = False,
        progress: OnProgress | None = None,
    ) -> int:
        """Retry every job that is dead now, from attempt 0; returns how many. `dry_run`: how many are dead.

        `rate`: jobs per second, or text such as "100/s": all are scheduled now, and become due one after the other;
        jobs of flows are due at once. After an interruption, the same call continues with those that are still dead.
        """
        spacing = 0.0 if rate is None else 1 / checked_rate(rate)
        where = where_of((State.DEAD,), queue, None, None)
        writes = Writes("the retry of the dead jobs", "call retry_dead again to retry the jobs that are still dead")
        return await self._begin(session, "retry", spacing=spacing).all(
            where, writes, dry_run=dry_run, progress=progress
        )

    @audited("bulk.purge")
    @on_app_loop
    async def purge(
        self,
        session: Session,
        *,
        state: str | Sequence[str] = "dead",
        queue: str | None = None,
        task: str | None = None,
        tag: str | None = None,
        older_than: float | timedelta | None = None,
        dry_run: bool = False,
        progress: OnProgress | None = None,
    ) -> int:
        """Delete every job that matches (by default the dead jobs); returns how many.

        Running jobs and jobs of flows that have not ended are kept. `dry_run`: how many would be deleted. After an
        interruption, the same call deletes the rest.
        """
        states = states_named(state)
        if not states:
            raise InvalidJob("nothing was deleted: purge needs the state of the jobs to delete, such as 'dead'")
        if State.RUNNING in states:
            raise InvalidJob("nothing was deleted: running jobs cannot be purged; cancel them first")
        age = None if older_than is None else checked_seconds(older_than, "older_than")
        before = None if age is None else await session.store.now() - int(age * 1_000_000)
        where = where_of(states, queue, task, tag, finished_before=before)
        writes = Writes("the purge", "call purge again to delete the rest")
        return await self._begin(session, "delete").all(where, writes, dry_run=dry_run, progress=progress)

    @audited("bulk.move")
    @on_app_loop
    async def move(
        self,
        session: Session,
        task: str,
        to: str,
        *,
        queue: str | None = None,
        dry_run: bool = False,
        progress: OnProgress | None = None,
    ) -> int:
        """Give every waiting and dead job of a task another task, with the same arguments; returns how many.

        Dead jobs stay dead, refused ones become due. `dry_run`: how many match. After an interruption, the same call
        moves the rest.
        """
        states = (*sorted(WAITING), State.DEAD)
        where = where_of(states, queue, checked_name(task, "task"), None)
        writes = Writes("the move", "call move again to move the rest")
        change = self._begin(session, "move", states=states, to=checked_new_task(to))
        return await change.all(where, writes, dry_run=dry_run, progress=progress)

    @audited("bulk.recover")
    async def recover(self) -> int:
        """Settle the claims whose lease has expired, so that the jobs run again; returns how many.

        Claims of a process of this machine that has provably ended are settled at once.
        """
        return await self._claims.recover()

    def _begin(self, session: Session, action: str, **options: Unpack[BulkOptions]) -> BulkChange:
        operations, flows, events = self._operations, self._flows(), self._runtime.events
        return BulkChange(session, action, operations=operations, flows=flows, events=events, **options)


async def _look(session: Session, sought: Sought, cursor: str | None, limit: int, window: int) -> SearchResult:
    with reading_from(cursor):
        return await search(session.store, sought, checked_cursor(cursor), limit, window)
