"""OPERATE: an operator's change of one job, made only if state and fence are still those that were seen."""

from __future__ import annotations

import msgspec

from ...job import TERMINAL, Change, Record, State
from .. import apply
from . import lanes, sql, told
from .rows import record, row_of, to_json
from .settle import put, save
from .step import Step


def change(step: Step, wanted: Change) -> bool:
    row = row_of(step, wanted.id)
    kept = None if row is None else record(row)
    if kept is None or kept.state != wanted.seen_state or kept.fence != wanted.seen_fence:
        return False
    if wanted.seen_task not in (None, kept.task):
        return False
    was_over, was_ready = kept.state in TERMINAL, kept.state in (State.QUEUED, State.RUNNING)
    if wanted.patch is None:
        if kept.key is not None and not was_over:
            step.connection.execute(sql.REMOVE_KEY, (kept.key, kept.id))
        step.connection.execute(sql.REMOVE, (kept.seq,))
        told.move(step, [(kept.id, "deleted")])
        if was_over:
            told.keep(step, kept.queue, kept.state, -1)
        _make_room(step, kept)
        return True
    if was_over and wanted.patch.state is not msgspec.UNSET:
        told.keep(step, kept.queue, kept.state, -1)
    apply.patch(kept, wanted.patch, step.now)
    if wanted.patch.payload is not msgspec.UNSET:
        _replace_payload(step, kept, wanted.patch.fingerprint)
    if was_over and kept.state in TERMINAL:
        save(step, kept)  # a note on an ended job: its key's time goes on
        if wanted.patch.state is not msgspec.UNSET:
            told.keep(step, kept.queue, kept.state)
    else:
        put(step, kept, wanted.patch.key_keep)
    if wanted.patch.state is not msgspec.UNSET:
        told.move(step, [(kept.id, kept.state)])
        if was_ready:
            _make_room(step, kept)
    if wanted.patch.tell and kept.state in TERMINAL:
        told.ended(step, [kept.id])
    return True


def _replace_payload(step: Step, kept: Record, fingerprint: str) -> None:
    big = len(kept.payload) > sql.INLINE_PAYLOAD
    step.connection.execute(sql.REMOVE_PAYLOAD, (kept.seq,))
    step.connection.execute(sql.SET_PAYLOAD, (None if big else kept.payload, kept.seq))
    if big:
        step.connection.execute(sql.INSERT_PAYLOAD, (kept.seq, kept.payload))
    if kept.key is not None:
        step.connection.execute(sql.CHANGE_KEY, (fingerprint, kept.key, kept.id))


def _make_room(step: Step, kept: Record) -> None:
    if kept.lane is not None:
        lanes.make_room(step, kept.queue, to_json([kept.lane.name]).decode())
