"""The state of a log: the same in every process that has applied the same entries.

Pure, like `store/reference/jobs.py`, to which this adds what a log needs: the last batch of each writer, how long each
holder was watched, which ended jobs are in `done/`, and which snapshots there are.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ...core.job import TERMINAL, Record
from ...core.limiter import Limiter
from ...core.operations import HeartbeatReply, Holder, MinuteStats, Tidied
from ..minute_sums import sums_of
from ..protocol import Answers, Batch, Versioned
from ..reference.jobs import Holding, Jobs, Key, Piece
from . import payload_storage
from .log_format import VERSION, Batched, Entry, Segment, Spent, Table, pack, unpack

BATCH_WINDOW = 10_000
"""Entries for which a writer's last batch is kept; a batch with an older base is refused."""
SNAPSHOT_CHUNK = 10_000
"""Jobs that are packed into one table of a snapshot."""


class Done(msgspec.Struct):
    """The outcome of one batch."""

    refused: str = ""
    """Why nothing of it was applied: it is `old` (its base is too old for what it depends on), or cannot be read."""
    answers: Answers = msgspec.field(default_factory=Answers)
    heartbeats: list[HeartbeatReply] = []
    records: list[bool] = []
    tidied: list[Tidied] = []


class Last(msgspec.Struct, frozen=True):
    """A writer's last batch, and its entry."""

    number: int
    position: int


class Watching(msgspec.Struct, frozen=True):
    """How long a holder was watched since one heartbeat, and up to which entry."""

    heartbeat: int
    seconds: float
    until: int


class Archived(msgspec.Struct):
    """What the state keeps of a segment: little, because it keeps this for every segment."""

    name: str
    first: str
    last: str
    """The lowest and the highest id."""
    low: int
    high: int
    """The lowest and the highest seq."""
    expires_at: int | None
    objects: list[str]
    position: int
    """The entry that added it."""
    counts: dict[str, dict[str, int]]
    """Jobs by queue and state."""
    hidden: set[int]
    """Jobs of the segment to ignore, by seq: they are, or were, in the state again."""

    @property
    def count(self) -> int:
        return sum(sum(states.values()) for states in self.counts.values())


class ChainBroken(Exception):
    """An entry does not continue the one before: the entries read are not one log. Join again."""


