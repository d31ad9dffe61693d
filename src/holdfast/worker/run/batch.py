"""One call for several runs: each adds its item, waits, and gets its own part of the returned list."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol

from ...observe import traces
from ...observe.task_output import end_lines
from ...tasks.batch import parts
from .run_log import RunLog, begin_together

if TYPE_CHECKING:
    from opentelemetry.trace import SpanContext

    from ...tasks.task import Task


CallTogether = Callable[[list[Any], Callable[[int | None], object]], Awaitable[Any]]
"""Calls a batch task with items; a plain function tells in which thread it runs, and None when it has returned."""


class SharingRun(Protocol):
    """What a batch needs of a run."""

    batch: Batch | None
    runner: asyncio.Task[None] | None
    in_thread: bool
    thread: int | None
    log: RunLog | None

    @property
    def stopped(self) -> bool: ...

    def stop(self, why: str) -> None: ...


class Batch:
    """The runs of one task that share a call.

    1. While it is open, runs are added; a run that is asked to stop leaves at once.
    2. Once closed, it calls the function as soon as every run has added its item, or has ended without one.
    3. Each run continues with its own part and ends on its own. The call is cancelled only after all its runs were
       asked to stop.
    """

    def __init__(self, task: Task[..., Any], call: CallTogether) -> None:
        self.task = task
        self.runs: dict[SharingRun, None] = {}
        self._call = call
        self._shares: dict[SharingRun, _Share] = {}
        self._closed = False
        self._calling: asyncio.Task[None] | None = None

    @property
    def calling(self) -> asyncio.Task[None] | None:
        """The call, once it has begun."""
        return self._calling

    @property
    def room(self) -> int:
        """How many more runs it takes."""
        max_runs = 0 if self.task.batch is None or self._closed else self.task.batch.size
        return max(0, max_runs - len(self.runs))

    def add(self, run: SharingRun) -> None:
        self.runs[run] = None
        run.batch = self

    def close(self) -> None:
        self._closed = True
        self._call_if_complete()

    def leave(self, run: SharingRun) -> None:
        """A run has ended, with any outcome."""
        del self.runs[run]
        if self._calling is None:
            self._shares.pop(run, None)
            self._call_if_complete()

    async def share(self, run: SharingRun, item: Any, starts: Callable[[], None]) -> Any:
        """Add a run's item, and wait for its part of the result. `starts` is called when the call begins."""
        share = self._shares[run] = _Share(item, starts, traces.current_span())
        self._call_if_complete()
        return await share.part

    def stop(self, run: SharingRun) -> None:
        """A run was asked to stop."""
        if self._calling is None:
            if run.runner is not None:
                run.runner.cancel()
        elif all(one.stopped for one in self.runs):
            self._calling.cancel()

    def _call_if_complete(self) -> None:
        if self._closed and self._calling is None and self._shares and len(self._shares) == len(self.runs):
            self._calling = asyncio.create_task(self._run())

    async def _run(self) -> None:
        shares = list(self._shares.values())
        for run, share in self._shares.items():
            run.in_thread = not self.task.is_async
            share.starts()
        log = begin_together(run.log for run in self._shares)
        try:
            with traces.calling(self.task.name, [share.span for share in shares]):
                value = await self._call([share.item for share in shares], self._runs_in)
            found = parts(self.task.name, value, len(shares))
        except BaseException as error:  # noqa: BLE001  # whatever user code raises ends these jobs, never the worker
            found = [error] * len(shares)
        if log is not None:
            end_lines(log)
        for share, part in zip(shares, found, strict=True):
            share.give(part)

    def _runs_in(self, thread: int | None) -> None:
        """The call of all runs is in this thread now. In that thread."""
        for run in self._shares:
            run.thread = thread


class _Share:
    """The item of one run, and its part of the result."""

    def __init__(self, item: Any, starts: Callable[[], None], span: SpanContext | None) -> None:
        self.item = item
        self.starts = starts
        self.span = span
        self.part: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def give(self, part: Any) -> None:
        if self.part.done():
            return
        if isinstance(part, StopIteration):  # a future cannot carry it
            part = RuntimeError(
                f"the batch task returned or raised {part!r}, which asyncio cannot pass on: use another exception"
            )
        if isinstance(part, BaseException):
            self.part.set_exception(part)
        else:
            self.part.set_result(part)
