"""Flows over HTTP: jobs that wait for each other. A flow is cancelled and retried like a job, by its id."""

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
    """`blocked`, where it has not ended; `succeeded`, `dead`, `cancelled`. May be given again."""
    limit: Limit = limits.PAGE_DEFAULT
    cursor: Cursor | None = None


class FlowListed(msgspec.Struct):
    """A flow in a list. One that has not ended is `blocked`: it waits for its jobs."""

    id: str
    name: str
    status: str
    jobs: int
    """How many it has. Their ids are its own, a dot, and a number from 0 on."""
    created_at: datetime
    error: str | None
    ended: FlowEnd | None
    """How it ended: `failed` where a job of it died or was not run, `abandoned` where it was never started."""
    cancelling: bool
    """It has not ended, and is being cancelled."""


class FlowOut(FlowListed):
    """A flow, and how far it is."""

    counts: dict[str, int]
    """Its jobs by state."""


class FlowsOut(msgspec.Struct):
    """A page of flows, newest first; `cursor` is null on the last."""

    flows: list[FlowListed]
    cursor: str | None


async def list_flows(call: Call, query: FlowsQuery) -> Answer:
    """A page of flows, newest first."""
    page = await call.app.flows.list(state=query.state, limit=query.limit, cursor=query.cursor)
    return json(FlowsOut([FlowListed(**_about(each)) for each in page.flows], page.cursor))


async def get_flow(call: Call, id: str) -> Answer:
    """How far a flow is."""
    status = await call.app.flows.handle(checked_text(id, "id")).status()
    return json(FlowOut(**_about(status), counts=status.counts))


def _about(status: FlowStatus) -> dict[str, Any]:
    said = msgspec.structs.asdict(status)
    del said["counts"]
    return {"status": said.pop("state"), **said}


def endpoints() -> list[Endpoint]:
    """Their part of the route table."""
    return [
        Endpoint("GET", "/v1/flows", "read", list_flows, {200: FlowsOut}),
        Endpoint("GET", "/v1/flows/{id}", "read", get_flow, {200: FlowOut}, problems=(JOB_NOT_FOUND,)),
    ]
