"""One claim while it runs, and why it was asked to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ...core.job import Record
from ...core.operations import Note
from ...tasks.context import Context
from .ahead import Ahead
from .batch import Batch
from .run_log import RunLog

TIMED = ("timeout", "stall", "deadline")
"""Reasons to stop a run whose time is over."""


class Run:
    """One claim while it runs. `why` it was asked to stop: cancel, release, lost or one of TIMED; None: not asked."""

    __slots__ = (
        "active_at", "ahead", "apart", "batch", "began", "begun", "context", "in_thread", "key", "last_notes", "log",
        "ran", "record", "runner", "stack", "thread", "timers", "took", "why", "writing",
    )  # fmt: skip

    def __init__(self, record: Record, began: float | None = None) -> None:
        self.record = record
        self.began = began
        """When it was claimed (or started, if it waited for a thread), in seconds of the monotonic clock."""
        self.key = (record.id, record.fence)
        self.runner: asyncio.Task[None] | None = None
        self.timers: dict[str, asyncio.TimerHandle] | None = None
        """By the reason for which each of them stops the run."""
        self.active_at = 0.0
        """When the store last answered a note (progress, output, checkpoint, …), by the loop's clock."""
        self.writing = 0
        """Notes that the store has not answered yet."""
        self.thread: int | None = None
        """The thread in which its function runs now."""
        self.stack: str | None = None
        """Where it was when its time was over."""
        self.context: Context | None = None
        self.batch: Batch | None = None
        """The batch of a batch task, whose runs share one call."""
        self.ahead: Ahead | None = None
        """Its wait for a thread, if it was claimed ahead of a free slot."""
        self.log: RunLog | None = None
        self.last_notes: Sequence[Note] = ()
        """What is written with its outcome."""
        self.apart = False
        """Whether it runs in a child process."""
        self.in_thread = False
        self.begun = False
        """Whether its asyncio task has begun: cancelled before that, it would end without an outcome."""
        self.ran = False
        """Whether the user's own code has begun, as far as it was reported."""
        self.took: float | None = None
        """Seconds that its function ran in a thread."""
        self.why: str | None = None

    @property
    def calling(self) -> asyncio.Task[None] | None:
        """The asyncio task in which its function runs; None in a thread, and before the call of a batch."""
        if self.in_thread:
            return None
        return self.runner if self.batch is None else self.batch.calling

    @property
    def started(self) -> bool:
        """Whether it does not wait for a thread."""
        return self.ahead is None or self.ahead.began is not None

    @property
    def stopped(self) -> bool:
        return self.why is not None

    def stop(self, why: str) -> None:
        """Ask the run to stop. A coroutine is cancelled, a process ended; a thread sees `ctx.cancelled`."""
        if self.context is not None and self.context.completed:
            return  # its outcome is written: the rest of its code may finish
        if self.why is None or why == "lost":
            self.why = why
        if self.context is not None:
            self.context.ask_to_stop(self.why)
        if self.ahead is not None:
            self.ahead.take_back()
        if self.runner is None or not self.begun or self.in_thread:
            return
        if self.batch is not None:
            self.batch.stop(self)
        else:
            self.runner.cancel()
