"""Records the effects of a transaction inside it: transitions while a client reads them, and minute statistics."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import lru_cache

import msgspec

from ...core.clock import MICROS
from ...core.histogram import Histogram, of_letters
from ...core.job import Record
from ...core.operations import MinuteStats, Settlement, Transition, Transitions
from ..minute_sums import Sums
from ..protocol import MINUTE_STATS_KEPT, TRANSITIONS_KEPT, WATCH
from ..reference import apply
from . import sql
from .rows import text_of
from .step import Step

_decode = msgspec.json.Decoder(list[tuple[str, str]]).decode
_decode_counts = msgspec.msgpack.Decoder(tuple[int, ...]).decode
to_msgpack = msgspec.msgpack.Encoder().encode


def record(step: Step, changed: Iterable[tuple[str, str]]) -> None:
    """Record state changes, if a client reads them. Else it costs one small read per transaction."""
    if step.changed is None:
        step.changed = []
        step.watched = (step.value(sql.WATCHED) or 0) > step.now
    if step.watched:
        step.changed += changed


def count(step: Step, kept: Record, end: Settlement) -> None:
    """Count a claim that is about to end."""
    outcome, waited, ran = apply.ended(kept, end, step.now)
    _sums(step, kept.queue, kept.task, outcome).add(waited, ran)


def _sums(step: Step, queue: str, task: str, outcome: str) -> Sums:
    place = (queue, task, outcome)
    sums = step.ended.get(place)
    if sums is None:
        sums = step.ended[place] = Sums()
    return sums


def count_all(step: Step, ends: Sequence[Settlement]) -> list[tuple[str, str]]:
    """Count claims of jobs that are about to end; their queues, each with their limit keys as JSON."""
    left: list[tuple[str, str]] = []
    ways = {(end.outcome, end.state, end.keep == 0) for end in ends}
    for way in ways:
        outcome, state, gone = way
        seqs = [end.seq for end in ends if len(ways) == 1 or (end.outcome, end.state, end.keep == 0) == way]
        rows = step.connection.execute(sql.TIMES, (step.now, step.now, step.now, msgspec.json.encode(seqs).decode()))
        for queue, task, number, waited, ran, waits, runs, limit_keys in rows:
            sums = _sums(step, queue, task, outcome)
            sums.merge(number, waited, ran, of_letters(waits), of_letters(runs))
            if not gone:
                keep(step, queue, state, number)
            if limit_keys != "[]":
                left.append((queue, limit_keys))
    return left


def ended(step: Step, ids: Sequence[str]) -> None:
    """Record that these jobs have ended, for jobs that wait for them."""
    if ids:
        step.connection.executemany(sql.RECORD_ENDED, [(id, b"{}") for id in ids])


def keep(step: Step, queue: str, state: str, number: int = 1) -> None:
    """Count ended jobs that were added, or, below zero, removed."""
    place = (queue, str(state))
    step.kept[place] = step.kept.get(place, 0) + number


def write(step: Step) -> None:
    """Write the recorded effects: the last statements of a transaction."""
    if step.changed:
        upto = (step.value(sql.LAST_TRANSITION) or 0) + len(step.changed)
        step.connection.execute(sql.PUT_TRANSITIONS, (upto, step.now, msgspec.json.encode(step.changed).decode()))
        step.connection.execute(sql.TRIM_TRANSITIONS, (upto - len(step.changed) - TRANSITIONS_KEPT,))
    if step.ended:
        at = apply.minute(step.now)
        for (queue, task, outcome), sums in step.ended.items():
            place = (at, queue, task, outcome)
            before = step.one(sql.MINUTE, *place)
            if before is not None:
                count, waited, ran, waits, runs = before
                sums.merge(count, waited, ran, _counts(waits), _counts(runs))
            step.connection.execute(
                sql.PUT_MINUTE,
                (*place, sums.count, sums.waited, sums.ran, to_msgpack(sums.waits), to_msgpack(sums.runs)),
            )
    if step.kept:
        step.connection.executemany(sql.ADD_ENDED, [(*place, number) for place, number in step.kept.items()])


def watch(step: Step) -> str:
    """Record transitions from now on; the cursor at which they begin."""
    step.connection.execute(sql.WATCH, (apply.after(step.now, WATCH),))
    return str(step.value(sql.LAST_TRANSITION) or 0)


def transitions(step: Step, since: str | None, limit: int) -> tuple[Transitions | None, bool]:
    """The transitions since a cursor, None if they were not recorded; and whether half of WATCH is over."""
    until = step.value(sql.WATCHED) or 0
    if until <= step.now:
        return None, True
    last = step.value(sql.LAST_TRANSITION) or 0
    place = last if since is None else int(since)
    first = step.value(sql.FIRST_TRANSITION)
    missed = place > last or place < (last if first is None else first)
    found: list[Transition] = []
    if missed:
        place = last
    elif place < last:
        for upto, at, moved in step.connection.execute(sql.TRANSITIONS, (place,)):
            with suppress(ValueError, TypeError):  # a line that cannot be decoded is left out
                found += [Transition(id, state, at) for id, state in _decode(moved)]
            place = upto
            if len(found) >= limit:
                break
    return Transitions(found, str(place), missed), until - step.now < int(WATCH * MICROS) // 2


def stats_by_minute(step: Step, since: int) -> list[MinuteStats]:
    return [
        MinuteStats(
            at, text_of(queue), text_of(task), text_of(outcome), count, waited, ran, _counts(waits), _counts(runs)
        )
        for at, queue, task, outcome, count, waited, ran, waits, runs in step.connection.execute(sql.MINUTES, (since,))
    ]


@lru_cache(maxsize=4096)
def _counts(stored: bytes) -> Histogram:
    """A stored histogram; empty if it cannot be decoded. Most are one of a few."""
    try:
        return _decode_counts(stored)
    except (ValueError, TypeError):
        return ()


def tidy(step: Step) -> None:
    step.connection.execute(sql.TIDY_MINUTES, (step.now - int(MINUTE_STATS_KEPT * MICROS),))
