"""OBSERVE and operate, many at once: search, count, change what matches, errors in groups, and what charts show."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

import msgspec

from . import extra, lifecycle, series
from .checks import checked_cursor, checked_limit, checked_seconds, checked_text
from .clock import MICROS
from .errors import HoldfastError, InvalidJob, JobNotFound, WrongState
from .faults import Errors, Groups
from .home import carried
from .job import Change, Record, State, Where
from .operate import Operating, left_alone
from .search import CHUNK, WINDOW, Filter, Looked, Search, Sought, search
from .series import Depth, Rate
from .view import job_seen, moment
from .writes import Writes

STEP = 1000
"""Jobs that one step of a change of many changes, at the most."""
COUNTED = 50_000
"""Jobs that are read to count those that match."""
RECENT = 2000
"""Jobs in any state that are read for errors that they have survived."""
ACTIONS = {"cancel": "cancelled", "retry": "retried", "delete": "deleted"}
"""With the words for what is done then."""


class Count(msgspec.Struct, frozen=True):
    """How many jobs match."""

    count: int
    exact: bool
    """False: there are at least so many; more were not looked at."""
    looked: int
    """Jobs that were read; 0 where the store keeps count."""
    until: datetime
    """The store's time. As `until` of a filter it leaves out what is enqueued later."""


class Changed(msgspec.Struct, frozen=True):
    """What one step of a change of many did."""

    matched: int
    """Jobs that it was about: those that match, or those of the ids that there are."""
    changed: int
    """None in a dry run."""
    skipped: int
    """Those that are in no state for it, or were gone. None in a dry run."""
    looked: int
    """Jobs that were read."""
    cursor: str | None
    """Goes on with the rest; None: done."""


class Overseeing(Operating):
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
    async def change_many(
        self,
        action: str,
        wanted: Filter | None = None,
        *,
        ids: Sequence[str] = (),
        all: bool = False,  # noqa: A002  # the field of the HTTP API
        cursor: str | None = None,
        dry_run: bool = False,
    ) -> Changed:
        """Cancel, retry or delete the jobs of these ids, or one step of all that match; the cursor goes on.

        A filter that names nothing but `until` means every job, and needs `all`. `dry_run`: say what matches, and
        change nothing.
        """
        if action not in ACTIONS:
            raise InvalidJob(f"jobs can be changed by {', '.join(ACTIONS)}, not by {action!r:.100}")
        if isinstance(ids, str) or not isinstance(ids, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidJob(f"ids= is a list of ids, not {ids!r:.100}")
        if wanted is None and all and not ids:
            wanted = Filter()
        if (wanted is None) == (not ids):
            raise InvalidJob("give a filter or ids, and not both")
        if len(ids) > STEP:
            raise InvalidJob(f"at most {STEP} ids at once, not {len(ids)}")
        if wanted is None:
            records = await self.session.store.get(list(dict.fromkeys(checked_text(id, "an id") for id in ids)))
            found = Looked([record for record in records if record is not None], None, len(records), None)
            gone = len(records) - len(found.records)
        else:
            sought, gone = Sought(wanted), 0
            if sought.everything and not all:
                raise InvalidJob(
                    f"this filter names nothing, so every job matches; to {action} them all, set all= to true"
                )
            if all and not sought.everything:
                raise InvalidJob("give a filter that names something, or all=, and not both")
            found = await self._look(sought, cursor, STEP, WINDOW)
        matched = len(found.records)
        if dry_run:
            return Changed(matched, 0, 0, found.looked, found.cursor)
        records = found.records
        if wanted is not None and wanted.scope is not None:  # other jobs of a flow, which go with one, may be outside
            records = [record for record in records if extra.read(record.extra).flow is None]
        then = "look at the jobs before you retry them again" if action == "retry" else f"{action} them again"
        with Writes(f"{action} of {matched} jobs", then, retry_safe=action != "retry") as writes:
            await self._change_all(action, records, writes)
        return Changed(matched, writes.made, matched + gone - writes.made, found.looked, found.cursor)

    async def _change_all(self, action: str, records: Sequence[Record], writes: Writes) -> None:
        if action == "retry":
            rivals = await self._rivals(records)
            records = [record for record in records if record.id not in rivals]
        alone = [record for record in records if extra.read(record.extra).flow is None]
        await self._change_flows(action, [r for r in records if extra.read(r.extra).flow is not None], writes)
        decide = self._decision(action)
        wanted: list[tuple[Record, Change]] = []
        for record in alone:
            with suppress(WrongState):
                if (change := decide(record)) is not None:
                    wanted.append((record, change))
        try:
            written = await self.session.commit.change([change for _, change in wanted]) if wanted else []
        except InvalidJob:  # one of them may not be made, by this caller: each is tried alone
            written = [False] * len(wanted)
        for (record, change), done in zip(wanted, written, strict=True):
            if done:
                self.events.changed(record, change)
        writes.made += sum(written)
        for (record, _), done in zip(wanted, written, strict=True):
            if not done:  # it has moved since it was read: look again
                with left_alone(ACTIONS[action]):
                    writes.made += await self._change(record.id, decide)

    async def _change_flows(self, action: str, records: Sequence[Record], writes: Writes) -> None:
        """Change flows, and jobs of flows, which others may need."""
        if action == "retry":
            return await self._retry_some({record.id: extra.flow_of(record) for record in records}, writes)
        change = self.cancel if action == "cancel" else self.delete
        for record in records:
            with suppress(JobNotFound, WrongState):
                writes.made += await change(record.id) is not False
        return None

    def _decision(self, action: str) -> Callable[[Record], Change | None]:
        if action == "cancel":
            rules = self.session.rules
            return lambda record: lifecycle.cancel(record, rules)
        return lifecycle.retry if action == "retry" else lifecycle.delete

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

    async def _look(self, sought: Sought, cursor: str | None, limit: int, window: int) -> Looked:
        try:
            return await search(self.session.store, sought, checked_cursor(cursor), limit, window)
        except (ValueError, OverflowError) as error:
            if cursor is None or isinstance(error, HoldfastError):
                raise
            raise InvalidJob(f"this cursor is not one that a page gave: {cursor!r:.100}") from None


def _checked_step(step: timedelta | float) -> int:
    seconds = int(checked_seconds(step, "step"))
    if seconds < 60 or seconds % 60:
        raise InvalidJob(f"a step is of whole minutes, not of {seconds} seconds")
    return seconds
