"""LANES: what is remembered of each in its row, and what they hold. The rules are those of `gate.py`."""

from __future__ import annotations

from copy import copy

import msgspec

from ...job import Lane, NewJob, Record
from ..gate import HOLDS, Gate
from ..protocol import HELD_LIMIT, PROMOTE_LIMIT
from ..standing import Picking
from . import sql
from .rows import lane_of
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


def make_room(step: Step, queue: str, lane: str) -> None:
    """A job has left the ready or the running: have a claim look at what its lane holds, if it does."""
    if step.connection.execute(sql.MAKE_ROOM, (lane, step.now)).rowcount:
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

    def _gate(self, lane: str) -> Gate:
        gate = self._gates.get(lane)
        if gate is None:
            gate = self._gates[lane] = _read(self._step, lane)
            self._before[lane] = copy(gate)
        return gate

    def _runs(self, lane: Lane) -> int:
        if not lane.running:
            return 0  # nobody asks how many
        runs = self._running.get(lane.name)
        if runs is None:
            runs = self._running[lane.name] = self._step.value(sql.RUNNING_OF_LANE, lane.name)
        return runs

    def reopen(self) -> None:
        """Make held jobs ready, as many as their lanes let start."""
        rows = self._step.connection.execute(sql.OPENING, (self._step.now, HELD_LIMIT)).fetchall()
        for (name,) in rows:
            self._let_go(name)

    def _let_go(self, name: str) -> None:
        now, gate, held = self._step.now, self._gate(name), HOLDS + name
        first = self._step.one(sql.FIRST_HELD, held)
        lane = None if first is None else lane_of(*first)
        if lane is None:
            gate.opens_at = None
            return
        free = min(PROMOTE_LIMIT, gate.starts(lane, self._runs(lane), now))
        self._step.connection.execute(sql.LET_GO, (held, free))
        if self._step.one(sql.FIRST_HELD, held) is None:
            gate.opens_at = None
        else:
            gate.opens_at = now if free == PROMOTE_LIMIT else gate.next_look(lane, self._runs(lane), now)

    def let_start(self, records: list[Record], picking: Picking) -> list[Record]:
        """Those that may start; the others are set aside. The rest is left alone once too many are."""
        starting: list[Record] = []
        held: list[Record] = []
        for record in records:
            (starting if self._starts(record, picking) else held).append(record)
            if len(held) >= picking.spare:
                break
        for record in held:
            lane = record.lane
            assert lane is not None
            self._gate(lane.name).opens_at = self._gate(lane.name).next_look(lane, self._runs(lane), picking.now)
        self._step.connection.executemany(sql.HOLD, [(record.seq,) for record in held])
        picking.spare -= len(held)
        return starting

    def _starts(self, record: Record, picking: Picking) -> bool:
        lane, started = record.lane, picking.started
        if lane is None:
            return True
        before = started.get(lane.name, 0)
        if self._gate(lane.name).starts(lane, self._runs(lane), picking.now) <= before:
            return False
        started[lane.name] = before + 1
        return True

    def close(self, chosen: list[Record]) -> None:
        """The claim takes these: count their starts, and write what it changed."""
        for record in chosen:
            if record.lane is not None:
                self._gate(record.lane.name).started(record.lane, self._step.now)
        for name, gate in self._gates.items():
            if gate != self._before[name]:
                _write(self._step, name, gate)
