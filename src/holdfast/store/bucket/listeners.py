"""Listeners of a bucket store, notified from the engine's thread."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

from ..notify import LocalListener


class Listeners:
    """All listeners of one engine."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: dict[LocalListener, None] = {}
        """In the order of creation, so that notifications are deterministic in simulations."""
        self.on_added: Callable[[], object] = _no_engine
        """Called, on any thread, when a listener is added."""

    def __bool__(self) -> bool:
        return bool(self._listeners)

    def make(self, topics: frozenset[str]) -> LocalListener:
        listener = LocalListener(topics, self.remove)
        with self._lock:
            self._listeners[listener] = None
        with contextlib.suppress(RuntimeError):  # the engine has ended
            self.on_added()
        return listener

    def remove(self, listener: LocalListener) -> None:
        with self._lock:
            self._listeners.pop(listener, None)

    def notify(self, topics: set[str]) -> None:
        with self._lock:
            notified = [listener for listener in self._listeners if not listener.topics.isdisjoint(topics)]
        for listener in notified:
            listener.notify()


def _no_engine() -> None:
    """Does nothing: there is no engine yet."""
