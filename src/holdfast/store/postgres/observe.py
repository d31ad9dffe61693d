"""OBSERVE: the statements for one page of jobs."""

from __future__ import annotations

from typing import Any

from ...core import waiting
from ...core.job import TERMINAL
from ...core.operations import Where
from . import sql

_ENDS = frozenset(state.value for state in TERMINAL)
_INDEXED = frozenset({"running", "scheduled", "failed"})
"""States with an index of their own."""
_UNSUCCESSFUL = frozenset({"dead", "cancelled"})


def checks_each_job(where: Where) -> bool:
    """Whether no index gives the jobs: those that exist are checked one by one, newest first."""
    states, more = frozenset(map(str, where.states)), (where.task, where.tag, where.finished_before)
    if where.waiting_for is not None or (states and states <= _INDEXED):
        return False
    if len(states) == 1 and states <= _UNSUCCESSFUL:
        return any(one is not None for one in more)
    return bool(states) or any(one is not None for one in (where.queue, *more))


def last_of(where: Where, before: int | None, number: int) -> tuple[str, list[Any]]:
    """The statement for the last of so many jobs before a place; nothing if there are not more."""
    condition, values = _bounds(before, None)
    pages = [sql.FIND.format(job="seq", table=table, where=condition, limit=number) for table in _tables(where)]
    among = " UNION ALL ".join(f"({page})" for page in pages)
    return f"SELECT seq FROM ({among}) AS found ORDER BY seq DESC LIMIT 1 OFFSET {number - 1}", values  # noqa: S608


def page(where: Where, before: int | None, last: int | None, limit: int) -> tuple[str, list[Any]]:
    """The statement for a page, from a place to the `last` job."""
    condition, values = _bounds(before, last)
    parts = [condition]

    def add(part: str, value: Any) -> None:
        values.append(value)
        parts.append(part.format(f"${len(values)}"))

    states = sorted({str(state) for state in where.states})
    if len(states) == 1 and (_INDEXED | _UNSUCCESSFUL).issuperset(states):
        # Not a parameter: a plan for any values could not use an index that has only jobs of this state.
        parts.append(f"state = '{states[0]}'")
    elif states:
        add("state = ANY ({}::text[])", states)
    if where.queue is not None:
        add("queue = {}::text", where.queue)
    if where.task is not None:
        add("task = {}::text", where.task)
    if where.tag is not None:
        add("tags ? {}::text", where.tag)
    if where.waiting_for is not None:
        add("waiting_for = {}::text", waiting.write(where.waiting_for))
    if where.finished_before is not None:
        add("finished_at < {}::bigint", where.finished_before)
    condition = " AND ".join(parts)
    pages = [sql.FIND.format(job=sql.JOB, table=table, where=condition, limit=limit) for table in _tables(where)]
    if len(pages) == 1:
        return pages[0], values
    both = f"({pages[0]}) UNION ALL ({pages[1]})"
    return f"SELECT * FROM ({both}) AS page ORDER BY seq DESC LIMIT {limit}", values  # noqa: S608  # made above


def _bounds(before: int | None, last: int | None) -> tuple[str, list[Any]]:
    bounds = [(sign, value) for sign, value in (("<", before), (">=", last)) if value is not None]
    parts = ["true", *(f"seq {sign} ${number}::bigint" for number, (sign, _) in enumerate(bounds, start=1))]
    return " AND ".join(parts), [value for _, value in bounds]


def _tables(where: Where) -> list[str]:
    """Unfinished and ended jobs are in two tables; only one that can have such jobs is read."""
    states = frozenset(map(str, where.states))
    tables: list[str] = []
    if not states or not _ENDS.issuperset(states):
        tables.append("holdfast.job")
    if not states or not _ENDS.isdisjoint(states):
        tables.append("holdfast.ended")
    return tables
