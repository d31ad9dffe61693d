"""Sorted queues of waiting jobs."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator
from itertools import islice

from ...core.job import Record

Place = tuple[int, int, int]
"""The sort key of a job in its queue: (priority, run_at, seq). In a queue of delayed jobs the priority is 0."""


class SortedQueue:
    """Places in order. Removing the first takes constant time on average, however many there are."""

    def __init__(self) -> None:
        self._places: list[Place] = []
        self._start = 0

    def __len__(self) -> int:
        return len(self._places) - self._start

    def __iter__(self) -> Iterator[Place]:
        return islice(self._places, self._start, None)

    @property
    def first(self) -> Place | None:
        return self._places[self._start] if self else None

    def ends(self, priority: int) -> tuple[int, int] | None:
        """The first and the last `run_at` of a priority."""
        low = bisect.bisect_left(self._places, (priority,), lo=self._start)
        high = bisect.bisect_left(self._places, (priority + 1,), lo=self._start)
        return (self._places[low][1], self._places[high - 1][1]) if low < high else None

    def add(self, place: Place) -> None:
        if not self._places or place > self._places[-1]:
            self._places.append(place)
        else:
            bisect.insort(self._places, place, lo=self._start)

    def extend(self, places: Iterable[Place]) -> None:
        self._places, self._start = sorted((*self, *places)), 0

    def remove(self, place: Place) -> None:
        at = bisect.bisect_left(self._places, place, lo=self._start)
        if at == len(self._places) or self._places[at] != place:
            return
        if at > self._start:
            del self._places[at]
            return
        self._start += 1
        if self._start > 1000 and self._start * 2 > len(self._places):
            del self._places[: self._start]
            self._start = 0


class Ready:
    """The queued jobs of one queue, quarantined jobs separately."""

    def __init__(self) -> None:
        self.sound, self.quarantined = SortedQueue(), SortedQueue()

    def of(self, quarantined: bool) -> SortedQueue:
        return self.quarantined if quarantined else self.sound


def place(record: Record) -> Place:
    return (record.priority, record.run_at, record.seq)
