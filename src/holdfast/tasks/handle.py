"""A handle on one job: read it, wait for it, get its result, change it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, Unpack

from ..core.chunks import Chunk
from ..core.errors import JobCancelled, JobFailed
from ..core.job import Record, State
from ..core.log_lines import LogLine
from ..core.operations import Printed
from ..views import Job, Progress, job_view

if TYPE_CHECKING:
    from .options import EditOptions, JobOptions

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class BlockingHandle(Protocol[R_co]):
    """A handle for blocking code; its methods are those of `Handle`."""

    id: str

    def job(self) -> Job:
        """The job as it is now."""
        ...

    def wait(self, timeout: float | None = None) -> Job:
        """Wait until the job has ended, however it ended."""
        ...

    def result(self, timeout: float | None = None) -> R_co:
        """The value the job returned."""
        ...

    def cancel(self) -> bool:
        """End the job if it waits, ask it to stop if it runs."""
        ...

    def logs(self, *, follow: bool = False) -> Iterator[LogLine]:
        """The stored lines of all attempts."""
        ...

    def output(self, position: int = 0) -> list[Printed]:
        """The job's output from an offset on."""
        ...

    def stream(self, position: int = 0, *, follow: bool = True) -> Iterator[Chunk]:
        """The chunks that the job emits."""
        ...

    def progress(self) -> Iterator[Progress]:
        """The job's progress, whenever it changes."""
        ...

    def update_meta(self, /, **meta: Any) -> None:
        """Merge into the meta of a job that has not ended."""
        ...

    def mark_failed(self, error: str | BaseException) -> None:
        """End the claim of a run that is lost as failed."""
        ...

    def edit(self, *, args: Sequence[Any] | Mapping[str, Any] | None = None, **options: Unpack[EditOptions]) -> Job:
        """Give a waiting job other arguments, another time, priority or queue."""
        ...

    def clone(
        self, *, args: Sequence[Any] | Mapping[str, Any] | None = None, **options: Unpack[JobOptions]
    ) -> BlockingHandle[R_co]:
        """Enqueue a new job like this one, with other arguments or options."""
        ...


class Blocking(Protocol):
    """The blocking side of an app, as far as handles need it."""

    def wrap(self, handle: Handle[R], /) -> BlockingHandle[R]: ...


class HandleClient(Protocol):
    """The operations of an app that a handle uses."""

    @property
    def sync(self) -> Blocking: ...

    def decode_result(self, record: Record, /) -> Any: ...

    def job(self, id: str) -> Coroutine[Any, Any, Job]: ...

    def ended(self, id: str, timeout: float | None = None) -> Coroutine[Any, Any, Record]: ...

    def cancel(self, id: str) -> Coroutine[Any, Any, bool]: ...

    def output(self, id: str, position: int = 0) -> Coroutine[Any, Any, list[Printed]]: ...

    def log_pages(self, id: str, *, follow: bool) -> AsyncIterator[list[LogLine]]: ...

    def chunk_pages(self, id: str, position: int, *, follow: bool) -> AsyncGenerator[list[Chunk]]: ...

    def progress(self, id: str) -> AsyncGenerator[Progress]: ...

    def update_meta(self, id: str, meta: Mapping[str, Any]) -> Coroutine[Any, Any, None]: ...

    def mark_failed(self, id: str, error: str | BaseException) -> Coroutine[Any, Any, None]: ...

    def edit(self, id: str, options: EditOptions, *, args: Any = None) -> Coroutine[Any, Any, Job]: ...

    def clone(self, id: str, options: JobOptions, *, args: Any = None) -> Coroutine[Any, Any, Handle[Any]]: ...


