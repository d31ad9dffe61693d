"""A fork must find no thread inside SQLite and no connection open.

SQLite keeps its locks and mutexes per process, and a child inherits its belief in them: a connection that the child
opens would take no real lock, and the parent, thinking itself the last user, would remove a log that the child writes
to. So every connection is closed just before a fork, behind the limiter of the thread that uses it. The parent's threads
open theirs again when they next need them; the child starts from nothing.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable


class Limiter:
    """Held by a thread while it is inside SQLite. `close` closes its connections, and is called with the limiter held."""

    def __init__(self, close: Callable[[], None]) -> None:
        self.held = threading.Lock()
        self.close = close
        _limiters.add(self)


_limiters: weakref.WeakSet[Limiter] = weakref.WeakSet()
_closed: list[Limiter] = []
_forking = threading.Lock()
"""Held from before a fork to after it: two threads may fork at once."""


def _before() -> None:
    _forking.acquire()
    for limiter in list(_limiters):
        limiter.held.acquire()
        _closed.append(limiter)
        limiter.close()


def _go_on() -> None:
    while _closed:
        _closed.pop().held.release()
    _forking.release()


os.register_at_fork(before=_before, after_in_parent=_go_on, after_in_child=_go_on)
