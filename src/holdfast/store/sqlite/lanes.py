"""LANES: what is remembered of each in its row, and what they hold. The rules are those of `gate.py`."""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy

import msgspec

from ...job import Lane, NewJob, Record
from ..gate import HOLDS, Gate
from ..protocol import HELD_LIMIT, PROMOTE_LIMIT
from ..standing import Picking
from . import sql
from .rows import lane_of, to_json
from .step import Step


def turn(step: Step, new: NewJob, lane: Lane) -> int:
    """The turn of a new job that is ready, among the lanes of its queue."""
    gate = _read(step, lane.name)
    ends = step.connection.execute(sql.ENDS, (new.queue, new.priority)).fetchone()
    turn = gate.turn(lane, None if ends[0] is None else ends, step.now)
    _write(step, lane.name, gate)
    return turn


def rest(step: Step, lane: str, until: int) -> None:
    """No job of a lane starts before."""
    step.connection.execute(sql.REST, (lane, until))


def make_room(step: Step, queue: str, lanes: str) -> None:
    """Jobs of these lanes (as JSON) have left the ready or the running: have a claim look at what they still hold."""
    if step.connection.execute(sql.MAKE_ROOM, (lanes, step.now)).rowcount:
        step.rung.add(f"queue/{queue}")


def _read(step: Step, lane: str) -> Gate:
    row = step.one(sql.GATE, lane)
    return Gate() if row is None else Gate(*row)


def _write(step: Step, lane: str, gate: Gate) -> None:
    if gate == Gate():
        step.connection.execute(sql.REMOVE_GATE, (lane,))
    else:
        step.connection.execute(sql.PUT_GATE, (lane, *msgspec.structs.astuple(gate)))


class Lanes:
    """The lanes that one claim meets. What it changes of their gates is written as it ends."""

    def __init__(self, step: Step) -> None:
        self._step = step
        self._gates: dict[str, Gate] = {}
        self._before: dict[str, Gate] = {}
        self._running: dict[str, int] = {}
        """Claims by lane, before this one."""

    def _meet(self, lanes: Iterable[str]) -> None:
        """Read what is remembered of lanes, and what runs, all at once."""
        new = [lane for lane in dict.fromkeys(lanes) if lane not in self._gates]
        if not new:
            return
        names = (to_json(new).decode(),)
        gates = {lane: Gate(*row) for lane, *row in self._step.connection.execute(sql.GATES, names).fetchall()}
        for lane in new:
            self._gates[lane] = gates.get(lane) or Gate()
            self._before[lane] = copy(self._gates[lane])
        self._running.update(dict.fromkeys(new, 0))
        self._running.update(self._step.connection.execute(sql.RUNNING_OF_LANES, names).fetchall())

    def reopen(self) -> None:
        """Make held jobs ready, as many as their lanes let start."""
        rows = self._step.connection.execute(sql.OPENING, (self._step.now, HELD_LIMIT)).fetchall()
        self._meet(name for (name,) in rows)
        gone = [seq for (name,) in rows for seq in self._let_go(name)]
        if gone:
            self._step.connection.execute(sql.LET_GO_THESE, (to_json(gone).decode(),))

    def _let_go(self, name: str) -> list[int]:
        """The job of a lane that is to be made ready, where it is one; where there are more, they are already."""
        now, gate, held = self._step.now, self._gates[name], HOLDS + name
        first = self._step.connection.execute(sql.FIRST_HELD, (held,)).fetchall()
        lane = lane_of(*first[0][1:]) if first else None
        if lane is None:
            gate.opens_at = None
            return []
        running = self._running[name]
        free = min(PROMOTE_LIMIT, gate.starts(lane, running, now))
        if free > 1:
            self._step.connection.execute(sql.LET_GO, (held, free))
            left = self._step.one(sql.FIRST_HELD, held) is not None
        else:
            left = len(first) > free
        gate.opens_at = None
        if left:
            gate.opens_at = now if free == PROMOTE_LIMIT else gate.next_look(lane, running, now)
        return [first[0][0]] if free == 1 else []

    def let_start(self, records: list[Record], picking: Picking) -> list[Record]:
        """Those that may start; the others are set aside. The rest is left alone once too many are."""
        starting: list[Record] = []
        held: list[Record] = []
        self._meet(record.lane.name for record in records if record.lane is not None)
        for record in records:
            (starting if self._starts(record, picking) else held).append(record)
            if len(held) >= picking.spare:
                break
        for record in held:
            lane = record.lane
            assert lane is not None
            gate = self._gates[lane.name]
            gate.opens_at = gate.next_look(lane, self._running[lane.name], picking.now)
        self._step.connection.executemany(sql.HOLD, [(record.seq,) for record in held])
        picking.spare -= len(held)
        return starting

    def _starts(self, record: Record, picking: Picking) -> bool:
        lane, started = record.lane, picking.started
        if lane is None:
            return True
        before = started.get(lane.name, 0)
        if self._gates[lane.name].starts(lane, self._running[lane.name], picking.now) <= before:
            return False
        started[lane.name] = before + 1
        return True

    def close(self, chosen: list[Record]) -> None:
        """The claim takes these: count their starts, and write what it changed."""
        for record in chosen:
            if record.lane is not None:
                self._gates[record.lane.name].started(record.lane, self._step.now)
        for name, gate in self._gates.items():
            if gate != self._before[name]:
                _write(self._step, name, gate)
