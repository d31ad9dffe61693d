"""OBSERVE: reading jobs, pages of jobs, queues and small shared records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...core import waiting
from ...core.job import Record, State
from ...core.operations import Found, QueueStats, Where
from ..protocol import CONTROL, Versioned, record_topic
from . import sql
from .rows import record, row_of, text_of
from .step import Step

_UNSUCCESSFUL = frozenset({State.DEAD.value, State.CANCELLED.value})
_DUE = frozenset({State.SCHEDULED.value, State.FAILED.value})


def get(step: Step, ids: Sequence[str]) -> list[Record | None]:
    rows = [row_of(step, id) for id in ids]
    return [None if row is None else record(row) for row in rows]


def key_owners(step: Step, keys: Sequence[str]) -> list[str | None]:
    found = [step.value(sql.KEY_OWNER, key) for key in keys]
    return [None if id is None else text_of(id) for id in found]


def find(step: Step, where: Where, cursor: str | None, limit: int) -> Found:
    parts, values = ["true"], list[Any]()
    index = ""
    if where.states:
        states = sorted({str(state) for state in where.states})
        parts.append(f"state IN ({', '.join('?' * len(states))})")
        values += states
        if len(states) == 1 and _UNSUCCESSFUL.issuperset(states):
            index, parts[-1] = "holdfast_unsuccessful", "state = ? AND state IN ('dead', 'cancelled')"
        elif _DUE.issuperset(states):
            index, parts = "holdfast_due", [*parts, "state IN ('scheduled', 'failed')"]
        elif states == ["running"]:
            index, parts[-1], values = "holdfast_running", "state = 'running'", []
        elif states == ["queued"] and where.queue is not None:
            index, parts[-1], values = "holdfast_ready", "state = 'queued'", []
        elif states == ["blocked"]:
            index, parts[-1], values = "holdfast_blocked", "state = 'blocked'", []
    if where.waiting_for is not None:
        index = "holdfast_waiting_for"
    before = None if cursor is None else int(cursor)
    for column, value in (
        ("seq <", before),
        ("waiting_for =", waiting.write(where.waiting_for)),
        ("queue =", where.queue),
        ("task =", where.task),
    ):
        if value is not None:
            parts.append(f"{column} ?")
            values.append(value)
    if where.tag is not None:
        parts.append(sql.HAS_TAG)
        values.append(where.tag)
    if where.finished_before is not None:
        parts.append("finished_at < ?")
        values.append(where.finished_before)
    statement = (sql.FIND_INDEXED if index else sql.FIND).format(index=index, where=" AND ".join(parts))
    try:
        rows = step.connection.execute(statement, (*values, limit + 1)).fetchall()
    except UnicodeEncodeError:
        return Found([], None)  # text that cannot be stored matches nothing
    return Found([record(row) for row in rows[:limit]], str(rows[limit - 1][0]) if len(rows) > limit else None)


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
