"""The reference store: everything in this process, every rule in plain Python.

Its answers define what other stores must answer; the conformance suite's state machine compares them with it.
A sibling shares the same jobs, so several loops and threads of one process may work on one memory store.
"""

from __future__ import annotations

import asyncio
import bisect
import contextlib
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from copy import copy
from itertools import islice
from operator import attrgetter
from typing import Any

import msgspec

from ..clock import MICROS, Clock, SystemClock
from ..job import (
    TERMINAL,
    Ask,
    Beat,
    Change,
    Claims,
    Found,
    Held,
    Holder,
    HolderSeen,
    Inserted,
    Lost,
    Minute,
    Move,
    Moves,
    NewJob,
    Note,
    Output,
    Printed,
    QueueStats,
    Record,
    Settlement,
    State,
    Tidied,
    Where,
)
from . import apply
from .protocol import MINUTES_KEPT, MOVES_KEPT, WATCH, Answers, Batch, Bell, Versioned

Place = tuple[int, int, int]
"""Where a job stands in its queue: (priority, run_at, seq)."""


class _Key(msgspec.Struct):
    id: str
    fingerprint: str
    expires_at: int | None = None


class _Piece(msgspec.Struct):
    printed: Printed
    at: int

    @property
    def end(self) -> int:
        return self.printed.position + len(self.printed.data)


class _Holding(msgspec.Struct):
    holder: Holder
    beat: int
    beaten_at: int
    expires: int
    jobs: dict[str, Record]


class _Ready:
    """The queued jobs of one queue in order, suspects apart."""

    def __init__(self) -> None:
        self.sound: list[Place] = []
        self.suspects: list[Place] = []

    def lane(self, record: Record) -> list[Place]:
        return self.suspects if record.suspect else self.sound


def _place(record: Record) -> Place:
    return (record.priority, record.run_at, record.seq)


class _Ring:
    """A bell of the memory store; may be rung from any thread."""

    def __init__(self, data: _Data, topics: frozenset[str]) -> None:
        self._data = data
        self.topics = topics
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    def ring(self) -> None:
        with contextlib.suppress(RuntimeError):  # its loop was closed: nobody listens any more
            self._loop.call_soon_threadsafe(self._event.set)

    async def wait(self, timeout: float) -> None:
        try:
            async with asyncio.timeout(timeout):
                await self._event.wait()
        except TimeoutError:
            pass
        self._event.clear()

    def close(self) -> None:
        with self._data.lock:
            self._data.bells.discard(self)


