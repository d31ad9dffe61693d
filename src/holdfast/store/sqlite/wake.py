"""Listeners: notified at once by this store's own commits, and by other processes' commits through the data version.

The watcher thread polls every few milliseconds, and only while a listener waits. A poll without a change takes some
microseconds; after a change it queries each topic, so that commits about other queues notify no listener.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Iterable
from time import sleep

from ..callers import AppThread
from ..notify import wait_for
from . import connection as connections
from . import sql
from .files import Files
from .fork import ForkLock

BRISK_PAUSE, CALM_PAUSE = 0.008, 0.018
"""Seconds between two polls: at first, and after a second without changes."""
BRISK_LOOKS = 125
"""Polls without a change until the pauses become longer: as many as in one second."""


class SqliteListener:
    """A listener for whose topics the watcher polls while `wait` runs."""

    def __init__(self, listeners: Listeners, topics: frozenset[str]) -> None:
        self._listeners = listeners
        self.topics = topics
        self.event = asyncio.Event()
        """Set to notify it, on its own loop."""
        self.next: dict[str, tuple[int | None, int | None]] = {}
        """By topic, what the watcher read last: the next due time, and when the next limiter opens."""

    async def wait(self, timeout: float) -> None:
        if not self.event.is_set():
            self._listeners.waiting(self)
        try:
            await wait_for(self.event, timeout)
        finally:
            self._listeners.done(self)

    def close(self) -> None:
        self._listeners.remove(self)


class Listeners:
    """All listeners of one store object, and the watcher that notifies them of other connections' commits."""

    def __init__(self, files: Files, connect: Callable[[], sqlite3.Connection]) -> None:
        self._files = files
        self._connect = connect
        self._loop = asyncio.get_running_loop()
        self._all: set[SqliteListener] = set()
        self._waiting: set[SqliteListener] = set()
        self._wanted = threading.Event()
        self._closing = False
        self._thread: AppThread | None = None
        self._ended = self._loop.create_future()
        self.connection: sqlite3.Connection | None = None
        self._seen: int | None = None
        self._fork_lock = ForkLock(self._close_for_fork)

    def __bool__(self) -> bool:
        return bool(self._all)

    def make(self, topics: Iterable[str]) -> SqliteListener:
        listener = SqliteListener(self, frozenset(topics))
        self._all.add(listener)
        return listener

    def remove(self, listener: SqliteListener) -> None:
        self._all.discard(listener)

    def notify(self, topics: set[str]) -> None:
        """Notify the listeners of these topics after a commit of this store object."""
        for listener in self._all:
            if not listener.topics.isdisjoint(topics):
                listener.event.set()

    def waiting(self, listener: SqliteListener) -> None:
        self._waiting = self._waiting | {listener}
        self._wanted.set()
        if self._thread is None and not self._closing:
            self._thread = AppThread(self._watch, "holdfast-sqlite-watch")
            self._thread.start()

    def done(self, listener: SqliteListener) -> None:
        self._waiting = self._waiting - {listener}

    def end(self) -> None:
        self._closing = True
        self._wanted.set()

    async def close(self) -> None:
        self.end()
        if self._thread is not None:
            await self._ended
        for listener in self._all:
            listener.event.set()

    def forget(self) -> None:
        """In a forked child: never close the parent's connection."""
        connections.forget(self.connection, self._thread)
        self.connection = None

    def _close_for_fork(self) -> None:
        """Close the connection: before a fork, and at the end."""
        self._files.close(self.connection)
        self.connection = None

    # -- on the watcher's thread

    def _watch(self) -> None:
        try:
            self._look()
        except sqlite3.Error:
            pass  # notifications are hints: workers still poll
        finally:
            with self._fork_lock.lock:
                self._close_for_fork()
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._ended.set_result, None)

    def _look(self) -> None:
        quiet = 0
        while not self._closing:
            if not self._waiting:
                self._wanted.clear()
                if not self._waiting and not self._closing:  # again: either may have come before the clear()
                    self._wanted.wait()
                    quiet = 0
                continue
            try:
                with self._fork_lock.lock:
                    quiet = 0 if self._look_once() else quiet
            except (sqlite3.OperationalError, UnicodeEncodeError):
                pass  # busy for a moment, disk full, or a topic that cannot be encoded: poll again
            quiet += 1
            sleep(BRISK_PAUSE if quiet < BRISK_LOOKS else CALM_PAUSE)

    def _look_once(self) -> bool:
        """Whether another connection has committed since the last poll; notifies the listeners concerned."""
        if self.connection is None:
            self.connection, self._seen = self._connect(), None
        version = self.connection.execute(sql.DATA_VERSION).fetchone()[0]
        if version == self._seen:
            return False
        self._seen = version
        self._notify_concerned(self.connection)
        return True

    def _notify_concerned(self, connection: sqlite3.Connection) -> None:
        """Notify each waiting listener with a ready job, a new next due time, or an ended job among its topics."""
        concerned = [listener for listener in self._waiting if _concerned(connection, listener)]
        if concerned and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(_notify_all, concerned)


def _concerned(connection: sqlite3.Connection, listener: SqliteListener) -> bool:
    # Every topic is queried, so that all next due times are updated.
    return sum(_concerns(connection, listener, topic) for topic in listener.topics) > 0


def _concerns(connection: sqlite3.Connection, listener: SqliteListener, topic: str) -> bool:
    kind, _, name = topic.partition("/")
    if kind == "queue":
        due, opening = connection.execute(sql.NEXT, (name,)).fetchone()
        known_due, known_opening = listener.next.get(topic, (due, None))
        listener.next[topic] = due, opening
        if due != known_due or opening not in (None, known_opening):  # a limit key may have deferred jobs of any queue
            return True
        return connection.execute(sql.ANY_READY, (name, name)).fetchone()[0] == 1
    row = connection.execute(sql.ENDED, (name,)).fetchone()
    return row is None or row[0] == 1


def _notify_all(listeners: list[SqliteListener]) -> None:
    for listener in listeners:
        listener.event.set()
