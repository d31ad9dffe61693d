"""The last errors of a store's jobs, read and grouped."""

from __future__ import annotations

from ..core.job import State
from ..core.operations import Where
from ..views import moment
from .error_groups import Errors, Groups
from .runtime import Runtime, on_app_loop
from .search import CHUNK, WINDOW
from .session import Session

RECENT = 2000
"""Jobs in any state that are read to find errors of jobs that were retried."""


class ErrorGroups:
    """The last errors of a store's jobs."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    @on_app_loop
    async def groups(self, session: Session, *, dead: bool = False) -> Errors:
        """The last errors of jobs, in groups: of the newest 2,000, and of the newest 10,000 each of failed and dead.

        `dead`: of the newest 10,000 dead alone.
        """
        # One state at a time: stores have an index for each.
        walks = [(Where((State.DEAD,)), WINDOW)]
        if not dead:
            walks += [(Where((State.FAILED,)), WINDOW), (Where(), RECENT)]
        groups, looked, complete = Groups(), 0, True
        back_to: int | None = None
        for where, window in walks:
            cursor, read = None, 0
            while True:
                page = await session.store.find(where, cursor, CHUNK)
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
