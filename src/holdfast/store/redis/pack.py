"""Encodes values of the store protocol for the scripts: one MessagePack array, and bytes as separate arguments."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from ...core import waiting
from ...core.clock import MICROS
from ...core.job import Attempt, LimitKey, NewJob
from ...core.operations import HANDLED, Ask, Change, Holder, Note, Patch, Settlement, Where
from ..protocol import Batch
from ..reference.apply import notifies
from . import messages as m
from .names import LETTER, LETTERS

UNSET = msgspec.UNSET
Args = list[bytes]
"""The arguments of a script. The array comes first; Lua counts from 1, so an index is the length after adding."""

to_json = msgspec.json.Encoder().encode
_pack = msgspec.msgpack.Encoder().encode
_BARE = (None, None, None, None)
_NOTHING = (None, None, None, None, None, None)
_FLAGS = frozenset({"quarantined", "crashes", "cancel"})
_fields = msgspec.structs.astuple


def micros(seconds: float) -> int:
    return int(max(0.0, seconds) * MICROS)


def pack_batch(batch: Batch) -> Args:
    """The arguments of the write script."""
    args: Args = [b""]
    tasks: dict[str, m.Index] = {}
    parts = m.BatchMessage(
        inserts=[_new(new, args) for new in batch.inserts] if batch.inserts else None,
        notes=[_note(note, args) for note in batch.notes] if batch.notes else None,
        settles=[_end(end, args, tasks) for end in batch.settles] if batch.settles else None,
        changes=[_change(change, args) for change in batch.changes] if batch.changes else None,
        asks=[_ask(ask) for ask in batch.asks] if batch.asks else None,
    )
    args[0] = _pack(parts)
    return args


def is_plain(new: NewJob) -> bool:
    """Whether a job is due now and has no options but its body."""
    usual = new.key is None and new.max_depth is None and not new.delay and new.run_at is None
    return usual and new.waiting_for is None and new.limit_key is None and new.extra is None


def pack_one(new: NewJob) -> m.OneArguments:
    """The arguments of enqueue_one.lua."""
    return m.OneArguments(new.id, new.queue, new.priority, _body(new), str(new.nonce) if new.nonce else b"")


@lru_cache(16384)
def limit_key_text(limit_key: LimitKey) -> str:
    """A limit key in the text form of the scripts."""
    return f"{limit_key.concurrency},{limit_key.interval},{limit_key.burst},{limit_key.weight},{limit_key.name}"


def _body(new: NewJob) -> bytes:
    """The fields of a Body from its id on; the script adds the first ones. (A tuple is faster than a struct.)"""
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
    return _pack(parts if new.limit_key is None else (*parts, limit_key_text(new.limit_key)))[1:]


def _new(new: NewJob, args: Args) -> m.PlainNewMessage:
    args.append(_body(new))
    plain = m.PlainNewMessage(
        id=new.id,
        queue=new.queue,
        priority=new.priority,
        delay=micros(new.delay) if new.delay else 0,
        run_at=new.run_at,
        body=len(args),
        nonce=str(new.nonce) if new.nonce else None,
        limit_key=None if new.limit_key is None else limit_key_text(new.limit_key),
    )
    if (new.key, new.max_depth, new.waiting_for, new.extra) == _BARE:
        return plain
    return m.NewMessage(
        *_fields(plain),
        key=new.key,
        fingerprint=new.fingerprint,
        unique=new.unique or None,
        window=micros(new.window),
        max_depth=new.max_depth,
        waiting_for=waiting.write(new.waiting_for),
        extra=_beside(new.extra, args),
    )


def _beside(data: bytes | None, args: Args) -> int | None:
    if data is None:
        return None
    args.append(data)
    return len(args)


def _note(note: Note, args: Args) -> m.NoteMessage:
    return m.NoteMessage(
        seq=str(note.seq),
        fence=note.fence,
        token=str(note.token),
        progress=None if note.progress is UNSET else _beside(note.progress, args),
        checkpoint=(
            None
            if note.checkpoint is UNSET
            else m.CheckpointMessage(number=note.saves, data=_beside(note.checkpoint, args))
        ),
        pid=None if note.pid is UNSET else note.pid,
        meta=None if note.meta is UNSET else _meta(note.meta),
        output=(
            None
            if (said := note.output) is UNSET
            else m.OutputMessage(at=said.at, data=_beside(said.data, args), keep=said.keep, stream=said.stream)
        ),
        rest=None if note.rest is UNSET else micros(note.rest),
        notify=note.id if notifies(note) else None,
    )


def _meta(meta: dict[str, Any]) -> dict[str, str]:
    return {name: to_json(value).decode() for name, value in meta.items()}


def _end(end: Settlement, args: Args, tasks: dict[str, m.Index]) -> m.PlainEndMessage:
    task = tasks.get(end.task)
    if task is None:
        args.append(end.task.encode(errors="replace"))
        task = tasks[end.task] = len(args)
    plain = m.PlainEndMessage(
        seq=str(end.seq),
        fence=end.fence,
        token=str(end.token),
        nonce=str(end.nonce),
        id=end.id,
        state=LETTER[end.state],
        attempt=end.attempt,
        keep=None if end.keep is None else micros(end.keep),
        result=_beside(end.result, args),
        task=task,
    )
    waiting_for = waiting.write(end.waiting_for)
    rare = (end.key, end.expected_heartbeat, end.error, end.traceback, waiting_for, end.record_end or None)
    if end.outcome == "succeeded" and rare == _NOTHING and not (end.quarantined or end.crashes):
        return plain
    return m.EndMessage(
        *_fields(plain),
        outcome=end.outcome,
        cancelled_keep=None if end.cancelled_keep is None else micros(end.cancelled_keep),
        delay=None if end.delay is None else micros(end.delay),
        quarantined=True if end.quarantined else None,
        crashes=end.crashes or None,
        key_keep=micros(end.key_keep),
        key=end.key,
        expected_heartbeat=end.expected_heartbeat,
        error=end.error,
        traceback=end.traceback,
        waiting_for=waiting_for,
        record_end=end.record_end or None,
    )


def _change(change: Change, args: Args) -> m.ChangeMessage:
    return m.ChangeMessage(
        id=change.id,
        state=LETTER.get(change.expected_state, ""),
        fence=change.expected_fence,
        patch=None if change.patch is None else _patch(change.patch, args),
        task=change.expected_task,
        seq=None if change.expected_seq is None else str(change.expected_seq),
        only_handled=change.patch == HANDLED or None,
        reset_count=change.expected_reset_count,
        waiting_for=waiting.write(change.expected_waiting_for),
    )


def _patch(patch: Patch, args: Args) -> dict[str, Any]:
    wanted: dict[str, Any] = {"key_keep": micros(patch.key_keep)}
    drop: list[str] = []
    for name in ("attempt", "reset_count", "error", "traceback", "quarantined", "crashes", "cancel"):
        value = getattr(patch, name)
        if value is UNSET:
            continue
        # A flag that is false, like a count of 0, is not stored.
        if value is None or (name in _FLAGS and not value):
            drop.append(LETTERS[name])
        else:
            wanted[LETTERS[name]] = value
    for name, data in (("result", patch.result), ("progress", patch.progress), ("extra", patch.extra)):
        if data is None:
            drop.append(LETTERS[name])
        elif data is not UNSET:
            wanted[name] = _beside(data, args)
    if patch.history is not UNSET:
        if patch.history:
            wanted[LETTERS["history"]] = [_line(line) for line in patch.history]
        else:
            drop.append(LETTERS["history"])
    if patch.meta is not UNSET:
        wanted["meta"] = _meta(patch.meta)
    if patch.delay is not UNSET:
        wanted["delay"] = micros(patch.delay)
    if patch.state is not UNSET:
        wanted["state"] = LETTER[patch.state]
    if patch.keep is not UNSET:
        wanted["keep"] = False if patch.keep is None else micros(patch.keep)
    if patch.waiting_for is not UNSET:
        wanted["waiting_for"] = waiting.write(patch.waiting_for) or False
    if patch.payload is not UNSET:
        wanted["payload"] = _beside(_pack(patch.payload), args)
        if patch.fingerprint:
            wanted["fingerprint"] = patch.fingerprint
    if patch.task is not UNSET:
        wanted["task"] = _beside(_pack(patch.task), args)
    wanted |= {name: place for name in ("queue", "priority") if (place := getattr(patch, name)) is not UNSET}
    if patch.checkpoint is not UNSET:
        wanted["checkpoint"] = _beside(patch.checkpoint, args) or 0
    if patch.record_end:
        wanted["record_end"] = True
    if patch.handled:
        wanted["handled"] = True
    if drop:
        wanted["drop"] = drop
    return wanted


def _line(line: Attempt) -> str:
    return to_json(msgspec.structs.astuple(line)).decode()


def _ask(ask: Ask) -> m.AskMessage:
    holder = ask.holder
    return m.AskMessage(
        holder=holder.id,
        lease=micros(holder.lease),
        about=about(holder),
        queues=ask.queues if len(ask.queues) < 2 else tuple(dict.fromkeys(ask.queues)),
        limit=ask.limit,
        token=str(ask.token),
        tasks=ask.tasks,
        busy=ask.busy or None,
    )


@lru_cache(64)
def about(holder: Holder) -> str:
    """A holder as JSON, cached: the same holder claims repeatedly."""
    return to_json(holder).decode()


def pack_where(where: Where, before: str | None, limit: int) -> bytes:
    """The argument of the find script."""
    waiting_for, limit_key = waiting.write(where.waiting_for), None
    # Jobs that wait for a limit are found by their limit key: no text is stored for it.
    if where.waiting_for is not None and where.waiting_for.kind == "limit":
        waiting_for, limit_key = None, where.waiting_for.name
    return _pack(
        m.FindMessage(
            before=None if before is None else int(before),
            limit=limit,
            states=[LETTER.get(state, "") for state in where.states] or None,
            queue=where.queue,
            task=where.task,
            tag=where.tag,
            finished_before=where.finished_before,
            waiting_for=waiting_for,
            limit_key=limit_key,
        )
    )
