"""From what the scripts answer to the values of the protocol."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from ...clock import MICROS
from ...job import (
    Attempt,
    Beat,
    Claims,
    Held,
    Holder,
    HolderSeen,
    Inserted,
    Lane,
    Lost,
    Minute,
    Move,
    Moves,
    NewJob,
    Printed,
    QueueStats,
    Record,
    State,
)
from ...retry import Backoff
from ..gate import HOLDS

log = logging.getLogger("holdfast")

HOUR, MINUTE = 3600 * MICROS, 60 * MICROS
STATE = {
    b"q": State.QUEUED.value, b"w": State.SCHEDULED.value, b"f": State.FAILED.value, b"r": State.RUNNING.value,
    b"s": State.SUCCEEDED.value, b"d": State.DEAD.value, b"c": State.CANCELLED.value, b"b": State.BLOCKED.value,
    b"h": State.BLOCKED.value,
}  # fmt: skip
HELD = b"h"
"""The letter of a job that its lane holds."""
MOVED = STATE | {b"x": "deleted"}
RUNNING = State.RUNNING.value
Row = Sequence[Any]


class Body(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What never changes of a job (but for its payload), as it is stored."""

    created_at: int
    run_at: int
    priority: int
    id: str
    queue: str
    task: str
    tags: str | None
    key: str | None
    codec: str
    max_attempts: int
    timeout: float | None
    retry: Backoff | None
    meta: str | None
    payload: bytes
    lane: str | None = None


_NOTHING = msgspec.Raw()


class Life(msgspec.Struct, frozen=True, gc=False):
    """What a life has changed of a job, as it is stored; see job.lua for the letters."""

    u: int | None = None
    a: int = 0
    l: int = 1  # noqa: E741  # a letter, like the others
    f: int = 0
    t: str = "0"
    h: str | None = None
    i: int | None = None
    p: bool = False
    d: int = 0
    c: bool = False
    g: int | None = None
    z: int | None = None
    x: int | None = None
    r: msgspec.Raw = _NOTHING
    o: msgspec.Raw = _NOTHING
    e: str | None = None
    b: str | None = None
    m: dict[str, str] | None = None
    y: list[str] | None = None
    W: str | None = None
    E: msgspec.Raw = _NOTHING
    S: int = 0
    C: int | None = None


class _Line(msgspec.Struct, frozen=True, array_like=True):
    number: int
    fence: int
    life: int
    worker: str | None
    started_at: int | None
    ended_at: int
    outcome: str
    error: str | None


_body = msgspec.msgpack.Decoder(Body).decode
_life = msgspec.msgpack.Decoder(Life).decode
_line = msgspec.json.Decoder(_Line).decode
_tags = msgspec.json.Decoder(tuple[str, ...]).decode
_meta = msgspec.json.Decoder(dict[str, Any]).decode
_json = msgspec.json.Decoder().decode
_holder = msgspec.json.Decoder(Holder).decode
_moved = msgspec.msgpack.Decoder(list[str]).decode
_NEW = Life()
_HEAD = {0xD9: 2, 0xDA: 3, 0xDB: 5}
"""Bytes before a text of MessagePack, by the first of them."""


def _bytes(raw: msgspec.Raw) -> bytes | None:
    """The bytes that Lua wrote as MessagePack text."""
    data = bytes(raw)
    if not data:
        return None
    head = data[0]
    return data[_HEAD.get(head, 1) :]


@lru_cache(16384)
def _lane(text: str) -> Lane:
    running, interval, burst, weight, name = text.split(",", 4)
    return Lane(name, int(running), int(interval), int(burst), int(weight))


def record(seq: bytes, state: str, body: bytes, life: bytes | None, checkpoint: bytes | None) -> Record:
    """A job from its stored parts. One that cannot be decoded harms itself alone."""
    try:
        return _record(int(seq), state, _body(body), _NEW if life is None else _life(life), checkpoint)
    except (msgspec.DecodeError, ValueError) as error:
        log.warning("job number %s cannot be decoded: %s", seq.decode(), error)
        return Record(int(seq), _id(body, seq), "", "", state, 0, 0, b"", "damaged", 1, None, None, 0)


def _id(body: bytes, seq: bytes) -> str:
    try:
        return str(msgspec.msgpack.decode(body)[3])
    except Exception:  # noqa: BLE001  # whatever is wrong with it, it needs a name
        return f"damaged-{seq.decode()}"


