"""Listeners: notified at once by this store's own commits, and by other processes' commits through the data version.

The watcher thread runs only while a listener waits. It polls after each write to the log (`log_events.py`), and some
times a second in case one was missed; where such events do not arrive, it polls every few milliseconds. A poll without
a change takes some microseconds; after a change it queries each topic, so that commits about other queues notify no
listener. A worker always waits for requests to cancel its jobs and for changes of records: if it waits for nothing
else, polls are rare while commits follow each other.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from time import sleep
from typing import Any

from ..callers import AppThread
from ..notify import wait_for
from . import connection as connections
from . import sql
from .files import Files
from .fork import ForkLock
from .log_events import LogEvents

BRISK_PAUSE, CALM_PAUSE = 0.008, 0.018
"""Seconds between two polls without events: at first, and after a second without changes."""
BRISK_LOOKS = 125
"""Polls without a change until the pauses become longer: as many as in one second."""
FALLBACK_PAUSE = 0.3
"""Seconds between two polls without an event, where events arrive; and while only changes of records are waited for."""
COMMIT_PAUSES = tuple(min(0.0003 * 1.5**n, CALM_PAUSE) for n in range(28))
"""Seconds between polls after a write to the log: it is committed once it is on the disk. Together 0.4 s."""
MISSED_LIMIT = 3
"""Commits without an event, one after the other, from which on events are not relied on."""
BURST = 8
"""Writes in quick succession after which polls are at least BRISK_PAUSE apart: others may commit all the time."""
BUSY_PAUSE = 0.1
"""The same while only requests to cancel and changes of records are waited for, as by a worker that is busy: it pays
for each poll."""


_UNSEEN = -1
"""No data version: the next poll differs from it."""


class SqliteListener:
    """A listener for whose topics the watcher polls while `wait` runs."""

    def __init__(self, listeners: Listeners, topics: frozenset[str]) -> None:
        self._listeners = listeners
        self.topics = topics
        kinds = {topic.partition("/")[0] for topic in topics}
        self.urgent = kinds != {"record"}
        self.patient = kinds <= {"holder", "record"}
        self.event = asyncio.Event()
        """Set to notify it, on its own loop."""
        self.next: dict[str, tuple[Any, Any]] = {}
        """By topic, what the watcher read last: the next due time, and when the next limiter opens; for records, their
        number and last version; for a holder, the number of requests to it; for notes, the job's last position and
        progress."""

    @property
    def reliable(self) -> bool:
        return self._listeners.reliable

    async def wait(self, timeout: float) -> bool:
        if not self.event.is_set():
            self._listeners.waiting(self)
        try:
            return await wait_for(self.event, timeout)
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
        self._events: LogEvents | None = None
        self._missed = 0
        """Commits that were seen without an event, since the last event."""
        self._usual_polls = 8
        """How many polls it takes, after a write to the log, until the commit is seen."""
        self._recent = 0
        """How many writes came in quick succession."""
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
        self._all = self._all | {listener}
        return listener

    def remove(self, listener: SqliteListener) -> None:
        self._all = self._all - {listener}

    @property
    def reliable(self) -> bool:
        """Whether the watcher gets an event for every commit."""
        return self._events is not None

    def notify(self, topics: set[str]) -> None:
        """Notify the listeners of these topics after a commit of this store object."""
        for listener in self._all:
            if not listener.topics.isdisjoint(topics):
                listener.event.set()

    def notify_soon(self, topics: set[str]) -> None:
        """As `notify`, from another thread than the loop's."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self.notify, topics)

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
        if (events := self._events) is not None:
            events.wake()

    async def close(self) -> None:
        self.end()
        if self._thread is not None:
            await self._ended
        for listener in self._all:
            listener.event.set()

    def forget(self) -> None:
        """In a forked child: never close the parent's connection."""
        connections.forget(self.connection, self._thread)
        events, self.connection, self._events = self._events, None, None
        if events is not None:
            events.abandon()

    def _close_for_fork(self) -> None:
        """Close the connection: before a fork, and at the end."""
        self._files.close(self.connection)
        self.connection = None

    def _end_events(self) -> None:
        events, self._events = self._events, None
        if events is not None:
            events.close()

    # -- on the watcher's thread

    def _watch(self) -> None:
        try:
            self._look()
        except sqlite3.Error:
            pass  # notifications are hints: workers still poll
        finally:
            with self._fork_lock.lock:
                self._close_for_fork()
                self._end_events()
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._ended.set_result, None)

    def _look(self) -> None:
        quiet = 0
        while not self._closing:
            if not self._urgent():
                self._wanted.clear()
                if not self._urgent() and not self._closing:  # again: either may have come before the clear()
                    self._wanted.wait(FALLBACK_PAUSE if self._waiting else None)
                    quiet = 0
                if not self._waiting:
                    continue
            quiet = 0 if self._look_safely() else quiet + 1
            if not self._urgent():
                continue
            if (events := self._events) is None:
                if quiet == 0:
                    self._rest_in_burst()
                else:
                    sleep(BRISK_PAUSE if quiet < BRISK_LOOKS else CALM_PAUSE)
            elif self._recent > BURST and self._patient():
                self._rest_in_burst()
                self._recent = self._recent + 1 if events.wait(0) else 0
            elif self._written(events):
                self._missed = 0
                self._await_commit()
            else:
                self._look_for_missed(events)

    def _urgent(self) -> bool:
        return any(listener.urgent for listener in self._waiting)

    def _patient(self) -> bool:
        return all(listener.patient for listener in self._waiting)

    def _rest_in_burst(self) -> None:
        """Pause before the next poll; ended by a listener that begins to wait for something more urgent."""
        self._wanted.clear()
        if self._patient() and not self._closing:
            self._wanted.wait(BUSY_PAUSE)
        else:
            sleep(BRISK_PAUSE)

    def _written(self, events: LogEvents) -> bool:
        """Wait for a write to the log; returns whether there was one."""
        if self._recent > BURST:
            sleep(BRISK_PAUSE)
        self._recent = self._recent + 1 if self._recent and events.wait(BRISK_PAUSE) else 0
        if not self._recent:
            self._recent = int(events.wait(FALLBACK_PAUSE))
        return self._recent > 0

    def _await_commit(self) -> None:
        """The log was written to: poll until that is committed."""
        # A write soon after another may belong to the same commit, which was seen already.
        max_polls = len(COMMIT_PAUSES) if self._recent == 1 else self._usual_polls + 4
        for polls, pause in enumerate(COMMIT_PAUSES[:max_polls]):
            # If it is committed already, the event of the next commit may have been read together with its own.
            if (self._look_safely() and polls) or self._closing:
                self._usual_polls = max(polls, self._usual_polls - 1)
                return
            sleep(pause)

    def _look_for_missed(self, events: LogEvents) -> None:
        """Poll after a time without events. If some are missing, do not rely on them any more."""
        self._missed += self._look_safely()
        if self._events is events and (events.ended or self._missed >= MISSED_LIMIT):
            self._end_events()

    def _look_safely(self) -> bool:
        try:
            with self._fork_lock.lock:
                return self._look_once()
        except (sqlite3.OperationalError, UnicodeEncodeError):
            return False  # busy for a moment, disk full, or a topic that cannot be encoded: poll again

    def _look_once(self) -> bool:
        """Whether another connection has committed since the last poll; notifies the listeners concerned."""
        if self.connection is None:
            self.connection, self._seen = self._connect(), None
        version = self.connection.execute(sql.DATA_VERSION).fetchone()[0]
        if version == self._seen:
            return False
        if self._seen is None:  # the log exists now, perhaps a new one
            self._end_events()
            self._missed = 0
            self._events = LogEvents.of(self._files.path + "-wal")
        seen, self._seen = self._seen, version
        try:
            self._notify_concerned(self.connection)
        except sqlite3.OperationalError:
            self._seen = _UNSEEN if seen is None else seen  # the next poll notifies
            raise
        return True

    def _notify_concerned(self, connection: sqlite3.Connection) -> None:
        """Notify each listener with a ready job, a new next due time, an ended job or changed records."""
        # Also those that do not wait at present: they may be about to.
        concerned = [listener for listener in self._all if _concerned(connection, listener)]
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
    if kind == "holder":
        known = listener.next.get(topic)
        listener.next[topic] = connection.execute(sql.REQUESTS, (name,)).fetchone() or (0, 0)
        return listener.next[topic] != (known or (0, 0))
    if kind in ("record", "note"):
        known, statement = listener.next.get(topic), sql.LAST_RECORD if kind == "record" else sql.NOTED
        listener.next[topic] = connection.execute(statement, (name,)).fetchone()
        return listener.next[topic] != known
    row = connection.execute(sql.ENDED, (name,)).fetchone()
    return row is None or row[0] == 1


def _notify_all(listeners: list[SqliteListener]) -> None:
    for listener in listeners:
        listener.event.set()
