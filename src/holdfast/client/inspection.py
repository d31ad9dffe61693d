"""OBSERVE many jobs at once: search, count, errors in groups, and what charts show."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from ..core.clock import MICROS
from ..core.errors import InvalidJob
from ..core.job import State
from ..core.operations import Where
from ..core.validation import checked_limit, checked_seconds
from ..views import job_seen, moment
from . import timeseries as series
from .bulk import Bulk
from .error_groups import Errors, Groups
from .runtime import carried
from .search import CHUNK, WINDOW, Filter, Search, Sought
from .timeseries import Depth, Rate

if TYPE_CHECKING:
    from .explain import Explanation

COUNTED = 50_000
"""Jobs that are read to count those that match."""
RECENT = 2000
"""Jobs in any state that are read for errors that they have survived."""


class Count(msgspec.Struct, frozen=True):
    """How many jobs match."""

    count: int
    exact: bool
    """False: there are at least so many; more were not looked at."""
    looked: int
    """Jobs that were read; 0 where the store keeps count."""
    until: datetime
    """The store's time. As `until` of a filter it leaves out what is enqueued later."""


class Overseeing(Bulk):
    """What a person asks who looks at all of it at once."""

    @carried
    async def search(self, wanted: Filter, *, limit: int = 50, cursor: str | None = None) -> Search:
        """The jobs that match, newest first, among the next 10,000; the cursor goes on from there."""
        found = await self._look(Sought(wanted), cursor, checked_limit(limit), WINDOW)
        back_to = None if found.back_to is None else moment(found.back_to)
        return Search([job_seen(record) for record in found.records], found.cursor, found.looked, back_to)

    @carried
    async def count(self, wanted: Filter) -> Count:
        """How many jobs match: by the store's own count, or among the newest 50,000."""
        sought, store = Sought(wanted), self.session.store
        until = moment(await store.now())
        if sought.counted:
            where = sought.where
            queues = [one for one in await store.stats() if where.queue is None or one.name == where.queue]
            states = where.states or tuple(State)
            return Count(sum(one.counts.get(state, 0) for one in queues for state in states), True, 0, until)
        count, looked, cursor = 0, 0, None
        while True:
            found = await self._look(sought, cursor, CHUNK, COUNTED - looked)
            count, looked, cursor = count + len(found.records), looked + found.looked, found.cursor
            if cursor is None or looked >= COUNTED:
                return Count(count, cursor is None, looked, until)

    @carried
    async def explain(self, id: str) -> Explanation:
        """Why a job is not running, in words."""
        from .explain import explain  # late: few programs ask

        return await explain(self, id)

    @carried
    async def errors(self, *, dead: bool = False) -> Errors:
        """The last errors of jobs, in groups: of the newest 2,000, and of the newest 10,000 each of failed and dead.

        `dead`: of the newest 10,000 dead alone.
        """
        store = self.session.store
        # One state at a time: stores have an index for each.
        walks = [(Where((State.DEAD,)), WINDOW)]
        if not dead:
            walks += [(Where((State.FAILED,)), WINDOW), (Where(), RECENT)]
        groups, looked, complete = Groups(), 0, True
        back_to: int | None = None
        for where, window in walks:
            cursor, read = None, 0
            while True:
                page = await store.find(where, cursor, CHUNK)
                for record in page.records:
                    groups.add(record)
                read, cursor = read + len(page.records), page.cursor
                if page.records:
                    oldest = page.records[-1].created_at
                    back_to = oldest if back_to is None else min(back_to, oldest)
                if cursor is None or read >= window:
                    break
            looked, complete = looked + read, complete and cursor is None
        seen = None if back_to is None else moment(back_to)
        return Errors(groups.seen(), looked, complete, seen)

    @carried
    async def rates(
        self, since: timedelta | float, step: timedelta | float = 60, *, by_queue: bool = False
    ) -> list[Rate]:
        """How claims ended over this long until now, in steps of whole minutes."""
        return series.rates(await self.minutes(since), _checked_step(step), by_queue=by_queue)

    @carried
    async def depths(self, since: timedelta | float, step: timedelta | float = 60) -> list[Depth]:
        """How many jobs stood queued over this long until now, as `note_depth` noted it, in steps of whole minutes."""
        start = await self.session.store.now() - int(checked_seconds(since, "since") * MICROS)
        return series.depths(await self.records(series.KIND), start, _checked_step(step))

    @carried
    async def note_depth(self) -> bool:
        """Note how many jobs stand queued in this minute; False where somebody has already."""
        store = self.session.store
        note = series.noting(await store.records(series.KIND), await store.stats(), await store.now())
        if note is None:
            return False
        for name in note.over:
            await store.put_record(series.KIND, name, None)
        return await store.put_record(series.KIND, note.name, note.value, note.version)


def _checked_step(step: timedelta | float) -> int:
    seconds = int(checked_seconds(step, "step"))
    if seconds < 60 or seconds % 60:
        raise InvalidJob(f"a step is of whole minutes, not of {seconds} seconds")
    return seconds