class Replica:
    """A log's state after `position` entries. `apply` is the only way to change it."""

    def __init__(self, *, keeps_jobs: bool = True) -> None:
        self.jobs = Jobs()
        self._keeps_jobs = keeps_jobs
        """Or only the position and nonce of the last entry, and the last batch of each writer."""
        self.position = 0
        self.nonce: str = ""
        self.writers: dict[str, Last] = {}
        self.watched: dict[str, Watching] = {}
        self.archived: dict[str, Archived] = {}
        self.retouched: dict[int, int] = {}
        """The entry of the last change of ended jobs, by seq."""
        self.snapshot = 0
        self.snapshot_size = 0
        self.bytes_since = 0
        """Bytes of log since that snapshot."""
        self.marked = 0
        """The last entry that marks a snapshot as written. Cleaning follows it."""
        self.spent = Spent()
        """Requests of all processes together, as far as they are in the log."""

    def apply(self, number: int, entry: Entry, size: int) -> dict[tuple[str, int], Done]:
        """Apply the next entry; the outcomes of its batches, by writer and number."""
        if number != self.position + 1:
            raise ValueError(f"log entry {number} cannot be applied: the last applied entry is {self.position}")
        if entry.prev != self.nonce:
            raise ChainBroken(f"log entry {number} does not continue entry {number - 1}")
        self.position, self.nonce = number, entry.nonce
        self.bytes_since += size
        done: dict[tuple[str, int], Done] = {}
        for index, batched in enumerate(entry.batches):
            last = self.writers.get(batched.writer)
            if last is not None and batched.number <= last.number:
                continue  # already applied: adopted twice, or adopted and written
            done[batched.writer, batched.number] = self._apply(batched, index)
            self.writers[batched.writer] = Last(batched.number, number)
        if number % 1000 == 0:
            self.writers = {name: last for name, last in self.writers.items() if last.position >= number - BATCH_WINDOW}
        return done

    def _is_old(self, batched: Batched) -> bool:
        base = batched.base
        if self.position - base > BATCH_WINDOW or (batched.objects and self.marked > base):
            return True
        return batched.looked and any(archived.position > base for archived in self.archived.values())

    def _apply(self, batched: Batched, index: int) -> Done:
        if self._is_old(batched):
            return Done(refused="old")
        if not self._keeps_jobs:
            return Done()
        try:
            batch = batched.batch()
        except (msgspec.MsgspecError, TypeError, ValueError) as error:
            return Done(refused=f"cannot be read: {error}")
        jobs, now, renews = self.jobs, batched.now, frozenset(batched.renews)

        def renew(holder: Holder) -> bool:
            return holder.id in renews

        for revived in batched.revives:
            self._revive(revived.segment, revived.record, revived.nonce)
        for change in batch.changes:
            if (record := jobs.jobs.get(change.id)) is not None and record.state in TERMINAL:
                self.retouched[record.seq] = self.position
        done = Done(answers=jobs.write(self._lean(batch, index), now, renew))
        for holder in batched.leaves:
            jobs.leave(holder)
            if holder not in jobs.holders:
                self.watched.pop(holder, None)  # if it comes back, its count of heartbeats starts again
        done.heartbeats = [jobs.heartbeat(holder) for holder in batched.heartbeats]
        done.records = [jobs.put_record(put.kind, put.name, put.value, put.expect) for put in batched.records]
        for watched in batched.watches:
            self._watch(watched.holder, watched.heartbeat, watched.since, watched.seconds)
        for tidy in batched.tidies:
            jobs.ready_queues.free_rates(tidy.stalled)
            done.tidied.append(self._tidy(now, tidy.limit, dict(tidy.gone)))
        if batched.spent is not None:
            self.spent.add(batched.spent)
        for segment in batched.segments:
            self._archive(segment)
        for mark in batched.marks:
            self.marked = self.position
            if mark.number > self.snapshot:
                self.snapshot, self.snapshot_size, self.bytes_since = mark.number, mark.size, 0
        return done

    def _lean(self, batch: Batch, index: int) -> Batch:
        """The batch with pointers instead of its long payloads and results."""
        long = payload_storage.INLINE
        if any(len(new.payload) > long for new in batch.inserts):
            batch.inserts = [self._lean_one(new, "payload", index, "inserts", n) for n, new in enumerate(batch.inserts)]
        if any(len(end.result or b"") > long for end in batch.settles):
            batch.settles = [self._lean_one(end, "result", index, "settles", n) for n, end in enumerate(batch.settles)]
        return batch

    def _lean_one(self, item: Any, field: str, batch: int, kind: str, index: int) -> Any:
        value = getattr(item, field)
        if value is None:
            return item
        return msgspec.structs.replace(item, **{field: payload_storage.lean(value, self.position, batch, kind, index)})

    # -- leases

    def _watch(self, holder: str, heartbeat: int, since: int, seconds: float) -> None:
        """Count time that a process watched, if the holder has no newer heartbeat and this time is not counted yet."""
        known = self.jobs.holders.get(holder)
        if known is None or known.heartbeat != heartbeat:
            return
        before = self.watched.get(holder)
        if before is None or before.heartbeat != heartbeat:
            before = Watching(heartbeat, 0.0, 0)
        if since >= before.until:
            self.watched[holder] = Watching(heartbeat, before.seconds + seconds, self.position)

    def seconds_watched(self, known: Holding) -> Watching:
        """How long a holder was watched without a heartbeat since its last one, by the log."""
        watched = self.watched.get(known.holder.id)
        return Watching(known.heartbeat, 0.0, 0) if watched is None or watched.heartbeat != known.heartbeat else watched

    # -- retention and ended jobs

    def _tidy(self, now: int, limit: int, gone: dict[str, int]) -> Tidied:
        def ended(known: Holding) -> bool:
            return known.left or gone.get(known.holder.id) == known.heartbeat

        tidied = self.jobs.tidy(now, limit, ended)
        self.watched = {name: each for name, each in self.watched.items() if name in self.jobs.holders}
        self.retouched = {seq: at for seq, at in self.retouched.items() if seq in self.jobs.by_seq}
        over = [name for name, each in self.archived.items() if (each.expires_at or now + 1) <= now]
        removed = sum(self.archived.pop(name).count for name in over)
        return Tidied(tidied.jobs + removed, tidied.keys, tidied.holders)

    def _archive(self, segment: Segment) -> None:
        if segment.as_of < self.marked:
            return  # it may have been deleted; its jobs go into the next segment
        counts: dict[str, dict[str, int]] = {}
        hidden: set[int] = set()
        for seq, fence in segment.jobs:
            record = self.jobs.by_seq.get(seq)
            if (
                record is None
                or record.state not in TERMINAL
                or record.fence != fence
                or self.retouched.get(seq, 0) > segment.as_of
            ):
                hidden.add(seq)
                continue
            of_queue = counts.setdefault(record.queue, {})
            of_queue[record.state] = of_queue.get(record.state, 0) + 1
            self.jobs.forget(record)
        if counts:
            numbers = [seq for seq, _ in segment.jobs]
            self.archived[segment.name] = Archived(
                segment.name,
                segment.first,
                segment.last,
                min(numbers),
                max(numbers),
                segment.expires_at,
                segment.objects,
                self.position,
                counts,
                hidden,
            )

    def _revive(self, segment: str, record: Record, nonce: int) -> None:
        """Bring an ended job back from `done/`, so that it can be changed."""
        archived = self.archived.get(segment)
        if archived is None or record.seq in archived.hidden or record.id in self.jobs.jobs:
            return
        archived.hidden.add(record.seq)
        archived.counts[record.queue][record.state] -= 1
        self.jobs.jobs[record.id] = self.jobs.by_seq[record.seq] = record
        self.retouched[record.seq] = self.position
        if nonce:
            self.jobs.nonces[record.id] = nonce

    def needed_entries(self) -> set[int]:
        """The log entries that contain payloads or results of jobs in this state."""
        records = self.jobs.jobs.values()
        return payload_storage.entries(r.payload for r in records) | payload_storage.entries(r.result for r in records)

    def needed_objects(self) -> set[str]:
        """The objects outside the log that jobs of this state, or of its segments, need."""
        records = self.jobs.jobs.values()
        found = {
            key
            for r in records
            for value in (r.payload, r.result)
            if (key := payload_storage.own_key(value)) is not None
        }
        return found.union(*(archived.objects for archived in self.archived.values()))


