"""From the values of the protocol to what the scripts take: one MessagePack array, and bytes beside it."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from ...core import waiting
from ...core.clock import MICROS
from ...core.job import Attempt, Lane, NewJob
from ...core.operations import Ask, Change, Holder, Note, Patch, Settlement, Where
from ..protocol import Batch

UNSET = msgspec.UNSET
Args = list[bytes]
"""The arguments of a script. The array comes first; Lua counts from 1, so an index is the length after adding."""

LETTER = {
    "queued": "q", "scheduled": "w", "failed": "f", "running": "r", "succeeded": "s", "dead": "d", "cancelled": "c",
    "blocked": "b",
}  # fmt: skip
to_json = msgspec.json.Encoder().encode
_pack = msgspec.msgpack.Encoder().encode
_BARE = (None, None, None, None)
_NOTHING = (None, None, None, None, None, None)


def micros(seconds: float) -> int:
    return int(max(0.0, seconds) * MICROS)


def pack_batch(batch: Batch) -> Args:
    """The arguments of the write script."""
    args: Args = [b""]
    parts: list[list[Any] | None] = [
        [_new(new, args) for new in batch.inserts] if batch.inserts else None,
        [_note(note, args) for note in batch.notes] if batch.notes else None,
        [_end(end, args) for end in batch.settles] if batch.settles else None,
        [_change(change, args) for change in batch.changes] if batch.changes else None,
        [_ask(ask) for ask in batch.asks] if batch.asks else None,
    ]
    args[0] = _pack(parts)
    return args


def is_plain(new: NewJob) -> bool:
    """Whether a job is due now, and nothing but its body is to be said of it."""
    usual = new.key is None and new.max_depth is None and not new.delay and new.run_at is None
    return usual and new.waits is None and new.lane is None and new.extra is None


def pack_one(new: NewJob) -> tuple[str | bytes | int, ...]:
    """The arguments of the script for a lone plain job."""
    return (new.id, new.queue, new.priority, _body(new), str(new.nonce) if new.nonce else b"")


@lru_cache(16384)
def lane_text(lane: Lane) -> str:
    """A lane as the scripts know it."""
    return f"{lane.running},{lane.interval},{lane.burst},{lane.weight},{lane.name}"


def _body(new: NewJob) -> bytes:
    """What never changes of a job, but for three numbers that the script puts in front, under a head of its own."""
    parts = (
        new.id,
        new.queue,
        new.task,
        to_json(new.tags).decode() if new.tags else None,
        new.key,
        new.codec,
        new.max_attempts,
        new.timeout,
        new.retry,
        to_json(new.meta).decode() if new.meta else None,
        new.payload,
    )
    return _pack(parts if new.lane is None else (*parts, lane_text(new.lane)))[1:]


def _new(new: NewJob, args: Args) -> tuple[Any, ...]:
    args.append(_body(new))
    delay = micros(new.delay) if new.delay else 0
    common = (new.id, new.queue, new.priority, delay, new.run_at, len(args), str(new.nonce) if new.nonce else None)
    if (new.key, new.max_depth, new.waits, new.extra) == _BARE:
        return common if new.lane is None else (*common, lane_text(new.lane))
    lane = None if new.lane is None else lane_text(new.lane)
    once, waits = (new.once or None, micros(new.window)), waiting.write(new.waits)
    return (*common, lane, new.key, new.fingerprint, *once, new.max_depth, waits, _beside(new.extra, args))


def _beside(data: bytes | None, args: Args) -> int | None:
    if data is None:
        return None
    args.append(data)
    return len(args)


def _note(note: Note, args: Args) -> tuple[Any, ...]:
    return (
        str(note.seq),
        note.fence,
        str(note.token),
        None if note.progress is UNSET else _beside(note.progress, args),
        None if note.checkpoint is UNSET else (note.saves, _beside(note.checkpoint, args)),
        None if note.pid is UNSET else note.pid,
        None if note.meta is UNSET else _meta(note.meta),
        None if (said := note.output) is UNSET else (said.at, _beside(said.data, args), said.keep),
        None if note.rest is UNSET else micros(note.rest),
    )


def _meta(meta: dict[str, Any]) -> dict[str, str]:
    return {name: to_json(value).decode() for name, value in meta.items()}


def _end(end: Settlement, args: Args) -> tuple[Any, ...]:
    """What most ends have comes first; a plain success, which most are, has nothing else: unpacking costs by length."""
    common = (
        str(end.seq),
        end.fence,
        str(end.token),
        str(end.nonce),
        end.id,
        LETTER[end.state],
        end.attempt,
        None if end.keep is None else micros(end.keep),
        _beside(end.result, args),
    )
    rare = (end.key, end.seen_beat, end.error, end.traceback, waiting.write(end.waits), end.tell or None)
    if end.outcome == "succeeded" and rare == _NOTHING and not (end.suspect or end.deaths):
        return common
    return (
        *common,
        end.outcome,
        None if end.cancelled_keep is None else micros(end.cancelled_keep),
        None if end.delay is None else micros(end.delay),
        True if end.suspect else None,
        end.deaths or None,
        micros(end.key_keep),
        *rare,
    )


def _change(change: Change, args: Args) -> tuple[Any, ...]:
    patch = None if change.patch is None else _patch(change.patch, args)
    return (change.id, LETTER.get(change.seen_state, ""), change.seen_fence, patch, change.seen_task)


def _patch(patch: Patch, args: Args) -> dict[str, Any]:
    wanted: dict[str, Any] = {"key_keep": micros(patch.key_keep)}
    drop: list[str] = []
    plain = (("a", patch.attempt), ("l", patch.life), ("e", patch.error), ("b", patch.traceback))
    flags = (("p", patch.suspect), ("d", patch.deaths), ("c", patch.cancel))
    for letter, value in (*plain, *flags):
        if value is UNSET:
            continue
        # A flag that is down, like a count of 0, is not kept at all.
        if value is None or (letter in "pdc" and not value):
            drop.append(letter)
        else:
            wanted[letter] = value
    beside = (("r", "result", patch.result), ("o", "progress", patch.progress), ("E", "extra", patch.extra))
    for letter, name, data in beside:
        if data is None:
            drop.append(letter)
        elif data is not UNSET:
            wanted[name] = _beside(data, args)
    if patch.history is not UNSET:
        if patch.history:
            wanted["y"] = [_line(line) for line in patch.history]
        else:
            drop.append("y")
    if patch.meta is not UNSET:
        wanted["meta"] = _meta(patch.meta)
    if patch.delay is not UNSET:
        wanted["delay"] = micros(patch.delay)
    if patch.state is not UNSET:
        wanted["state"] = LETTER[patch.state]
    if patch.keep is not UNSET:
        wanted["keep"] = False if patch.keep is None else micros(patch.keep)
    if patch.waits is not UNSET:
        wanted["waits"] = waiting.write(patch.waits) or False
    if patch.payload is not UNSET:
        wanted |= {"payload": _beside(_pack(patch.payload), args), "fingerprint": patch.fingerprint}
    if patch.checkpoint is not UNSET:
        wanted["checkpoint"] = _beside(patch.checkpoint, args) or 0
    if patch.tell:
        wanted["tell"] = True
    if drop:
        wanted["drop"] = drop
    return wanted


def _line(line: Attempt) -> str:
    return to_json(msgspec.structs.astuple(line)).decode()


def _ask(ask: Ask) -> tuple[Any, ...]:
    holder = ask.holder
    queues = ask.queues if len(ask.queues) < 2 else tuple(dict.fromkeys(ask.queues))
    return (
        holder.id,
        micros(holder.lease),
        about(holder),
        queues,
        ask.limit,
        str(ask.token),
        ask.tasks,
        ask.busy or None,
    )


@lru_cache(64)
def about(holder: Holder) -> str:
    """A holder as JSON. The same one asks again and again: its text is kept."""
    return to_json(holder).decode()


def pack_where(where: Where, before: str | None, limit: int) -> bytes:
    """The argument of the find script."""
    states = [LETTER.get(state, "") for state in where.states] or None
    cursor = None if before is None else int(before)
    waits, lane = waiting.write(where.waits), None
    if where.waits is not None and where.waits.kind == "limit":  # found by its lane: no text is kept of it
        waits, lane = None, where.waits.name
    return _pack((cursor, limit, states, where.queue, where.task, where.tag, where.finished_before, waits, lane))
