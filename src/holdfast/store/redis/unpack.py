"""Decodes the answers of the scripts into values of the store protocol."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, TypeVar, cast, get_type_hints

import msgspec

from ...core import operations as ops
from ...core import waiting
from ...core.clock import MICROS
from ...core.damage import DAMAGED_ID
from ...core.histogram import BUCKETS, Histogram
from ...core.job import UNDECODABLE, Attempt, LimitKey, NewJob, Record, State, raw_text
from ...core.waiting import Waiting
from ..json_columns import read_json
from ..protocol import Versioned
from .messages import Body, ClaimHead, EndSums, Line, Mutable
from .names import DEFERRED, DELETED, LETTER, LETTERS, MESSAGE_PACK, UNREADABLE

HOUR, MINUTE = 3600 * MICROS, 60 * MICROS
STATE = {letter.encode(): state for state, letter in LETTER.items()} | {
    DEFERRED.encode(): State.BLOCKED.value,
    UNREADABLE.encode(): State.BLOCKED.value,
}
TRANSITION_STATE = STATE | {DELETED.encode(): "deleted"}
RUNNING = State.RUNNING.value
_DEFERRED, _UNREADABLE = DEFERRED.encode(), UNREADABLE.encode()
Row = Sequence[Any]


_body = msgspec.msgpack.Decoder(Body).decode
_mutable = msgspec.msgpack.Decoder(Mutable).decode
_line = msgspec.json.Decoder(Line).decode
_tags = msgspec.json.Decoder(tuple[str, ...]).decode
_meta = msgspec.json.Decoder(dict[str, Any]).decode
_json = msgspec.json.Decoder().decode
_moved = msgspec.msgpack.Decoder(list[str]).decode
_NEW = Mutable()
_CLAIM_HEAD = len(ClaimHead._fields)
_sums = msgspec.msgpack.Decoder(EndSums).decode
_counts = msgspec.msgpack.Decoder(dict[int, int] | list[int]).decode
_PIECE_HEAD = struct.Struct(">QQQ")
_HEAD = {MESSAGE_PACK["str8"]: 2, MESSAGE_PACK["str16"]: 3, MESSAGE_PACK["str32"]: 5}
"""Bytes before a text of MessagePack, by the first of them."""


def _text(data: bytes) -> str:
    return data.decode(errors="replace")


def _bytes(raw: msgspec.Raw) -> bytes | None:
    """The bytes that Lua wrote as MessagePack text."""
    data = bytes(raw)
    if not data:
        return None
    head = data[0]
    return data[_HEAD.get(head, 1) :]


T = TypeVar("T", Body, Mutable)
_BODY = get_type_hints(Body)
_MUTABLE = get_type_hints(Mutable)
_NAMES = {LETTERS[name]: name for name in _MUTABLE}
_MINIMAL = Body(0, 0, 0, "", "", "", None, None, "damaged", 1, None, None, None, b"")


def _part_by_part(data: bytes, types: dict[str, Any], least: T, damage: dict[str, str], what: str) -> T:
    """The readable fields of a body or a mutable; the others are as in `least`, and reported as damage."""
    try:
        found: Any = msgspec.msgpack.decode(data)
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, list) and types is _BODY:
        found = dict(zip(types, cast("list[Any]", found), strict=False))
    elif isinstance(found, dict) and types is _MUTABLE:
        found = {_NAMES.get(letter, letter): value for letter, value in cast("dict[Any, Any]", found).items()}
    if not isinstance(found, dict):
        damage[what] = raw_text(data)
        return least
    sound: dict[str, Any] = {}
    for name, value in cast("dict[str, Any]", found).items():
        kind = types.get(name)
        try:
            if kind is not None:
                raw = kind is msgspec.Raw
                sound[name] = msgspec.Raw(msgspec.msgpack.encode(value)) if raw else msgspec.convert(value, kind)
        except (ValueError, TypeError, RecursionError):
            damage[name if types is _BODY else f"{what}.{name}"] = raw_text(value)
    if types is _BODY and (missing := types.keys() - found.keys() - {"limit_key"}):
        damage[what] = f"without {', '.join(sorted(missing))}: {raw_text(data)}"
    return msgspec.structs.replace(least, **sound)


@lru_cache(16384)
def _limit_key(text: str) -> LimitKey:
    concurrency, interval, burst, weight, name = text.split(",", 4)
    return LimitKey(name, int(concurrency), int(interval), int(burst), int(weight))


def record(
    seq: bytes, state: str, body: bytes, mutable: bytes | None, checkpoint: bytes | None, *, unreadable: bool = False
) -> Record:
    """A job from its stored body and mutable. Damaged bytes affect this job only."""
    damage: dict[str, str] = {}
    try:
        its_body = _body(body)
    except ValueError:
        its_body = _part_by_part(body, _BODY, _MINIMAL, damage, "body")
        if not its_body.id:
            its_body = msgspec.structs.replace(its_body, id=f"{DAMAGED_ID}{int(seq)}")
    try:
        its_mutable = _NEW if mutable is None or unreadable else _mutable(mutable)
    except ValueError:
        its_mutable = _part_by_part(mutable or b"", _MUTABLE, _NEW, damage, "mutable")
    if unreadable:  # for the scripts too, which ignore it
        damage["mutable"] = raw_text(mutable or b"")
    return _record(int(seq), state, its_body, its_mutable, checkpoint, damage=damage)


def _record(
    seq: int, state: str, body: Body, mutable: Mutable, checkpoint: bytes | None, *, damage: dict[str, str]
) -> Record:
    token = int(mutable.token) if mutable.token.isdecimal() else 0
    result = _bytes(mutable.result) if mutable.result else None
    progress = _bytes(mutable.progress) if mutable.progress else None
    made = Record(
        seq, body.id, body.queue, body.task, state, body.priority,
        body.run_at if mutable.run_at is None else mutable.run_at, body.payload, body.codec, body.max_attempts,
        body.timeout, body.key, body.created_at, mutable.attempt, mutable.reset_count, mutable.fence, token,
        mutable.holder, mutable.pid, mutable.quarantined, mutable.crashes, mutable.cancel, mutable.started_at,
        mutable.finished_at, mutable.expires_at, result, mutable.error, mutable.traceback, progress, checkpoint,
        retry=body.retry,
    )  # fmt: skip
    if body.tags is not None:
        made.tags = read_json(_tags, body.tags, (), "tags", damage)
    made.meta = {} if body.meta is None else read_json(_meta, body.meta, {}, "meta", damage)
    if mutable.meta is not None:
        for name, value in mutable.meta.items():
            made.meta[name] = read_json(_json, value, None, f"meta.{name}", damage)
    made.waiting_for = waiting.read(mutable.waiting_for)
    if body.limit_key is not None:
        made.limit_key = read_json(_limit_key, body.limit_key, None, "limit_key", damage)
    if mutable.extra:
        made.extra = _bytes(mutable.extra)
    made.saves = mutable.saves
    made.changed_at = mutable.changed_at
    if mutable.history is not None:
        lines = [read_json(_line, line, None, "history", damage) for line in mutable.history]
        made.history = tuple([Attempt(*msgspec.structs.astuple(line)) for line in lines if line is not None])
    if mutable.damage:
        damage["mutable"] = raw_text(_bytes(mutable.damage))
    if damage:
        made.damage = damage
    return made


def claimed(row: Row) -> ops.Claims:
    """The answer to a claim: a ClaimHead, and a ClaimedRow of each job."""
    head = ClaimHead(*row[:_CLAIM_HEAD])
    waiting = head.waiting == 1
    if len(row) == _CLAIM_HEAD:
        return ops.Claims([], waiting, None if head.due_in < 0 else head.due_in / MICROS)
    records: list[Record] = []
    mutables: dict[bytes, Mutable] = {}
    values = iter(row[_CLAIM_HEAD:])
    for seq, body, mutable, checkpoint in zip(values, values, values, values, strict=True):
        try:
            known = mutables.get(mutable)
            if known is None:
                known = mutables[mutable] = _mutable(mutable)
            records.append(_record(int(seq), RUNNING, _body(body), known, checkpoint, damage={}))
        except ValueError:  # msgspec's errors are ValueErrors
            records.append(record(seq, RUNNING, body, mutable, checkpoint))
    return ops.Claims(records, waiting)


def inserted(jobs: Sequence[NewJob], exceptions: Row | None) -> list[ops.Inserted]:
    answers = [ops.Inserted("created", new.id) for new in jobs]
    values = iter(exceptions or ())
    for place, outcome, id in zip(values, values, values, strict=True):
        answers[place - 1] = ops.Inserted(outcome.decode(), id.decode())
    return answers


def records(row: Row) -> Iterator[Record | None]:
    """Jobs from JobRows; None where there is none."""
    values = iter(row)
    for seq, state, body, mutable, checkpoint in zip(values, values, values, values, values, strict=True):
        if seq is None:
            yield None
            continue
        made = record(seq, STATE[state], body, mutable, checkpoint, unreadable=state == _UNREADABLE)
        if state == _DEFERRED and made.limit_key is not None:
            made.waiting_for = Waiting("limit", made.limit_key.name)
        yield made


def versioned(flat: Row) -> dict[str, Versioned]:
    """Small shared records by name, from alternating names and values."""
    found: dict[str, Versioned] = {}
    for name, kept in zip(flat[::2], flat[1::2], strict=True):
        version, _, value = kept.partition(b":")
        found[name.decode(errors="replace")] = Versioned(value, int(version) if version.isdigit() else 0)
    return found


def texts(row: Row) -> list[str | None]:
    return [None if value is None else _text(value) for value in row]


def lost(row: Row) -> list[ops.Lost]:
    values = iter(row)
    parts = zip(values, values, values, values, values, values, strict=True)
    return [
        ops.Lost(record(seq, STATE[s], body, mutable, kept), int(heartbeat))
        for heartbeat, seq, s, body, mutable, kept in parts
    ]


def printed(pieces: Sequence[bytes], stream: bool) -> list[ops.Printed]:
    found: list[ops.Printed] = []
    for piece in pieces:
        position, fence, _ = _PIECE_HEAD.unpack_from(piece)
        found.append(ops.Printed(position, fence, piece[_PIECE_HEAD.size :], stream))
    return found


def heartbeats(rows: Sequence[Row]) -> list[ops.HeartbeatReply]:
    answers: list[ops.HeartbeatReply] = []
    for row in rows:
        values = iter(row[2:])
        held = [
            ops.HeldClaim(_text(id), int(seq), int(fence), int(token), cancel == 1)
            for id, seq, fence, token, cancel in zip(values, values, values, values, values, strict=True)
        ]
        answers.append(ops.HeartbeatReply(row[0], tuple(held), requests=row[1] == 1))
    return answers


def holders(rows: Sequence[Row]) -> list[ops.HolderInfo]:
    return [
        ops.HolderInfo(
            ops.holder_of(_text(id), about),
            int(heartbeat) if heartbeat.isdigit() else 0,
            max(0, int(age)) / MICROS,
            alive == 1,
            tuple([_text(job) for job in jobs]),
        )
        for id, about, heartbeat, age, alive, *jobs in rows
    ]


def stats(rows: Sequence[Row]) -> list[ops.QueueStats]:
    found: list[ops.QueueStats] = []
    for name, paused, oldest, *counts in rows:
        pairs = zip(counts[::2], counts[1::2], strict=True)
        numbers = {STATE[state]: number for state, number in pairs if number}
        found.append(ops.QueueStats(_text(name), numbers, None if oldest is None else int(oldest), paused == 1))
    return sorted(found, key=lambda queue: queue.name)


def transitions(row: Row) -> ops.Transitions:
    """Whether transitions were missed, the cursor, and (at, alternating ids and states) of each entry."""
    missed, cursor, *steps = row
    found: list[ops.Transition] = []
    for at, packed in zip(steps[::2], steps[1::2], strict=True):
        with suppress(ValueError, KeyError):  # a step that cannot be decoded is left out
            moved = _moved(packed)
            pairs = zip(moved[::2], moved[1::2], strict=True)
            found += [ops.Transition(id, TRANSITION_STATE[state.encode()], int(at)) for id, state in pairs]
    return ops.Transitions(found, cursor.decode(), missed == 1)


class Texts(dict[bytes, str]):
    """Decoded names: the same few are in many rows."""

    def __missing__(self, data: bytes) -> str:
        made = self[data] = _text(data)
        return made


def stats_by_minute(hour: int, flat: Row, since: int, text: Texts) -> Iterator[ops.MinuteStats]:
    """The minutes of one hour, from fields `<minute>:<outcome>:<size of the queue's name>:<queue><task>`."""
    values = iter(flat)
    recent = {b"%d" % minute: at for minute in range(60) if (at := hour * HOUR + minute * MINUTE) >= since}
    for field, value in zip(values, values, strict=True):
        try:  # suppress() would take as long as the rest
            minute, outcome, size, names = field.split(b":", 3)
            at, middle = recent.get(minute), int(size)
            if at is None:
                continue
            number, waited, ran, waits, runs = _sums(value)
            yield ops.MinuteStats(
                at,
                text[names[:middle]],
                text[names[middle:]],
                text[outcome],
                number,
                waited,
                ran,
                _histogram(bytes(waits)),
                _histogram(bytes(runs)),
            )
        except UNDECODABLE:
            continue  # sums that cannot be decoded are left out


@lru_cache(maxsize=4096)
def _histogram(packed: bytes) -> Histogram:
    """Counts by bucket from 1; where no bucket is empty, Lua packs them as an array. Most are one of a few."""
    counts: dict[int, int] | list[int] = _counts(packed)
    if isinstance(counts, list):
        return tuple(counts)
    return tuple(counts.get(bucket, 0) for bucket in range(1, min(max(counts), BUCKETS) + 1))