class _Data:
    """The jobs themselves, shared by siblings. Every method is one atomic step under `lock`."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.lock = threading.Lock()
        self.seq = 0
        self.jobs: dict[str, Record] = {}
        self.by_seq: dict[int, Record] = {}
        self.nonces: dict[str, int] = {}
        self.settled: dict[str, int] = {}
        self.printed: dict[str, list[_Piece]] = {}
        self.keys: dict[str, _Key] = {}
        self.ready: dict[str, _Ready] = {}
        self.due: dict[str, list[tuple[int, int]]] = {}
        self.holders: dict[str, _Holding] = {}
        self.kept: dict[str, dict[str, Versioned]] = {}
        self.moved: deque[Move] = deque(maxlen=MOVES_KEPT)
        self.moves = 0
        self.watched_until = 0
        self.minutes: dict[tuple[int, str, str], Minute] = {}
        self.bells: set[_Ring] = set()

    # -- enqueue

    def insert(self, new: NewJob, rung: set[str]) -> Inserted:
        now = self.clock.now()
        known = None if new.key is None else self.keys.get(new.key)
        if known is not None and (known.expires_at is None or known.expires_at > now):
            if known.id == new.id and self.nonces.get(new.id, 0) == new.nonce:
                return Inserted("created", new.id)
            same = known.fingerprint == new.fingerprint
            return Inserted("existing" if same else "conflict", known.id)
        if new.id in self.jobs:
            ours = self.nonces.get(new.id, 0) == new.nonce
            return Inserted("created" if ours else "exists", new.id)
        if new.max_depth is not None and self._depth(new.queue) >= new.max_depth:
            return Inserted("full", new.id)
        self.seq += 1
        record = apply.new_record(new, self.seq, now)
        self.jobs[record.id] = self.by_seq[record.seq] = record
        if new.nonce:
            self.nonces[record.id] = new.nonce
        if new.key is not None:
            self.keys[new.key] = _Key(record.id, new.fingerprint)
        self._enter(record, rung)
        self._tell(record.id, record.state)
        return Inserted("created", record.id)

    def _depth(self, queue: str) -> int:
        ready = self.ready.get(queue)
        waiting = len(ready.sound) + len(ready.suspects) if ready else 0
        return waiting + len(self.due.get(queue, ()))

    # -- moving between states: every change leaves one index and enters another

    def _enter(self, record: Record, rung: set[str]) -> None:
        if record.state == State.QUEUED:
            ready = self.ready.get(record.queue)
            if ready is None:
                ready = self.ready[record.queue] = _Ready()
            bisect.insort(ready.lane(record), _place(record))
            rung.add(f"queue/{record.queue}")
        elif record.state in (State.SCHEDULED, State.FAILED):
            bisect.insort(self.due.setdefault(record.queue, []), (record.run_at, record.seq))
            rung.add(f"queue/{record.queue}")
        elif record.state == State.RUNNING:
            assert record.holder is not None
            self.holders[record.holder].jobs[record.id] = record
        elif record.state in TERMINAL:
            rung.add(f"job/{record.id}")

    def _exit(self, record: Record) -> None:
        if record.state == State.QUEUED:
            _remove(self.ready[record.queue].lane(record), _place(record))
        elif record.state in (State.SCHEDULED, State.FAILED):
            _remove(self.due[record.queue], (record.run_at, record.seq))
        elif record.state == State.RUNNING:
            assert record.holder is not None
            self.holders[record.holder].jobs.pop(record.id, None)

    def _forget(self, record: Record) -> None:
        self._exit(record)
        del self.jobs[record.id], self.by_seq[record.seq]
        self.nonces.pop(record.id, None)
        self.settled.pop(record.id, None)
        self.printed.pop(record.id, None)

    # -- claim

    def claim(self, ask: Ask) -> Claims:
        now = self.clock.now()
        paused = self.kept.get("pause", {})
        taken: list[Record] = []
        waiting = False
        due_in: float | None = None
        for queue in dict.fromkeys(ask.queues):
            if queue in paused:
                continue
            self._promote(queue, now)
            picked, passed = self._pick(queue, ask, ask.limit - len(taken), bool(taken))
            taken += picked
            waiting = waiting or passed
            if taken and taken[-1].suspect:
                break
            if len(taken) >= ask.limit:
                break
        if not taken:
            soon = [self.due[queue][0][0] for queue in ask.queues if queue not in paused and self.due.get(queue)]
            due_in = max(0.0, (min(soon) - now) / MICROS) if soon else None
            return Claims([], waiting, due_in)
        self._renew_for(ask.holder)
        for record in taken:
            self._exit(record)
            record.state = State.RUNNING
            record.holder = ask.holder.id
            record.attempt += 1
            record.fence += 1
            record.token = ask.token
            record.started_at = now
            record.pid = None
            self._enter(record, set())
            self._tell(record.id, record.state)
        return Claims([copy(record) for record in taken], waiting)

    def _promote(self, queue: str, now: int) -> None:
        due = self.due.get(queue)
        while due and due[0][0] <= now:
            record = self.by_seq[due[0][1]]
            self._exit(record)
            record.state = State.QUEUED
            self._enter(record, set())

    def _pick(self, queue: str, ask: Ask, limit: int, some: bool) -> tuple[list[Record], bool]:
        """The jobs to take from one queue, and whether a suspect whose turn it was had to be passed over."""
        ready = self.ready.get(queue)
        if ready is None or limit <= 0:
            return [], False
        wanted = ask.tasks
        sound: list[Record] = []
        for place in ready.sound:
            record = self.by_seq[place[2]]
            if wanted is None or record.task in wanted:
                sound.append(record)
                if len(sound) == limit:
                    break
        suspect = next(
            (r for r in (self.by_seq[p[2]] for p in ready.suspects) if wanted is None or r.task in wanted), None
        )
        if suspect is None:
            return sound, False
        if not ask.busy and not some and (not sound or _place(suspect) < _place(sound[0])):
            return [suspect], False
        return sound, len(sound) < limit or _place(suspect) < _place(sound[-1])

    def _renew_for(self, holder: Holder) -> None:
        known = self.holders.get(holder.id)
        now = self.clock.boot()
        lease = int(holder.lease * MICROS)
        if known is None:
            self.holders[holder.id] = _Holding(holder, 1, now, now + lease, {})
        elif known.expires - now < lease // 2:
            known.beat += 1
            known.beaten_at = now
            known.expires = now + lease

    # -- note and settle

    def _claimed(self, id: str, fence: int, token: int) -> Record | None:
        record = self.jobs.get(id)
        if record is None or record.state != State.RUNNING or record.fence != fence or record.token != token:
            return None
        return record

    def note(self, note: Note) -> bool:
        record = self._claimed(note.id, note.fence, note.token)
        if record is None:
            return False
        apply.note(record, note)
        if note.output is not msgspec.UNSET:
            self._append(record, note.output)
        return True

    def _append(self, record: Record, output: Output) -> None:
        pieces = self.printed.setdefault(record.id, [])
        last = None
        if pieces:
            newest = pieces[-1]
            last = (newest.printed.position, newest.printed.fence, newest.at, len(newest.printed.data))
        position = apply.output_position(last, record.fence, output.at)
        if position is not None:
            pieces.append(_Piece(Printed(position, record.fence, output.data), output.at))
            first = pieces[-1].end - output.keep
            self.printed[record.id] = [piece for piece in pieces if piece.end > first]

    def settle(self, end: Settlement, rung: set[str]) -> bool:
        record = self._claimed(end.id, end.fence, end.token)
        if record is None:
            return self.settled.get(end.id) == end.nonce
        assert record.holder is not None
        if end.seen_beat is not None and self.holders[record.holder].beat != end.seen_beat:
            return False
        self._exit(record)
        now = self.clock.now()
        self._count(apply.ended(record, end, now))
        apply.settle(record, end, now)
        self.settled[record.id] = end.nonce
        self._entered(record, end.key_keep, rung)
        self._tell(record.id, record.state)
        return True

    def _entered(self, record: Record, key_keep: float, rung: set[str]) -> None:
        """A record has changed: put it where it belongs now, its key too; or remove it, where nothing is to be kept."""
        now = self.clock.now()
        known = None if record.key is None else self.keys.get(record.key)
        if known is not None and known.id == record.id:
            known.expires_at = apply.after(now, key_keep) if record.state in TERMINAL else None
        self._enter(record, rung)
        if apply.removable(record, now):
            self._forget(record)

    # -- change

    def change(self, change: Change, rung: set[str]) -> bool:
        record = self.jobs.get(change.id)
        if record is None or record.state != change.seen_state or record.fence != change.seen_fence:
            return False
        if change.patch is None:
            known = None if record.key is None else self.keys.get(record.key)
            if record.key is not None and known is not None and known.id == record.id and record.state not in TERMINAL:
                del self.keys[record.key]
            self._forget(record)
            self._tell(record.id, "deleted")
            return True
        self._exit(record)
        was_over = record.state in TERMINAL
        apply.patch(record, change.patch, self.clock.now())
        if record.state in TERMINAL and was_over:
            self._enter(record, rung)  # a note on an ended job: its key's time goes on
        else:
            self._entered(record, change.patch.key_keep, rung)
        if change.patch.state is not msgspec.UNSET:
            self._tell(record.id, record.state)
        return True

    # -- what is told of it

    def _tell(self, id: str, state: str) -> None:
        if self.clock.boot() < self.watched_until:
            self.moved.append(Move(id, state, self.clock.now()))
            self.moves += 1

    def watch(self, since: str | None, limit: int) -> Moves:
        boot = self.clock.boot()
        watched, self.watched_until = boot < self.watched_until, boot + int(WATCH * MICROS)
        if since is None:
            return Moves([], str(self.moves))
        behind = self.moves - int(since)
        if not watched or behind > len(self.moved):
            return Moves([], str(self.moves), missed=True)
        told = list(islice(self.moved, len(self.moved) - behind, len(self.moved) - behind + limit))
        return Moves(told, str(int(since) + len(told)))

    def _count(self, ended: Minute) -> None:
        place = (ended.at, ended.queue, ended.outcome)
        before = self.minutes.get(place)
        self.minutes[place] = ended if before is None else apply.together(before, ended)

    # -- holders

    def beat(self, holder: Holder) -> Beat:
        now = self.clock.boot()
        known = self.holders.get(holder.id)
        if known is None:
            known = self.holders[holder.id] = _Holding(holder, 0, now, now, {})
        known.holder = holder
        known.beat += 1
        known.beaten_at = now
        known.expires = now + int(holder.lease * MICROS)
        held = tuple(Held(r.id, r.seq, r.fence, r.token, r.cancel) for r in known.jobs.values())
        return Beat(known.beat, held)

    def leave(self, holder: str) -> None:
        known = self.holders.get(holder)
        if known is not None:
            known.expires = self.clock.boot()
            if not known.jobs:
                del self.holders[holder]

    def expired(self, limit: int, holder: str | None) -> list[Lost]:
        now = self.clock.boot()
        found: list[Lost] = []
        for known in list(self.holders.values()):
            if (known.expires <= now) if holder is None else (known.holder.id == holder):
                found += [Lost(copy(record), known.beat) for record in known.jobs.values()]
        return found[:limit]

    def tidy(self, limit: int) -> Tidied:
        now, boot = self.clock.now(), self.clock.boot()
        jobs = [r for r in self.jobs.values() if r.expires_at is not None and r.expires_at <= now][:limit]
        for record in jobs:
            self._forget(record)
        keys = [k for k, v in self.keys.items() if v.expires_at is not None and v.expires_at <= now][:limit]
        for key in keys:
            del self.keys[key]
        gone = [name for name, known in self.holders.items() if known.expires <= boot and not known.jobs][:limit]
        for name in gone:
            del self.holders[name]
        for place in [place for place in self.minutes if place[0] < now - int(MINUTES_KEPT * MICROS)]:
            del self.minutes[place]
        return Tidied(len(jobs), len(keys), len(gone))


def _remove(ordered: list[Any], item: Any) -> None:
    at = bisect.bisect_left(ordered, item)
    if at < len(ordered) and ordered[at] == item:
        del ordered[at]


class MemoryStore:
    """Jobs in this process, gone with it: for tests and toys."""

    name = "memory"
    features = frozenset[str]()

    def __init__(self, clock: Clock | None = None, *, _data: _Data | None = None) -> None:
        self._data = _data or _Data(clock or SystemClock())

    async def open(self) -> None:
        """Nothing to connect to."""

    async def close(self) -> None:
        """Nothing to let go; the jobs stay for as long as the object lives."""

    def sibling(self) -> MemoryStore:
        return MemoryStore(_data=self._data)

    def abandon(self) -> None:
        """A forked child has its own copy of the jobs; a lock that another thread held at the fork is replaced."""
        self._data.lock = threading.Lock()
        self._data.bells.clear()

    async def write(self, batch: Batch) -> Answers:
        data, rung = self._data, set[str]()
        with data.lock:
            answers = Answers(
                [data.insert(new, rung) for new in batch.inserts],
                [data.note(note) for note in batch.notes],
                [data.settle(end, rung) for end in batch.settles],
                [data.change(change, rung) for change in batch.changes],
                [data.claim(ask) for ask in batch.asks],
            )
            bells = [bell for bell in data.bells if not bell.topics.isdisjoint(rung)] if rung else []
        for bell in bells:
            bell.ring()
        return answers

    async def beat(self, holders: Sequence[Holder]) -> list[Beat]:
        with self._data.lock:
            return [self._data.beat(holder) for holder in holders]

    async def leave(self, holders: Sequence[str]) -> None:
        with self._data.lock:
            for holder in holders:
                self._data.leave(holder)

    async def expired(self, limit: int, holder: str | None = None) -> list[Lost]:
        with self._data.lock:
            return self._data.expired(limit, holder)

    async def tidy(self, limit: int) -> Tidied:
        with self._data.lock:
            return self._data.tidy(limit)

    async def get(self, ids: Sequence[str]) -> list[Record | None]:
        with self._data.lock:
            return [copy(record) if (record := self._data.jobs.get(id)) else None for id in ids]

    async def find(self, where: Where, cursor: str | None, limit: int) -> Found:
        before = int(cursor) if cursor is not None else None
        page: list[Record] = []
        with self._data.lock:
            for record in sorted(self._data.jobs.values(), key=attrgetter("seq"), reverse=True):
                if (before is None or record.seq < before) and _matches(record, where):
                    page.append(copy(record))
                    if len(page) > limit:
                        break
        more = len(page) > limit
        return Found(page[:limit], str(page[limit - 1].seq) if more else None)

    async def output(self, id: str, position: int, limit: int) -> list[Printed]:
        found: list[Printed] = []
        with self._data.lock:
            for piece in self._data.printed.get(id, []):
                if piece.end > position and limit > 0:
                    found.append(piece.printed)
                    limit -= len(piece.printed.data)
        return found

    async def stats(self) -> list[QueueStats]:
        with self._data.lock:
            paused = set(self._data.kept.get("pause", {}))
            counts: dict[str, dict[str, int]] = {name: {} for name in paused}
            oldest: dict[str, int] = {}
            for record in self._data.jobs.values():
                of_queue = counts.setdefault(record.queue, {})
                of_queue[record.state] = of_queue.get(record.state, 0) + 1
                if record.state == State.QUEUED:
                    oldest[record.queue] = min(oldest.get(record.queue, record.run_at), record.run_at)
            return [QueueStats(name, counts[name], oldest.get(name), name in paused) for name in sorted(counts)]

    async def moves(self, since: str | None, limit: int) -> Moves:
        with self._data.lock:
            return self._data.watch(since, limit)

    async def minutes(self, since: int) -> list[Minute]:
        with self._data.lock:
            return [self._data.minutes[place] for place in sorted(self._data.minutes) if place[0] >= since]

    async def holders(self) -> list[HolderSeen]:
        now = self._data.clock.boot()
        with self._data.lock:
            return [
                HolderSeen(h.holder, h.beat, (now - h.beaten_at) / MICROS, h.expires > now, tuple(h.jobs))
                for h in self._data.holders.values()
            ]

    async def records(self, kind: str) -> dict[str, Versioned]:
        with self._data.lock:
            return dict(self._data.kept.get(kind, {}))

    async def put_record(self, kind: str, name: str, value: bytes | None, expect: int | None = None) -> bool:
        with self._data.lock:
            kept = self._data.kept.setdefault(kind, {})
            version = kept[name].version if name in kept else 0
            if expect is not None and version != expect:
                return False
            if value is None:
                kept.pop(name, None)
            else:
                kept[name] = Versioned(value, version + 1)
            bells = [bell for bell in self._data.bells if f"queue/{name}" in bell.topics] if kind == "pause" else []
        for bell in bells:
            bell.ring()
        return True

    async def now(self) -> int:
        return self._data.clock.now()

    def ring_all(self) -> None:
        """Wake everybody who waits: for tests, whose clock may jump without a word."""
        with self._data.lock:
            bells = list(self._data.bells)
        for bell in bells:
            bell.ring()

    def listen(self, topics: Iterable[str]) -> Bell:
        bell = _Ring(self._data, frozenset(topics))
        with self._data.lock:
            self._data.bells.add(bell)
        return bell


def _matches(record: Record, where: Where) -> bool:
    return (
        (not where.states or record.state in where.states)
        and (where.queue is None or record.queue == where.queue)
        and (where.task is None or record.task == where.task)
        and (where.tag is None or where.tag in record.tags)
        and (where.finished_before is None or (record.finished_at or where.finished_before) < where.finished_before)
    )
