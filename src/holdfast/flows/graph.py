"""What a picture of flows needs, in bounded reads: the jobs of a flow with their edges and times, and its progress."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from ..client.session import Session
from ..core import internal as extras
from ..core.clock import moment
from ..core.flow_rules import has_grown, member, number_in
from ..core.job import TERMINAL, Record
from ..views import job_view, known_state
from .members import FlowJobs, about_flow
from .status import FlowStatus, status_of

GRAPH_PAGE = 1000
"""Maximum jobs of one page of a graph."""
EDGES = 20_000
"""Ranges of parents after which a page ends, so that an answer stays small whatever the flow."""
GRAPH_READ = 250
"""Jobs that are read at once: each may have a megabyte."""
PROGRESS_JOBS = 2000
"""Jobs that one call of `progress` reads, over all flows together."""
COUNTED_EXACTLY = 500
"""Jobs of a flow up to which all of them are counted."""
SAMPLED = 100
"""Jobs of a larger flow that are read to estimate its progress, evenly spread over their numbers."""
ERROR_TEXT = 200
"""Maximum characters of a job's error."""
OUTSIDE = 10
"""Maximum parents outside of the flow that are named."""


class FlowNode(msgspec.Struct, frozen=True):
    """One job in the graph of a flow."""

    number: int
    task: str
    state: str
    after: tuple[tuple[int, int], ...]
    """Its parents by their numbers in the flow, as ranges with both ends included."""
    outside: tuple[str, ...]
    """Ids of parents that do not belong to the flow, at most 10."""
    attempt: int
    started_at: datetime | None
    """Start of its last attempt."""
    finished_at: datetime | None
    error: str | None
    """The beginning of its last error, or why it did not run."""


class FlowGraph(msgspec.Struct, frozen=True):
    """A page of the jobs of a flow, by number."""

    flow: FlowStatus
    """The flow, without counts."""
    nodes: list[FlowNode]
    next: int | None
    """The number with which the next page starts; None on the last."""


class FlowProgress(msgspec.Struct, frozen=True):
    """How many jobs of a flow have ended."""

    ended: int
    exact: bool
    """False: estimated from 100 of its jobs, because it has too many to count them all."""
    counts: dict[str, int]
    """Its jobs by state, if `exact`."""


async def graph(session: Session, id: str, start: int, limit: int) -> FlowGraph:
    """The jobs of a flow from number `start` on, at most `limit`."""
    jobs = FlowJobs(session)
    own = await jobs.own(id)
    total = await jobs.count(own)
    nodes: list[FlowNode] = []
    at, end, edges = start, min(total, start + limit), 0
    while at < end and edges < EDGES:
        numbers = range(at, min(end, at + GRAPH_READ))
        at = numbers.stop
        for number, record in zip(numbers, await session.store.get([member(id, n) for n in numbers]), strict=True):
            if record is None:
                continue
            node = _node(id, record)
            nodes.append(node)
            edges += len(node.after)
            if edges >= EDGES:
                at = number + 1
                break
    flow = msgspec.structs.replace(status_of(job_view(own)), jobs=total)
    return FlowGraph(flow, nodes, at if at < total else None)


async def progress(session: Session, ids: Sequence[str]) -> dict[str, FlowProgress]:
    """The progress of flows by id; without those that do not exist, and those after PROGRESS_JOBS jobs were read."""
    jobs, found, left = FlowJobs(session), dict[str, FlowProgress](), PROGRESS_JOBS
    for own in await session.store.get(ids):
        if own is None or not extras.is_flow(own):
            continue
        about = about_flow(own)
        total = await jobs.count(own) if has_grown(own.meta) else about.jobs + about.grown
        if own.state in TERMINAL:
            found[own.id] = FlowProgress(total, True, {})
            continue
        if left < SAMPLED:
            continue
        every = 1 if total <= min(COUNTED_EXACTLY, left) else max(1, total // SAMPLED)
        numbers, counts = range(0, total, every), dict[str, int]()
        left -= len(numbers)
        for start in range(0, len(numbers), GRAPH_READ):
            for record in await session.store.get([member(own.id, n) for n in numbers[start : start + GRAPH_READ]]):
                if record is not None:
                    state = known_state(record.state).value
                    counts[state] = counts.get(state, 0) + 1
        ended = sum(counts.get(state, 0) for state in TERMINAL)
        exact = every == 1
        found[own.id] = FlowProgress(
            ended if exact else total * ended // max(1, sum(counts.values())), exact, counts if exact else {}
        )
    return found


def _node(flow: str, record: Record) -> FlowNode:
    extra, number = extras.read(record.extra), number_in(flow, record.id)
    if extra.allow_unfinished is not None:
        after = ((0, number - 1),) if number else ()
    else:
        after = ranges(parent for parent, _ in extra.after)
    return FlowNode(
        number,
        record.task,
        known_state(record.state).value,
        after,
        tuple(id for id, _ in extra.after_jobs[:OUTSIDE]),
        record.attempt,
        None if record.started_at is None else moment(record.started_at),
        None if record.finished_at is None else moment(record.finished_at),
        None if record.error is None else record.error[:ERROR_TEXT],
    )


def ranges(numbers: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Numbers as ranges: 1, 2, 3, 7 becomes (1, 3), (7, 7)."""
    found: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if found and found[-1][1] == number - 1:
            found[-1] = found[-1][0], number
        else:
            found.append((number, number))
    return tuple(found)