# -- snapshots


class _Held(msgspec.Struct):
    holder: Holder
    heartbeat: int
    lease: float
    left: bool
    jobs: list[str]


class Snapshot(msgspec.Struct, omit_defaults=True):
    """A whole state: the object `snapshot/<number>`."""

    v: int
    number: int
    nonce: str
    seq: int
    transitions: int
    jobs: list[Table] = []
    nonces: dict[str, int] = {}
    settled: dict[str, int] = {}
    printed: dict[str, list[Piece]] = {}
    keys: dict[str, Key] = {}
    early: list[int] = []
    holders: list[_Held] = []
    records: dict[str, dict[str, Versioned]] = {}
    minutes: list[Table] = []
    writers: dict[str, Last] = {}
    watched: dict[str, Watching] = {}
    archived: list[Archived] = []
    retouched: dict[int, int] = {}
    spent: Spent | None = None
    limiters: dict[str, Limiter] = {}
    marked: int = 0
    versions: int = 0


def dump(replica: Replica) -> Snapshot:
    """A snapshot of the state; the lists keep the order of insertion, on which later steps depend."""
    jobs = replica.jobs
    records = list(jobs.jobs.values())
    return Snapshot(
        VERSION,
        replica.position,
        replica.nonce,
        jobs.seq,
        jobs.transitions,
        [table for at in range(0, len(records), SNAPSHOT_CHUNK) for table in pack(records[at : at + SNAPSHOT_CHUNK])],
        jobs.nonces,
        jobs.settled,
        jobs.printed,
        jobs.keys,
        sorted(jobs.ready_queues.early),
        [_Held(h.holder, h.heartbeat, h.lease, h.left, list(h.jobs)) for h in jobs.holders.values()],
        jobs.kept,
        pack([sums.stats(*place) for place, sums in jobs.minutes.items()]),
        replica.writers,
        replica.watched,
        list(replica.archived.values()),
        replica.retouched,
        replica.spent,
        jobs.ready_queues.limiters,
        replica.marked,
        jobs.versions,
    )


def load(snapshot: Snapshot, size: int) -> Replica:
    """The state of a snapshot."""
    replica = Replica()
    jobs = replica.jobs
    replica.position = replica.snapshot = snapshot.number
    replica.nonce, replica.snapshot_size = snapshot.nonce, size
    jobs.seq, jobs.transitions, jobs.versions = snapshot.seq, snapshot.transitions, snapshot.versions
    jobs.holders = {h.holder.id: Holding(h.holder, h.heartbeat, h.lease, h.left, {}) for h in snapshot.holders}
    jobs.restore(_records(snapshot))
    for held in snapshot.holders:
        jobs.holders[held.holder.id].jobs = {id: jobs.jobs[id] for id in held.jobs}
    jobs.nonces, jobs.settled = snapshot.nonces, snapshot.settled
    jobs.printed, jobs.keys, jobs.kept = snapshot.printed, snapshot.keys, snapshot.records
    jobs.ready_queues.early = set(snapshot.early)
    jobs.ready_queues.restore_limiters(snapshot.limiters)
    jobs.minutes = sums_of(unpack(snapshot.minutes, MinuteStats))
    replica.writers, replica.watched, replica.retouched = snapshot.writers, snapshot.watched, snapshot.retouched
    replica.spent, replica.marked = snapshot.spent or Spent(), snapshot.marked
    replica.archived = {archived.name: archived for archived in snapshot.archived}
    return replica


def ended_in(snapshot: Snapshot) -> set[tuple[int, int]]:
    """The jobs of a snapshot that had ended, by seq and fence."""
    return {(record.seq, record.fence) for record in _records(snapshot) if record.state in TERMINAL}


def _records(snapshot: Snapshot) -> list[Record]:
    """The jobs of a snapshot, table by table; each table is freed after use, because a million rows are large."""
    records: list[Record] = []
    snapshot.jobs.reverse()
    while snapshot.jobs:
        records += unpack([snapshot.jobs.pop()], Record)
    return records
