"""Sums over the claims that ended in one minute with the same queue, task and outcome."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import zip_longest

from ..core import histogram
from ..core.operations import MinuteStats

Place = tuple[int, str, str, str]
"""Start of the minute, queue, task, outcome."""


class Sums:
    """How many claims ended, and how long they waited and ran."""

    __slots__ = ("count", "ran", "runs", "waited", "waits")

    def __init__(self) -> None:
        self.count = self.waited = self.ran = 0
        self.waits: list[int] = []
        self.runs: list[int] = []

    def add(self, waited: int, ran: int) -> None:
        """Add one claim; times in microseconds."""
        self.count += 1
        self.waited += waited
        self.ran += ran
        _raise(self.waits, histogram.bucket(waited))
        _raise(self.runs, histogram.bucket(ran))

    def merge(self, count: int, waited: int, ran: int, waits: Iterable[int], runs: Iterable[int]) -> None:
        """Add sums of other claims."""
        self.count += count
        self.waited += waited
        self.ran += ran
        self.waits = [a + b for a, b in zip_longest(self.waits, waits, fillvalue=0)]
        self.runs = [a + b for a, b in zip_longest(self.runs, runs, fillvalue=0)]

    def stats(self, at: int, queue: str, task: str, outcome: str) -> MinuteStats:
        return MinuteStats(
            at, queue, task, outcome, self.count, self.waited, self.ran, tuple(self.waits), tuple(self.runs)
        )


def sums_of(found: Iterable[MinuteStats]) -> dict[Place, Sums]:
    """The sums of statistics, by place."""
    sums: dict[Place, Sums] = {}
    for one in found:
        place = (one.at, one.queue, one.task, one.outcome)
        sums.setdefault(place, Sums()).merge(one.count, one.waited, one.ran, one.waits, one.runs)
    return sums


def _raise(counts: list[int], bucket: int) -> None:
    if bucket >= len(counts):
        counts += [0] * (bucket + 1 - len(counts))
    counts[bucket] += 1
