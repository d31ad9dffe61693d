"""A flow as users see it: its name, state and counts."""

from __future__ import annotations

from datetime import datetime

import msgspec

from ..core.flow_rules import FlowEnd, cancelling
from ..core.job import TERMINAL, UNDECODABLE
from ..views import Job
from .members import UNKNOWN, About


class FlowStatus(msgspec.Struct, frozen=True):
    """The counts of a flow."""

    id: str
    name: str
    state: str
    jobs: int
    created_at: datetime
    error: str | None = None
    counts: dict[str, int] = {}
    """Its jobs by state; empty in a list of flows."""
    ended: FlowEnd | None = None
    """How it ended, if it has; its `error` is the same as text."""
    cancelling: bool = False
    """It has not ended, and is being cancelled."""


class FlowPage(msgspec.Struct, frozen=True):
    """A page of flows, newest first; `cursor` fetches the next page, None on the last one."""

    flows: list[FlowStatus]
    cursor: str | None


def status_of(own: Job) -> FlowStatus:
    """The status of a flow from its own job, without counts."""
    try:
        about = msgspec.convert(own.payload, About)
    except UNDECODABLE:
        about = UNKNOWN
    over, jobs = own.state in TERMINAL, about.jobs + about.grown
    return FlowStatus(
        own.id, about.name, own.state, jobs, own.created_at, own.error,
        ended=about.ended if over else None, cancelling=not over and cancelling(own.meta),
    )  # fmt: skip
