"""The last errors of a store's jobs, read and grouped; and the jobs that workers refuse."""

from __future__ import annotations

from collections import Counter

import msgspec

from ..core.errors import InvalidJob
from ..core.job import State
from ..core.operations import Where
from ..core.validation import checked_cursor
from ..core.waiting import COMPATIBLE
from ..views import moment
from .error_groups import Errors, Groups
from .runtime import Runtime, on_app_loop
from .search import CHUNK, WINDOW, reading_from
from .session import Session

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


class ErrorGroups:
    """The last errors of a store's jobs."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    @on_app_loop
    async def groups(self, session: Session, *, dead: bool = False, cursor: str | None = None) -> Errors:
        """The last errors of jobs, in groups: of the newest 2,000, and of the newest 10,000 each of failed and dead.

        `dead`: of the newest 10,000 dead alone; `cursor`, of an earlier answer, continues with the next 10,000.
        """
        if cursor is not None and not dead:
            raise InvalidJob("cursor= continues the groups of dead jobs: give dead=True with it")
        # One state at a time: stores have an index for each.
        walks = [(Where((State.DEAD,)), WINDOW)]
        if not dead:
            walks += [(Where((State.FAILED,)), WINDOW), (Where(), RECENT)]
        groups, looked, complete = Groups(), 0, True
        back_to: int | None = None
        more: str | None = None
        for where, window in walks:
            after, read = checked_cursor(cursor), 0
            while True:
                with reading_from(cursor):
                    page = await session.store.find(where, after, CHUNK)
                for record in page.records:
                    groups.add(record)
                read, after = read + len(page.records), page.cursor
                if page.records:
                    oldest = page.records[-1].created_at
                    back_to = oldest if back_to is None else min(back_to, oldest)
                if after is None or read >= window:
                    break
            looked, complete = looked + read, complete and after is None
            more = after if dead else None
        seen = None if back_to is None else moment(back_to)
        return Errors(groups.seen(), looked, complete, seen, more)

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
