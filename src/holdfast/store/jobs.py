"""The jobs of a store as plain Python values, and every rule of the protocol as a step on them.

Pure: no clock, no chance, no I/O. The same steps with the same times give the same jobs, in whatever process; so this
is the memory store's heart, and what every process that shares a bucket's log replays.

Leases are not here, for they are a matter of clocks: a holder has a number of beats, and whoever owns the jobs says
which holders' leases have ended.
"""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from itertools import islice

import msgspec

from ..clock import MICROS
from ..job import (
    TERMINAL,
    Ask,
    Beat,
    Change,
    Claims,
    Held,
    Holder,
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
from .protocol import MINUTES_KEPT, MOVES_KEPT, Answers, Batch, Versioned

Place = tuple[int, int, int]
"""Where a job stands in its queue: (priority, run_at, seq). In a lane of due jobs the first is 0."""
DUE = frozenset({State.SCHEDULED, State.FAILED})


class Key(msgspec.Struct):
    """A key that is remembered, and what it stands for."""

    id: str
    fingerprint: str
    expires_at: int | None = None


class Piece(msgspec.Struct):
    """A kept piece of output, with where it began in its claim."""

    printed: Printed
    at: int

    @property
    def end(self) -> int:
        return self.printed.position + len(self.printed.data)


class Holding(msgspec.Struct):
    """A holder, how often it has beaten, and its claims."""

    holder: Holder
    beat: int
    lease: float
    left: bool
    jobs: dict[str, Record]


class Lane:
    """Places in order. Taking from the front is cheap, however long the lane is."""

    def __init__(self, places: Iterable[Place] = ()) -> None:
        self._places = sorted(places)
        self._start = 0

    def __len__(self) -> int:
        return len(self._places) - self._start

    def __iter__(self) -> Iterator[Place]:
        return islice(self._places, self._start, None)

    @property
    def first(self) -> Place | None:
        return self._places[self._start] if self else None

    def add(self, place: Place) -> None:
        if not self._places or place > self._places[-1]:
            self._places.append(place)
        else:
            bisect.insort(self._places, place, lo=self._start)

    def remove(self, place: Place) -> None:
        at = bisect.bisect_left(self._places, place, lo=self._start)
        if at == len(self._places) or self._places[at] != place:
            return
        if at > self._start:
            del self._places[at]
            return
        self._start += 1
        if self._start > 1000 and self._start * 2 > len(self._places):
            del self._places[: self._start]
            self._start = 0


class Ready:
    """The queued jobs of one queue, suspects apart."""

    def __init__(self) -> None:
        self.sound, self.suspects = Lane(), Lane()

    def lane(self, record: Record) -> Lane:
        return self.suspects if record.suspect else self.sound


def place(record: Record) -> Place:
    return (record.priority, record.run_at, record.seq)


class Jobs:
    """All jobs, keys, holders, records and minutes. Every method is one atomic step.

    `rung` gathers the topics of bells that a step gives reason to ring; its owner takes them.
    """

    def __init__(self) -> None:
        self.seq = 0
        self.jobs: dict[str, Record] = {}
        self.by_seq: dict[int, Record] = {}
        self.nonces: dict[str, int] = {}
        self.settled: dict[str, int] = {}
        self.printed: dict[str, list[Piece]] = {}
        self.keys: dict[str, Key] = {}
        self.ready: dict[str, Ready] = {}
        self.due: dict[str, Lane] = {}
        self.early: set[int] = set()
        """Jobs that some claim's time made queued: that time counts for that claim, so others compare their own."""
        self.holders: dict[str, Holding] = {}
        self.kept: dict[str, dict[str, Versioned]] = {}
        self.minutes: dict[tuple[int, str, str], Minute] = {}
        self.moves = 0
        self.moved: deque[Move] = deque(maxlen=MOVES_KEPT)
        self.telling = True
        """Whether moves are kept, which is up to the owner; they are counted always."""
        self.rung: set[str] = set()

    def write(self, batch: Batch, now: int, renews: Callable[[Holder], bool]) -> Answers:
        """A whole batch, in the order of its fields; `renews` says whether half of a holder's lease is spent."""
        return Answers(
            [self.insert(new, now) for new in batch.inserts],
            [self.note(note) for note in batch.notes],
            [self.settle(end, now) for end in batch.settles],
            [self.change(change, now) for change in batch.changes],
            [self.claim(ask, now, renews) for ask in batch.asks],
        )

    # -- enqueue

    def insert(self, new: NewJob, now: int) -> Inserted:
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
            self.keys[new.key] = Key(record.id, new.fingerprint)
        self._enter(record)
        self._tell(record.id, record.state, now)
        return Inserted("created", record.id)

    def _depth(self, queue: str) -> int:
        ready = self.ready.get(queue)
        waiting = len(ready.sound) + len(ready.suspects) if ready else 0
        return waiting + len(self.due.get(queue, ()))

    # -- moving between states: every change leaves one index and enters another

    def _enter(self, record: Record) -> None:
        if record.state == State.QUEUED:
            self._queue(record)
            self.rung.add(f"queue/{record.queue}")
        elif record.state in DUE:
            self.due.setdefault(record.queue, Lane()).add((0, record.run_at, record.seq))
            self.rung.add(f"queue/{record.queue}")
        elif record.state == State.RUNNING:
            assert record.holder is not None
            self.holders[record.holder].jobs[record.id] = record
        elif record.state in TERMINAL:
            self.rung.add(f"job/{record.id}")

    def _queue(self, record: Record) -> None:
        ready = self.ready.get(record.queue)
        if ready is None:
            ready = self.ready[record.queue] = Ready()
        ready.lane(record).add(place(record))

    def _exit(self, record: Record) -> None:
        if record.state == State.QUEUED:
            self.ready[record.queue].lane(record).remove(place(record))
            self.early.discard(record.seq)
        elif record.state in DUE:
            self.due[record.queue].remove((0, record.run_at, record.seq))
        elif record.state == State.RUNNING:
            assert record.holder is not None
            self.holders[record.holder].jobs.pop(record.id, None)

    def forget(self, record: Record) -> None:
        """Let a job go, but not its key."""
        self._exit(record)
        del self.jobs[record.id], self.by_seq[record.seq]
        self.nonces.pop(record.id, None)
        self.settled.pop(record.id, None)
        self.printed.pop(record.id, None)

    # -- claim

    def claim(self, ask: Ask, now: int, renews: Callable[[Holder], bool]) -> Claims:
        paused = self.kept.get("pause", {})
        taken: list[Record] = []
        waiting = False
        for queue in dict.fromkeys(ask.queues):
            if queue in paused:
                continue
            self._promote(queue, now)
            picked, passed = self._pick(queue, ask, ask.limit - len(taken), bool(taken), now)
            taken += picked
            waiting = waiting or passed
            if taken and taken[-1].suspect:
                break
            if len(taken) >= ask.limit:
                break
        if not taken:
            soon = [first[1] for queue in ask.queues if queue not in paused and (first := self._next_due(queue))]
            return Claims([], waiting, max(0.0, (min(soon) - now) / MICROS) if soon else None)
        self._renew_for(ask.holder, renews)
        for record in taken:
            self._exit(record)
            record.state = State.RUNNING
            record.holder = ask.holder.id
            record.attempt += 1
            record.fence += 1
            record.token = ask.token
            record.started_at = now
            record.pid = None
            self._enter(record)
            self._tell(record.id, record.state, now)
        return Claims([copy(record) for record in taken], waiting)

    def finds(self, ask: Ask, now: int) -> bool:
        """Whether a claim would take anything; changes nothing."""
        paused = self.kept.get("pause", {})
        for queue in ask.queues:
            if queue in paused or ask.limit <= 0:
                continue
            first = self._next_due(queue)
            if first is not None and first[1] <= now:
                return True
            picked, passed = self._pick(queue, ask, 1, False, now)
            if picked or passed:
                return True
        return False

    def _next_due(self, queue: str) -> Place | None:
        due = self.due.get(queue)
        return due.first if due else None

    def _promote(self, queue: str, now: int) -> None:
        while (first := self._next_due(queue)) is not None and first[1] <= now:
            record = self.by_seq[first[2]]
            self._exit(record)
            record.state = State.QUEUED
            self._queue(record)
            self.early.add(record.seq)

    def _pick(self, queue: str, ask: Ask, limit: int, some: bool, now: int) -> tuple[list[Record], bool]:
        """The jobs to take from one queue, and whether a suspect whose turn it was had to be passed over."""
        ready = self.ready.get(queue)
        if ready is None or limit <= 0:
            return [], False
        sound = list(islice(self._wanted(ready.sound, ask, now), limit))
        suspect = next(self._wanted(ready.suspects, ask, now), None)
        if suspect is None:
            return sound, False
        if not ask.busy and not some and (not sound or place(suspect) < place(sound[0])):
            return [suspect], False
        return sound, len(sound) < limit or place(suspect) < place(sound[-1])

    def _wanted(self, lane: Lane, ask: Ask, now: int) -> Iterator[Record]:
        for _, run_at, seq in lane:
            if run_at > now and seq in self.early:
                continue
            record = self.by_seq[seq]
            if ask.tasks is None or record.task in ask.tasks:
                yield record

    def _renew_for(self, holder: Holder, renews: Callable[[Holder], bool]) -> None:
        known = self.holders.get(holder.id)
        if known is None:
            self.holders[holder.id] = Holding(holder, 1, holder.lease, False, {})
        elif known.left or renews(holder):
            known.beat += 1
            known.lease = holder.lease
            known.left = False

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
            pieces.append(Piece(Printed(position, record.fence, output.data), output.at))
            first = pieces[-1].end - output.keep
            self.printed[record.id] = [piece for piece in pieces if piece.end > first]

    def settle(self, end: Settlement, now: int) -> bool:
        record = self._claimed(end.id, end.fence, end.token)
        if record is None:
            return self.settled.get(end.id) == end.nonce
        assert record.holder is not None
        if end.seen_beat is not None and self.holders[record.holder].beat != end.seen_beat:
            return False
        self._exit(record)
        self._count(apply.ended(record, end, now))
        apply.settle(record, end, now)
        self.settled[record.id] = end.nonce
        self._entered(record, end.key_keep, now)
        self._tell(record.id, record.state, now)
        return True

    def _entered(self, record: Record, key_keep: float, now: int) -> None:
        """A record has changed: put it where it belongs now, its key too; or remove it, where nothing is to be kept."""
        known = None if record.key is None else self.keys.get(record.key)
        if known is not None and known.id == record.id:
            known.expires_at = apply.after(now, key_keep) if record.state in TERMINAL else None
        self._enter(record)
        if apply.removable(record, now):
            self.forget(record)

    # -- change

    def change(self, change: Change, now: int) -> bool:
        record = self.jobs.get(change.id)
        if record is None or record.state != change.seen_state or record.fence != change.seen_fence:
            return False
        if change.patch is None:
            known = None if record.key is None else self.keys.get(record.key)
            if record.key is not None and known is not None and known.id == record.id and record.state not in TERMINAL:
                del self.keys[record.key]
            self.forget(record)
            self._tell(record.id, "deleted", now)
            return True
        self._exit(record)
        was_over = record.state in TERMINAL
        apply.patch(record, change.patch, now)
        if record.state in TERMINAL and was_over:
            self._enter(record)  # a note on an ended job: its key's time goes on
        else:
            self._entered(record, change.patch.key_keep, now)
        if change.patch.state is not msgspec.UNSET:
            self._tell(record.id, record.state, now)
        return True

    # -- what is told of it

    def _tell(self, id: str, state: str, now: int) -> None:
        self.moves += 1
        if self.telling:
            self.moved.append(Move(id, state, now))
        elif self.moved:
            self.moved.clear()

    def moves_since(self, since: str | None, limit: int) -> Moves:
        if since is None:
            return Moves([], str(self.moves))
        behind = self.moves - int(since)
        if not 0 <= behind <= len(self.moved):
            return Moves([], str(self.moves), missed=True)
        told = list(islice(self.moved, len(self.moved) - behind, len(self.moved) - behind + limit))
        return Moves(told, str(int(since) + len(told)))

    def _count(self, ended: Minute) -> None:
        where = (ended.at, ended.queue, ended.outcome)
        before = self.minutes.get(where)
        self.minutes[where] = ended if before is None else apply.together(before, ended)

    # -- holders

    def beat(self, holder: Holder) -> Beat:
        known = self.holders.get(holder.id)
        if known is None:
            known = self.holders[holder.id] = Holding(holder, 0, holder.lease, False, {})
        known.holder = holder
        known.beat += 1
        known.lease = holder.lease
        known.left = False
        return Beat(known.beat, tuple(Held(r.id, r.seq, r.fence, r.token, r.cancel) for r in known.jobs.values()))

    def leave(self, holder: str) -> None:
        known = self.holders.get(holder)
        if known is not None:
            known.left = True
            if not known.jobs:
                del self.holders[holder]

    def lost(self, ended: Callable[[Holding], bool], limit: int) -> list[Lost]:
        """The claims of the holders whose lease has ended."""
        found: list[Lost] = []
        for known in self.holders.values():
            if ended(known):
                found += [Lost(copy(record), known.beat) for record in known.jobs.values()]
        return found[:limit]

    # -- retention

    def over(self, now: int, limit: int) -> tuple[list[Record], list[str]]:
        """The jobs and the keys that are past their time, at most `limit` each."""
        jobs = (r for r in self.jobs.values() if r.expires_at is not None and r.expires_at <= now)
        keys = (k for k, v in self.keys.items() if v.expires_at is not None and v.expires_at <= now)
        return list(islice(jobs, limit)), list(islice(keys, limit))

    def tidy(self, now: int, limit: int, ended: Callable[[Holding], bool]) -> Tidied:
        jobs, keys = self.over(now, limit)
        for record in jobs:
            self.forget(record)
        for key in keys:
            del self.keys[key]
        gone = [name for name, known in self.holders.items() if not known.jobs and ended(known)][:limit]
        for name in gone:
            del self.holders[name]
        for where in [where for where in self.minutes if where[0] < now - int(MINUTES_KEPT * MICROS)]:
            del self.minutes[where]
        return Tidied(len(jobs), len(keys), len(gone))

    # -- records

    def put_record(self, kind: str, name: str, value: bytes | None, expect: int | None) -> bool:
        kept = self.kept.setdefault(kind, {})
        version = kept[name].version if name in kept else 0
        if expect is not None and version != expect:
            return False
        if value is None:
            kept.pop(name, None)
        else:
            kept[name] = Versioned(value, version + 1)
        if kind == "pause":
            self.rung.add(f"queue/{name}")
        return True

    # -- looking

    def restore(self, records: Iterable[Record]) -> None:
        """Take in jobs as they were before, in the order in which they stood."""
        for record in records:
            self.jobs[record.id] = self.by_seq[record.seq] = record
            if record.state == State.QUEUED:
                self._queue(record)
            elif record.state in DUE:
                self.due.setdefault(record.queue, Lane()).add((0, record.run_at, record.seq))

    def newest(self, where: Where, before: int | None) -> Iterator[Record]:
        """The jobs that match, newest first; the very records."""
        for seq in sorted(self.by_seq, reverse=True):
            if before is None or seq < before:
                record = self.by_seq[seq]
                if matches(record, where):
                    yield record

    def output(self, id: str, position: int, limit: int) -> list[Printed]:
        return read_output([piece.printed for piece in self.printed.get(id, ())], position, limit)

    def stats(self) -> list[QueueStats]:
        paused = set(self.kept.get("pause", {}))
        counts: dict[str, dict[str, int]] = {name: {} for name in paused}
        oldest: dict[str, int] = {}
        for record in self.jobs.values():
            of_queue = counts.setdefault(record.queue, {})
            of_queue[record.state] = of_queue.get(record.state, 0) + 1
            if record.state == State.QUEUED:
                oldest[record.queue] = min(oldest.get(record.queue, record.run_at), record.run_at)
        return [QueueStats(name, counts[name], oldest.get(name), name in paused) for name in sorted(counts)]

    def minutes_since(self, since: int) -> list[Minute]:
        return [self.minutes[where] for where in sorted(self.minutes) if where[0] >= since]


def read_output(pieces: Iterable[Printed], position: int, limit: int) -> list[Printed]:
    """Whole pieces from a position on, of at least `limit` bytes together."""
    found: list[Printed] = []
    for piece in pieces:
        if piece.position + len(piece.data) > position and limit > 0:
            found.append(piece)
            limit -= len(piece.data)
    return found


def matches(record: Record, where: Where) -> bool:
    return (
        (not where.states or record.state in where.states)
        and (where.queue is None or record.queue == where.queue)
        and (where.task is None or record.task == where.task)
        and (where.tag is None or where.tag in record.tags)
        and (where.finished_before is None or (record.finished_at or where.finished_before) < where.finished_before)
    )
