"""The order of all waiting jobs, and which ones a claim takes next. Pure, like `jobs.py`, which uses it."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import TypeVar

from ...core.job import Record, State
from ...core.limiter import AT_ONCE, KEPT, Limiter
from ...core.operations import Ask
from ...core.waiting import Waiting
from ..protocol import COHORT, DEFER_LIMIT, PROMOTE_LIMIT
from .sorted_queue import Place, Ready, SortedQueue, place

T = TypeVar("T")
DUE = frozenset({State.SCHEDULED, State.FAILED})


class Picking:
    """The state of one claim: the jobs chosen so far, and how many more it may defer."""

    def __init__(self, ask: Ask, now: int) -> None:
        self.ask = ask
        self.now = now
        self.spare = DEFER_LIMIT
        self.chosen: list[Record] = []
        self.quarantined_waiting = False
        """Whether a quarantined job that came first had to be skipped."""
        self.started: dict[str, int] = {}
        """Jobs chosen so far, by limit key."""

    @property
    def over(self) -> bool:
        """Whether no more can be chosen: the slots are full, or have quarantined jobs, which run separately."""
        full = len(self.chosen) >= self.ask.limit or self.spare <= 0
        return full or bool(self.chosen and self.chosen[-1].quarantined)

    @property
    def lone_quarantined(self) -> Record | None:
        """The quarantined job that was chosen alone, if so: a crash of its process is then due to this job."""
        return self.chosen[0] if len(self.chosen) == 1 and self.chosen[0].quarantined else None


def cohort(crashes: int, room: int) -> int:
    """How many quarantined jobs with this count of crashes may run together on `room` free slots."""
    return room if crashes <= -2 else min(room, COHORT) if crashes == -1 else 1


class ReadyQueues:
    """The jobs of all queues, in the order of claims; separately jobs that wait for a time, a limit or another job."""

    def __init__(self, by_seq: Mapping[int, Record]) -> None:
        self._by_seq = by_seq
        self.ready: dict[str, Ready] = {}
        self.due: dict[str, SortedQueue] = {}
        self.waiting: dict[Waiting, SortedQueue] = {}
        """The jobs that wait for something besides their time, by what they wait for."""
        self.early: set[int] = set()
        """`seq` of jobs made queued by the time of one claim; a claim with an earlier time does not take them."""
        self.limiters: dict[str, Limiter] = {}
        self.running: dict[str, int] = {}
        """Claims by limit key."""
        self._opening: list[tuple[int, str]] = []
        """A heap of (time, limit key) of limiters that open. An entry is stale if it differs from `opens_at`."""

    # -- every change of a job exits one queue and enters another

    def enter(self, record: Record) -> None:
        if record.waiting_for is not None:
            _queue_of(self.waiting, record.waiting_for).add(place(record))
        if record.state == State.QUEUED:
            self._queue(record)
        elif record.state in DUE:
            _queue_of(self.due, record.queue).add((0, record.run_at, record.seq))
        elif record.state == State.RUNNING and record.limit_key is not None:
            self.running[record.limit_key.name] = self.running.get(record.limit_key.name, 0) + 1

    def restore(self, records: Iterable[Record]) -> None:
        """Enter many jobs at once: the queued ones, of which there may be a million, queue by queue."""
        places: dict[tuple[str, bool], list[Place]] = {}
        for record in records:
            if record.state == State.QUEUED and record.waiting_for is None:
                places.setdefault((record.queue, record.quarantined), []).append(place(record))
            else:
                self.enter(record)
        for (queue, quarantined), some in places.items():
            self._ready(queue).of(quarantined).extend(some)

    def _queue(self, record: Record) -> None:
        self._ready(record.queue).of(record.quarantined).add(place(record))

    def _ready(self, queue: str) -> Ready:
        ready = self.ready.get(queue)
        if ready is None:
            ready = self.ready[queue] = Ready()
        return ready

    def exit(self, record: Record) -> None:
        if record.waiting_for is not None:
            places = self.waiting[record.waiting_for]
            places.remove(place(record))
            if not places:
                del self.waiting[record.waiting_for]
        if record.state == State.QUEUED:
            self.ready[record.queue].of(record.quarantined).remove(place(record))
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
        return any(next(self._wanted(places, ask, now), None) for places in (ready.sound, ready.quarantined))

    def pick(self, queue: str, picking: Picking) -> None:
        """Choose jobs from one queue; jobs before them whose limits are reached are deferred."""
        ready, ask, now = self.ready.get(queue), picking.ask, picking.now
        room = ask.limit - len(picking.chosen)
        while ready is not None and not picking.over:
            quarantined = next(self._wanted(ready.quarantined, ask, now), None)
            sound = next(self._wanted(ready.sound, ask, now), None)
            alone = not ask.busy and not picking.chosen
            if quarantined is not None and alone and (sound is None or place(quarantined) < place(sound)):
                # Only jobs before the first one that is not quarantined, to keep the order of the queue.
                wanted = self._wanted(ready.quarantined, ask, now)
                first = (one for one in wanted if sound is None or place(one) < place(sound))
                peers = (one for one in first if one.crashes == quarantined.crashes)
                self._choose(peers, cohort(quarantined.crashes, room), picking)
                continue
            chosen = self._choose(self._wanted(ready.sound, ask, now), room, picking)
            if chosen or quarantined is None or not alone:
                late = quarantined is not None and (len(chosen) < room or place(quarantined) < place(chosen[-1]))
                picking.quarantined_waiting = picking.quarantined_waiting or late
                return

    def _choose(self, candidates: Iterable[Record], limit: int, picking: Picking) -> list[Record]:
        """The candidates that may start, up to `limit`; candidates before them that may not are deferred.

        At most one quarantined job is deferred: another kind of job may come before the next.
        """
        chosen: list[Record] = []
        deferred: list[Record] = []
        for record in candidates:
            (chosen if self._starts(record, picking) else deferred).append(record)
            if len(chosen) >= limit or len(deferred) >= picking.spare or (deferred and record.quarantined):
                break
        for record in deferred:
            self._defer(record, picking)
        picking.spare -= len(deferred)
        picking.chosen += chosen
        return chosen

    def _wanted(self, places: SortedQueue, ask: Ask, now: int) -> Iterator[Record]:
        for _, run_at, seq in places:
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

    def order_fairly(self, record: Record, now: int) -> None:
        """Set `run_at` of a new ready job so that the limit keys of its queue are served round-robin, by weight."""
        if record.limit_key is not None and record.limit_key.weight and record.state == State.QUEUED:
            ready = self.ready.get(record.queue)
            ends = ready.sound.ends(record.priority) if ready else None
            record.run_at = self.limiter(record.limit_key.name).position(record.limit_key, ends, now)

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
        """Count the start of a claimed job against its rate limit."""
        if record.limit_key is not None and record.limit_key.interval:
            self.limiter(record.limit_key.name).started(record.limit_key, now)

    def _defer(self, record: Record, picking: Picking) -> None:
        """Defer a ready job until its limit has capacity for it."""
        limit_key = record.limit_key
        assert limit_key is not None
        self.exit(record)
        record.state, record.waiting_for = State.BLOCKED, Waiting("limit", limit_key.name)
        self.enter(record)
        running = self.running.get(limit_key.name, 0) + picking.started.get(limit_key.name, 0)
        self._opens(limit_key.name, self.limiter(limit_key.name).next_look(limit_key, running, picking.now))

    def rest(self, limit_key: str, until: int) -> None:
        """Start no job of a limit key before `until`."""
        limiter = self.limiter(limit_key)
        limiter.rest_until = max(limiter.rest_until, until)

    def left(self, record: Record) -> bool:
        """Whether jobs are deferred that may start, now that this job is no longer ready or running."""
        deferred = record.limit_key is not None and Waiting("limit", record.limit_key.name) in self.waiting
        if deferred and record.limit_key is not None:
            self._opens(record.limit_key.name, AT_ONCE)
        return deferred

    def _opens(self, limit_key: str, when: int | None) -> None:
        self.limiters[limit_key].opens_at = when
        if when is not None:
            heapq.heappush(self._opening, (when, limit_key))

    def next_opening(self) -> int | None:
        """The time at which the next limiter opens."""
        while self._opening:
            when, limit_key = self._opening[0]
            if limit_key in self.limiters and self.limiters[limit_key].opens_at == when:
                return when
            heapq.heappop(self._opening)
        return None

    def reopen(self, now: int) -> None:
        """Make deferred jobs ready, as many as their limits allow."""
        limit_keys: dict[str, None] = {}
        while len(limit_keys) < DEFER_LIMIT and (when := self.next_opening()) is not None and when <= now:
            limit_keys[heapq.heappop(self._opening)[1]] = None
        for name in limit_keys:
            self._release(name, now)

    def _release(self, name: str, now: int) -> None:
        limiter, places = self.limiters[name], self.waiting.get(Waiting("limit", name))
        if places is None or places.first is None:
            self._opens(name, None)
            return
        limit_key = self._by_seq[places.first[2]].limit_key
        assert limit_key is not None
        running = self.running.get(name, 0)
        free = min(PROMOTE_LIMIT, limiter.starts(limit_key, running, now))
        for _, _, seq in list(islice(places, free)):
            record = self._by_seq[seq]
            self.exit(record)
            record.state, record.waiting_for = State.QUEUED, None
            self.enter(record)
        if Waiting("limit", name) not in self.waiting:
            self._opens(name, None)
        else:
            self._opens(name, AT_ONCE if free == PROMOTE_LIMIT else limiter.next_look(limit_key, running, now))

    def waiting_for_rates(self, now: int) -> list[tuple[str, int, int]]:
        """Name, `tat` and `burst` intervals (microseconds) of limit keys whose jobs wait for their rate."""
        late = [name for name, limiter in self.limiters.items() if limiter.tat > now and (limiter.opens_at or 0) > now]
        found: list[tuple[str, int, int]] = []
        for name in late:
            places = self.waiting.get(Waiting("limit", name))
            first = None if places is None else places.first
            limit_key = None if first is None else self._by_seq[first[2]].limit_key
            if limit_key is not None and limit_key.interval:
                found.append((name, self.limiters[name].tat, limit_key.burst * limit_key.interval))
        return found

    def free_rates(self, stalled: Iterable[tuple[str, int]]) -> None:
        """Reset limiters whose `tat` is unchanged, so that the next claim checks their jobs again."""
        for name, tat in stalled:
            if name in self.limiters and self.limiters[name].tat == tat:
                self.limiters[name].tat = 0
                self._opens(name, AT_ONCE)

    def restore_limiters(self, limiters: Mapping[str, Limiter]) -> None:
        for name, limiter in limiters.items():
            self.limiters[name] = limiter
            self._opens(name, limiter.opens_at)

    def tidy(self, now: int) -> None:
        """Remove limiters that have been idle for longer than KEPT and for which no job waits."""
        for name, limiter in list(self.limiters.items()):
            if limiter.idle_since() < now - KEPT and Waiting("limit", name) not in self.waiting:
                del self.limiters[name]


def _queue_of(queues: dict[T, SortedQueue], name: T) -> SortedQueue:
    places = queues.get(name)
    if places is None:
        places = queues[name] = SortedQueue()
    return places
