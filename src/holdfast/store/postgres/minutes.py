"""Reads the minute statistics: adds up rows of single commits and rows that `holdfast.tidy` has added up."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from ...core.histogram import Histogram, of_letters
from ...core.operations import MinuteStats
from ..minute_sums import Sums

FEW_CLAIMS = 32
"""Claims, at most, of a histogram that is decoded once: most of these are one of a few."""
_of_few = lru_cache(maxsize=4096)(of_letters)


def minute_stats(rows: Iterable[Any]) -> list[MinuteStats]:
    """The statistics from rows of `sql.MINUTES`, one for each (minute, queue, task, outcome)."""
    found: dict[tuple[int, str, str, str], MinuteStats] = {}
    for at, queue, task, outcome, part, count, waited, ran, waits, runs in rows:
        read = _of_counts if not part else _of_few if count <= FEW_CLAIMS else of_letters
        made = MinuteStats(at, queue, task, outcome, count, waited, ran, read(waits), read(runs))
        before = found.setdefault((at, queue, task, outcome), made)
        if before is not made:
            found[at, queue, task, outcome] = _sum(before, made)
    return list(found.values())


def _sum(first: MinuteStats, second: MinuteStats) -> MinuteStats:
    sums = Sums()
    for one in (first, second):
        sums.merge(one.count, one.waited, one.ran, one.waits, one.runs)
    return sums.stats(first.at, first.queue, first.task, first.outcome)


@lru_cache(maxsize=4096)
def _of_counts(counts: str) -> Histogram:
    """The claims of each bucket; empty if they cannot be decoded. Most are one of a few."""
    try:
        return tuple(map(int, counts.split()))
    except ValueError:
        return ()