def _record(seq: int, state: str, body: Body, life: Life, checkpoint: bytes | None) -> Record:
    made = Record(
        seq,
        body.id,
        body.queue,
        body.task,
        state,
        body.priority,
        body.run_at if life.u is None else life.u,
        body.payload,
        body.codec,
        body.max_attempts,
        body.timeout,
        body.key,
        body.created_at,
        life.a,
        life.l,
        life.f,
        int(life.t),
        life.h,
        life.i,
        life.p,
        life.d,
        life.c,
        life.g,
        life.z,
        life.x,
        _bytes(life.r) if life.r else None,
        life.e,
        life.b,
        _bytes(life.o) if life.o else None,
        checkpoint,
        retry=body.retry,
    )
    if body.tags is not None:
        made.tags = _tags(body.tags)
    made.meta = {} if body.meta is None else _meta(body.meta)
    if life.m is not None:
        made.meta.update({name: _json(value) for name, value in life.m.items()})
    made.waits = life.W
    if body.lane is not None:
        made.lane = _lane(body.lane)
    if life.E:
        made.extra = _bytes(life.E)
    made.saves = life.S
    made.changed_at = life.C
    if life.y is not None:
        made.history = tuple([Attempt(*msgspec.structs.astuple(_line(line))) for line in life.y])
    return made


def claimed(row: Row) -> Claims:
    """The answer to an ask: whether a suspect waits, when the next is due, now, and four values per job."""
    waiting, due_in = row[0] == 1, row[1]
    if len(row) == 3:
        return Claims([], waiting, None if due_in < 0 else due_in / MICROS)
    records: list[Record] = []
    lives: dict[bytes, Life] = {}
    values = iter(row[3:])
    for seq, body, life, checkpoint in zip(values, values, values, values, strict=True):
        try:
            known = lives.get(life)
            if known is None:
                known = lives[life] = _life(life)
            records.append(_record(int(seq), RUNNING, _body(body), known, checkpoint))
        except (msgspec.DecodeError, ValueError):
            damaged = record(seq, RUNNING, body, life, checkpoint)
            records.append(damaged)
    return Claims(records, waiting)


def inserted(jobs: Sequence[NewJob], exceptions: Row | None) -> list[Inserted]:
    answers = [Inserted("created", new.id) for new in jobs]
    values = iter(exceptions or ())
    for place, outcome, id in zip(values, values, values, strict=True):
        answers[place - 1] = Inserted(outcome.decode(), id.decode())
    return answers


def records(row: Row) -> Iterator[Record | None]:
    """Jobs from rows of five values; None where there is none."""
    values = iter(row)
    for seq, state, body, life, checkpoint in zip(values, values, values, values, values, strict=True):
        if seq is None:
            yield None
            continue
        made = record(seq, STATE[state], body, life, checkpoint)
        if state == HELD and made.lane is not None:
            made.waits = HOLDS + made.lane.name
        yield made


def lost(row: Row) -> list[Lost]:
    values = iter(row)
    parts = zip(values, values, values, values, values, values, strict=True)
    return [Lost(record(seq, STATE[s], body, life, kept), int(beat)) for beat, seq, s, body, life, kept in parts]


def printed(pieces: Sequence[bytes]) -> list[Printed]:
    return [
        Printed(int.from_bytes(piece[:8], "big"), int.from_bytes(piece[8:16], "big"), piece[24:]) for piece in pieces
    ]


def beats(rows: Sequence[Row]) -> list[Beat]:
    answers: list[Beat] = []
    for row in rows:
        values = iter(row[1:])
        held = [
            Held(id.decode(), int(seq), int(fence), int(token), cancel == 1)
            for id, seq, fence, token, cancel in zip(values, values, values, values, values, strict=True)
        ]
        answers.append(Beat(row[0], tuple(held)))
    return answers


def holders(rows: Sequence[Row]) -> list[HolderSeen]:
    return [
        HolderSeen(
            _holder(about), int(beat), max(0, int(age)) / MICROS, alive == 1, tuple([id.decode() for id in jobs])
        )
        for about, beat, age, alive, *jobs in rows
        if about is not None
    ]


def stats(rows: Sequence[Row]) -> list[QueueStats]:
    found: list[QueueStats] = []
    for name, paused, oldest, *counts in rows:
        pairs = zip(counts[::2], counts[1::2], strict=True)
        numbers = {STATE[state]: number for state, number in pairs if number}
        found.append(QueueStats(name.decode(), numbers, None if oldest is None else int(oldest), paused == 1))
    return sorted(found, key=lambda queue: queue.name)


def moves(row: Row) -> Moves:
    """Whether something was missed, the cursor, and (at, ids and states in turn) of each step."""
    missed, cursor, *steps = row
    told: list[Move] = []
    for at, packed in zip(steps[::2], steps[1::2], strict=True):
        moved = _moved(packed)
        told += [Move(id, MOVED[state.encode()], int(at)) for id, state in zip(moved[::2], moved[1::2], strict=True)]
    return Moves(told, cursor.decode(), missed == 1)


def minutes(hour: int, flat: Row) -> Iterator[Minute]:
    """The minutes of one hour, from fields `n` (number), `w` (waited) and `r` (ran): `n:<minute>:<outcome>:<queue>`."""
    sums = {field.decode(): int(value) for field, value in zip(flat[::2], flat[1::2], strict=True)}
    for field, number in sums.items():
        if field.startswith("n:"):
            minute, outcome, queue = field[2:].split(":", 2)
            at = hour * HOUR + int(minute) * MINUTE
            yield Minute(at, queue, outcome, number, sums[f"w{field[1:]}"], sums[f"r{field[1:]}"])
