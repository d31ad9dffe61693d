"""OPERATE: an operator's change of one job, made only if state and fence are still those that were seen."""

from __future__ import annotations

import msgspec

from ...job import TERMINAL, Change, State
from .. import apply
from . import sql, told
from .rows import WORD, record
from .settle import put, save
from .step import Step


def change(step: Step, wanted: Change) -> bool:
    row = step.one(sql.SEEN, wanted.id, WORD[State(wanted.seen_state)], wanted.seen_fence)
    if row is None:
        return False
    kept = record(row)
    was_over = kept.state in TERMINAL
    if wanted.patch is None:
        if kept.key is not None and not was_over:
            step.connection.execute(sql.REMOVE_KEY, (kept.key, kept.id))
        step.connection.execute(sql.REMOVE, (kept.seq,))
        told.move(step, [(kept.id, "deleted")])
        if was_over:
            told.keep(step, kept.queue, kept.state, -1)
        return True
    if was_over and wanted.patch.state is not msgspec.UNSET:
        told.keep(step, kept.queue, kept.state, -1)
    apply.patch(kept, wanted.patch, step.now)
    if was_over and kept.state in TERMINAL:
        save(step, kept)  # a note on an ended job: its key's time goes on
        if wanted.patch.state is not msgspec.UNSET:
            told.keep(step, kept.queue, kept.state)
    else:
        put(step, kept, wanted.patch.key_keep)
    if wanted.patch.state is not msgspec.UNSET:
        told.move(step, [(kept.id, kept.state)])
    return True
