"""The jobs of one `enqueue_many`: encoded a bounded way ahead of the writes, stored page by page; and their answers."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

from ..core.errors import HoldfastError, OutcomeUnknown, PartialEnqueue
from ..core.job import NewJob
from ..store.group_commit import BATCH_BYTES, pages
from ..tasks.handle import Handle
from ..tasks.task import Task
from .handles import Handles

AHEAD_BYTES = 3 * BATCH_BYTES
"""Bytes of jobs that are encoded before a write, at least; one page more is held, at most. A call among the first of
these bytes that cannot be encoded is reported before anything is stored."""


class ManyCalls:
    """The jobs of many calls, in pages, and which of them were stored."""

    def __init__(self, jobs: Iterator[NewJob], tasks: Sequence[Task[..., Any]], calls: int, max_jobs: int) -> None:
        """`jobs` encodes one call after the other, and adds to `tasks`. `calls`: how many there are, if known."""
        self._pages = pages(jobs, max_jobs)
        self._tasks = tasks
        self._calls = calls
        self._ahead: deque[tuple[list[NewJob], int]] = deque()
        self._bytes = 0
        self._answers: list[str | Exception] = []

    def next_page(self) -> list[NewJob]:
        """The jobs of the next write; [] after the last one."""
        try:
            while self._bytes < AHEAD_BYTES and (page := next(self._pages, None)) is not None:
                self._ahead.append(page)
                self._bytes += page[1]
        except Exception as error:
            if not self._answers:
                raise
            self.failed(error)
        if not self._ahead:
            return []
        jobs, size = self._ahead.popleft()
        self._bytes -= size
        return jobs

    def answered(self, answers: Iterable[str | HoldfastError]) -> None:
        """The answers to the jobs of one page: their ids, or errors."""
        self._answers += answers

    def failed(self, error: Exception) -> None:
        """No further job is stored because of this error."""
        self._ahead.clear()
        self._pages = iter(())
        self._answers += [error] * (max(self._calls, len(self._tasks)) - len(self._answers))

    def handles(self, handles: Handles) -> list[Handle[Any]]:
        """The handle of each call; raises OutcomeUnknown or the first error if none was stored, else PartialEnqueue."""
        refused = [answer for answer in self._answers if isinstance(answer, Exception)]
        refused.sort(key=lambda error: not isinstance(error, OutcomeUnknown))  # no other error may hide that
        if refused and len(refused) == len(self._answers):
            raise refused[0]
        made = [
            None if isinstance(answer, Exception) else Handle(handles, answer, task.decode_result)
            for answer, task in zip(self._answers, self._tasks, strict=False)
        ]
        if refused:
            made += [None] * (len(self._answers) - len(made))  # of calls that were not taken
            raise PartialEnqueue(made, refused[0]) from refused[0]
        return cast("list[Handle[Any]]", made)
