"""The reference store: everything in this process, every rule in plain Python.

Its answers define what other stores must answer; the conformance suite's state machine compares them with it.
A sibling shares the same jobs, so several loops and threads of one process may work on one memory store.
"""

from __future__ import annotations

import asyncio
import bisect
import contextlib
import threading
from collections.abc import Iterable, Sequence
from copy import copy
from operator import attrgetter
from typing import Any

import msgspec

from ..clock import MICROS, Clock, SystemClock
from ..job import (
    HISTORY_LIMIT,
    TERMINAL,
    Ask,
    Attempt,
    Beat,
    Change,
    Claims,
    Found,
    Held,
    Holder,
    HolderSeen,
    Inserted,
    Lost,
    NewJob,
    Note,
    Patch,
    QueueStats,
    Record,
    Settlement,
    State,
    Tidied,
    Where,
)
from .protocol import Answers, Batch, Bell, Versioned

UNSET = msgspec.UNSET
_PATCHED = ("attempt", "life", "suspect", "deaths", "cancel", "result", "error", "traceback", "progress", "history")
Place = tuple[int, int, int]
"""Where a job stands in its queue: (priority, run_at, seq)."""


class _Key(msgspec.Struct):
    id: str
    fingerprint: str
    expires_at: int | None = None


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
        self.keys: dict[str, _Key] = {}
        self.ready: dict[str, _Ready] = {}
        self.due: dict[str, list[tuple[int, int]]] = {}
        self.holders: dict[str, _Holding] = {}
        self.kept: dict[str, dict[str, Versioned]] = {}
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
        run_at = max(now, new.run_at) if new.run_at is not None else now + int(max(0.0, new.delay) * MICROS)
        record = Record(
            seq=self.seq,
            id=new.id,
            queue=new.queue,
            task=new.task,
            state=State.SCHEDULED if run_at > now else State.QUEUED,
            priority=new.priority,
            run_at=run_at,
            payload=new.payload,
            codec=new.codec,
            max_attempts=new.max_attempts,
            timeout=new.timeout,
            key=new.key,
            created_at=now,
            tags=new.tags,
            meta=dict(new.meta),
            retry=new.retry,
        )
        self.jobs[record.id] = self.by_seq[record.seq] = record
        if new.nonce:
            self.nonces[record.id] = new.nonce
        if new.key is not None:
            self.keys[new.key] = _Key(record.id, new.fingerprint)
        self._enter(record, rung)
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

    def _end_key(self, key: str | None, job: str, now: int, keep: float) -> None:
        if key is not None and (known := self.keys.get(key)) is not None and known.id == job:
            known.expires_at = now + int(keep * MICROS)

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
        if note.progress is not UNSET:
            record.progress = note.progress
        if note.checkpoint is not UNSET:
            record.checkpoint = note.checkpoint
            record.deaths = 0
        if note.pid is not UNSET:
            record.pid = note.pid
        if note.meta is not UNSET:
            record.meta = {**record.meta, **note.meta}
        return True

    def settle(self, end: Settlement, rung: set[str]) -> bool:
        record = self._claimed(end.id, end.fence, end.token)
        if record is None:
            return self.settled.get(end.id) == end.nonce
        assert record.holder is not None
        if end.seen_beat is not None and self.holders[record.holder].beat != end.seen_beat:
            return False
        now = self.clock.now()
        self._exit(record)
        state, keep, outcome = end.state, end.keep, end.outcome
        if record.cancel and state not in TERMINAL:
            state, keep, outcome = State.CANCELLED, end.cancelled_keep, "cancelled"
        record.attempt = end.attempt
        record.suspect = end.suspect
        record.deaths = end.deaths
        record.error = end.error
        record.traceback = end.traceback
        record.result = end.result
        record.cancel = False
        self.settled[record.id] = end.nonce
        if state in TERMINAL:
            record.state = state
            record.finished_at = now
            record.expires_at = None if keep is None else now + int(keep * MICROS)
            self._end_key(record.key, record.id, now, end.key_keep)
            self._enter(record, rung)
            if keep is not None and keep <= 0:
                self._forget(record)
            return True
        line = Attempt(
            record.attempt, record.fence, record.life, record.holder, record.started_at, now, outcome, end.error
        )
        record.history = (*record.history, line)[-HISTORY_LIMIT:]
        if end.delay is not None:
            record.run_at = now + int(max(0.0, end.delay) * MICROS)
        record.state = state if record.run_at > now else State.QUEUED
        record.holder = record.started_at = record.pid = None
        self._enter(record, rung)
        return True

    # -- change

    def change(self, change: Change, rung: set[str]) -> bool:
        record = self.jobs.get(change.id)
        if record is None or record.state != change.seen_state or record.fence != change.seen_fence:
            return False
        if change.patch is None:
            if record.state not in TERMINAL:
                self._end_key(record.key, record.id, self.clock.now(), 0.0)
            self._forget(record)
        else:
            self._patch(record, change.patch, rung)
        return True

    def _patch(self, record: Record, patch: Patch, rung: set[str]) -> None:
        now = self.clock.now()
        self._exit(record)
        for name in _PATCHED:
            value = getattr(patch, name)
            if value is not UNSET:
                setattr(record, name, value)
        if patch.meta is not UNSET:
            record.meta = {**record.meta, **patch.meta}
        if patch.delay is not UNSET:
            record.run_at = now + int(max(0.0, patch.delay) * MICROS)
        if patch.state is not UNSET:
            record.state = patch.state
            if patch.state in TERMINAL:
                keep = None if patch.keep is UNSET else patch.keep
                record.finished_at = now
                record.expires_at = None if keep is None else now + int(keep * MICROS)
                self._end_key(record.key, record.id, now, patch.key_keep)
            else:
                record.finished_at = record.expires_at = record.holder = record.started_at = record.pid = None
                if record.key is not None and (known := self.keys.get(record.key)) and known.id == record.id:
                    known.expires_at = None
        self._enter(record, rung)
        if record.expires_at is not None and record.expires_at <= now and record.state in TERMINAL:
            self._forget(record)

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
