"""LIMITS: the limiters of limit keys, one row each, and their deferred jobs. `core/limiter.py` has the rules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from ...core.job import NewJob, Record
from ...core.limiter import AT_ONCE, Limiter
from ...core.waiting import LIMIT_PREFIX
from ..json_columns import to_json
from ..protocol import DEFER_LIMIT, PROMOTE_LIMIT
from ..reference.ready_queues import Picking
from . import sql
from .rows import limit_key_of
from .step import Step

_EMPTY = msgspec.structs.astuple(Limiter())


def fair_times(step: Step, jobs: Sequence[NewJob], times: list[int]) -> list[int]:
    """`run_at` of new jobs: jobs that are ready now are ordered fairly among the limit keys of their queues."""
    fair = [new for new in jobs if new.limit_key is not None and new.limit_key.weight]
    if not fair:
        return times
    limiters = _read(step, {new.limit_key.name for new in fair if new.limit_key is not None})
    ends = {place: _ends(step, place) for place in {(new.queue, new.priority) for new in fair}}
    given: list[int] = []
    for new, time in zip(jobs, times, strict=True):
        place, at = (new.queue, new.priority), time
        if new.waiting_for is None and time <= step.now and place in ends:
            two = ends[place]
            if new.limit_key is not None and new.limit_key.weight:
                at = limiters[new.limit_key.name].position(new.limit_key, two, step.now)
            ends[place] = (at, at) if two is None else (min(two[0], at), max(two[1], at))
        given.append(at)
    _write(step, limiters)
    return given


def _ends(step: Step, place: tuple[str, int]) -> tuple[int, int] | None:
    first, last = step.connection.execute(sql.ENDS, place * 2).fetchone()
    return None if first is None else (first, last)


def rest(step: Step, limit_key: str, until: int) -> None:
    """Start no job of a limit key before `until`."""
    step.connection.execute(sql.REST, (limit_key, until))


def capacity_freed(step: Step, queue: str, limit_keys: str) -> None:
    """Let the next claim release deferred jobs of these limit keys (as JSON), after others have left the queue."""
    if step.connection.execute(sql.CAPACITY_FREED, (AT_ONCE, limit_keys)).rowcount:
        step.notified.add(f"queue/{queue}")


def waiting_for_rates(step: Step) -> list[tuple[str, int, int]]:
    """Name, `tat` and `burst` intervals of limit keys whose jobs wait for their rate, the last to open first."""
    tats = dict(step.connection.execute(sql.LATE_RATES, (step.now, step.now, DEFER_LIMIT)).fetchall())
    deferred = step.connection.execute(sql.FIRST_DEFERRED, (to_json(list(tats)).decode(),)).fetchall()
    limit_keys = [limit_key_of(name, bounds) for name, _, bounds, _ in deferred]
    return [
        (limit_key.name, tats[limit_key.name], limit_key.burst * limit_key.interval)
        for limit_key in limit_keys
        if limit_key.interval
    ]


def free_rates(step: Step, stalled: Iterable[tuple[str, int]]) -> None:
    """Reset limiters whose `tat` is unchanged, so that the next claim checks their jobs again."""
    step.connection.executemany(sql.FREE_RATE, [(AT_ONCE, name, tat) for name, tat in stalled])


def _read(step: Step, limit_keys: set[str]) -> dict[str, Limiter]:
    """The stored limiters of limit keys; an empty one where there is no row."""
    limiters = {limit_key: Limiter() for limit_key in limit_keys}
    for limit_key, *times in step.connection.execute(sql.LIMITERS, (to_json(limit_keys).decode(),)):
        limiters[limit_key] = Limiter(*times)
    return limiters


def _write(step: Step, limiters: dict[str, Limiter]) -> None:
    rows = [(limit_key, *msgspec.structs.astuple(limiter)) for limit_key, limiter in limiters.items()]
    step.write_rows(sql.PUT_LIMITER, (), [row for row in rows if row[1:] != _EMPTY])
    step.connection.executemany(sql.REMOVE_LIMITER, [row[:1] for row in rows if row[1:] == _EMPTY])


class LimitKeys:
    """The limit keys of the jobs that one claim reads. Changes of their limiters are written by `close`."""

    def __init__(self, step: Step) -> None:
        self._step = step
        self._limiters: dict[str, Limiter] = {}
        self._touched: dict[str, Limiter] = {}
        """Limiters that were changed, or may have been."""
        self._running: dict[str, int] = {}
        """Running jobs by limit key, before this claim; without an entry there are none."""

    def _load(self, limit_keys: Iterable[str]) -> None:
        """Read the limiters and the running jobs of limit keys, all at once."""
        new = {limit_key for limit_key in limit_keys if limit_key not in self._limiters}
        if not new:
            return
        self._limiters.update(_read(self._step, new))
        self._running.update(self._step.connection.execute(sql.RUNNING_OF_LIMIT_KEYS, (to_json(new).decode(),)))

    def reopen(self) -> None:
        """Make deferred jobs ready, as many as their limits allow."""
        rows = self._step.connection.execute(sql.OPENING, (self._step.now, DEFER_LIMIT)).fetchall()
        if not rows:
            return
        limit_keys = [limit_key for (limit_key,) in rows]
        self._load(limit_keys)
        deferred = self._step.connection.execute(sql.FIRST_DEFERRED, (to_json(limit_keys).decode(),)).fetchall()
        released = [seq for row in deferred for seq in self._release(*row)]
        if released:
            self._step.connection.execute(sql.RELEASE_THESE, (to_json(released).decode(),))
        for limit_key in set(limit_keys).difference(limit_key for limit_key, *_ in deferred):
            self._opens(limit_key, None)

    def _opens(self, limit_key: str, when: int | None) -> None:
        limiter = self._touched[limit_key] = self._limiters[limit_key]
        limiter.opens_at = when

    def _release(self, name: str, seq: int, bounds: str, more: int | None) -> list[int]:
        """Release jobs of a limit key. A single job is only returned, to be released together with others."""
        now, limiter, running = self._step.now, self._limiters[name], self._running.get(name, 0)
        limit_key = limit_key_of(name, bounds)
        free = min(PROMOTE_LIMIT, limiter.starts(limit_key, running, now))
        left = more is not None or not free
        if free > 1 and left:
            self._step.connection.execute(sql.RELEASE, (LIMIT_PREFIX + name, free))
            left = self._step.one(sql.ANY_DEFERRED, LIMIT_PREFIX + name) is not None
            seqs: list[int] = []
        else:
            seqs = [seq] if free else []
        when = AT_ONCE if free == PROMOTE_LIMIT else limiter.next_look(limit_key, running, now)
        self._opens(name, when if left else None)
        return seqs

    def let_start(self, records: list[Record], picking: Picking) -> list[Record]:
        """The records that may start; the others are deferred, at most `picking.spare`, then the rest is left alone."""
        starting: list[Record] = []
        deferred: list[Record] = []
        self._load([record.limit_key.name for record in records if record.limit_key is not None])
        for record in records:
            (starting if self._starts(record, picking) else deferred).append(record)
            if len(deferred) >= picking.spare:
                break
        for record in deferred:
            limit_key = record.limit_key
            assert limit_key is not None
            running = self._running.get(limit_key.name, 0) + picking.started.get(limit_key.name, 0)
            self._opens(limit_key.name, self._limiters[limit_key.name].next_look(limit_key, running, picking.now))
        if deferred:
            self._step.connection.execute(sql.DEFER, (to_json([record.seq for record in deferred]).decode(),))
            picking.spare -= len(deferred)
        return starting

    def _starts(self, record: Record, picking: Picking) -> bool:
        limit_key, started = record.limit_key, picking.started
        if limit_key is None:
            return True
        name = limit_key.name
        before = started.get(name, 0)
        if self._limiters[name].starts(limit_key, self._running.get(name, 0), picking.now) <= before:
            return False
        started[name] = before + 1
        return True

    def close(self, chosen: list[Record]) -> None:
        """Count the starts of the chosen jobs, and write the changed limiters."""
        for record in chosen:
            limit_key = record.limit_key
            if limit_key is not None and limit_key.interval:
                limiter = self._touched[limit_key.name] = self._limiters[limit_key.name]
                limiter.started(limit_key, self._step.now)
        _write(self._step, self._touched)
