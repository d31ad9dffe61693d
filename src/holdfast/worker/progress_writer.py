"""Progress writer: writes the newest progress of each job to the store, a few times a second."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from ..core.clock import Clock
from ..core.job import Record
from ..core.operations import Note
from ..flows.service import Flows
from ..tasks.context import Context

if TYPE_CHECKING:
    from ..tasks.completion import Completion

PROGRESS_PAUSE = 0.25
"""Seconds between two writes of one job's progress; values in between are dropped."""


class ProgressWriter:
    """Creates the contexts of running jobs and writes their notes. `limits` returns max_payload and max_output."""

    def __init__(
        self,
        write: Callable[[Note], Awaitable[bool]],
        limits: Callable[[], tuple[int, int]],
        clock: Clock,
        completion: Completion | None = None,
        flows: Flows | None = None,
        *,
        state: Any = None,
    ) -> None:
        self._state = state
        self._write = write
        self._clock = clock
        self._flows = flows
        self._completion = completion
        self._limits = limits
        self._loop = asyncio.get_running_loop()

    def context(self, record: Record) -> Context:
        max_payload, max_output = self._limits()
        return Context(
            record,
            self._write,
            loop=self._loop,
            clock=self._clock,
            max_payload=max_payload,
            max_output=max_output,
            progress_soon=self._progress,
            completion=self._completion,
            flows=self._flows,
            state=self._state,
        )

    def _progress(self, context: Context) -> None:
        if context.progress_busy or (note := context.progress_note()) is None:
            return
        context.progress_busy = True
        writing = asyncio.ensure_future(self._write(note))
        writing.add_done_callback(lambda done: done.cancelled() or done.exception())  # the next write is newer
        self._loop.call_later(PROGRESS_PAUSE, self._ready_again, context)

    def _ready_again(self, context: Context) -> None:
        context.progress_busy = False
        self._progress(context)
