"""Minute statistics by queue and task: outcomes and percentiles of a period, and before, within and after a span."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from ..core.clock import MICROS
from ..core.histogram import BUCKETS, Histogram, quantile
from ..core.operations import MinuteStats
from ..views import moment

MINUTE = 60 * MICROS
MAX_ROWS = 200
"""Queues or tasks that an answer lists, those with the most ended claims."""


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


class Kind:
    """What minutes have in common: outcome, count, waits and runs. Compared by identity, which is fast."""

    __slots__ = ("count", "outcome", "runs", "waits")

    def __init__(self, outcome: str, count: int, waits: Histogram, runs: Histogram) -> None:
        self.outcome, self.count, self.waits, self.runs = outcome, count, waits, runs


class Kinds(dict[tuple[str, int, Histogram, Histogram], Kind]):
    """The kinds of minutes by their values. There are few: in most minutes of most queues few claims end."""

    def __missing__(self, values: tuple[str, int, Histogram, Histogram]) -> Kind:
        made = self[values] = Kind(*values)
        return made


class Tally(dict[Kind, int]):
    """Minute statistics of one step, queue or task: how many minutes of each kind, added up when they are shown."""

    def total(self) -> int:
        """Ended claims."""
        return sum(kind.count * times for kind, times in self.items())

    def activity(self) -> Activity:
        outcomes: Counter[str] = Counter()
        waits, runs = [0] * BUCKETS, [0] * BUCKETS
        for kind, times in self.items():
            outcomes[kind.outcome] += kind.count * times
            for total, histogram in ((waits, kind.waits), (runs, kind.runs)):
                for bucket, count in enumerate(histogram[:BUCKETS]):
                    total[bucket] += count * times
        return Activity(outcomes.total(), dict(sorted(outcomes.items())), _percentiles(waits), _percentiles(runs))


class Windows(dict[str, tuple[Tally, Tally, Tally]]):
    """By name: before, within and after a span."""

    def __missing__(self, name: str) -> tuple[Tally, Tally, Tally]:
        made = self[name] = (Tally(), Tally(), Tally())
        return made


def _percentiles(counts: Sequence[int]) -> Percentiles:
    return Percentiles(quantile(counts, 0.5), quantile(counts, 0.95), quantile(counts, 0.99))


def latency(minutes: Iterable[MinuteStats], step: int) -> Latency:
    """Minute statistics by steps of `step` seconds, by queue and by task."""
    steps: dict[int, Tally] = {}
    queues: dict[str, Tally] = {}
    tasks: dict[str, Tally] = {}
    kinds = Kinds()
    for one in minutes:
        kind = kinds[one.outcome, one.count, one.waits, one.runs]
        for tallies, name in ((steps, one.at // MICROS // step * step), (queues, one.queue), (tasks, one.task)):
            tally = tallies.get(name)  # pyright: ignore[reportArgumentType, reportCallIssue]
            if tally is None:
                tally = tallies[name] = Tally()  # pyright: ignore[reportArgumentType]
            tally[kind] = tally.get(kind, 0) + 1
    timed = [TimedActivity(moment(at * MICROS), steps[at].activity()) for at in sorted(steps)]
    return Latency(timed, _named(queues), _named(tasks))


def _named(tallies: dict[str, Tally]) -> list[NamedActivity]:
    first = sorted(tallies, key=lambda name: (-tallies[name].total(), name))[:MAX_ROWS]
    return [NamedActivity(name, tallies[name].activity()) for name in first]


def compared(minutes: Iterable[MinuteStats], start: int, end: int) -> Comparison:
    """What ended from `start` to `end` (microseconds, whole minutes), and as long before and after."""
    queues, tasks = Windows(), Windows()
    places: dict[int, int | None] = {}
    kinds = Kinds()
    for one in minutes:
        if one.at not in places:
            places[one.at] = window(one.at, start, end)
        place = places[one.at]
        if place is None:
            continue
        kind = kinds[one.outcome, one.count, one.waits, one.runs]
        for tally in (queues[one.queue][place], tasks[one.task][place]):
            tally[kind] = tally.get(kind, 0) + 1
    total = Compared("", *(_sum(three[place] for three in tasks.values()).activity() for place in range(3)))
    return Comparison(moment(start), moment(end), total, _compared(queues), _compared(tasks))


def _sum(tallies: Iterable[Tally]) -> Tally:
    found = Tally()
    for tally in tallies:
        for kind, times in tally.items():
            found[kind] = found.get(kind, 0) + times
    return found


def window(at: int, start: int, end: int) -> int | None:
    """Whether a time is before (0), within (1) or after (2) a span; None: farther away than its length."""
    place = (at - start) // (end - start) + 1
    return place if 0 <= place <= 2 else None


def _compared(tallies: Windows) -> list[Compared]:
    def order(name: str) -> tuple[int, int, str]:
        before, within, after = (tally.total() for tally in tallies[name])
        return -within, -before - after, name

    first = sorted(tallies, key=order)[:MAX_ROWS]
    return [Compared(name, *(tally.activity() for tally in tallies[name])) for name in first]
