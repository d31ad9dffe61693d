"""`as_completed`: many handles, in the order in which their jobs end, for async and for blocking code."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Sequence
from typing import Any, TypeVar, cast, overload

from ..core.errors import InvalidJob, JobNotFound
from ..core.validation import checked_seconds
from ..tasks.handle import BlockingHandle, Handle
from .blocking import Run
from .tasks import SyncHandle, one_by_one, paged

R = TypeVar("R")


@overload
def as_completed(handles: Iterable[Handle[R]], *, timeout: float | None = None) -> AsyncIterator[Handle[R]]: ...
@overload
def as_completed(handles: Iterable[BlockingHandle[R]], *, timeout: float | None = None) -> Iterator[SyncHandle[R]]: ...
def as_completed(handles: Iterable[Any], *, timeout: float | None = None) -> Any:
    """The handles, each as soon as its job has ended: with `async for`, or `for` if they are blocking handles.

    `timeout`: seconds for all of them; then TimeoutError; the jobs continue. A handle whose job does not exist is
    returned too; its methods raise JobNotFound.
    """
    return _Completed(list(handles), None if timeout is None else checked_seconds(timeout, "timeout"))


class _Completed:
    """Both iterators; each is for one kind of handles."""

    def __init__(self, handles: list[Any], timeout: float | None) -> None:
        self._handles = handles
        self._timeout = timeout

    def __aiter__(self) -> AsyncIterator[Handle[Any]]:
        return _ended(self._checked(Handle, "async for", "for"), self._timeout)

    def __iter__(self) -> Iterator[SyncHandle[Any]]:
        handles = cast("list[SyncHandle[Any]]", self._checked(SyncHandle, "for", "async for"))
        if not handles:
            return iter(())
        known = {id(_inside(handle)[1]): handle for handle in handles}
        ended = _ended([_inside(handle)[1] for handle in handles], self._timeout)
        return (known[id(handle)] for handle in paged(_inside(handles[0])[0], one_by_one(ended)))

    def _checked(self, kind: type[Any], loop: str, other: str) -> list[Any]:
        if wrong := [handle for handle in self._handles if not isinstance(handle, kind)]:
            raise InvalidJob(
                f"as_completed(…) has {wrong[0]!r:.100}, which `{loop}` cannot wait for: use `{other}`, or pass handles"
                " of one kind"
            )
        return self._handles


def _inside(handle: SyncHandle[Any]) -> tuple[Run, Handle[Any]]:
    return handle._run, handle._of  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


async def _ended(handles: Sequence[Handle[R]], timeout: float | None) -> AsyncGenerator[Handle[R]]:
    done: asyncio.Queue[asyncio.Task[Any]] = asyncio.Queue()
    waiting = {asyncio.ensure_future(handle.wait()): handle for handle in handles}
    for task in waiting:
        task.add_done_callback(done.put_nowait)
    loop = asyncio.get_running_loop()
    deadline = None if timeout is None else loop.time() + timeout
    try:
        while waiting:
            try:
                async with asyncio.timeout_at(deadline):
                    task = await done.get()
            except TimeoutError:
                raise TimeoutError(
                    f"{len(waiting)} of {len(handles)} jobs have not ended after {timeout:g} s; they were not"
                    " cancelled: wait again"
                ) from None
            if not isinstance(task.exception(), JobNotFound):
                task.result()
            yield waiting.pop(task)
    finally:
        for task in waiting:
            task.cancel()
