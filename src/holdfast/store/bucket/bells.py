"""Bells of a bucket store, rung from the engine's thread, heard on the loop of whoever listens."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

from ..notify import Ring


class Bells:
    """All listeners of one engine."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bells: dict[Ring, None] = {}
        """In the order of listening, so that what follows from a ring is the same in every run."""
        self.heard: Callable[[], object] = _nobody
        """Called, on whatever thread, when somebody begins to listen."""

    def __bool__(self) -> bool:
        return bool(self._bells)

    def make(self, topics: frozenset[str]) -> Ring:
        bell = Ring(topics, self.remove)
        with self._lock:
            self._bells[bell] = None
        with contextlib.suppress(RuntimeError):  # the engine has ended
            self.heard()
        return bell

    def remove(self, bell: Ring) -> None:
        with self._lock:
            self._bells.pop(bell, None)

    def ring(self, topics: set[str]) -> None:
        with self._lock:
            rung = [bell for bell in self._bells if not bell.topics.isdisjoint(topics)]
        for bell in rung:
            bell.ring()


def _nobody() -> None:
    """There is no engine yet."""
