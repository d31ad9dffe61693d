"""OBSERVE: reading jobs, pages of jobs, queues and small shared records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...core import waiting
from ...core.job import Record, State
from ...core.operations import Found, QueueStats, Where
from ..checked_pages import next_span
from ..protocol import CONTROL, Versioned, record_topic
from . import sql
from .rows import record, row_of, text_of
from .step import Step

_UNSUCCESSFUL = frozenset({State.DEAD.value, State.CANCELLED.value})
_DUE = frozenset({State.SCHEDULED.value, State.FAILED.value})
_NEWEST_FIRST = ("", "holdfast_unsuccessful", "holdfast_waiting_for")
"""Indexes that give the jobs in the order of a page."""

Condition = tuple[Any, ...]
"""An SQL condition, and its values."""


def get(step: Step, ids: Sequence[str]) -> list[Record | None]:
    rows = [row_of(step, id) for id in ids]
    return [None if row is None else record(row) for row in rows]


def key_owners(step: Step, keys: Sequence[str]) -> list[str | None]:
    found = [step.value(sql.KEY_OWNER, key) for key in keys]
    return [None if id is None else text_of(id) for id in found]


def find(step: Step, where: Where, cursor: str | None, limit: int) -> Found:
    """A page. It ends early after MAX_CHECKED jobs of which each was checked for conditions that no index answers."""
    index, known, checked = _conditions(where)
    rows: list[Any] = []
    before, checked_jobs = cursor, 0
    try:
        while size := next_span(checked_jobs):
            bounds: list[Condition] = [] if before is None else [("seq < ?", int(before))]
            last = _last(step, index, [*known, *bounds], size) if checked and index in _NEWEST_FIRST else None
            if last is not None:
                bounds.append(("seq >= ?", last))
            rows += _rows(step, index, [*known, *bounds, *checked], limit + 1 - len(rows))
            before, checked_jobs = last, checked_jobs + size
            if last is None or len(rows) > limit:
                break
    except UnicodeEncodeError:
        return Found([], None)  # text that cannot be stored matches nothing
    found = [record(row) for row in rows[:limit]]
    if len(rows) > limit:
        return Found(found, str(rows[limit - 1][0]))
    return Found(found, None) if before is None else Found(found, str(before), checked_jobs)


def _conditions(where: Where) -> tuple[str, list[Condition], list[Condition]]:
    """The index that is read ("": the jobs themselves), the conditions that it answers, and the other ones."""
    states = sorted({str(state) for state in where.states})
    listed: Condition = (f"state IN ({', '.join('?' * len(states))})", *states)
    index = ""
    known: list[Condition] = []
    checked: list[Condition] = [listed] if states else []
    if where.waiting_for is not None:
        index, known = "holdfast_waiting_for", [("waiting_for = ?", waiting.write(where.waiting_for))]
    elif len(states) == 1 and _UNSUCCESSFUL.issuperset(states):
        index, known, checked = "holdfast_unsuccessful", [("state = ? AND state IN ('dead', 'cancelled')", *states)], []
    elif states and _DUE.issuperset(states):
        index, known, checked = "holdfast_due", [listed, ("state IN ('scheduled', 'failed')",)], []
    elif states == ["running"]:
        index, known, checked = "holdfast_running", [("state = 'running'",)], []
    elif states == ["queued"] and where.queue is not None:
        index, known, checked = "holdfast_ready", [("state = 'queued'",)], []
    elif states == ["blocked"]:
        index, known, checked = "holdfast_blocked", [("state = 'blocked'",)], []
    if where.queue is not None:
        (known if index == "holdfast_unsuccessful" else checked).append(("queue = ?", where.queue))
    if where.task is not None:
        checked.append(("task = ?", where.task))
    if where.tag is not None:
        checked.append((sql.HAS_TAG, where.tag))
    if where.finished_before is not None:
        checked.append(("finished_at < ?", where.finished_before))
    return index, known, checked


def _rows(step: Step, index: str, conditions: list[Condition], limit: int) -> list[Any]:
    where, values = _joined(conditions)
    statement = (sql.FIND_INDEXED if index else sql.FIND).format(index=index, where=where)
    return step.connection.execute(statement, (*values, limit)).fetchall()


def _last(step: Step, index: str, conditions: list[Condition], number: int) -> int | None:
    """The last of so many jobs, newest first; None if there are not more."""
    where, values = _joined(conditions)
    statement = sql.LAST_OF.format(index=f"INDEXED BY {index}" if index else "", where=where)
    return step.value(statement, *values, number - 1)


def _joined(conditions: list[Condition]) -> tuple[str, list[Any]]:
    return " AND ".join(["true", *(text for text, *_ in conditions)]), [one for _, *some in conditions for one in some]


def stats(step: Step) -> list[QueueStats]:
    paused = {text_of(name) for (name,) in step.connection.execute(sql.PAUSED)}
    counts: dict[str, dict[str, int]] = {name: {} for name in paused}
    oldest: dict[str, int] = {}
    for queue, state, count, first in step.connection.execute(sql.STATS):
        counts.setdefault(text_of(queue), {})[text_of(state)] = count
        if first is not None:
            oldest[text_of(queue)] = first
    for queue, scheduled, failed in step.connection.execute(sql.DUE_STATS):
        found = counts.setdefault(text_of(queue), {})
        found.update((state, number) for state, number in (("scheduled", scheduled), ("failed", failed)) if number)
    return [QueueStats(name, counts[name], oldest.get(name), name in paused) for name in sorted(counts)]


def records(step: Step, kinds: Sequence[str]) -> dict[str, dict[str, Versioned]]:
    return {
        kind: {
            text_of(name): Versioned(value, version)
            for name, value, version in step.connection.execute(sql.RECORDS, (kind,))
        }
        for kind in kinds
    }


def put_record(step: Step, kind: str, name: str, value: bytes | None, expect: int | None) -> bool:
    version = step.value(sql.RECORD_VERSION, kind, name) or 0
    if expect is not None and version != expect:
        return False
    if value is not None:
        step.connection.execute(sql.PUT_RECORD, (kind, name, value))
    elif version:
        step.connection.execute(sql.REMOVE_RECORD, (kind, name))
    if topic := record_topic(kind, name):
        step.notified.add(topic)
    if kind == CONTROL:
        step.connection.execute(sql.COUNT_REQUEST, (name.rpartition("/")[0],))
    return True
