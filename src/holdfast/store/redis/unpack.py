"""From what the scripts answer to the values of the protocol."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, TypeVar, cast, get_type_hints

import msgspec

from ...core.clock import MICROS
from ...core.job import Attempt, Lane, NewJob, Record, State, raw_text
from ...core.limiter import HOLDS
from ...core.operations import (
    Beat,
    Claims,
    Held,
    HolderSeen,
    Inserted,
    Lost,
    Minute,
    Move,
    Moves,
    Printed,
    QueueStats,
    holder_of,
)
from ...core.retry import Backoff

HOUR, MINUTE = 3600 * MICROS, 60 * MICROS
STATE = {
    b"q": State.QUEUED.value, b"w": State.SCHEDULED.value, b"f": State.FAILED.value, b"r": State.RUNNING.value,
    b"s": State.SUCCEEDED.value, b"d": State.DEAD.value, b"c": State.CANCELLED.value, b"b": State.BLOCKED.value,
    b"h": State.BLOCKED.value, b"D": State.BLOCKED.value,
}  # fmt: skip
HELD = b"h"
"""The letter of a job that its lane holds."""
UNREADABLE = b"D"
"""The letter of a job whose life the scripts cannot read."""
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
    D: msgspec.Raw = _NOTHING


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
_moved = msgspec.msgpack.Decoder(list[str]).decode
_NEW = Life()
_NUMBER_OF = re.compile(r"n:\d{1,2}:[^:]*:")
DAMAGED_ID = "damaged-"
"""How a job is named whose own id cannot be decoded: by its number."""
_HEAD = {0xD9: 2, 0xDA: 3, 0xDB: 5}
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


T = TypeVar("T", Body, Life)
_BODY = get_type_hints(Body)
_LIFE = get_type_hints(Life)
_LEAST = Body(0, 0, 0, "", "", "", None, None, "damaged", 1, None, None, None, b"")


def _part_by_part(data: bytes, types: dict[str, Any], least: T, damage: dict[str, str], what: str) -> T:
    """What can be decoded of a body or a life, part by part; the rest is as in `least`, and damage."""
    try:
        found: Any = msgspec.msgpack.decode(data)
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, list) and types is _BODY:
        found = dict(zip(types, cast("list[Any]", found), strict=False))
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
    if types is _BODY and (missing := types.keys() - found.keys() - {"lane"}):
        damage[what] = f"without {', '.join(sorted(missing))}: {raw_text(data)}"
    return msgspec.structs.replace(least, **sound)


def _read(decode: Callable[[str], Any], text: str, otherwise: Any, name: str, damage: dict[str, str]) -> Any:
    try:
        return decode(text)
    except (ValueError, TypeError, RecursionError):
        damage[name] = raw_text(text)
        return otherwise


@lru_cache(16384)
def _lane(text: str) -> Lane:
    running, interval, burst, weight, name = text.split(",", 4)
    return Lane(name, int(running), int(interval), int(burst), int(weight))


def record(
    seq: bytes, state: str, body: bytes, life: bytes | None, checkpoint: bytes | None, *, unreadable: bool = False
) -> Record:
    """A job from its stored parts. What cannot be decoded harms this one job only."""
    damage: dict[str, str] = {}
    try:
        its_body = _body(body)
    except ValueError:
        its_body = _part_by_part(body, _BODY, _LEAST, damage, "body")
        if not its_body.id:
            its_body = msgspec.structs.replace(its_body, id=f"{DAMAGED_ID}{int(seq)}")
    try:
        its_life = _NEW if life is None or unreadable else _life(life)
    except ValueError:
        its_life = _part_by_part(life or b"", _LIFE, _NEW, damage, "life")
    if unreadable:  # to the scripts, which go by nothing of it
        damage["life"] = raw_text(life or b"")
    return _record(int(seq), state, its_body, its_life, checkpoint, damage=damage)


def _record(
    seq: int, state: str, body: Body, life: Life, checkpoint: bytes | None, *, damage: dict[str, str]
) -> Record:
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
        int(life.t) if life.t.isdecimal() else 0,
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
        made.tags = _read(_tags, body.tags, (), "tags", damage)
    made.meta = {} if body.meta is None else _read(_meta, body.meta, {}, "meta", damage)
    if life.m is not None:
        for name, value in life.m.items():
            made.meta[name] = _read(_json, value, None, f"meta.{name}", damage)
    made.waits = life.W
    if body.lane is not None:
        made.lane = _read(_lane, body.lane, None, "lane", damage)
    if life.E:
        made.extra = _bytes(life.E)
    made.saves = life.S
    made.changed_at = life.C
    if life.y is not None:
        lines = [_read(_line, line, None, "history", damage) for line in life.y]
        made.history = tuple([Attempt(*msgspec.structs.astuple(line)) for line in lines if line is not None])
    if life.D:
        damage["life"] = raw_text(_bytes(life.D))
    if damage:
        made.damage = damage
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
            records.append(_record(int(seq), RUNNING, _body(body), known, checkpoint, damage={}))
        except ValueError:  # msgspec's errors are ValueErrors
            records.append(record(seq, RUNNING, body, life, checkpoint))
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
        made = record(seq, STATE[state], body, life, checkpoint, unreadable=state == UNREADABLE)
        if state == HELD and made.lane is not None:
            made.waits = HOLDS + made.lane.name
        yield made


def texts(row: Row) -> list[str | None]:
    return [None if value is None else _text(value) for value in row]


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
            Held(_text(id), int(seq), int(fence), int(token), cancel == 1)
            for id, seq, fence, token, cancel in zip(values, values, values, values, values, strict=True)
        ]
        answers.append(Beat(row[0], tuple(held)))
    return answers


def holders(rows: Sequence[Row]) -> list[HolderSeen]:
    return [
        HolderSeen(
            holder_of(_text(id), about),
            int(beat) if beat.isdigit() else 0,
            max(0, int(age)) / MICROS,
            alive == 1,
            tuple([_text(job) for job in jobs]),
        )
        for id, about, beat, age, alive, *jobs in rows
    ]


def stats(rows: Sequence[Row]) -> list[QueueStats]:
    found: list[QueueStats] = []
    for name, paused, oldest, *counts in rows:
        pairs = zip(counts[::2], counts[1::2], strict=True)
        numbers = {STATE[state]: number for state, number in pairs if number}
        found.append(QueueStats(_text(name), numbers, None if oldest is None else int(oldest), paused == 1))
    return sorted(found, key=lambda queue: queue.name)


def moves(row: Row) -> Moves:
    """Whether something was missed, the cursor, and (at, ids and states in turn) of each step."""
    missed, cursor, *steps = row
    told: list[Move] = []
    for at, packed in zip(steps[::2], steps[1::2], strict=True):
        with suppress(ValueError, KeyError):  # a step that cannot be decoded is left out
            moved = _moved(packed)
            pairs = zip(moved[::2], moved[1::2], strict=True)
            told += [Move(id, MOVED[state.encode()], int(at)) for id, state in pairs]
    return Moves(told, cursor.decode(), missed == 1)


def minutes(hour: int, flat: Row) -> Iterator[Minute]:
    """The minutes of one hour, from fields `n` (number), `w` (waited) and `r` (ran): `n:<minute>:<outcome>:<queue>`."""
    pairs = zip(flat[::2], flat[1::2], strict=True)
    sums = {_text(field): int(value) for field, value in pairs if value.removeprefix(b"-").isdigit()}
    for field, number in sums.items():
        if _NUMBER_OF.match(field) and f"w{field[1:]}" in sums and f"r{field[1:]}" in sums:
            minute, outcome, queue = field[2:].split(":", 2)
            at = hour * HOUR + int(minute) * MINUTE
            yield Minute(at, queue, outcome, number, sums[f"w{field[1:]}"], sums[f"r{field[1:]}"])
