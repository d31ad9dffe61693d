"""The part of an app that handles use: read a job, wait for its end, get its result, change it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from typing import Any, Protocol, TypeVar

from ..core.chunks import Chunk
from ..core.errors import InvalidJob
from ..core.job import TERMINAL, Record
from ..core.log_lines import LogLine
from ..core.operations import Printed
from ..core.validation import checked_text
from ..tasks.handle import Handle
from ..tasks.options import EditOptions, JobOptions
from ..tasks.registry import Registry
from ..tasks.task import BlockingTasks
from ..views import Job, Progress, job_view
from .claims import ManualClaims
from .operations import Operations
from .output import follow_lines
from .runtime import Runtime, on_app_loop
from .session import Session
from .stream import Watch, follow_chunks, follow_progress

R = TypeVar("R")
OUTPUT_PAGE = 1 << 20
"""Bytes of output that one call returns, up to one chunk more."""
MAX_POSITION = 2**53
"""Every store and every JSON parser keeps positions below it exactly."""


class Editing(Protocol):
    """Edits and clones jobs (`edits.py`)."""

    def edit(self, id: str, options: EditOptions, *, args: Any = None) -> Coroutine[Any, Any, Job]: ...

    def clone(self, id: str, options: JobOptions, *, args: Any = None) -> Coroutine[Any, Any, Handle[Any]]: ...


class Handles:
    """Makes handles, and answers their calls. `blocking` is the blocking side of the app."""

    def __init__(
        self,
        runtime: Runtime,
        registry: Registry,
        operations: Operations,
        claims: ManualClaims,
        *,
        blocking: Callable[[], BlockingTasks],
        edits: Callable[[], Editing],
    ) -> None:
        self._runtime = runtime
        self._blocking = blocking
        self._edits = edits
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

    async def edit(self, id: str, options: EditOptions, *, args: Any = None) -> Job:
        """Edit a waiting job."""
        return await self._edits().edit(id, options, args=args)

    async def clone(self, id: str, options: JobOptions, *, args: Any = None) -> Handle[Any]:
        """Enqueue a job like this one."""
        return await self._edits().clone(id, options, args=args)

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
        return await session.store.output(checked_text(id, "id"), _checked(position), OUTPUT_PAGE)

    def log_pages(self, id: str, *, follow: bool) -> AsyncIterator[list[LogLine]]:
        """A job's lines, several at a time; with `follow`, until it has ended."""
        return follow_lines(self, id, follow=follow)

    @on_app_loop
    async def stream_pieces(self, session: Session, id: str, position: int, watch: Watch | None) -> list[Printed]:
        """The next pieces of a job's stream. With a watch, waits for some: [] means that the job has ended."""
        listener = None if watch is None else watch.listener(session, id)
        while True:
            pieces = await session.store.output(id, position, OUTPUT_PAGE, stream=True)
            if pieces or listener is None:
                return pieces
            if (await session.record(id)).state in TERMINAL:
                return await session.store.output(id, position, OUTPUT_PAGE, stream=True)
            await session.wait(listener, session.settings.poll)

    @on_app_loop
    async def progressed(self, session: Session, id: str, seen: bytes | None, watch: Watch) -> Record:
        """The stored job, once its progress is another than `seen` or it has ended."""
        listener = watch.listener(session, id)
        while True:
            record = await session.record(id)
            if record.progress != seen or record.state in TERMINAL:
                return record
            await session.wait(listener, session.settings.poll)

    def chunk_pages(self, id: str, position: int, *, follow: bool) -> AsyncGenerator[list[Chunk]]:
        """A job's chunks after a position, several at a time; with `follow`, until it has ended."""
        return follow_chunks(self, checked_text(id, "id"), _checked(position), follow=follow)

    def progress(self, id: str) -> AsyncGenerator[Progress]:
        """A job's progress, whenever it changes, until it has ended."""
        return follow_progress(self, checked_text(id, "id"))


def _checked(position: int) -> int:
    if type(position) is not int or not 0 <= position < MAX_POSITION:
        raise InvalidJob(f"position must be a whole number of bytes below 2^53, not {position!r:.100}")
    return position
