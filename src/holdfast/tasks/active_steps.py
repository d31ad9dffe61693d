"""The steps of one run that are under way: the run does not end before them, and none begins once it ends.

Whatever ends the claim of a step that has run, but is not yet kept, would have the step run again.
"""

from __future__ import annotations

import threading
from collections.abc import Generator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar

_inside: ContextVar[ActiveSteps | None] = ContextVar("holdfast_step", default=None)
"""Whose step this code belongs to."""


class ActiveSteps:
    """For every thread of the run."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._steps: set[Future[object]] = set()
        self._over: BaseException | None = None
        """What the run ends by."""

    def begin(self) -> Future[object]:
        """A step begins: give the future a result when it has ended, and what it returned is kept."""
        with self._lock:
            if self._over is not None:
                raise self._over
            step: Future[object] = Future()
            self._steps.add(step)
        step.add_done_callback(self._steps.discard)
        return step

    def rest(self, by: BaseException) -> list[Future[object]]:
        """End the run by raising this, unless steps are under way: those, to wait for."""
        with self._lock:
            active = list(self._steps)
            if not active:
                self._over = self._over or by
                raise self._over
        return active

    def end(self, by: BaseException) -> list[Future[object]]:
        """The run has ended by this: the steps that are under way all the same, to wait for."""
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
        """Whether this very code belongs to a step of the run."""
        return _inside.get() is self
