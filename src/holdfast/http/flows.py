"""Routes to list and show flows. A flow is cancelled and retried by its id through the routes of jobs."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from ..core.flow_rules import FlowEnd
from ..core.job import State
from ..core.validation import checked_text
from ..flows.graph import GRAPH_PAGE, FlowNode
from ..flows.members import MAX_FLOW_JOBS
from ..flows.status import FlowStatus
from . import limits
from .call import Answer, Call, json
from .endpoint import Endpoint
from .problems import JOB_NOT_FOUND
from .shapes import Body, Cursor, Limit


class FlowsQuery(Body):
    """Which flows to list."""

    state: list[str] | None = None
    """`blocked` (not ended), `succeeded`, `dead` or `cancelled`. Repeatable."""
    limit: Limit = limits.PAGE_DEFAULT
    cursor: Cursor | None = None
    progress: bool = False
    """Count the ended jobs of flows that have not ended."""


class GraphQuery(Body):
    """Which jobs of a flow."""

    start: Annotated[int, Meta(ge=0, le=MAX_FLOW_JOBS, description="The number of the first job.")] = 0
    limit: Annotated[int, Meta(ge=1, le=GRAPH_PAGE)] = GRAPH_PAGE


class FlowListed(msgspec.Struct):
    """A flow in a list. It is `blocked` until all of its jobs have ended."""

    id: str
    name: str
    status: str
    jobs: int
    """Number of jobs. Their ids are the flow's id, a dot, and a number from 0."""
    created_at: datetime
    error: str | None
    ended: FlowEnd | None
    """How it ended: `failed` if a job is dead or did not run, `abandoned` if it was never started."""
    cancelling: bool
    """It is being cancelled and has not ended."""


class FlowOut(FlowListed):
    """A flow with its progress."""

    counts: dict[str, int]
    """Number of its jobs by state."""


class FlowRow(FlowListed):
    """A flow in a list, with its progress if `progress` was asked for."""

    jobs_ended: int | None = None
    """Null if 2,000 jobs of the flows before it in the page were read."""
    exact: bool = False
    """Whether `jobs_ended` is exact; otherwise it is estimated from 100 jobs of the flow, which has more than 500."""
    counts: dict[str, int] = {}
    """Number of its jobs by state, if it has not ended and `jobs_ended` is exact."""


class FlowsOut(msgspec.Struct):
    """A page of flows, newest first; `cursor` is null on the last."""

    flows: list[FlowRow]
    cursor: str | None


class FlowNodeOut(msgspec.Struct):
    """A job in the graph of a flow."""

    number: int
    """Its id is the flow's id, a dot, and this number."""
    type: str
    status: State
    after: list[Annotated[list[int], Meta(min_length=2, max_length=2)]]
    """Its parents by their numbers, as ranges with both ends included."""
    outside: tuple[str, ...]
    """Ids of parents outside of the flow, at most 10."""
    attempts: int
    started_at: datetime | None
    finished_at: datetime | None
    error: str | None
    """The beginning of its last error, or why it did not run."""


class GraphOut(msgspec.Struct):
    """A page of the jobs of a flow, by number; `next` is where the next page starts, null on the last."""

    flow: FlowListed
    nodes: list[FlowNodeOut]
    next: int | None


async def list_flows(call: Call, query: FlowsQuery) -> Answer:
    """A page of flows, newest first."""
    page = await call.app.flows.list(state=query.state, limit=query.limit, cursor=query.cursor)
    rows = [FlowRow(**_about(each)) for each in page.flows]
    if query.progress:
        known = await call.app.flows.progress([row.id for row in rows])
        for row in rows:
            if (found := known.get(row.id)) is not None:  # else it was deleted meanwhile
                row.jobs_ended, row.exact, row.counts = found.ended, found.exact, found.counts
    return json(FlowsOut(rows, page.cursor))


async def get_flow(call: Call, id: str) -> Answer:
    """Show a flow and its progress."""
    status = await call.app.flows.handle(checked_text(id, "id")).status()
    return json(FlowOut(**_about(status), counts=status.counts))


async def get_graph(call: Call, id: str, query: GraphQuery) -> Answer:
    """The jobs of a flow with their parents, states and times, page by page."""
    page = await call.app.flows.graph(checked_text(id, "id"), start=query.start, limit=query.limit)
    return json(GraphOut(FlowListed(**_about(page.flow)), [_node(node) for node in page.nodes], page.next))


def _node(node: FlowNode) -> FlowNodeOut:
    fields = msgspec.structs.asdict(node)
    return FlowNodeOut(
        type=fields.pop("task"), status=State(fields.pop("state")), attempts=fields.pop("attempt"), **fields
    )


def _about(status: FlowStatus) -> dict[str, Any]:
    fields = msgspec.structs.asdict(status)
    del fields["counts"]
    return {"status": fields.pop("state"), **fields}


def endpoints() -> list[Endpoint]:
    return [
        Endpoint("GET", "/v1/flows", "read", list_flows, {200: FlowsOut}),
        Endpoint("GET", "/v1/flows/{id}/graph", "read", get_graph, {200: GraphOut}, (JOB_NOT_FOUND,)),
        Endpoint("GET", "/v1/flows/{id}", "read", get_flow, {200: FlowOut}, (JOB_NOT_FOUND,)),
    ]
