"""Whether lanes got their turns by their weights, where nothing else has had a say in the order of a queue."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import NamedTuple

from holdfast.core.job import Record
from holdfast.testing.history import Broken
from holdfast.testing.history.lives import History

ROUNDING = 0.01


class Waited(NamedTuple):
    """A job of a lane, in the order in which jobs started: when it did, where it stood, and since when it was there."""

    started: int
    place: tuple[int, int, int]
    created: int
    lane: str
    weight: int


def waited(history: History, records: list[Record]) -> list[Waited]:
    """All jobs in the order of their starts; none where one was held, had no turn, or was not claimed just once."""
    found: list[Waited] = []
    for record in records:
        claims = history.life(record.id).claims
        lane = record.lane
        if lane is None or not lane.weight or record.fence != 1 or not claims:
            return []
        if lane.interval or 0 < lane.running < len(records):
            return []  # it may have been held
        at = claims[0].entry.started_at
        found.append(Waited(at, claims[0].place, record.created_at, lane.name, lane.weight))
    return sorted(found)


def unfair(jobs: list[Waited]) -> Iterator[Broken]:
    """While two lanes have jobs waiting, neither is ahead of its share by more than one turn of each."""
    for one, other in combinations(sorted({job.lane for job in jobs}), 2):
        ahead = {one: 0.0, other: 0.0}
        """How far each has come, since it was furthest behind the other."""
        both = [job for job in jobs if job.lane in ahead]
        for number, job in enumerate(both):
            behind = [later for later in both[number + 1 :] if later.created < job.started]
            rival = next((later for later in behind if later.lane != job.lane), None)
            if rival is None:
                ahead = dict.fromkeys(ahead, 0.0)
                continue
            gained = 1 / job.weight
            ahead[job.lane] += gained
            ahead[rival.lane] = max(0.0, ahead[rival.lane] - gained)
            if ahead[job.lane] > gained + 1 / rival.weight + ROUNDING:
                what = (
                    f"lane {job.lane!r} was {ahead[job.lane]:.2f} turns ahead of {rival.lane!r}, which had jobs waiting"
                )
                yield Broken("lanes_take_turns_by_their_weights", "", what)
                break
            if not any(later.lane == job.lane for later in behind):
                ahead = dict.fromkeys(ahead, 0.0)
