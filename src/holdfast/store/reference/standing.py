"""Where every waiting job stands, and which ones a claim takes next. Pure, as `jobs.py` is, whose jobs these are."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import TypeVar

from ...core.job import Record, State
from ...core.limiter import AT_ONCE, KEPT, Gate
from ...core.operations import Ask
from ...core.waiting import Waiting
from ..protocol import COHORT, HELD_LIMIT, PROMOTE_LIMIT
from .line import Line, Place, Ready, place

T = TypeVar("T")
DUE = frozenset({State.SCHEDULED, State.FAILED})


class Picking:
    """One claim in the making: the jobs chosen so far, and how many more it may set aside."""

    def __init__(self, ask: Ask, now: int) -> None:
        self.ask = ask
        self.now = now
        self.spare = HELD_LIMIT
        self.chosen: list[Record] = []
        self.suspect_waiting = False
        """A suspect whose turn it was had to be passed over."""
        self.started: dict[str, int] = {}
        """Jobs chosen so far, by lane."""

    @property
    def over(self) -> bool:
        """Whether no more can be chosen: the slots are filled, or some are, by suspects, which run apart."""
        full = len(self.chosen) >= self.ask.limit or self.spare <= 0
        return full or bool(self.chosen and self.chosen[-1].suspect)

    @property
    def lone_suspect(self) -> Record | None:
        """A suspect that was chosen without company: if it dies now, it dies alone."""
        return self.chosen[0] if len(self.chosen) == 1 and self.chosen[0].suspect else None


def cohort(deaths: int, room: int) -> int:
    """How many suspects that have died so often may run beside each other, where there is this much room."""
    return room if deaths <= -2 else min(room, COHORT) if deaths == -1 else 1


class Standing:
    """The jobs of all queues, in the order in which they are claimed; those that wait for their time, for something
    else, or for their lane stand apart.
    """

    def __init__(self, by_seq: Mapping[int, Record]) -> None:
        self._by_seq = by_seq
        self.ready: dict[str, Ready] = {}
        self.due: dict[str, Line] = {}
        self.waiting: dict[Waiting, Line] = {}
        """The jobs that wait for something besides their time, by what it is."""
        self.early: set[int] = set()
        """Jobs that some claim's time made queued: that time counts for that claim, so others compare their own."""
        self.gates: dict[str, Gate] = {}
        self.running: dict[str, int] = {}
        """Claims by lane."""
        self._opening: list[tuple[int, str]] = []
        """A heap of when gates open. One that is not what its gate says any more means nothing."""

    # -- every change of a job leaves one place and enters another

    def enter(self, record: Record) -> None:
        if record.waits is not None:
            _line(self.waiting, record.waits).add(place(record))
        if record.state == State.QUEUED:
            self._queue(record)
        elif record.state in DUE:
            _line(self.due, record.queue).add((0, record.run_at, record.seq))
        elif record.state == State.RUNNING and record.lane is not None:
            self.running[record.lane.name] = self.running.get(record.lane.name, 0) + 1

    def restore(self, records: Iterable[Record]) -> None:
        """Enter many at once: the queued ones, of which there may be a million, line by line."""
        places: dict[tuple[str, bool], list[Place]] = {}
        for record in records:
            if record.state == State.QUEUED and record.waits is None:
                places.setdefault((record.queue, record.suspect), []).append(place(record))
            else:
                self.enter(record)
        for (queue, suspect), some in places.items():
            self._ready(queue).line(suspect).extend(some)

    def _queue(self, record: Record) -> None:
        self._ready(record.queue).line(record.suspect).add(place(record))

    def _ready(self, queue: str) -> Ready:
        ready = self.ready.get(queue)
        if ready is None:
            ready = self.ready[queue] = Ready()
        return ready

    def exit(self, record: Record) -> None:
        if record.waits is not None:
            line = self.waiting[record.waits]
            line.remove(place(record))
            if not line:
                del self.waiting[record.waits]
        if record.state == State.QUEUED:
            self.ready[record.queue].line(record.suspect).remove(place(record))
            self.early.discard(record.seq)
        elif record.state in DUE:
            self.due[record.queue].remove((0, record.run_at, record.seq))
        elif record.state == State.RUNNING and record.lane is not None:
            left = self.running[record.lane.name] - 1
            if left:
                self.running[record.lane.name] = left
            else:
                del self.running[record.lane.name]

    def depth(self, queue: str) -> int:
        """The jobs of a queue that are ready, or wait for their time."""
        ready = self.ready.get(queue)
        waiting = len(ready.sound) + len(ready.suspects) if ready else 0
        return waiting + len(self.due.get(queue, ()))

    def next_due(self, queue: str) -> int | None:
        first = self.due[queue].first if queue in self.due else None
        return None if first is None else first[1]

    # -- claim

    def promote(self, queue: str, now: int) -> None:
        """Make due jobs ready."""
        while (when := self.next_due(queue)) is not None and when <= now:
            first = self.due[queue].first
            assert first is not None
            self.due[queue].remove(first)
            record = self._by_seq[first[2]]
            record.state = State.QUEUED
            self._queue(record)
            self.early.add(record.seq)

    def finds(self, queue: str, ask: Ask, now: int) -> bool:
        """Whether a claim would change anything of a queue; changes nothing itself."""
        when = self.next_due(queue)
        if when is not None and when <= now:
            return True
        ready = self.ready.get(queue)
        if ready is None or ask.limit <= 0:
            return False
        return any(next(self._wanted(line, ask, now), None) for line in (ready.sound, ready.suspects))

    def pick(self, queue: str, picking: Picking) -> None:
        """Choose from one queue; jobs whose lanes do not let them start are set aside on the way."""
        ready, ask, now = self.ready.get(queue), picking.ask, picking.now
        room = ask.limit - len(picking.chosen)
        while ready is not None and not picking.over:
            suspect = next(self._wanted(ready.suspects, ask, now), None)
            sound = next(self._wanted(ready.sound, ask, now), None)
            alone = not ask.busy and not picking.chosen
            if suspect is not None and alone and (sound is None or place(suspect) < place(sound)):
                # Those before the first sound job, so that the order of the queue holds.
                turn = self._wanted(ready.suspects, ask, now)
                first = (one for one in turn if sound is None or place(one) < place(sound))
                peers = (one for one in first if one.deaths == suspect.deaths)
                self._choose(peers, cohort(suspect.deaths, room), picking)
                continue
            chosen = self._choose(self._wanted(ready.sound, ask, now), room, picking)
            if chosen or suspect is None or not alone:
                late = suspect is not None and (len(chosen) < room or place(suspect) < place(chosen[-1]))
                picking.suspect_waiting = picking.suspect_waiting or late
                return

    def _choose(self, candidates: Iterable[Record], limit: int, picking: Picking) -> list[Record]:
        """Those of the candidates that may start, up to a limit; the others on the way there are set aside.

        Of suspects only one, for then a sound job may stand before the next.
        """
        chosen: list[Record] = []
        held: list[Record] = []
        for record in candidates:
            (chosen if self._starts(record, picking) else held).append(record)
            if len(chosen) >= limit or len(held) >= picking.spare or (held and record.suspect):
                break
        for record in held:
            self._hold(record, picking)
        picking.spare -= len(held)
        picking.chosen += chosen
        return chosen

    def _wanted(self, line: Line, ask: Ask, now: int) -> Iterator[Record]:
        for _, run_at, seq in line:
            if run_at > now and seq in self.early:
                continue
            record = self._by_seq[seq]
            if ask.tasks is None or record.task in ask.tasks:
                yield record

    # -- lanes

    def gate(self, lane: str) -> Gate:
        gate = self.gates.get(lane)
        if gate is None:
            gate = self.gates[lane] = Gate()
        return gate

    def turn(self, record: Record, now: int) -> None:
        """Give a new job that is ready its turn among the lanes of its queue."""
        if record.lane is not None and record.lane.weight and record.state == State.QUEUED:
            ready = self.ready.get(record.queue)
            ends = ready.sound.ends(record.priority) if ready else None
            record.run_at = self.gate(record.lane.name).turn(record.lane, ends, now)

    def _starts(self, record: Record, picking: Picking) -> bool:
        lane, started = record.lane, picking.started
        if lane is None:
            return True
        before = started.get(lane.name, 0)
        gate = self.gates.get(lane.name) or Gate()
        if gate.starts(lane, self.running.get(lane.name, 0), picking.now) <= before:
            return False
        started[lane.name] = before + 1
        return True

    def start(self, record: Record, now: int) -> None:
        """A chosen job is claimed."""
        if record.lane is not None and record.lane.interval:
            self.gate(record.lane.name).started(record.lane, now)

    def _hold(self, record: Record, picking: Picking) -> None:
        """Set a ready job aside until its lane has room for it."""
        lane = record.lane
        assert lane is not None
        self.exit(record)
        record.state, record.waits = State.BLOCKED, Waiting("limit", lane.name)
        self.enter(record)
        running = self.running.get(lane.name, 0) + picking.started.get(lane.name, 0)
        self._opens(lane.name, self.gate(lane.name).next_look(lane, running, picking.now))

    def rest(self, lane: str, until: int) -> None:
        """No job of a lane starts before."""
        gate = self.gate(lane)
        gate.rest_until = max(gate.rest_until, until)

    def left(self, record: Record) -> bool:
        """A job has left the ready or the running: is one held that may have room now?"""
        held = record.lane is not None and Waiting("limit", record.lane.name) in self.waiting
        if held and record.lane is not None:
            self._opens(record.lane.name, AT_ONCE)
        return held

    def _opens(self, lane: str, when: int | None) -> None:
        self.gates[lane].opens_at = when
        if when is not None:
            heapq.heappush(self._opening, (when, lane))

    def next_opening(self) -> int | None:
        """When the next gate opens by the clock."""
        while self._opening:
            when, lane = self._opening[0]
            if lane in self.gates and self.gates[lane].opens_at == when:
                return when
            heapq.heappop(self._opening)
        return None

    def reopen(self, now: int) -> None:
        """Make held jobs ready, as many as their lanes let start."""
        lanes: dict[str, None] = {}
        while len(lanes) < HELD_LIMIT and (when := self.next_opening()) is not None and when <= now:
            lanes[heapq.heappop(self._opening)[1]] = None
        for name in lanes:
            self._let_go(name, now)

    def _let_go(self, name: str, now: int) -> None:
        gate, line = self.gates[name], self.waiting.get(Waiting("limit", name))
        if line is None or line.first is None:
            self._opens(name, None)
            return
        lane = self._by_seq[line.first[2]].lane
        assert lane is not None
        running = self.running.get(name, 0)
        free = min(PROMOTE_LIMIT, gate.starts(lane, running, now))
        for _, _, seq in list(islice(line, free)):
            record = self._by_seq[seq]
            self.exit(record)
            record.state, record.waits = State.QUEUED, None
            self.enter(record)
        if Waiting("limit", name) not in self.waiting:
            self._opens(name, None)
        else:
            self._opens(name, AT_ONCE if free == PROMOTE_LIMIT else gate.next_look(lane, running, now))

    def waiting_for_rates(self, now: int) -> list[tuple[str, int, int]]:
        """Name, `tat` and `burst` intervals of lanes that hold jobs for their rate."""
        late = [name for name, gate in self.gates.items() if gate.tat > now and (gate.opens_at or 0) > now]
        found: list[tuple[str, int, int]] = []
        for name in late:
            line = self.waiting.get(Waiting("limit", name))
            first = None if line is None else line.first
            lane = None if first is None else self._by_seq[first[2]].lane
            if lane is not None and lane.interval:
                found.append((name, self.gates[name].tat, lane.burst * lane.interval))
        return found

    def free_rates(self, stalled: Iterable[tuple[str, int]]) -> None:
        """Have lanes looked at again that have started nothing since, whatever time was written for them."""
        for name, tat in stalled:
            if name in self.gates and self.gates[name].tat == tat:
                self.gates[name].tat = 0
                self._opens(name, AT_ONCE)

    def restore_gates(self, gates: Mapping[str, Gate]) -> None:
        """Take in gates as they were before."""
        for name, gate in gates.items():
            self.gates[name] = gate
            self._opens(name, gate.opens_at)

    def tidy(self, now: int) -> None:
        """Forget gates that nobody needs any more."""
        for name, gate in list(self.gates.items()):
            if gate.idle_since() < now - KEPT and Waiting("limit", name) not in self.waiting:
                del self.gates[name]


def _line(lines: dict[T, Line], name: T) -> Line:
    line = lines.get(name)
    if line is None:
        line = lines[name] = Line()
    return line
