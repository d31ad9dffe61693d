"""LANES: what is remembered of each in its row, and what they hold. The rules are those of `core/limiter.py`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from ...core.job import NewJob, Record
from ...core.limiter import AT_ONCE, Limiter
from ...core.waiting import LIMIT_PREFIX
from ..protocol import HELD_LIMIT, PROMOTE_LIMIT
from ..reference.ready_queues import Picking
from . import sql
from .rows import limit_key_of, to_json
from .step import Step

_EMPTY = msgspec.structs.astuple(Limiter())


def turns(step: Step, jobs: Sequence[NewJob], times: list[int]) -> list[int]:
    """When new jobs run: those that are ready now at their turns among the limit keys of their queues."""
    fair = [new for new in jobs if new.limit_key is not None and new.limit_key.weight]
    if not fair:
        return times
    limiters = _read(step, {new.limit_key.name for new in fair if new.limit_key is not None})
    ends = {place: _ends(step, place) for place in {(new.queue, new.priority) for new in fair}}
    given: list[int] = []
    for new, time in zip(jobs, times, strict=True):
        place, turn = (new.queue, new.priority), time
        if new.waiting_for is None and time <= step.now and place in ends:
            two = ends[place]
            if new.limit_key is not None and new.limit_key.weight:
                turn = limiters[new.limit_key.name].turn(new.limit_key, two, step.now)
            ends[place] = (turn, turn) if two is None else (min(two[0], turn), max(two[1], turn))
        given.append(turn)
    _write(step, limiters)
    return given


def _ends(step: Step, place: tuple[str, int]) -> tuple[int, int] | None:
    first, last = step.connection.execute(sql.ENDS, place * 2).fetchone()
    return None if first is None else (first, last)


def rest(step: Step, limit_key: str, until: int) -> None:
    """No job of a limit key starts before."""
    step.connection.execute(sql.REST, (limit_key, until))


def make_room(step: Step, queue: str, limit_keys: str) -> None:
    """Jobs of these limit keys (as JSON) have left the ready or the running: have a claim look at what they still hold."""
    if step.connection.execute(sql.MAKE_ROOM, (AT_ONCE, limit_keys)).rowcount:
        step.notified.add(f"queue/{queue}")


def waiting_for_rates(step: Step) -> list[tuple[str, int, int]]:
    """Name, `tat` and `burst` intervals of limit keys that hold jobs for their rate, the last to open first."""
    tats = dict(step.connection.execute(sql.LATE_RATES, (step.now, step.now, HELD_LIMIT)).fetchall())
    held = step.connection.execute(sql.FIRST_HELD, (to_json(list(tats)).decode(),)).fetchall()
    limit_keys = [limit_key_of(name, bounds) for name, _, bounds, _ in held]
    return [
        (limit_key.name, tats[limit_key.name], limit_key.burst * limit_key.interval)
        for limit_key in limit_keys
        if limit_key.interval
    ]


def free_rates(step: Step, stalled: Iterable[tuple[str, int]]) -> None:
    """Have limit keys looked at again that have started nothing since, whatever time was written for them."""
    step.connection.executemany(sql.FREE_RATE, [(AT_ONCE, name, tat) for name, tat in stalled])


def _read(step: Step, limit_keys: set[str]) -> dict[str, Limiter]:
    """What is remembered of limit keys."""
    limiters = {limit_key: Limiter() for limit_key in limit_keys}
    for limit_key, *times in step.connection.execute(sql.LIMITERS, (to_json(limit_keys).decode(),)):
        limiters[limit_key] = Limiter(*times)
    return limiters


def _write(step: Step, limiters: dict[str, Limiter]) -> None:
    rows = [(limit_key, *msgspec.structs.astuple(limiter)) for limit_key, limiter in limiters.items()]
    step.write_rows(sql.PUT_LIMITER, (), [row for row in rows if row[1:] != _EMPTY])
    step.connection.executemany(sql.REMOVE_LIMITER, [row[:1] for row in rows if row[1:] == _EMPTY])


class LimitKeys:
    """The limit keys that one claim meets. What it changes of their limiters is written as it ends."""

    def __init__(self, step: Step) -> None:
        self._step = step
        self._limiters: dict[str, Limiter] = {}
        self._touched: dict[str, Limiter] = {}
        """Those that are not as they were, or may not be."""
        self._running: dict[str, int] = {}
        """Claims by limit key, before this one; none where there is no entry."""

    def _meet(self, limit_keys: Iterable[str]) -> None:
        """Read what is remembered of limit keys, and what runs, all at once."""
        new = {limit_key for limit_key in limit_keys if limit_key not in self._limiters}
        if not new:
            return
        self._limiters.update(_read(self._step, new))
        self._running.update(self._step.connection.execute(sql.RUNNING_OF_LIMIT_KEYS, (to_json(new).decode(),)))

    def reopen(self) -> None:
        """Make held jobs ready, as many as their limit keys let start."""
        rows = self._step.connection.execute(sql.OPENING, (self._step.now, HELD_LIMIT)).fetchall()
        if not rows:
            return
        limit_keys = [limit_key for (limit_key,) in rows]
        self._meet(limit_keys)
        held = self._step.connection.execute(sql.FIRST_HELD, (to_json(limit_keys).decode(),)).fetchall()
        gone = [seq for row in held for seq in self._let_go(*row)]
        if gone:
            self._step.connection.execute(sql.LET_GO_THESE, (to_json(gone).decode(),))
        for limit_key in set(limit_keys).difference(limit_key for limit_key, *_ in held):
            self._opens(limit_key, None)

    def _opens(self, limit_key: str, when: int | None) -> None:
        limiter = self._touched[limit_key] = self._limiters[limit_key]
        limiter.opens_at = when

    def _let_go(self, name: str, seq: int, bounds: str, more: int | None) -> list[int]:
        """The first job of a limit key, where it alone is to be made ready; where there are more, they are already."""
        now, limiter, running = self._step.now, self._limiters[name], self._running.get(name, 0)
        limit_key = limit_key_of(name, bounds)
        free = min(PROMOTE_LIMIT, limiter.starts(limit_key, running, now))
        left = more is not None or not free
        if free > 1 and left:
            self._step.connection.execute(sql.LET_GO, (LIMIT_PREFIX + name, free))
            left = self._step.one(sql.HOLDS_ANY, LIMIT_PREFIX + name) is not None
            seqs: list[int] = []
        else:
            seqs = [seq] if free else []
        when = AT_ONCE if free == PROMOTE_LIMIT else limiter.next_look(limit_key, running, now)
        self._opens(name, when if left else None)
        return seqs

    def let_start(self, records: list[Record], picking: Picking) -> list[Record]:
        """Those that may start; the others are set aside. The rest is left alone once too many are."""
        starting: list[Record] = []
        held: list[Record] = []
        self._meet([record.limit_key.name for record in records if record.limit_key is not None])
        for record in records:
            (starting if self._starts(record, picking) else held).append(record)
            if len(held) >= picking.spare:
                break
        for record in held:
            limit_key = record.limit_key
            assert limit_key is not None
            running = self._running.get(limit_key.name, 0) + picking.started.get(limit_key.name, 0)
            self._opens(limit_key.name, self._limiters[limit_key.name].next_look(limit_key, running, picking.now))
        if held:
            self._step.connection.execute(sql.HOLD, (to_json([record.seq for record in held]).decode(),))
            picking.spare -= len(held)
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
        """The claim takes these: count their starts, and write what it changed."""
        for record in chosen:
            limit_key = record.limit_key
            if limit_key is not None and limit_key.interval:
                limiter = self._touched[limit_key.name] = self._limiters[limit_key.name]
                limiter.started(limit_key, self._step.now)
        _write(self._step, self._touched)
