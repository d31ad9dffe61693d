"""The jobs of a store as plain Python values, and every rule of the store protocol as a step on them.

Pure: no clock, no randomness, no I/O. The same steps with the same times give the same jobs in every process, so the
memory store uses it, and all processes that share a bucket replay its log with it.

Leases need a clock and are not here: a holder has a count of heartbeats, and the caller decides whose leases expired.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from itertools import islice

import msgspec

from ...core import operations as ops
from ...core.clock import MICROS
from ...core.job import TERMINAL, WAITING, NewJob, Record, State
from ..minute_sums import Place, Sums
from ..protocol import MINUTE_STATS_KEPT, TRANSITIONS_KEPT, Answers, Batch, Versioned, record_topic
from . import apply
from .ready_queues import Picking, ReadyQueues

_NO_RECORD = Versioned(b"", 0)


class Key(msgspec.Struct):
    """A kept key: its job, the fingerprint of its payload, when it expires and when it was created."""

    id: str
    fingerprint: str
    expires_at: int | None = None
    made_at: int = 0


class Piece(msgspec.Struct):
    """A kept piece of output, with its offset in the output of its claim."""

    printed: ops.Printed
    at: int

    @property
    def end(self) -> int:
        return self.printed.position + len(self.printed.data)


class Holding(msgspec.Struct):
    """A holder, the number of its heartbeats, and its claims."""

    holder: ops.Holder
    heartbeat: int
    lease: float
    left: bool
    jobs: dict[str, Record]


class Jobs:
    """All jobs, keys, holders, records and minute statistics. Every method is one atomic step.

    `notified` collects the topics whose listeners are to be notified; the caller takes them.
    """

    def __init__(self) -> None:
        self.seq = 0
        self.jobs: dict[str, Record] = {}
        self.by_seq: dict[int, Record] = {}
        self.nonces: dict[str, int] = {}
        self.settled: dict[str, int] = {}
        self.printed: dict[str, list[Piece]] = {}
        self.keys: dict[str, Key] = {}
        self.ready_queues = ReadyQueues(self.by_seq)
        self.holders: dict[str, Holding] = {}
        self.kept: dict[str, dict[str, Versioned]] = {}
        self.versions = 0
        """Number of records set so far: the version of the last one."""
        self.minutes: dict[Place, Sums] = {}
        self.transitions = 0
        self.recorded: deque[ops.Transition] = deque(maxlen=TRANSITIONS_KEPT)
        self.records_transitions = True
        """Whether transitions are recorded, which the caller decides; they are always counted."""
        self.notified: set[str] = set()

    def write(self, batch: Batch, now: int, renews: Callable[[ops.Holder], bool]) -> Answers:
        """Apply a batch, in the order of its fields; `renews` returns whether half of a holder's lease is over."""
        return Answers(
            [self.insert(new, now) for new in batch.inserts],
            [self.note(note, now) for note in batch.notes],
            [self.settle(end, now) for end in batch.settles],
            [self.change(change, now) for change in batch.changes],
            [self.claim(ask, now, renews) for ask in batch.asks],
        )

    # -- enqueue

    def insert(self, new: NewJob, now: int) -> ops.Inserted:
        known = None if new.key is None else self.keys.get(new.key)
        if new.unique and new.id in self.jobs and self.nonces.get(new.id, 0) == new.nonce:
            return ops.Inserted("created", new.id)  # another job may have its key by now
        if known is not None and self._is_taken(known, new, now):
            if known.id == new.id and self.nonces.get(new.id, 0) == new.nonce:
                return ops.Inserted("created", new.id)
            same = known.fingerprint == new.fingerprint
            return ops.Inserted("existing" if same else "conflict", known.id)
        if new.id in self.jobs:
            ours = self.nonces.get(new.id, 0) == new.nonce
            return ops.Inserted("created" if ours else "exists", new.id)
        if new.max_depth is not None and self.ready_queues.depth(new.queue) >= new.max_depth:
            return ops.Inserted("full", new.id)
        self.seq += 1
        record = apply.new_record(new, self.seq, now)
        self.ready_queues.order_fairly(record, now)
        self.jobs[record.id] = self.by_seq[record.seq] = record
        if new.nonce:
            self.nonces[record.id] = new.nonce
        if new.key is not None:
            self.keys[new.key] = Key(record.id, new.fingerprint, None, now)
        self._enter(record)
        self._record_transition(record.id, record.state, now)
        return ops.Inserted("created", record.id)

    def _is_taken(self, known: Key, new: NewJob, now: int) -> bool:
        """Whether the key's job prevents the new one, by the rule of `unique`."""
        if known.expires_at is not None and known.expires_at <= now:
            return False
        if new.unique == "window":
            return apply.after(known.made_at, new.window) > now
        record = self.jobs.get(known.id)
        if new.unique == "until_start":
            return record is not None and record.state in WAITING
        return not new.unique or (record is not None and record.state not in TERMINAL)

    def key_owner(self, key: str) -> str | None:
        """The id of the job that has a key and has not ended, if any."""
        known = self.keys.get(key)
        record = None if known is None else self.jobs.get(known.id)
        return None if record is None or record.state in TERMINAL else record.id

    # -- transitions between states: every change exits one index and enters another

    def _enter(self, record: Record) -> None:
        self.ready_queues.enter(record)
        if record.state == State.RUNNING:
            assert record.holder is not None
            self.holders[record.holder].jobs[record.id] = record
        else:
            self.notified.add(f"job/{record.id}" if record.state in TERMINAL else f"queue/{record.queue}")

    def _exit(self, record: Record) -> None:
        self.ready_queues.exit(record)
        if record.state == State.RUNNING:
            assert record.holder is not None
            self.holders[record.holder].jobs.pop(record.id, None)

    def forget(self, record: Record) -> None:
        """Remove a job, but not its key."""
        self._exit(record)
        del self.jobs[record.id], self.by_seq[record.seq]
        self.nonces.pop(record.id, None)
        self.settled.pop(record.id, None)
        self.printed.pop(record.id, None)

    # -- claim

    def claim(self, ask: ops.Ask, now: int, renews: Callable[[ops.Holder], bool]) -> ops.Claims:
        picking = Picking(ask, now)
        self.ready_queues.reopen(now)
        for queue in self._open(ask):
            self.ready_queues.promote(queue, now)
            self.ready_queues.pick(queue, picking)
            if picking.over:
                break
        if not picking.chosen:
            return ops.Claims([], picking.quarantined_waiting, self._due_in(ask, now) if picking.spare else 0.0)
        self._renew_for(ask.holder, renews)
        if picking.lone_quarantined is not None:
            picking.lone_quarantined.crashes = max(picking.lone_quarantined.crashes, 0)
        for record in picking.chosen:
            self._exit(record)
            self.ready_queues.start(record, now)
            record.state = State.RUNNING
            record.holder = ask.holder.id
            record.attempt += 1
            record.fence += 1
            record.token = ask.token
            record.started_at = now
            record.pid = record.waiting_for = None
            self._enter(record)
            self._record_transition(record.id, record.state, now)
        return ops.Claims([copy(record) for record in picking.chosen], picking.quarantined_waiting)

    def _open(self, ask: ops.Ask) -> list[str]:
        paused = self.kept.get("pause", {})
        return [queue for queue in dict.fromkeys(ask.queues) if queue not in paused]

    def _due_in(self, ask: ops.Ask, now: int) -> float | None:
        times = [self.ready_queues.next_opening(), *(self.ready_queues.next_due(queue) for queue in self._open(ask))]
        soon = [when for when in times if when is not None]
        return max(0.0, (min(soon) - now) / MICROS) if soon else None

    def finds(self, ask: ops.Ask, now: int) -> bool:
        """Whether a claim would change anything; changes nothing itself."""
        opening = self.ready_queues.next_opening()
        if opening is not None and opening <= now:
            return True
        return any(self.ready_queues.finds(queue, ask, now) for queue in self._open(ask))

    def _renew_for(self, holder: ops.Holder, renews: Callable[[ops.Holder], bool]) -> None:
        known = self.holders.get(holder.id)
        if known is None:
            self.holders[holder.id] = Holding(holder, 1, holder.lease, False, {})
        elif known.left or renews(holder):
            known.heartbeat += 1
            known.lease = holder.lease
            known.left = False

    # -- note and settle

    def _claimed(self, id: str, fence: int, token: int) -> Record | None:
        record = self.jobs.get(id)
        if record is None or record.state != State.RUNNING or record.fence != fence or record.token != token:
            return None
        return record

    def note(self, note: ops.Note, now: int) -> bool:
        record = self._claimed(note.id, note.fence, note.token)
        if record is None:
            return False
        if note.rest is not msgspec.UNSET and record.limit_key is not None:
            self.ready_queues.rest(record.limit_key.name, apply.after(now, note.rest))
        apply.note(record, note, now)
        if note.output is not msgspec.UNSET:
            self._append(record, note.output)
        if apply.notifies(note):
            self.notified.add(f"note/{record.id}")
        return True

    def _append(self, record: Record, output: ops.Output) -> None:
        pieces = self.printed.setdefault(record.id, [])
        newest = next((piece for piece in reversed(pieces) if piece.printed.stream == output.stream), None)
        last = None
        if newest is not None:
            last = (newest.printed.position, newest.printed.fence, newest.at, len(newest.printed.data))
        position = apply.output_position(last, record.fence, output.at)
        if position is not None:
            pieces.append(Piece(ops.Printed(position, record.fence, output.data, output.stream), output.at))
            first = pieces[-1].end - output.keep
            self.printed[record.id] = [
                piece for piece in pieces if piece.end > first or piece.printed.stream != output.stream
            ]

    def settle(self, end: ops.Settlement, now: int) -> bool:
        record = self._claimed(end.id, end.fence, end.token)
        if record is None:
            return self.settled.get(end.id) == end.nonce
        assert record.holder is not None
        if end.expected_heartbeat is not None and self.holders[record.holder].heartbeat != end.expected_heartbeat:
            return False
        self._exit(record)
        self._count(record, end, now)
        apply.settle(record, end, now)
        self.settled[record.id] = end.nonce
        self._entered(record, end.key_keep, now)
        self._notify_freed(record)
        if end.record_end:
            self._record_ended(record)
        self._record_transition(record.id, record.state, now)
        return True

    def _entered(self, record: Record, key_keep: float, now: int) -> None:
        """Put a changed record into its indexes and set its key's expiry; or remove it, if its retention is over."""
        known = None if record.key is None else self.keys.get(record.key)
        if known is not None and known.id == record.id:
            known.expires_at = apply.after(now, key_keep) if record.state in TERMINAL else None
        self._enter(record)
        if apply.removable(record, now):
            self.forget(record)

    # -- change

    def change(self, change: ops.Change, now: int) -> bool:
        record = self.jobs.get(change.id)
        if record is None or not change.matches(record):
            return False
        if change.patch is None:
            known = None if record.key is None else self.keys.get(record.key)
            if record.key is not None and known is not None and known.id == record.id and record.state not in TERMINAL:
                del self.keys[record.key]
            self.forget(record)
            self._notify_freed(record)
            self._record_transition(record.id, "deleted", now)
            return True
        if change.patch.handled and self.kept.get("ended", {}).get(record.id, _NO_RECORD).value == b"{}":
            self.put_record("ended", record.id, None, None)
        if change.patch == ops.HANDLED:
            return True
        self._exit(record)
        was_over, was_ready = record.state in TERMINAL, record.state in (State.QUEUED, State.RUNNING)
        apply.patch(record, change.patch, now)
        if change.patch.payload is not msgspec.UNSET and change.patch.fingerprint and record.key is not None:
            known = self.keys.get(record.key)
            if known is not None and known.id == record.id:
                known.fingerprint = change.patch.fingerprint
        if record.state in TERMINAL and was_over:
            self._enter(record)  # it had ended before: the expiry of its key stays
        else:
            self._entered(record, change.patch.key_keep, now)
        if apply.asks_to_stop(record, change.patch):
            self.notified.add(f"holder/{record.holder}")
        if change.patch.state is not msgspec.UNSET:
            self._record_transition(record.id, record.state, now)
            if was_ready:
                self._notify_freed(record)
        if change.patch.record_end:
            self._record_ended(record)
        return True

    def _notify_freed(self, record: Record) -> None:
        if self.ready_queues.left(record):
            self.notified.add(f"queue/{record.queue}")

    def _record_ended(self, record: Record) -> None:
        if record.state in TERMINAL:
            self.put_record("ended", record.id, b"{}", None)

    # -- recorded transitions and minute statistics

    def _record_transition(self, id: str, state: str, now: int) -> None:
        self.transitions += 1
        if self.records_transitions:
            self.recorded.append(ops.Transition(id, state, now))
        elif self.recorded:
            self.recorded.clear()

    def transitions_since(self, since: str | None, limit: int) -> ops.Transitions:
        if since is None:
            return ops.Transitions([], str(self.transitions))
        behind = self.transitions - int(since)
        if not 0 <= behind <= len(self.recorded):
            return ops.Transitions([], str(self.transitions), missed=True)
        page = list(islice(self.recorded, len(self.recorded) - behind, len(self.recorded) - behind + limit))
        return ops.Transitions(page, str(int(since) + len(page)))

    def _count(self, record: Record, end: ops.Settlement, now: int) -> None:
        outcome, waited, ran = apply.ended(record, end, now)
        place = (apply.minute(now), record.queue, record.task, outcome)
        sums = self.minutes.get(place)
        if sums is None:
            sums = self.minutes[place] = Sums()
        sums.add(waited, ran)

    # -- holders

    def heartbeat(self, holder: ops.Holder) -> ops.HeartbeatReply:
        known = self.holders.get(holder.id)
        if known is None:
            known = self.holders[holder.id] = Holding(holder, 0, holder.lease, False, {})
        known.holder = holder
        known.heartbeat += 1
        known.lease = holder.lease
        known.left = False
        return ops.HeartbeatReply(
            known.heartbeat, tuple(ops.HeldClaim(r.id, r.seq, r.fence, r.token, r.cancel) for r in known.jobs.values())
        )

    def leave(self, holder: str) -> None:
        known = self.holders.get(holder)
        if known is not None:
            known.left = True
            if not known.jobs:
                del self.holders[holder]

    def lost(self, ended: Callable[[Holding], bool], limit: int) -> list[ops.Lost]:
        """The claims of the holders whose lease has expired."""
        found: list[ops.Lost] = []
        for known in self.holders.values():
            if ended(known):
                found += [ops.Lost(copy(record), known.heartbeat) for record in known.jobs.values()]
        return found[:limit]

    # -- retention

    def over(self, now: int, limit: int) -> tuple[list[Record], list[str]]:
        """The jobs past their retention and the expired keys, at most `limit` each."""
        jobs = (r for r in self.jobs.values() if r.expires_at is not None and r.expires_at <= now)
        keys = (k for k, v in self.keys.items() if v.expires_at is not None and v.expires_at <= now)
        return list(islice(jobs, limit)), list(islice(keys, limit))

    def tidy(self, now: int, limit: int, ended: Callable[[Holding], bool]) -> ops.Tidied:
        jobs, keys = self.over(now, limit)
        for record in jobs:
            self.forget(record)
        for key in keys:
            del self.keys[key]
        gone = [name for name, known in self.holders.items() if not known.jobs and ended(known)][:limit]
        for name in gone:
            del self.holders[name]
        self.ready_queues.tidy(now)
        for where in [where for where in self.minutes if where[0] < now - int(MINUTE_STATS_KEPT * MICROS)]:
            del self.minutes[where]
        return ops.Tidied(len(jobs), len(keys), len(gone))

    # -- records

    def records(self, kinds: Sequence[str]) -> dict[str, dict[str, Versioned]]:
        return {kind: dict(self.kept.get(kind, {})) for kind in kinds}

    def put_record(self, kind: str, name: str, value: bytes | None, expect: int | None) -> bool:
        kept = self.kept.setdefault(kind, {})
        version = kept[name].version if name in kept else 0
        if expect is not None and version != expect:
            return False
        if value is None:
            kept.pop(name, None)
            if not kept:
                del self.kept[kind]
        else:
            self.versions += 1
            kept[name] = Versioned(value, self.versions)
        if topic := record_topic(kind, name):
            self.notified.add(topic)
        return True

    # -- reads

    def restore(self, records: Sequence[Record]) -> None:
        """Load stored jobs, in the order of their `seq`."""
        self.jobs.update((record.id, record) for record in records)
        self.by_seq.update((record.seq, record) for record in records)
        self.ready_queues.restore(records)

    def newest(self, where: ops.Where, before: int | None) -> Iterator[Record]:
        """The jobs that match, newest first; not copies."""
        some = (
            self.by_seq
            if where.waiting_for is None
            else [seq for _, _, seq in self.ready_queues.waiting.get(where.waiting_for, ())]
        )
        for seq in sorted(some, reverse=True):
            if before is None or seq < before:
                record = self.by_seq[seq]
                if matches(record, where):
                    yield record

    def output(self, id: str, position: int, limit: int, stream: bool) -> list[ops.Printed]:
        return read_output([piece.printed for piece in self.printed.get(id, ())], position, limit, stream)

    def stats(self) -> list[ops.QueueStats]:
        paused = set(self.kept.get("pause", {}))
        counts: dict[str, dict[str, int]] = {name: {} for name in paused}
        oldest: dict[str, int] = {}
        for record in self.jobs.values():
            of_queue = counts.setdefault(record.queue, {})
            of_queue[record.state] = of_queue.get(record.state, 0) + 1
            if record.state == State.QUEUED:
                oldest[record.queue] = min(oldest.get(record.queue, record.run_at), record.run_at)
        return [ops.QueueStats(name, counts[name], oldest.get(name), name in paused) for name in sorted(counts)]

    def minutes_since(self, since: int) -> list[ops.MinuteStats]:
        return [self.minutes[place].stats(*place) for place in sorted(self.minutes) if place[0] >= since]


def read_output(pieces: Iterable[ops.Printed], position: int, limit: int, stream: bool) -> list[ops.Printed]:
    """Whole pieces from a position on, of at least `limit` bytes together."""
    found: list[ops.Printed] = []
    for piece in pieces:
        if piece.stream == stream and piece.position + len(piece.data) > position and limit > 0:
            found.append(piece)
            limit -= len(piece.data)
    return found


def matches(record: Record, where: ops.Where) -> bool:
    return (
        (not where.states or record.state in where.states)
        and (where.queue is None or record.queue == where.queue)
        and (where.task is None or record.task == where.task)
        and (where.tag is None or where.tag in record.tags)
        and (where.waiting_for is None or record.waiting_for == where.waiting_for)
        and (where.finished_before is None or (record.finished_at or where.finished_before) < where.finished_before)
    )