class Handle(Generic[R]):
    """One job, in any process: `app.handle(id)` makes one from an id alone."""

    __slots__ = ("_client", "_decode", "id")

    def __init__(self, client: HandleClient, id: str, decode: Callable[[bytes, str], R] | None = None) -> None:
        self._client = client
        self._decode = decode
        self.id = id

    def __repr__(self) -> str:
        return f"Handle({self.id!r})"

    @property
    def sync(self) -> BlockingHandle[R]:
        """The same handle for blocking code."""
        return self._client.sync.wrap(self)

    async def job(self) -> Job:
        """The job as it is now."""
        return await self._client.job(self.id)

    async def wait(self, timeout: float | None = None) -> Job:
        """Wait until the job has ended, with any outcome. TimeoutError if it has not ended in time."""
        return job_view(await self._client.ended(self.id, timeout))

    async def result(self, timeout: float | None = None) -> R:
        """The value the job returned. Raises JobFailed (with the remote traceback) or JobCancelled where there is
        none, TimeoutError where it is not ready in time, JobNotFound at once for an unknown id.
        """
        return self.decode(await self._client.ended(self.id, timeout))

    async def cancel(self) -> bool:
        """End the job if it waits, ask it to stop if it runs; False if it had ended already."""
        return await self._client.cancel(self.id)

    async def logs(self, *, follow: bool = False) -> AsyncIterator[LogLine]:
        """The stored lines that the job printed and logged, in all attempts; with `follow`, until it has ended."""
        async for lines in self._log_pages(follow=follow):
            for line in lines:
                yield line

    def _log_pages(self, *, follow: bool) -> AsyncIterator[list[LogLine]]:
        """As `logs`, several lines at a time."""
        return self._client.log_pages(self.id, follow=follow)

    async def output(self, position: int = 0) -> list[Printed]:
        """The job's output from an offset on, about 1 MiB at a time, as it is stored; `logs` gives its lines."""
        return await self._client.output(self.id, position)

    async def stream(self, position: int = 0, *, follow: bool = True) -> AsyncGenerator[Chunk]:
        """The chunks that the job emits, in order, stored ones first, until it has ended; JobNotFound if there is none.

        `position`: that of the last chunk that was read before, to continue after it. Without `follow`, only what is
        stored. A chunk with `first` begins another attempt, which may emit again what an earlier one has emitted.
        """
        async with aclosing(self._chunk_pages(position, follow=follow)) as pages:
            async for page in pages:
                for chunk in page:
                    yield chunk

    def _chunk_pages(self, position: int, *, follow: bool) -> AsyncGenerator[list[Chunk]]:
        """As `stream`, several chunks at a time."""
        return self._client.chunk_pages(self.id, position, follow=follow)

    def progress(self) -> AsyncGenerator[Progress]:
        """The job's progress, now and whenever it changes, until it has ended. A slow reader gets only the newest."""
        return self._client.progress(self.id)

    async def update_meta(self, /, **meta: Any) -> None:
        """Merge into the meta of a job that has not ended."""
        await self._client.update_meta(self.id, meta)

    async def edit(
        self, *, args: Sequence[Any] | Mapping[str, Any] | None = None, **options: Unpack[EditOptions]
    ) -> Job:
        """Give a waiting job other arguments (all of them), another time, priority or queue; checked like an enqueue.

        InvalidState if it has started or ended. `args`: a list, or a dict of named arguments.
        """
        return await self._client.edit(self.id, options, args=args)

    async def clone(
        self, *, args: Sequence[Any] | Mapping[str, Any] | None = None, **options: Unpack[JobOptions]
    ) -> Handle[R]:
        """Enqueue a new job like this one, in any state, with other arguments or options; checked like an enqueue.

        Key, expiry, time, flow and follow-ups are not copied; its meta has `cloned_from`.
        """
        return Handle(self._client, (await self._client.clone(self.id, options, args=args)).id, self._decode)

    async def mark_failed(self, error: str | BaseException) -> None:
        """For a monitor that knows that a run is lost: end its claim as failed, as its worker would have."""
        await self._client.mark_failed(self.id, error)

    def decode(self, record: Record) -> R:
        """The result of an ended job; raises its error if it has none."""
        if record.state == State.CANCELLED:
            raise JobCancelled(record.id, record.error or "cancelled")
        if record.state == State.DEAD:
            raise JobFailed(record.id, record.error or "dead", record.traceback)
        if self._decode is None or record.result is None:
            return self._client.decode_result(record)
        return self._decode(record.result, record.codec)
