"""OPERATE: an operator's change of one job, made only if state and fence are still those that were seen."""

from __future__ import annotations

import msgspec

from ...clock import MICROS
from ...job import TERMINAL, Change, Patch, Record, State
from . import sql
from .rows import WORD, record
from .settle import save
from .step import Step

UNSET = msgspec.UNSET
_SET = ("attempt", "life", "suspect", "deaths", "cancel", "result", "error", "traceback", "progress", "history")


def change(step: Step, wanted: Change) -> bool:
    row = step.one(sql.SEEN, wanted.id, WORD[State(wanted.seen_state)], wanted.seen_fence)
    if row is None:
        return False
    kept = record(row)
    if wanted.patch is not None:
        _patch(step, kept, wanted.patch)
        return True
    if kept.state not in TERMINAL:
        _end_key(step, kept, 0.0)
    step.connection.execute(sql.REMOVE, (kept.seq,))
    return True


def _patch(step: Step, kept: Record, patch: Patch) -> None:
    now = step.now
    for name in _SET:
        value = getattr(patch, name)
        if value is not UNSET:
            setattr(kept, name, value)
    if patch.meta is not UNSET:
        kept.meta = {**kept.meta, **patch.meta}
    if patch.delay is not UNSET:
        kept.run_at = now + int(max(0.0, patch.delay) * MICROS)
    if patch.state is not UNSET:
        kept.state = patch.state
        if patch.state in TERMINAL:
            keep = None if patch.keep is UNSET else patch.keep
            kept.finished_at = now
            kept.expires_at = None if keep is None else now + int(keep * MICROS)
            _end_key(step, kept, patch.key_keep)
        else:
            kept.finished_at = kept.expires_at = kept.holder = kept.started_at = kept.pid = None
            if kept.key is not None:
                step.connection.execute(sql.REVIVE_KEY, (kept.key, kept.id))
    step.rung.add(f"job/{kept.id}" if kept.state in TERMINAL else f"queue/{kept.queue}")
    if kept.expires_at is not None and kept.expires_at <= now and kept.state in TERMINAL:
        step.connection.execute(sql.REMOVE, (kept.seq,))
    else:
        save(step, kept)


def _end_key(step: Step, kept: Record, keep: float) -> None:
    if kept.key is not None:
        step.connection.execute(sql.END_KEY, (step.now + int(keep * MICROS), kept.key, kept.id))
