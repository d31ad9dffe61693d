"""Minute statistics by queue and task: outcomes and percentiles of a period, and before, within and after a span."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import lru_cache

import msgspec

from ..core.clock import MICROS
from ..core.histogram import BUCKETS, Histogram, quantile
from ..core.operations import MinuteStats
from ..views import moment

MINUTE = 60 * MICROS
MAX_ROWS = 200
"""Queues or tasks that an answer lists, those with the most ended claims."""
Filled = list[tuple[int, int]]
"""The buckets of a histogram that are not empty, each with its count."""


class Percentiles(msgspec.Struct, frozen=True):
    """Durations in seconds below which 50, 95 and 99 of 100 lie, from a histogram; null: there were none."""

    p50: float | None
    p95: float | None
    p99: float | None


class Activity(msgspec.Struct, frozen=True):
    """The claims that ended in a period."""

    count: int
    outcomes: dict[str, int]
    wait: Percentiles
    """From due to claimed."""
    run: Percentiles
    """From claimed to ended."""


class NamedActivity(msgspec.Struct, frozen=True):
    """The same for one queue or task."""

    name: str
    activity: Activity


class TimedActivity(msgspec.Struct, frozen=True):
    """The same for one step."""

    at: datetime
    """Start of the step."""
    activity: Activity


class Latency(msgspec.Struct, frozen=True):
    """The claims that ended in a period: all by step; and by queue and task, up to 200 each, the most first."""

    steps: list[TimedActivity]
    queues: list[NamedActivity]
    tasks: list[NamedActivity]


class Compared(msgspec.Struct, frozen=True):
    """The claims of a queue or task that ended before, within and after a span."""

    name: str
    before: Activity
    within: Activity
    after: Activity


class Comparison(msgspec.Struct, frozen=True):
    """A span in whole minutes, and as long a time before and after it: all claims, and by queue and task."""

    start: datetime
    end: datetime
    total: Compared
    queues: list[Compared]
    """Up to 200, the most ended claims first."""
    tasks: list[Compared]


class Tally:
    """Adds up minute statistics."""

    __slots__ = ("outcomes", "runs", "waits")

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.waits = [0] * BUCKETS
        self.runs = [0] * BUCKETS

    def add(self, one: MinuteStats, waits: Filled, runs: Filled) -> None:
        """Add a minute, and what `_filled` gave for its histograms."""
        self.outcomes[one.outcome] += one.count
        total = self.waits
        for bucket, count in waits:
            total[bucket] += count
        total = self.runs
        for bucket, count in runs:
            total[bucket] += count

    def activity(self) -> Activity:
        return Activity(
            self.outcomes.total(),
            dict(sorted(self.outcomes.items())),
            _percentiles(self.waits),
            _percentiles(self.runs),
        )


Windows = dict[str, tuple[Tally, Tally, Tally]]
"""By name: before, within and after a span."""


@lru_cache(maxsize=4096)
def _filled(histogram: Histogram) -> Filled:
    """Its buckets that are not empty. Remembered: most minutes of most queues have one of a few histograms."""
    return [(bucket, count) for bucket, count in enumerate(histogram[:BUCKETS]) if count]


def _percentiles(counts: Sequence[int]) -> Percentiles:
    return Percentiles(quantile(counts, 0.5), quantile(counts, 0.95), quantile(counts, 0.99))


def latency(minutes: Iterable[MinuteStats], step: int) -> Latency:
    """Minute statistics by steps of `step` seconds, by queue and by task."""
    steps: dict[int, Tally] = {}
    queues: dict[str, Tally] = {}
    tasks: dict[str, Tally] = {}
    for one in minutes:
        waits, runs = _filled(one.waits), _filled(one.runs)
        for tallies, name in ((steps, one.at // MICROS // step * step), (queues, one.queue), (tasks, one.task)):
            tally = tallies.get(name)  # pyright: ignore[reportArgumentType, reportCallIssue]
            if tally is None:
                tally = tallies[name] = Tally()  # pyright: ignore[reportArgumentType]
            tally.add(one, waits, runs)
    timed = [TimedActivity(moment(at * MICROS), steps[at].activity()) for at in sorted(steps)]
    return Latency(timed, _named(queues), _named(tasks))


def _named(tallies: dict[str, Tally]) -> list[NamedActivity]:
    first = sorted(tallies, key=lambda name: (-tallies[name].outcomes.total(), name))[:MAX_ROWS]
    return [NamedActivity(name, tallies[name].activity()) for name in first]


def compared(minutes: Iterable[MinuteStats], start: int, end: int) -> Comparison:
    """What ended from `start` to `end` (microseconds, whole minutes), and as long before and after."""
    total: Windows = {}
    queues: Windows = {}
    tasks: Windows = {}
    for one in minutes:
        place = window(one.at, start, end)
        if place is None:
            continue
        waits, runs = _filled(one.waits), _filled(one.runs)
        for tallies, name in ((total, ""), (queues, one.queue), (tasks, one.task)):
            three = tallies.get(name)
            if three is None:
                three = tallies[name] = (Tally(), Tally(), Tally())
            three[place].add(one, waits, runs)
    return Comparison(
        moment(start), moment(end), (_compared(total) or [_nothing("")])[0], _compared(queues), _compared(tasks)
    )


def window(at: int, start: int, end: int) -> int | None:
    """Whether a time is before (0), within (1) or after (2) a span; None: farther away than its length."""
    place = (at - start) // (end - start) + 1
    return place if 0 <= place <= 2 else None


def _compared(tallies: Windows) -> list[Compared]:
    def order(name: str) -> tuple[int, int, str]:
        before, within, after = (tally.outcomes.total() for tally in tallies[name])
        return -within, -before - after, name

    first = sorted(tallies, key=order)[:MAX_ROWS]
    return [Compared(name, *(tally.activity() for tally in tallies[name])) for name in first]


def _nothing(name: str) -> Compared:
    nothing = Tally().activity()
    return Compared(name, nothing, nothing, nothing)
