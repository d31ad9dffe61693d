"""Closes all SQLite connections before a fork, while no thread is inside SQLite.

SQLite keeps its locks and mutexes per process, and a child inherits that state: a connection that the child opens
would take no real lock, and the parent, as the supposed last user, would remove a log that the child writes to. So
every connection is closed just before a fork, under the ForkLock of its thread. The parent's threads open theirs again
when they next need them; the child opens new ones.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable


class ForkLock:
    """A lock that a thread holds while it is inside SQLite. `close` closes its connections, and is called under it."""

    def __init__(self, close: Callable[[], None]) -> None:
        self.lock = threading.Lock()
        self.close = close
        _fork_locks.add(self)


_fork_locks: weakref.WeakSet[ForkLock] = weakref.WeakSet()
_closed: list[ForkLock] = []
_forking = threading.Lock()
"""Held from before a fork to after it: two threads may fork at once."""


def _before() -> None:
    _forking.acquire()
    for fork_lock in list(_fork_locks):
        fork_lock.lock.acquire()
        _closed.append(fork_lock)
        fork_lock.close()


def _after() -> None:
    while _closed:
        _closed.pop().lock.release()
    _forking.release()


os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after)
