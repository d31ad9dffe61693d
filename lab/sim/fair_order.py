"""Whether limit keys were served by their weights, where nothing else has changed the order of a queue."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import NamedTuple

from holdfast.core.job import Record
from holdfast.testing.history import Violation
from holdfast.testing.history.job_history import History

ROUNDING = 0.01


class Waited(NamedTuple):
    """A job of a limit key, in start order: when it started, its place in the queue, and since when it was ready."""

    started: int
    place: tuple[int, int, int]
    created: int
    limit_key: str
    weight: int


def waited(history: History, records: list[Record]) -> list[Waited]:
    """All jobs in the order of their starts; none if one was deferred, unordered, or not claimed just once."""
    found: list[Waited] = []
    for record in records:
        claims = history.job(record.id).claims
        limit_key = record.limit_key
        if limit_key is None or not limit_key.weight or record.fence != 1 or not claims:
            return []
        if limit_key.interval or 0 < limit_key.concurrency < len(records):
            return []  # it may have been held
        at = claims[0].entry.started_at
        found.append(Waited(at, claims[0].place, record.created_at, limit_key.name, limit_key.weight))
    return sorted(found)


def unfair(jobs: list[Waited]) -> Iterator[Violation]:
    """While two limit keys have jobs waiting, neither is ahead of its share by more than one job of each."""
    for one, other in combinations(sorted({job.limit_key for job in jobs}), 2):
        ahead = {one: 0.0, other: 0.0}
        """How far each has come, since it was furthest behind the other."""
        both = [job for job in jobs if job.limit_key in ahead]
        for number, job in enumerate(both):
            behind = [later for later in both[number + 1 :] if later.created < job.started]
            rival = next((later for later in behind if later.limit_key != job.limit_key), None)
            if rival is None:
                ahead = dict.fromkeys(ahead, 0.0)
                continue
            gained = 1 / job.weight
            ahead[job.limit_key] += gained
            ahead[rival.limit_key] = max(0.0, ahead[rival.limit_key] - gained)
            if ahead[job.limit_key] > gained + 1 / rival.weight + ROUNDING:
                lead = f"{ahead[job.limit_key]:.2f} jobs ahead of {rival.limit_key!r}, which had jobs waiting"
                what = f"limit key {job.limit_key!r} was {lead}"
                yield Violation("limit_keys_are_served_by_their_weights", "", what)
                break
            if not any(later.limit_key == job.limit_key for later in behind):
                ahead = dict.fromkeys(ahead, 0.0)
