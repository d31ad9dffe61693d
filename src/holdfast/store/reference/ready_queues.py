"""Where every waiting job stands, and which ones a claim takes next. Pure, as `jobs.py` is, whose jobs these are."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import TypeVar

from ...core.job import Record, State
from ...core.limiter import AT_ONCE, KEPT, Limiter
from ...core.operations import Ask
from ...core.waiting import Waiting
from ..protocol import COHORT, HELD_LIMIT, PROMOTE_LIMIT
from .sorted_queue import Line, Place, Ready, place

T = TypeVar("T")
DUE = frozenset({State.SCHEDULED, State.FAILED})


class Picking:
    """One claim in the making: the jobs chosen so far, and how many more it may set aside."""

    def __init__(self, ask: Ask, now: int) -> None:
        self.ask = ask
        self.now = now
        self.spare = HELD_LIMIT
        self.chosen: list[Record] = []
        self.quarantined_waiting = False
        """A quarantined job whose turn it was had to be passed over."""
        self.started: dict[str, int] = {}
        """Jobs chosen so far, by limit key."""

    @property
    def over(self) -> bool:
        """Whether no more can be chosen: the slots are filled, or some are, by quarantined jobs, which run apart."""
        full = len(self.chosen) >= self.ask.limit or self.spare <= 0
        return full or bool(self.chosen and self.chosen[-1].quarantined)

    @property
    def lone_quarantined(self) -> Record | None:
        """A quarantined job that was chosen without company: if it dies now, it dies alone."""
        return self.chosen[0] if len(self.chosen) == 1 and self.chosen[0].quarantined else None


def cohort(crashes: int, room: int) -> int:
    """How many quarantined jobs that have died so often may run beside each other, where there is this much room."""
    return room if crashes <= -2 else min(room, COHORT) if crashes == -1 else 1


class ReadyQueues:
    """The jobs of all queues, in the order in which they are claimed; those that wait for their time, for something
    else, or for their limit key stand apart.
    """

    def __init__(self, by_seq: Mapping[int, Record]) -> None:
        self._by_seq = by_seq
        self.ready: dict[str, Ready] = {}
        self.due: dict[str, Line] = {}
        self.waiting: dict[Waiting, Line] = {}
        """The jobs that wait for something besides their time, by what it is."""
        self.early: set[int] = set()
        """Jobs that some claim's time made queued: that time counts for that claim, so others compare their own."""
        self.limiters: dict[str, Limiter] = {}
        self.running: dict[str, int] = {}
        """Claims by limit key."""
        self._opening: list[tuple[int, str]] = []
        """A heap of when limiters open. One that is not what its limiter says any more means nothing."""

    # -- every change of a job leaves one place and enters another

    def enter(self, record: Record) -> None:
        if record.waiting_for is not None:
            _line(self.waiting, record.waiting_for).add(place(record))
        if record.state == State.QUEUED:
            self._queue(record)
        elif record.state in DUE:
            _line(self.due, record.queue).add((0, record.run_at, record.seq))
        elif record.state == State.RUNNING and record.limit_key is not None:
            self.running[record.limit_key.name] = self.running.get(record.limit_key.name, 0) + 1

    def restore(self, records: Iterable[Record]) -> None:
        """Enter many at once: the queued ones, of which there may be a million, line by line."""
        places: dict[tuple[str, bool], list[Place]] = {}
        for record in records:
            if record.state == State.QUEUED and record.waiting_for is None:
                places.setdefault((record.queue, record.quarantined), []).append(place(record))
            else:
                self.enter(record)
        for (queue, quarantined), some in places.items():
            self._ready(queue).line(quarantined).extend(some)

    def _queue(self, record: Record) -> None:
        self._ready(record.queue).line(record.quarantined).add(place(record))

    def _ready(self, queue: str) -> Ready:
        ready = self.ready.get(queue)
        if ready is None:
            ready = self.ready[queue] = Ready()
        return ready

    def exit(self, record: Record) -> None:
        if record.waiting_for is not None:
            line = self.waiting[record.waiting_for]
            line.remove(place(record))
            if not line:
                del self.waiting[record.waiting_for]
        if record.state == State.QUEUED:
            self.ready[record.queue].line(record.quarantined).remove(place(record))
            self.early.discard(record.seq)
        elif record.state in DUE:
            self.due[record.queue].remove((0, record.run_at, record.seq))
        elif record.state == State.RUNNING and record.limit_key is not None:
            left = self.running[record.limit_key.name] - 1
            if left:
                self.running[record.limit_key.name] = left
            else:
                del self.running[record.limit_key.name]

    def depth(self, queue: str) -> int:
        """The jobs of a queue that are ready, or wait for their time."""
        ready = self.ready.get(queue)
        waiting = len(ready.sound) + len(ready.quarantined) if ready else 0
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
        return any(next(self._wanted(line, ask, now), None) for line in (ready.sound, ready.quarantined))

    def pick(self, queue: str, picking: Picking) -> None:
        """Choose from one queue; jobs whose limit keys do not let them start are set aside on the way."""
        ready, ask, now = self.ready.get(queue), picking.ask, picking.now
        room = ask.limit - len(picking.chosen)
        while ready is not None and not picking.over:
            quarantined = next(self._wanted(ready.quarantined, ask, now), None)
            sound = next(self._wanted(ready.sound, ask, now), None)
            alone = not ask.busy and not picking.chosen
            if quarantined is not None and alone and (sound is None or place(quarantined) < place(sound)):
                # Those before the first sound job, so that the order of the queue holds.
                turn = self._wanted(ready.quarantined, ask, now)
                first = (one for one in turn if sound is None or place(one) < place(sound))
                peers = (one for one in first if one.crashes == quarantined.crashes)
                self._choose(peers, cohort(quarantined.crashes, room), picking)
                continue
            chosen = self._choose(self._wanted(ready.sound, ask, now), room, picking)
            if chosen or quarantined is None or not alone:
                late = quarantined is not None and (len(chosen) < room or place(quarantined) < place(chosen[-1]))
                picking.quarantined_waiting = picking.quarantined_waiting or late
                return

    def _choose(self, candidates: Iterable[Record], limit: int, picking: Picking) -> list[Record]:
        """Those of the candidates that may start, up to a limit; the others on the way there are set aside.

        Of quarantined jobs only one, for then a sound job may stand before the next.
        """
        chosen: list[Record] = []
        held: list[Record] = []
        for record in candidates:
            (chosen if self._starts(record, picking) else held).append(record)
            if len(chosen) >= limit or len(held) >= picking.spare or (held and record.quarantined):
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

    # -- limit keys

    def limiter(self, limit_key: str) -> Limiter:
        limiter = self.limiters.get(limit_key)
        if limiter is None:
            limiter = self.limiters[limit_key] = Limiter()
        return limiter

    def turn(self, record: Record, now: int) -> None:
        """Give a new job that is ready its turn among the limit keys of its queue."""
        if record.limit_key is not None and record.limit_key.weight and record.state == State.QUEUED:
            ready = self.ready.get(record.queue)
            ends = ready.sound.ends(record.priority) if ready else None
            record.run_at = self.limiter(record.limit_key.name).turn(record.limit_key, ends, now)

    def _starts(self, record: Record, picking: Picking) -> bool:
        limit_key, started = record.limit_key, picking.started
        if limit_key is None:
            return True
        before = started.get(limit_key.name, 0)
        limiter = self.limiters.get(limit_key.name) or Limiter()
        if limiter.starts(limit_key, self.running.get(limit_key.name, 0), picking.now) <= before:
            return False
        started[limit_key.name] = before + 1
        return True

    def start(self, record: Record, now: int) -> None:
        """A chosen job is claimed."""
        if record.limit_key is not None and record.limit_key.interval:
            self.limiter(record.limit_key.name).started(record.limit_key, now)

    def _hold(self, record: Record, picking: Picking) -> None:
        """Set a ready job aside until its limit key has room for it."""
        limit_key = record.limit_key
        assert limit_key is not None
        self.exit(record)
        record.state, record.waiting_for = State.BLOCKED, Waiting("limit", limit_key.name)
        self.enter(record)
        running = self.running.get(limit_key.name, 0) + picking.started.get(limit_key.name, 0)
        self._opens(limit_key.name, self.limiter(limit_key.name).next_look(limit_key, running, picking.now))

    def rest(self, limit_key: str, until: int) -> None:
        """No job of a limit key starts before."""
        limiter = self.limiter(limit_key)
        limiter.rest_until = max(limiter.rest_until, until)

    def left(self, record: Record) -> bool:
        """A job has left the ready or the running: is one held that may have room now?"""
        held = record.limit_key is not None and Waiting("limit", record.limit_key.name) in self.waiting
        if held and record.limit_key is not None:
            self._opens(record.limit_key.name, AT_ONCE)
        return held

    def _opens(self, limit_key: str, when: int | None) -> None:
        self.limiters[limit_key].opens_at = when
        if when is not None:
            heapq.heappush(self._opening, (when, limit_key))

    def next_opening(self) -> int | None:
        """When the next limiter opens by the clock."""
        while self._opening:
            when, limit_key = self._opening[0]
            if limit_key in self.limiters and self.limiters[limit_key].opens_at == when:
                return when
            heapq.heappop(self._opening)
        return None

    def reopen(self, now: int) -> None:
        """Make held jobs ready, as many as their limit keys let start."""
        limit_keys: dict[str, None] = {}
        while len(limit_keys) < HELD_LIMIT and (when := self.next_opening()) is not None and when <= now:
            limit_keys[heapq.heappop(self._opening)[1]] = None
        for name in limit_keys:
            self._let_go(name, now)

    def _let_go(self, name: str, now: int) -> None:
        limiter, line = self.limiters[name], self.waiting.get(Waiting("limit", name))
        if line is None or line.first is None:
            self._opens(name, None)
            return
        limit_key = self._by_seq[line.first[2]].limit_key
        assert limit_key is not None
        running = self.running.get(name, 0)
        free = min(PROMOTE_LIMIT, limiter.starts(limit_key, running, now))
        for _, _, seq in list(islice(line, free)):
            record = self._by_seq[seq]
            self.exit(record)
            record.state, record.waiting_for = State.QUEUED, None
            self.enter(record)
        if Waiting("limit", name) not in self.waiting:
            self._opens(name, None)
        else:
            self._opens(name, AT_ONCE if free == PROMOTE_LIMIT else limiter.next_look(limit_key, running, now))

    def waiting_for_rates(self, now: int) -> list[tuple[str, int, int]]:
        """Name, `tat` and `burst` intervals of limit keys that hold jobs for their rate."""
        late = [name for name, limiter in self.limiters.items() if limiter.tat > now and (limiter.opens_at or 0) > now]
        found: list[tuple[str, int, int]] = []
        for name in late:
            line = self.waiting.get(Waiting("limit", name))
            first = None if line is None else line.first
            limit_key = None if first is None else self._by_seq[first[2]].limit_key
            if limit_key is not None and limit_key.interval:
                found.append((name, self.limiters[name].tat, limit_key.burst * limit_key.interval))
        return found

    def free_rates(self, stalled: Iterable[tuple[str, int]]) -> None:
        """Have limit keys looked at again that have started nothing since, whatever time was written for them."""
        for name, tat in stalled:
            if name in self.limiters and self.limiters[name].tat == tat:
                self.limiters[name].tat = 0
                self._opens(name, AT_ONCE)

    def restore_limiters(self, limiters: Mapping[str, Limiter]) -> None:
        """Take in limiters as they were before."""
        for name, limiter in limiters.items():
            self.limiters[name] = limiter
            self._opens(name, limiter.opens_at)

    def tidy(self, now: int) -> None:
        """Forget limiters that nobody needs any more."""
        for name, limiter in list(self.limiters.items()):
            if limiter.idle_since() < now - KEPT and Waiting("limit", name) not in self.waiting:
                del self.limiters[name]


def _line(lines: dict[T, Line], name: T) -> Line:
    line = lines.get(name)
    if line is None:
        line = lines[name] = Line()
    return line
