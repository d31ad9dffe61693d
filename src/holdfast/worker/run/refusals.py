"""Warns of jobs whose task or arguments this worker does not know: once per task and minute."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ...core.clock import Clock

if TYPE_CHECKING:
    from ...core.job import Record

logger = logging.getLogger("holdfast")
WARN_EVERY = 60.0
"""Seconds between two warnings of the same task."""
WARNED_TASKS = 1000
"""Tasks whose last warning is remembered; names come from the store, and could be many."""


class Refusals:
    """Counts the refused jobs of each task since its last warning."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._warned: dict[str, float] = {}
        self._since: dict[str, int] = {}

    def add(self, record: Record, error: str | None, timeout: float) -> bool:
        """Count a refused job; returns whether a warning was logged."""
        task, now = record.task, self._clock.monotonic()
        if task in self._warned and now - self._warned[task] < WARN_EVERY:
            self._since[task] = self._since.get(task, 0) + 1
            return False
        if len(self._warned) >= WARNED_TASKS:
            self._warned.clear()
            self._since.clear()
        self._warned[task] = now
        logger.warning(
            "this worker refused job %s of task %r (other refused claims of this task since the last warning: %d): %s;"
            " refused jobs use no attempt, are tried again later, and are dead after %g s: deploy their code to the"
            " workers of queue %r, declare a former name with aliases=, or run `holdfast move`",
            record.id,
            task,
            self._since.pop(task, 0),
            error,
            timeout,
            record.queue,
        )
        return True
