"""Reads the minute statistics: adds up rows of single commits and rows that `holdfast.tidy` has added up."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...core.histogram import Histogram, of_letters
from ...core.operations import MinuteStats
from ..minute_sums import Sums


def minute_stats(rows: Iterable[Any]) -> list[MinuteStats]:
    """The statistics from rows of `sql.MINUTES`, in their order."""
    sums: dict[tuple[int, str, str, str], Sums] = {}
    for at, queue, task, outcome, part, count, waited, ran, waits, runs in rows:
        found = sums.setdefault((at, queue, task, outcome), Sums())
        if part:
            found.merge(count, waited, ran, of_letters(waits), of_letters(runs))
            continue
        found.merge(count, waited, ran, (), ())
        for several in zip(waits.split(","), runs.split(","), strict=True):
            found.merge(0, 0, 0, *map(_of_counts, several))
    return [found.stats(*place) for place, found in sums.items()]


def _of_counts(counts: str) -> Histogram:
    """The claims of each bucket; empty if it cannot be decoded."""
    try:
        return tuple(map(int, counts.split()))
    except ValueError:
        return ()
