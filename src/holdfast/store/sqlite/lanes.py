"""LANES: what is remembered of each in its row, and what they hold. The rules are those of `core/limiter.py`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from ...core.job import NewJob, Record
from ...core.limiter import AT_ONCE, Gate
from ...core.waiting import LIMIT_PREFIX
from ..protocol import HELD_LIMIT, PROMOTE_LIMIT
from ..reference.standing import Picking
from . import sql
from .rows import lane_of, to_json
from .step import Step

_EMPTY = msgspec.structs.astuple(Gate())


def turns(step: Step, jobs: Sequence[NewJob], times: list[int]) -> list[int]:
    """When new jobs run: those that are ready now at their turns among the lanes of their queues."""
    fair = [new for new in jobs if new.lane is not None and new.lane.weight]
    if not fair:
        return times
    gates = _read(step, {new.lane.name for new in fair if new.lane is not None})
    ends = {place: _ends(step, place) for place in {(new.queue, new.priority) for new in fair}}
    given: list[int] = []
    for new, time in zip(jobs, times, strict=True):
        place, turn = (new.queue, new.priority), time
        if new.waits is None and time <= step.now and place in ends:
            two = ends[place]
            if new.lane is not None and new.lane.weight:
                turn = gates[new.lane.name].turn(new.lane, two, step.now)
            ends[place] = (turn, turn) if two is None else (min(two[0], turn), max(two[1], turn))
        given.append(turn)
    _write(step, gates)
    return given


def _ends(step: Step, place: tuple[str, int]) -> tuple[int, int] | None:
    first, last = step.connection.execute(sql.ENDS, place * 2).fetchone()
    return None if first is None else (first, last)


def rest(step: Step, lane: str, until: int) -> None:
    """No job of a lane starts before."""
    step.connection.execute(sql.REST, (lane, until))


def make_room(step: Step, queue: str, lanes: str) -> None:
    """Jobs of these lanes (as JSON) have left the ready or the running: have a claim look at what they still hold."""
    if step.connection.execute(sql.MAKE_ROOM, (AT_ONCE, lanes)).rowcount:
        step.rung.add(f"queue/{queue}")


def waiting_for_rates(step: Step) -> list[tuple[str, int, int]]:
    """Name, `tat` and `burst` intervals of lanes that hold jobs for their rate, the last to open first."""
    tats = dict(step.connection.execute(sql.LATE_RATES, (step.now, step.now, HELD_LIMIT)).fetchall())
    held = step.connection.execute(sql.FIRST_HELD, (to_json(list(tats)).decode(),)).fetchall()
    lanes = [lane_of(name, bounds) for name, _, bounds, _ in held]
    return [(lane.name, tats[lane.name], lane.burst * lane.interval) for lane in lanes if lane.interval]


def free_rates(step: Step, stalled: Iterable[tuple[str, int]]) -> None:
    """Have lanes looked at again that have started nothing since, whatever time was written for them."""
    step.connection.executemany(sql.FREE_RATE, [(AT_ONCE, name, tat) for name, tat in stalled])


def _read(step: Step, lanes: set[str]) -> dict[str, Gate]:
    """What is remembered of lanes."""
    gates = {lane: Gate() for lane in lanes}
    for lane, *times in step.connection.execute(sql.GATES, (to_json(lanes).decode(),)):
        gates[lane] = Gate(*times)
    return gates


def _write(step: Step, gates: dict[str, Gate]) -> None:
    rows = [(lane, *msgspec.structs.astuple(gate)) for lane, gate in gates.items()]
    step.write_rows(sql.PUT_GATE, (), [row for row in rows if row[1:] != _EMPTY])
    step.connection.executemany(sql.REMOVE_GATE, [row[:1] for row in rows if row[1:] == _EMPTY])


class Lanes:
    """The lanes that one claim meets. What it changes of their gates is written as it ends."""

    def __init__(self, step: Step) -> None:
        self._step = step
        self._gates: dict[str, Gate] = {}
        self._touched: dict[str, Gate] = {}
        """Those that are not as they were, or may not be."""
        self._running: dict[str, int] = {}
        """Claims by lane, before this one; none where there is no entry."""

    def _meet(self, lanes: Iterable[str]) -> None:
        """Read what is remembered of lanes, and what runs, all at once."""
        new = {lane for lane in lanes if lane not in self._gates}
        if not new:
            return
        self._gates.update(_read(self._step, new))
        self._running.update(self._step.connection.execute(sql.RUNNING_OF_LANES, (to_json(new).decode(),)))

    def reopen(self) -> None:
        """Make held jobs ready, as many as their lanes let start."""
        rows = self._step.connection.execute(sql.OPENING, (self._step.now, HELD_LIMIT)).fetchall()
        if not rows:
            return
        lanes = [lane for (lane,) in rows]
        self._meet(lanes)
        held = self._step.connection.execute(sql.FIRST_HELD, (to_json(lanes).decode(),)).fetchall()
        gone = [seq for row in held for seq in self._let_go(*row)]
        if gone:
            self._step.connection.execute(sql.LET_GO_THESE, (to_json(gone).decode(),))
        for lane in set(lanes).difference(lane for lane, *_ in held):
            self._opens(lane, None)

    def _opens(self, lane: str, when: int | None) -> None:
        gate = self._touched[lane] = self._gates[lane]
        gate.opens_at = when

    def _let_go(self, name: str, seq: int, bounds: str, more: int | None) -> list[int]:
        """The first job of a lane, where it alone is to be made ready; where there are more, they are already."""
        now, gate, running = self._step.now, self._gates[name], self._running.get(name, 0)
        lane = lane_of(name, bounds)
        free = min(PROMOTE_LIMIT, gate.starts(lane, running, now))
        left = more is not None or not free
        if free > 1 and left:
            self._step.connection.execute(sql.LET_GO, (LIMIT_PREFIX + name, free))
            left = self._step.one(sql.HOLDS_ANY, LIMIT_PREFIX + name) is not None
            seqs: list[int] = []
        else:
            seqs = [seq] if free else []
        when = AT_ONCE if free == PROMOTE_LIMIT else gate.next_look(lane, running, now)
        self._opens(name, when if left else None)
        return seqs

    def let_start(self, records: list[Record], picking: Picking) -> list[Record]:
        """Those that may start; the others are set aside. The rest is left alone once too many are."""
        starting: list[Record] = []
        held: list[Record] = []
        self._meet([record.lane.name for record in records if record.lane is not None])
        for record in records:
            (starting if self._starts(record, picking) else held).append(record)
            if len(held) >= picking.spare:
                break
        for record in held:
            lane = record.lane
            assert lane is not None
            running = self._running.get(lane.name, 0) + picking.started.get(lane.name, 0)
            self._opens(lane.name, self._gates[lane.name].next_look(lane, running, picking.now))
        if held:
            self._step.connection.execute(sql.HOLD, (to_json([record.seq for record in held]).decode(),))
            picking.spare -= len(held)
        return starting

    def _starts(self, record: Record, picking: Picking) -> bool:
        lane, started = record.lane, picking.started
        if lane is None:
            return True
        name = lane.name
        before = started.get(name, 0)
        if self._gates[name].starts(lane, self._running.get(name, 0), picking.now) <= before:
            return False
        started[name] = before + 1
        return True

    def close(self, chosen: list[Record]) -> None:
        """The claim takes these: count their starts, and write what it changed."""
        for record in chosen:
            lane = record.lane
            if lane is not None and lane.interval:
                gate = self._touched[lane.name] = self._gates[lane.name]
                gate.started(lane, self._step.now)
        _write(self._step, self._touched)
