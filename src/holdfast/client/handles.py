"""The part of an app that handles use: read a job, wait for its end, get its result, change it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import TypeVar

from ..core.errors import InvalidJob
from ..core.job import Record
from ..core.log_lines import LogLine
from ..core.operations import Printed
from ..core.validation import checked_text
from ..tasks.handle import Handle
from ..tasks.registry import Registry
from ..tasks.task import BlockingTasks
from ..views import Job, job_view
from .claims import ManualClaims
from .operations import Operations
from .output import follow_lines
from .runtime import Runtime, on_app_loop
from .session import Session

R = TypeVar("R")
OUTPUT_PAGE = 1 << 20
"""Bytes of output that one call returns, up to one chunk more."""


class Handles:
    """Makes handles, and answers their calls. `blocking` is the blocking side of the app."""

    def __init__(
        self,
        runtime: Runtime,
        registry: Registry,
        operations: Operations,
        claims: ManualClaims,
        blocking: Callable[[], BlockingTasks],
    ) -> None:
        self._runtime = runtime
        self._blocking = blocking
        self.decode_result = registry.decode_result
        self.cancel = operations.cancel
        self.update_meta = operations.update_meta
        self.mark_failed = claims.mark_failed

    @property
    def sync(self) -> BlockingTasks:
        return self._blocking()

    def handle(self, id: str, decode: Callable[[bytes, str], R] | None = None) -> Handle[R]:
        """A handle on a job, from its id; `decode` decodes its result if its task is known."""
        return Handle(self, id, decode)

    @on_app_loop
    async def job(self, session: Session, id: str) -> Job:
        """One job as it is now."""
        return job_view(await session.record(id))

    @on_app_loop
    async def record(self, session: Session, id: str) -> Record:
        """One job as the store keeps it."""
        return await session.record(id)

    @on_app_loop
    async def ended(self, session: Session, id: str, timeout: float | None = None) -> Record:
        """The stored job after it has ended; TimeoutError if it has not ended in time."""
        return await session.ended(id, timeout)

    @on_app_loop
    async def output(self, session: Session, id: str, position: int = 0) -> list[Printed]:
        """A job's output from an offset on (about 1 MiB at a time)."""
        if type(position) is not int or position < 0:
            raise InvalidJob(f"position must be a whole number of bytes, not {position!r:.100}")
        return await session.store.output(checked_text(id, "id"), position, OUTPUT_PAGE)

    def log_pages(self, id: str, *, follow: bool) -> AsyncIterator[list[LogLine]]:
        """A job's lines, several at a time; with `follow`, until it has ended."""
        return follow_lines(self, id, follow=follow)
