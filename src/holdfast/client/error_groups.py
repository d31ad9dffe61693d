"""Groups errors that differ only in their numbers, by a fingerprint of each."""

from __future__ import annotations

import hashlib
import re
from datetime import datetime
from functools import lru_cache

import msgspec

from ..core.job import Attempt, Record, State
from ..core.lifecycle import history
from ..views import moment

LINE_LIMIT = 300
"""Characters of an error's first line that are compared."""
BAD = frozenset({"failed", "lost", "dead"})
"""Outcomes of a failed attempt."""

_MASKS = (
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", re.IGNORECASE), "…"),
    (re.compile(r"0x[0-9a-f]+", re.IGNORECASE), "…"),
    # A quote next to a letter is an apostrophe: can't, 'O'Brien'.
    (re.compile(r"(?<!\w)([bru]{0,2})(?:'.*?'|\".*?\")(?!\w)"), r"\1'…'"),
    (re.compile(r"\b(?=[a-f]*\d)[0-9a-f]{8,}\b", re.IGNORECASE), "…"),
    (re.compile(r"\d+(?:[.,:]\d+)*"), "…"),
)
"""Parts that differ between two errors with the same cause, each with its replacement."""


class Fault(msgspec.Struct, frozen=True, gc=False):
    """The last error of a job."""

    fingerprint: str
    pattern: str
    """Its first line, masked."""
    line: str
    """Its first line."""
    at: int


class ErrorGroup(msgspec.Struct, frozen=True):
    """Jobs of one task whose last errors differ only in their numbers."""

    fingerprint: str
    task: str
    pattern: str
    """The first line, with numbers and quoted parts masked."""
    example: str
    """The first line of the newest."""
    job: str
    """Its id."""
    count: int
    """Jobs."""
    states: dict[str, int]
    """Their current states."""
    queues: tuple[str, ...]
    first_seen: datetime
    last_seen: datetime


class Errors(msgspec.Struct, frozen=True):
    """Groups of errors, the most frequent first, and the range of jobs that were read."""

    groups: list[ErrorGroup]
    looked: int
    """Jobs that were read."""
    complete: bool
    """Whether all jobs were read."""
    back_to: datetime | None
    """When the oldest of the read jobs was enqueued."""
    cursor: str | None = None
    """Of dead jobs: continues with the next 5,000; None: there are no more."""


def fault(record: Record) -> Fault | None:
    """A job's last error: of its record, or, if it has run since, of its last failed attempt."""
    if record.state == State.CANCELLED:
        return None
    last = _last(record)
    return None if last is None else fault_of(record.task, last)


def fault_of(task: str, attempt: Attempt) -> Fault | None:
    """The error of an attempt of a job of this task; None: it has none."""
    if not attempt.error:
        return None
    line = _first_line(attempt.error)
    pattern, digest = _marks(task, line)
    return Fault(digest, pattern, line, attempt.ended_at)


@lru_cache(maxsize=1 << 14)
def _marks(task: str, line: str) -> tuple[str, str]:
    """The pattern and the fingerprint; remembered, because a dashboard groups the same jobs again and again.

    One look reads 12,000 jobs (`errors.py`), whose lines may all differ: fewer entries would all be lost by the next.
    """
    pattern = masked(line)
    return pattern, hashlib.blake2b(f"{task}\0{pattern}".encode(errors="replace"), digest_size=6).hexdigest()


class Groups:
    """Collects jobs by their last errors."""

    def __init__(self) -> None:
        self._groups: dict[str, _Group] = {}
        self._ids: set[str] = set()

    def add(self, record: Record) -> None:
        """Add a job, if it has failed; each job once."""
        if record.id in self._ids or (found := fault(record)) is None:
            return
        self._ids.add(record.id)
        self._groups.setdefault(found.fingerprint, _Group(record.task)).add(record, found)

    def seen(self) -> list[ErrorGroup]:
        """The groups, the most frequent first."""
        found = [group.seen() for group in self._groups.values()]
        return sorted(found, key=lambda one: (-one.count, one.task, one.pattern))


def masked(line: str) -> str:
    """The line with its variable parts replaced."""
    for pattern, mark in _MASKS:
        line = pattern.sub(mark, line)
    return line


class _Group:
    def __init__(self, task: str) -> None:
        self._task = task
        self._first: int | None = None
        self._newest: tuple[Fault, str] | None = None
        self._states: dict[str, int] = {}
        self._queues: set[str] = set()

    def add(self, record: Record, found: Fault) -> None:
        if self._newest is None or found.at > self._newest[0].at:
            self._newest = (found, record.id)
        self._first = found.at if self._first is None else min(self._first, found.at)
        self._states[record.state] = self._states.get(record.state, 0) + 1
        self._queues.add(record.queue)

    def seen(self) -> ErrorGroup:
        assert self._newest is not None
        assert self._first is not None
        newest, id = self._newest
        return ErrorGroup(
            newest.fingerprint,
            self._task,
            newest.pattern,
            newest.line,
            id,
            sum(self._states.values()),
            dict(sorted(self._states.items())),
            tuple(sorted(self._queues)),
            moment(self._first),
            moment(newest.at),
        )


def _last(record: Record) -> Attempt | None:
    return next((line for line in reversed(history(record)) if line.outcome in BAD), None)


def _first_line(error: str) -> str:
    start = error[:LINE_LIMIT].lstrip()
    return start.splitlines()[0] if start else ""
