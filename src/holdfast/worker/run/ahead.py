"""A claim that waits for a thread: the thread starts it, or the loop takes it back; never both."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from ...core.clock import Clock


class NotStarted(Exception):
    """A thread was free only after the claim's deadline."""


class Ahead:
    """The wait of one claim. After `deadline`, by the time since boot, which includes sleep, no thread starts it."""

    __slots__ = ("_clock", "_left", "_ticket", "announce", "began", "deadline", "future")

    def __init__(self, clock: Clock, deadline: int, left: Callable[[], None]) -> None:
        self._clock = clock
        self._left = left
        self._ticket = [None]
        """The thread that removes its only item decides; a list gives it to one thread only."""
        self.deadline = deadline
        self.began: float | None = None
        """When a thread started it."""
        self.future: asyncio.Future[Any] | None = None
        """The result of its call."""
        self.announce: Callable[[], None] = _nothing
        """Reports its start; on the loop."""

    def start(self) -> bool:
        """In the thread that is about to run it: whether it may."""
        late = self._clock.boot() > self.deadline
        if not self.take() or late:
            return False
        self.began = self._clock.monotonic()
        return True

    def take_back(self) -> bool:
        """On the loop: end the wait, unless it has started or ended."""
        taken = self.take()
        if taken and self.future is not None:
            self.future.cancel()
        return taken

    def take(self) -> bool:
        try:
            self._ticket.pop()
        except IndexError:
            return False
        self._left()
        return True


def _nothing() -> None: ...
