"""CHANGE: operators' changes, each made only if state and fence still are as the change expects.

The jobs of a batch are read in one statement and written in one for each kind of write.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ...core.job import TERMINAL, Record, State
from ...core.operations import HANDLED, Change
from ..json_columns import to_json
from ..reference import apply
from . import limits, sql, transitions
from .rows import record, row_of, saved_row
from .step import Step

UNSET = msgspec.UNSET


def change_all(step: Step, changes: Sequence[Change]) -> list[bool]:
    """Make each change; False if its job no longer is as the change expects."""
    batch = _Changes(step, changes)
    answers = [batch.make(change) for change in changes]
    batch.write()
    return answers


class _Changes:
    def __init__(self, step: Step, changes: Sequence[Change]) -> None:
        self._step = step
        self._jobs = _read(step, {change.id for change in changes})
        self._saved: dict[int, Record] = {}
        self._removed: list[tuple[int]] = []
        self._keys: list[tuple[int | None, str, str]] = []
        self._freed_keys: list[tuple[str, str]] = []
        self._changed: list[tuple[str, str]] = []
        self._left: dict[str, set[str]] = {}
        """Limit keys that jobs have left, by queue."""
        self._ended: list[str] = []
        self._handled: list[tuple[str]] = []
        self._asked: list[tuple[str | None]] = []
        """The holders of running jobs whose cancellation is requested."""

    def make(self, wanted: Change) -> bool:
        step, kept = self._step, self._jobs.get(wanted.id)
        if kept is None or not wanted.matches(kept):
            return False
        was_over, was_ready = kept.state in TERMINAL, kept.state in (State.QUEUED, State.RUNNING)
        patch = wanted.patch
        if patch is None:
            if kept.key is not None and not was_over:
                self._freed_keys.append((kept.key, kept.id))
            if was_over:
                transitions.keep(step, kept.queue, kept.state, -1)
            self._remove(kept, wanted.id)
            self._changed.append((kept.id, "deleted"))
            self._leave(kept)
            return True
        if patch.handled:
            self._handled.append((kept.id,))
        if patch == HANDLED:
            return True
        changed = patch.state is not UNSET
        if was_over and changed:
            transitions.keep(step, kept.queue, kept.state, -1)
        apply.patch(kept, patch, step.now)
        over = kept.state in TERMINAL
        if patch.payload is not UNSET:
            _replace_payload(step, kept, patch.fingerprint)
        if patch.task is not UNSET:
            step.connection.execute(sql.SET_TASK, (kept.task, kept.seq))
        if not patch.queue is patch.priority is UNSET:
            step.connection.execute(sql.SET_PLACE, (kept.queue, kept.priority, kept.seq))
        self._saved[kept.seq] = kept
        gone = False
        if not (was_over and over):  # else it had ended before: the expiry of its key stays
            if kept.key is not None:
                self._keys.append((apply.after(step.now, patch.key_keep) if over else None, kept.key, kept.id))
            if apply.asks_to_stop(kept, patch):
                step.notified.add(f"holder/{kept.holder}")
                self._asked.append((kept.holder,))
            else:
                step.notified.add(f"job/{kept.id}" if over else f"queue/{kept.queue}")
            gone = apply.removable(kept, step.now)
        if gone:
            self._remove(kept, wanted.id)
        elif over and changed:
            transitions.keep(step, kept.queue, kept.state)
        if changed:
            self._changed.append((kept.id, kept.state))
            if was_ready:
                self._leave(kept)
        if patch.record_end and over:
            self._ended.append(kept.id)
        return True

    def _remove(self, kept: Record, id: str) -> None:
        self._removed.append((kept.seq,))
        self._saved.pop(kept.seq, None)
        del self._jobs[id]

    def _leave(self, kept: Record) -> None:
        if kept.limit_key is not None:
            self._left.setdefault(kept.queue, set()).add(kept.limit_key.name)

    def write(self) -> None:
        step, many = self._step, self._step.connection.executemany
        if self._saved:
            many(sql.SAVE, [saved_row(kept, None) for kept in self._saved.values()])
        for statement, rows in (
            (sql.END_KEY, self._keys),
            (sql.REMOVE_KEY, self._freed_keys),
            (sql.REMOVE, self._removed),
            (sql.END_HANDLED, self._handled),
            (sql.COUNT_REQUEST, self._asked),
        ):
            if rows:
                many(statement, rows)
        if self._changed:
            transitions.record(step, self._changed)
        for queue, left in self._left.items():
            limits.capacity_freed(step, queue, to_json(sorted(left)).decode())
        transitions.ended(step, self._ended)


def _read(step: Step, ids: set[str]) -> dict[str, Record]:
    """Jobs by the ids that the changes name."""
    rows: dict[str, Any] = {}
    if len(ids) > 1:
        try:
            found = step.connection.execute(sql.GET_MANY, (to_json(sorted(ids)).decode(),)).fetchall()
            rows = {row[1]: row for row in found}
        except UnicodeEncodeError:
            pass  # one id cannot be encoded, so no such job exists: read them one by one
    for id in ids.difference(rows):
        if (row := row_of(step, id)) is not None:
            rows[id] = row
    return {id: record(row) for id, row in rows.items()}


def _replace_payload(step: Step, kept: Record, fingerprint: str) -> None:
    big = len(kept.payload) > sql.INLINE_PAYLOAD
    step.connection.execute(sql.REMOVE_PAYLOAD, (kept.seq,))
    step.connection.execute(sql.SET_PAYLOAD, (None if big else kept.payload, kept.seq))
    if big:
        step.connection.execute(sql.INSERT_PAYLOAD, (kept.seq, kept.payload))
    if kept.key is not None and fingerprint:
        step.connection.execute(sql.CHANGE_KEY, (fingerprint, kept.key, kept.id))
