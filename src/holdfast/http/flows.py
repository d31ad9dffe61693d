"""Flows over HTTP: jobs that wait for each other. A flow is cancelled and retried like a job, by its id."""

from __future__ import annotations

from datetime import datetime

import msgspec

from ..checks import checked_text
from ..flows import FlowStatus
from . import limits
from .call import Answer, Call, json
from .endpoint import Endpoint
from .problems import JOB_NOT_FOUND
from .shapes import Body, Cursor, Limit


class FlowsQuery(Body):
    """Which flows to list."""

    state: list[str] | None = None
    """`blocked`, where it has not ended; `succeeded`, `dead`, `cancelled`. May be given again."""
    limit: Limit = limits.PAGE
    cursor: Cursor | None = None


class FlowOut(msgspec.Struct):
    """A flow. One that has not ended is `blocked`: it waits for its jobs."""

    id: str
    name: str
    status: str
    jobs: int
    """How many it has. Their ids are its own, a dot, and a number from 0 on."""
    created_at: datetime
    error: str | None
    counts: dict[str, int]
    """Its jobs by state; empty in a list of flows."""


class FlowsOut(msgspec.Struct):
    """A page of flows, newest first; `cursor` is null on the last."""

    flows: list[FlowOut]
    cursor: str | None


async def list_flows(call: Call, query: FlowsQuery) -> Answer:
    """A page of flows, newest first."""
    page = await call.app.flows.list(state=query.state, limit=query.limit, cursor=query.cursor)
    return json(FlowsOut([_out(each) for each in page.flows], page.cursor))


async def get_flow(call: Call, id: str) -> Answer:
    """How far a flow is."""
    return json(_out(await call.app.flow(checked_text(id, "id")).status()))


def _out(status: FlowStatus) -> FlowOut:
    return FlowOut(status.id, status.name, status.state, status.jobs, status.created_at, status.error, status.counts)


def endpoints() -> list[Endpoint]:
    """Their part of the route table."""
    return [
        Endpoint("GET", "/v1/flows", "read", list_flows, {200: FlowsOut}),
        Endpoint("GET", "/v1/flows/{id}", "read", get_flow, {200: FlowOut}, problems=(JOB_NOT_FOUND,)),
    ]
