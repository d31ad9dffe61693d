"""Flows for blocking code."""

from __future__ import annotations

from typing import Any

from ..flows.builder import Node
from ..flows.service import FlowHandle, Flows
from .blocking import Run, blocking
from .tasks import SyncHandle


class SyncFlowHandle:
    """A handle on a flow for blocking code."""

    def __init__(self, run: Run, handle: FlowHandle) -> None:
        self._run = run
        self._of = handle
        self.id = handle.id

    def __repr__(self) -> str:
        return f"SyncFlowHandle({self.id!r})"

    def handle(self, node: Node | int) -> SyncHandle[Any]:
        """A handle on one of its jobs."""
        return SyncHandle(self._run, self._of.handle(node))

    status = blocking(FlowHandle.status)
    jobs = blocking(FlowHandle.jobs)
    wait = blocking(FlowHandle.wait)
    cancel = blocking(FlowHandle.cancel)
    retry = blocking(FlowHandle.retry)


class SyncFlows:
    """Jobs that depend on each other."""

    def __init__(self, run: Run, of: Flows) -> None:
        self._run, self._of = run, of

    list = blocking(Flows.list)
    status = blocking(Flows.status)
    cancel = blocking(Flows.cancel)
    retry = blocking(Flows.retry)

    def handle(self, id: str) -> SyncFlowHandle:
        """A handle on a flow, from its id."""
        return SyncFlowHandle(self._run, self._of.handle(id))
