"""The steps in progress of one run: the run does not end before them, and none begins after it ends.

If the claim ended after a step has run but before its result is stored, the step would run again.
"""

from __future__ import annotations

import threading
from collections.abc import Generator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar

_inside: ContextVar[ActiveSteps | None] = ContextVar("holdfast_step", default=None)
"""The run to whose step the current code belongs."""


class ActiveSteps:
    """The steps in progress of one run, for all of its threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._steps: set[Future[object]] = set()
        self._over: BaseException | None = None
        """The exception that ended the run."""

    def begin(self) -> Future[object]:
        """Begin a step: give the future a result when it has ended and its result is stored."""
        with self._lock:
            if self._over is not None:
                raise self._over
            step: Future[object] = Future()
            self._steps.add(step)
        step.add_done_callback(self._steps.discard)
        return step

    def rest(self, by: BaseException) -> list[Future[object]]:
        """End the run by raising this, unless steps are in progress: returns those, to wait for."""
        with self._lock:
            active = list(self._steps)
            if not active:
                self._over = self._over or by
                raise self._over
        return active

    def end(self, by: BaseException) -> list[Future[object]]:
        """The run has ended by this: returns the steps still in progress, to wait for."""
        with self._lock:
            self._over = self._over or by
            return list(self._steps)

    @contextmanager
    def inside(self) -> Generator[None]:
        """Around the code of a step."""
        around = _inside.get()
        _inside.set(self)
        try:
            yield
        finally:
            _inside.set(around)

    @property
    def is_here(self) -> bool:
        """Whether the current code belongs to a step of the run."""
        return _inside.get() is self
