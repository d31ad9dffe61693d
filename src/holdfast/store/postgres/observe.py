"""OBSERVE: the statement for one page of jobs."""

from __future__ import annotations

from typing import Any

from ...core import waiting
from ...core.job import TERMINAL
from ...core.operations import Where
from . import sql

_ENDS = frozenset(state.value for state in TERMINAL)


def find(where: Where, cursor: str | None, limit: int) -> tuple[str, list[Any]]:
    """The statement and its values. Unfinished and ended jobs are in two tables; only one that can match is read."""
    parts, values = ["true"], list[Any]()

    def add(part: str, value: Any) -> None:
        values.append(value)
        parts.append(part.format(f"${len(values)}"))

    states = sorted({str(state) for state in where.states})
    if states:
        add("state = ANY ({}::text[])", states)
    if cursor is not None:
        add("seq < {}::bigint", int(cursor))
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
    if len(states) == 1 and states[0] in ("dead", "cancelled"):
        condition += f" AND state = '{states[0]}'"  # the condition of the index ended_unsuccessful
    tables: list[str] = []
    if not states or not _ENDS.issuperset(states):
        tables.append("holdfast.job")
    if not states or not _ENDS.isdisjoint(states):
        tables.append("holdfast.ended")
    pages = [sql.FIND.format(job=sql.JOB, table=table, where=condition, limit=limit) for table in tables]
    if len(pages) == 1:
        return pages[0], values
    both = f"({pages[0]}) UNION ALL ({pages[1]})"
    return f"SELECT * FROM ({both}) AS page ORDER BY seq DESC LIMIT {limit}", values  # noqa: S608  # made above
