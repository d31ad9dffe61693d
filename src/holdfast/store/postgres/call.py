"""Conversion between a Batch and the arguments and rows of one call of holdfast.write.

Each kind of operation becomes arrays, one per column; a column that has its default everywhere is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec.structs import astuple

from ...core import waiting
from ...core.clock import MICROS
from ...core.job import TERMINAL, NewJob
from ...core.operations import Ask, Claims, Inserted, Note, Settlement
from ..json_columns import json_or_null, to_json
from ..protocol import Answers, Batch
from .rows import record

UNSET = msgspec.UNSET

NO_INSERTS = (None,) * 23
NO_NOTES = (None,) * 14
NO_SETTLES = (None,) * 16
NO_ASK = (None,) * 9

_decode = msgspec.json.Decoder(dict[str, Any]).decode
_DEFAULTS = NewJob("", "", "", b"")
_ENDS = frozenset(state.value for state in TERMINAL)


class Call:
    """The arguments of one call of holdfast.write, and its answers. `batch` has at most one ask, and no changes."""

    __slots__ = ("_batch", "_notes", "_odd", "_plain", "arguments")

    def __init__(self, batch: Batch, *, with_hint: bool, patient: bool = True) -> None:
        """`patient`: may wait for claims of the same limit keys; not if the transaction has already claimed."""
        self._batch = batch
        self._notes: dict[tuple[int, int, int], int] = {}
        self._plain: Sequence[int] = ()
        self._odd: Sequence[int] = ()
        self.arguments: tuple[Any, ...] = (
            with_hint,
            *(insert_arguments(batch.inserts) if batch.inserts else NO_INSERTS),
            *(self._note_arguments(batch.notes) if batch.notes else NO_NOTES),
            *(self._settle_arguments(batch.settles) if batch.settles else NO_SETTLES),
            *((*_ask_arguments(batch.asks[0]), patient) if batch.asks else NO_ASK),
        )

    def _note_arguments(self, notes: Sequence[Note]) -> Sequence[Any]:
        """Merge the notes of each claim: the server would apply only one of them."""
        merged: dict[tuple[int, int, int], Note] = {}
        for note in notes:
            claim = (note.seq, note.fence, note.token)
            before = merged.get(claim)
            merged[claim] = note if before is None else _both(before, note)
        claims = sorted(merged)
        self._notes = {claim: place for place, claim in enumerate(claims, 1)}
        said = [merged[claim] for claim in claims]
        printed = [note for note in notes if note.output is not UNSET]
        pieces = [note.output for note in printed if note.output is not UNSET]
        return (
            *map(list, zip(*claims, strict=True)),
            _some([_set(note.progress) for note in said]),
            _some([_set(note.checkpoint) for note in said]),
            _some([None if note.checkpoint is UNSET else note.saves for note in said]),
            _some([_set(note.pid) for note in said]),
            _some([None if note.meta is UNSET else to_json(note.meta).decode() for note in said]),
            _some([_set(note.rest) for note in said]),
            [self._notes[note.seq, note.fence, note.token] for note in printed] or None,
            [piece.at for piece in pieces] or None,
            [piece.data for piece in pieces] or None,
            [piece.keep for piece in pieces] or None,
            [piece.stream for piece in pieces] if any(piece.stream for piece in pieces) else None,
        )

    def _settle_arguments(self, ends: Sequence[Settlement]) -> Sequence[Any]:
        """Plain ends as arrays; jobs that wait again, ends of a sweep, and several of one claim as JSON.

        Both in the order of `seq`, so that two batches never deadlock.
        """
        plain = range(len(ends))
        odd: list[int] = []
        if len({end.seq for end in ends}) < len(ends) or any(
            end.state not in _ENDS or end.expected_heartbeat is not None for end in ends
        ):
            times = Counter(end.seq for end in ends)
            odd = [
                at
                for at, end in enumerate(ends)
                if times[end.seq] > 1 or end.state not in _ENDS or end.expected_heartbeat is not None
            ]
            rest = set(odd)
            plain = [at for at in plain if at not in rest]
            odd.sort(key=lambda at: ends[at].seq)
        plain = sorted(plain, key=lambda at: ends[at].seq)
        self._plain, self._odd = plain, odd
        others = to_json([_as_dict(ends[at], place) for place, at in enumerate(odd)]).decode() if odd else None
        if not plain:
            return (*(None,) * 15, others)
        chosen = [ends[at] for at in plain]
        return (
            [end.id for end in chosen],
            [end.seq for end in chosen],
            [end.fence for end in chosen],
            [end.token for end in chosen],
            [end.nonce for end in chosen],
            None if all(end.state == "succeeded" for end in chosen) else [str(end.state) for end in chosen],
            [end.attempt for end in chosen],
            [end.quarantined for end in chosen] if any(end.quarantined for end in chosen) else None,
            [end.crashes for end in chosen] if any(end.crashes for end in chosen) else None,
            _some([end.result for end in chosen]),
            _some([end.error for end in chosen]),
            _some([end.traceback for end in chosen]),
            [end.keep for end in chosen],
            [end.key_keep for end in chosen] if any(end.key is not None for end in chosen) else None,
            [end.record_end for end in chosen] if any(end.record_end for end in chosen) else None,
            others,
        )

    @property
    def queues(self) -> Sequence[str]:
        return self._batch.asks[0].queues if self._batch.asks else ()

    # -- the answer

    def answers(self, rows: Sequence[Any]) -> tuple[Answers, str | None, bool, bool]:
        """Decode the rows: the answers, the hint if the store itself publishes it, whether a new generation is due, and
        whether to ask again.
        """
        batch = self._batch
        answer: dict[str, Any] = {}
        records = [record(row, 1) for row in rows if row[0] is None]
        for row in rows:
            if row[0] is not None:
                answer |= _decode(row[0])
        inserts = [Inserted("created", new.id) for new in batch.inserts]
        for place, outcome, id in answer.get("inserts", ()):
            inserts[place - 1] = Inserted(outcome, id)
        refused = answer.get("notes", ())
        notes = [self._notes[note.seq, note.fence, note.token] not in refused for note in batch.notes]
        settles = [True] * len(batch.settles)
        for place in answer.get("settles") or ():
            settles[self._plain[place - 1]] = False
        for place in answer.get("ends") or ():
            settles[self._odd[place]] = False
        asks: list[Claims] = []
        if batch.asks:
            records.sort(key=_order(batch.asks[0].queues))
            due_in = answer.get("due_in")
            asks = [Claims(records, answer.get("waiting", False), None if due_in is None else due_in / MICROS)]
        worn, again = answer.get("worn", False), answer.get("again", False)
        return Answers(inserts, notes, settles, (), asks), answer.get("hint"), worn, again


def is_lone(batch: Batch) -> bool:
    """Whether the batch is one plain job and nothing else."""
    if len(batch.inserts) != 1 or batch.notes or batch.settles or batch.changes or batch.asks:
        return False
    new = batch.inserts[0]
    return _is_plain(new) and new.waiting_for is None and new.limit_key is None and new.extra is None


def _is_plain(new: NewJob) -> bool:
    """Whether it can be inserted without reading other jobs: of its key, its queue, or its limit key."""
    return new.key is None and new.max_depth is None and (new.limit_key is None or not new.limit_key.weight)


def lone_arguments(new: NewJob, *, with_hint: bool) -> Sequence[Any]:
    """The arguments of holdfast.insert_one."""
    tags = json_or_null(new.tags) if new.tags else None
    meta = json_or_null(new.meta) if new.meta else None
    retry = None if new.retry is None else to_json(new.retry).decode()
    return (
        new.id, new.queue, new.task, new.priority, new.delay, new.run_at, new.payload, new.codec, new.max_attempts,
        new.timeout, new.nonce, tags, meta, retry, with_hint,
    )  # fmt: skip


def inserted_one(new: NewJob, answer: str | None) -> Inserted:
    """The answer of holdfast.insert_one."""
    return Inserted("exists" if answer == "exists" else "created", new.id)


def insert_arguments(jobs: Sequence[NewJob]) -> Sequence[Any]:
    """The arguments that enqueue, in the order of `sql.NEW`."""
    alike = all(map(_is_plain, jobs))
    # Column by column, without Python code per value: a thousand jobs have seventeen thousand values.
    columns = dict(zip(NewJob.__struct_fields__, map(list, zip(*map(astuple, jobs), strict=True)), strict=True))

    def column(name: str) -> list[Any]:
        values = columns[name]
        return values[:1] if alike and values.count(values[0]) == len(values) else values

    def unusual(name: str) -> list[Any] | None:
        usual, values = getattr(_DEFAULTS, name), columns[name]
        return None if values.count(usual) == len(values) else column(name)

    return (
        columns["id"],
        column("queue"),
        column("task"),
        unusual("priority"),
        unusual("delay"),
        _some(columns["run_at"]),
        column("payload"),
        unusual("codec"),
        column("max_attempts"),
        _some(columns["timeout"]),
        unusual("nonce"),
        _texts(columns["tags"]),
        _texts(columns["meta"]),
        _texts(columns["retry"]),
        _some([waiting.write(value) for value in columns["waiting_for"]]) if any(columns["waiting_for"]) else None,
        _texts(columns["limit_key"]),
        _some(columns["extra"]),
        None if alike else columns["key"],
        None if alike else columns["fingerprint"],
        None if alike else unusual("unique"),
        None if alike else unusual("window"),
        None if alike else columns["max_depth"],
        None,
    )


def _ask_arguments(ask: Ask) -> Sequence[Any]:
    return (
        ask.holder.id,
        to_json(ask.holder).decode(),
        ask.holder.lease,
        list(dict.fromkeys(ask.queues)),
        ask.limit,
        ask.token,
        None if ask.tasks is None else list(ask.tasks),
        ask.busy,
    )


def _order(queues: Sequence[str]) -> Callable[[Any], Any]:
    """The sort key of claimed records: in the order of the queues, then by priority, run_at and seq."""
    if len(queues) == 1:
        return lambda job: (job.priority, job.run_at, job.seq)
    at = {name: number for number, name in reversed(list(enumerate(queues)))}
    return lambda job: (at[job.queue], job.priority, job.run_at, job.seq)


def _as_dict(end: Settlement, place: int) -> dict[str, Any]:
    fields = msgspec.structs.asdict(end)
    fields["place"] = place
    fields["waiting_for"] = waiting.write(end.waiting_for)
    fields["result"] = None if end.result is None else end.result.hex()
    return fields


def _both(first: Note, second: Note) -> Note:
    changed: dict[str, Any] = {
        name: value for name in ("progress", "pid") if (value := getattr(second, name)) is not UNSET
    }
    if second.checkpoint is not UNSET and (first.checkpoint is UNSET or second.saves > first.saves):
        changed |= {"checkpoint": second.checkpoint, "saves": second.saves}
    if second.rest is not UNSET:
        changed["rest"] = second.rest if first.rest is UNSET else max(first.rest, second.rest)
    if second.meta is not UNSET:
        changed["meta"] = second.meta if first.meta is UNSET else {**first.meta, **second.meta}
    return msgspec.structs.replace(first, **changed)


def _set(value: Any) -> Any:
    return None if value is UNSET else value


def _some(values: list[Any]) -> list[Any] | None:
    """One column, or None if it is NULL everywhere."""
    return None if values.count(None) == len(values) else values


def _texts(values: list[Any]) -> list[str | None] | None:
    """One column as JSON, or None if it is empty everywhere."""
    return [json_or_null(value) for value in values] if any(values) else None
