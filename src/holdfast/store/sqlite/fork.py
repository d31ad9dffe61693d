"""Closes all SQLite connections before a fork, while no thread is inside SQLite.

SQLite keeps its locks and mutexes per process, and a child inherits that state: a connection that the child opens
would take no real lock, and the parent, as the supposed last user, would remove a log that the child writes to. So
every connection is closed just before a fork, under the ForkLock of its thread. The parent's threads open theirs again
when they next need them; the child opens new ones. The connection of a task's own transaction stays open, since its
task uses it: a child forked meanwhile cannot use that file.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from collections.abc import Callable

from ...core.errors import ConfigError
from ..callers import marked
from . import connection as connections


class ForkLock:
    """A lock that a thread holds while it is inside SQLite. `close` closes its connections, and is called under it."""

    def __init__(self, close: Callable[[], None]) -> None:
        self.lock = threading.RLock()  # its holder may fork, in a finalizer
        self.close = close
        _fork_locks.add(self)


_fork_locks: weakref.WeakSet[ForkLock] = weakref.WeakSet()
_closed: list[ForkLock] = []
_forking = threading.Lock()
"""Held from before a fork to after it: two threads may fork at once."""


lent: weakref.WeakKeyDictionary[sqlite3.Connection, str] = weakref.WeakKeyDictionary()
"""The connections that tasks may use, with their files: they stay open at a fork."""
_inherited: set[str] = set()
"""In a forked process, the files of such connections of its parent."""


def check(path: str) -> None:
    """Refuse a file that this process inherited in use."""
    if path in _inherited:
        raise ConfigError(
            f"this process cannot use {path}: it was forked during a ctx.transaction() of its parent. Start processes"
            " with subprocess, or with multiprocessing's start method 'spawn'"
        )


def _before() -> None:
    _forking.acquire()
    writing = getattr(marked, "writing", None)  # its lock file, which other stores on the same file wait for
    for fork_lock in sorted(_fork_locks, key=lambda one: one is not writing):
        fork_lock.lock.acquire()
        _closed.append(fork_lock)
        fork_lock.close()


def _after() -> None:
    while _closed:
        _closed.pop().lock.release()
    _forking.release()


def _after_in_child() -> None:
    _inherited.update(lent.values())
    connections.forget(*lent)
    _after()


os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after_in_child)
