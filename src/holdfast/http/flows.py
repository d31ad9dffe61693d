"""Routes to list and show flows. A flow is cancelled and retried by its id through the routes of jobs."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from ..core.flow_rules import FlowEnd
from ..core.validation import checked_text
from ..flows.service import FlowStatus
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


class FlowsOut(msgspec.Struct):
    """A page of flows, newest first; `cursor` is null on the last."""

    flows: list[FlowListed]
    cursor: str | None


async def list_flows(call: Call, query: FlowsQuery) -> Answer:
    """A page of flows, newest first."""
    page = await call.app.flows.list(state=query.state, limit=query.limit, cursor=query.cursor)
    return json(FlowsOut([FlowListed(**_about(each)) for each in page.flows], page.cursor))


async def get_flow(call: Call, id: str) -> Answer:
    """Show a flow and its progress."""
    status = await call.app.flows.handle(checked_text(id, "id")).status()
    return json(FlowOut(**_about(status), counts=status.counts))


def _about(status: FlowStatus) -> dict[str, Any]:
    fields = msgspec.structs.asdict(status)
    del fields["counts"]
    return {"status": fields.pop("state"), **fields}


def endpoints() -> list[Endpoint]:
    return [
        Endpoint("GET", "/v1/flows", "read", list_flows, {200: FlowsOut}),
        Endpoint("GET", "/v1/flows/{id}", "read", get_flow, {200: FlowOut}, (JOB_NOT_FOUND,)),
    ]
