"""One claim while it runs, and who asked it to stop."""

from __future__ import annotations

import asyncio

from ...core.job import Record
from ...tasks.context import Context
from .batch import Batch


class Run:
    """One claim while it runs. `why` says who asked it to stop: cancel, timeout, lost, release; None: nobody."""

    __slots__ = ("batch", "began", "begun", "context", "in_thread", "key", "ran", "record", "runner", "timer", "why")

    def __init__(self, record: Record, began: float | None = None) -> None:
        self.record = record
        self.began = began
        """When it was claimed, by the steady clock."""
        self.key = (record.id, record.fence)
        self.runner: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.context: Context | None = None
        self.batch: Batch | None = None
        """Those that it shares its call with, where the task handles several jobs at once."""
        self.in_thread = False
        self.begun = False
        """Whether its task on the loop has begun: until then, interrupting it would end it without a word."""
        self.ran = False
        """Whether the user's own code has begun."""
        self.why: str | None = None

    @property
    def stopped(self) -> bool:
        """Whether anybody asked it to stop."""
        return self.why is not None

    def stop(self, why: str) -> None:
        """Ask the run to stop. A coroutine is interrupted, a process ended; a thread sees `ctx.cancelled`."""
        if self.context is not None and self.context.completed:
            return  # its end is written: what is left of it may go on
        if self.why is None or why == "lost":
            self.why = why
        if self.context is not None:
            self.context.ask_to_stop(self.why)
        if self.runner is None or not self.begun or self.in_thread:
            return
        if self.batch is not None:
            self.batch.stop(self)
        else:
            self.runner.cancel()
