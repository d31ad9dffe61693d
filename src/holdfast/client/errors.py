"""The last errors of a store's jobs, read and grouped; and the jobs that workers refuse."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta

import msgspec

from ..core.clock import MICROS
from ..core.errors import InvalidJob
from ..core.job import Record, State
from ..core.operations import Where
from ..core.validation import checked_cursor, checked_seconds
from ..core.waiting import COMPATIBLE
from ..views import moment
from .error_groups import Errors, Groups
from .failures import ErrorHistory, Failures, FailureWindows, GroupHistory
from .runtime import Runtime, on_app_loop
from .search import CHUNK, reading_from
from .session import Session
from .timeseries import checked_span, checked_step
from .worker_log import versions

FAILED_READ = 5000
"""Dead jobs, and failed jobs, that one call reads."""
RECENT = 2000
"""Jobs in any state that are read to find errors of jobs that were retried."""
REFUSED_READ = 100
"""Refused jobs that are read to count them, with their payloads: `status` and the dashboard do it at each refresh."""


class RefusedJobs(msgspec.Struct, frozen=True):
    """The waiting jobs of a queue and task that workers refused, because they do not know the task or its arguments."""

    queue: str
    task: str
    count: int
    exact: bool
    """False: there are at least this many; counting stopped there."""
    error: str
    """Why the newest of them was refused."""

    def __str__(self) -> str:
        number = f"{'' if self.exact else 'at least '}{self.count} job{'' if self.count == 1 else 's'}"
        return f"workers refused {number} of task {self.task!r} in queue {self.queue!r}: {self.error}"


class _Walk(msgspec.Struct):
    """How far a walk over failed jobs got."""

    looked: int = 0
    complete: bool = True
    back_to: int | None = None
    cursor: str | None = None


async def _walk(
    session: Session, add: Callable[[Record], None], *, dead: bool = False, cursor: str | None = None
) -> _Walk:
    """Give `add` the newest dead jobs, and, unless `dead`, the newest failed jobs and the newest of all."""
    # One state at a time: stores have an index for each.
    walks = [(Where((State.DEAD,)), FAILED_READ)]
    if not dead:
        walks += [(Where((State.FAILED,)), FAILED_READ), (Where(), RECENT)]
    walk = _Walk()
    for where, window in walks:
        after, read = checked_cursor(cursor), 0
        while True:
            with reading_from(cursor):
                page = await session.store.find(where, after, CHUNK)
            for record in page.records:
                add(record)
            read, after = read + len(page.records), page.cursor
            if page.records:
                oldest = page.records[-1].created_at
                walk.back_to = oldest if walk.back_to is None else min(walk.back_to, oldest)
            if after is None or read >= window:
                break
        walk.looked, walk.complete = walk.looked + read, walk.complete and after is None
        walk.cursor = after if dead else None
    return walk


class ErrorGroups:
    """The last errors of a store's jobs."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    @on_app_loop
    async def groups(self, session: Session, *, dead: bool = False, cursor: str | None = None) -> Errors:
        """The last errors of jobs, in groups: of the newest 2,000, and of the newest 5,000 each of failed and dead.

        `dead`: of the newest 5,000 dead alone; `cursor`, of an earlier answer, continues with the next 5,000.
        """
        if cursor is not None and not dead:
            raise InvalidJob("cursor= requires dead=True: only the error groups of dead jobs have further pages")
        groups = Groups()
        walk = await _walk(session, groups.add, dead=dead, cursor=cursor)
        seen = None if walk.back_to is None else moment(walk.back_to)
        return Errors(groups.seen(), walk.looked, walk.complete, seen, walk.cursor)

    @on_app_loop
    async def compare(self, session: Session, start: datetime, end: datetime) -> Failures:
        """Failed attempts before, within and after a span, of the same jobs as `groups`; see `timeseries.compare`."""
        since, until = checked_span(start, end)
        windows = FailureWindows(since, until, await versions(session))
        walk = await _walk(session, windows.add)
        return windows.found(walk.looked, complete=walk.complete)

    @on_app_loop
    async def group(
        self, session: Session, fingerprint: str, since: timedelta | float = 86400, step: timedelta | float = 3600
    ) -> ErrorHistory | None:
        """One error group, of the same jobs as `groups`: its failed attempts over the last `since`, in steps.

        None: no attempt is in the group.
        """
        start = await session.store.now() - int(checked_seconds(since, "since") * MICROS)
        found = GroupHistory(fingerprint, start, checked_step(step), await versions(session))
        walk = await _walk(session, found.add)
        return found.found(walk.looked, complete=walk.complete)

    @on_app_loop
    async def refused(self, session: Session) -> list[RefusedJobs]:
        """The jobs that workers refused and that wait for another worker, among the newest 100 of them."""
        errors: dict[tuple[str, str], str] = {}
        counts = Counter[tuple[str, str]]()
        page = await session.store.find(Where(waiting_for=COMPATIBLE), None, REFUSED_READ)
        for record in page.records:
            errors.setdefault((record.queue, record.task), record.error or "")
            counts[record.queue, record.task] += 1
        exact = page.cursor is None
        return [RefusedJobs(*which, count, exact, errors[which]) for which, count in sorted(counts.items())]
