"""Failed attempts of jobs: by error group, worker and version, before, within and after a span; or of one group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime

import msgspec

from ..core.clock import MICROS
from ..core.job import Attempt, Record, State
from ..core.lifecycle import history
from ..views import moment
from .error_groups import BAD, Fault, fault_of
from .latency import window

MAX_GROUPS = 100
"""Groups, workers and versions that an answer lists."""
UNKNOWN = "unknown"
"""The version of a worker that is no longer known."""


class FailedBy(msgspec.Struct, frozen=True):
    """Failed attempts on one worker, or of one version."""

    name: str
    before: int
    within: int
    after: int


class FailedGroup(msgspec.Struct, frozen=True):
    """Failed attempts with errors that differ only in their numbers."""

    fingerprint: str
    task: str
    pattern: str
    """The first line, with numbers and quoted parts masked."""
    example: str
    """The first line of the newest."""
    job: str
    """The id of its job."""
    before: int
    within: int
    after: int


class Failures(msgspec.Struct, frozen=True):
    """Failed attempts around a span, those with the most within it first."""

    groups: list[FailedGroup]
    workers: list[FailedBy]
    versions: list[FailedBy]
    looked: int
    """Jobs that were read."""
    complete: bool
    """Whether all jobs were read."""


class FailedStep(msgspec.Struct, frozen=True):
    """Failed attempts in one step."""

    at: datetime
    count: int


class ErrorHistory(msgspec.Struct, frozen=True):
    """One error group over time: its failed attempts by step, worker and version."""

    fingerprint: str
    task: str
    pattern: str
    example: str
    """The first line of the newest."""
    job: str
    """The id of its job."""
    jobs: int
    """Jobs with such an attempt."""
    attempts: int
    states: dict[str, int]
    """The current states of the jobs."""
    first_seen: datetime
    last_seen: datetime
    queues: dict[str, int]
    """Attempts by queue. Below: by worker and by version."""
    workers: dict[str, int]
    versions: dict[str, int]
    steps: list[FailedStep]
    looked: int
    complete: bool


def failed_attempts(record: Record) -> list[tuple[Attempt, Fault]]:
    """The failed attempts of a job that have an error, each with its group."""
    if record.state == State.CANCELLED and not record.history:
        return []
    found = [(one, fault_of(record.task, one)) for one in history(record) if one.outcome in BAD]
    return [(one, fault) for one, fault in found if fault is not None]


class _Counts(dict[str, list[int]]):
    """By name: before, within and after a span."""

    def __missing__(self, name: str) -> list[int]:
        made = self[name] = [0, 0, 0]
        return made


class FailureWindows:
    """Counts failed attempts before, within and after a span."""

    def __init__(self, start: int, end: int, versions: Mapping[str, str]) -> None:
        self._start, self._end, self._versions = start, end, versions
        self._seen: set[str] = set()
        self._groups, self._workers = _Counts(), _Counts()
        self._newest: dict[str, tuple[Fault, Record]] = {}

    def add(self, record: Record) -> None:
        """Add a job; each job once."""
        if record.id in self._seen:
            return
        self._seen.add(record.id)
        for attempt, fault in failed_attempts(record):
            place = window(attempt.ended_at, self._start, self._end)
            if place is None:
                continue
            newest = self._newest.get(fault.fingerprint)
            if newest is None or newest[0].at < fault.at:
                self._newest[fault.fingerprint] = (fault, record)
            self._groups[fault.fingerprint][place] += 1
            self._workers[attempt.worker or UNKNOWN][place] += 1

    def found(self, looked: int, *, complete: bool) -> Failures:
        groups = [
            FailedGroup(fingerprint, record.task, fault.pattern, fault.line, record.id, *self._groups[fingerprint])
            for fingerprint, (fault, record) in self._newest.items()
        ]
        groups.sort(key=lambda one: (-one.within, -one.before - one.after, one.task, one.pattern))
        versions = _Counts()
        for worker, counts in self._workers.items():
            for place, count in enumerate(counts):
                versions[self._versions.get(worker, UNKNOWN)][place] += count
        return Failures(groups[:MAX_GROUPS], _first(self._workers), _first(versions), looked, complete)


def _first(counts: _Counts) -> list[FailedBy]:
    found = sorted(counts.items(), key=lambda one: (-one[1][1], -sum(one[1]), one[0]))
    return [FailedBy(name, *three) for name, three in found[:MAX_GROUPS]]


class GroupHistory:
    """Collects the failed attempts of one error group."""

    def __init__(self, fingerprint: str, start: int, step: int, versions: Mapping[str, str]) -> None:
        self._fingerprint, self._start, self._step, self._versions = fingerprint, start, step * MICROS, versions
        self._seen: set[str] = set()
        self._newest: tuple[Fault, Record] | None = None
        self._first = 0
        self._attempts = 0
        self._states: Counter[str] = Counter()
        self._queues: Counter[str] = Counter()
        self._workers: Counter[str] = Counter()
        self._by_version: Counter[str] = Counter()
        self._steps: Counter[int] = Counter()

    def add(self, record: Record) -> None:
        """Add a job, if one of its attempts is in the group; each job once."""
        if record.id in self._seen:
            return
        own = [(attempt, fault) for attempt, fault in failed_attempts(record) if fault.fingerprint == self._fingerprint]
        if not own:
            return
        self._seen.add(record.id)
        self._states[record.state] += 1
        self._queues[record.queue] += len(own)
        for attempt, fault in own:
            self._first = fault.at if not self._attempts else min(self._first, fault.at)
            self._attempts += 1
            if self._newest is None or self._newest[0].at < fault.at:
                self._newest = (fault, record)
            worker = attempt.worker or UNKNOWN
            self._workers[worker] += 1
            self._by_version[self._versions.get(worker, UNKNOWN)] += 1
            if fault.at >= self._start:
                self._steps[fault.at // self._step * self._step] += 1

    def found(self, looked: int, *, complete: bool) -> ErrorHistory | None:
        """None: no attempt is in the group."""
        if self._newest is None:
            return None
        fault, record = self._newest
        return ErrorHistory(
            self._fingerprint,
            record.task,
            fault.pattern,
            fault.line,
            record.id,
            len(self._seen),
            self._attempts,
            dict(sorted(self._states.items())),
            moment(self._first),
            moment(fault.at),
            dict(self._queues.most_common(MAX_GROUPS)),
            dict(self._workers.most_common(MAX_GROUPS)),
            dict(self._by_version.most_common(MAX_GROUPS)),
            [FailedStep(moment(at), self._steps[at]) for at in sorted(self._steps)],
            looked,
            complete,
        )
