"""Flows for blocking code."""

from __future__ import annotations

from typing import Any, TypeVar, overload

from ..flows.builder import Node
from ..flows.service import FlowHandle, Flows
from .blocking import Run, blocking
from .tasks import SyncHandle

R = TypeVar("R")


class SyncFlowHandle:
    """A handle on a flow for blocking code."""

    def __init__(self, run: Run, handle: FlowHandle) -> None:
        self._run = run
        self._of = handle
        self.id = handle.id

    def __repr__(self) -> str:
        return f"SyncFlowHandle({self.id!r})"

    @overload
    def handle(self, node: Node[R]) -> SyncHandle[R]: ...
    @overload
    def handle(self, node: int) -> SyncHandle[Any]: ...
    def handle(self, node: Node[Any] | int) -> SyncHandle[Any]:
        """A handle on one of its jobs."""
        return SyncHandle(self._run, self._of.handle(node))

    status = blocking(FlowHandle.status)
    jobs = blocking(FlowHandle.jobs)
    wait = blocking(FlowHandle.wait)
    results = blocking(FlowHandle.results)
    cancel = blocking(FlowHandle.cancel)
    retry = blocking(FlowHandle.retry)


class SyncFlows:
    """Jobs that depend on each other."""

    def __init__(self, run: Run, of: Flows) -> None:
        self._run, self._of = run, of

    list = blocking(Flows.list)
    status = blocking(Flows.status)
    graph = blocking(Flows.graph)
    progress = blocking(Flows.progress)
    cancel = blocking(Flows.cancel)
    retry = blocking(Flows.retry)

    def handle(self, id: str) -> SyncFlowHandle:
        """A handle on a flow, from its id."""
        return SyncFlowHandle(self._run, self._of.handle(id))
