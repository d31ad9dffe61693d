"""Records that a process reads repeatedly (settings, pauses, schedules, ends of flow jobs), fetched by one read."""

from __future__ import annotations

import asyncio
import math

from ..store.protocol import Listener, Store, Versioned

IDLE_FACTOR, IDLE_LOOK = 5.0, 5.0
"""Where notifications are reliable, an idle worker polls so many times less often, every IDLE_LOOK seconds at most."""


def idle_pause(poll: float, *, notified: bool) -> float:
    """Seconds between two polls of an idle worker, if notifications are known to arrive, and if not."""
    return max(poll, min(IDLE_FACTOR * poll, IDLE_LOOK)) if notified else poll


class WatchedRecords:
    """The last read of all watched kinds. Each part of a worker takes its kind from it, or reads if it is too old."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kinds: set[str] = set()
        self._found: dict[str, dict[str, Versioned]] = {}
        self._read_at = -math.inf
        self._changed_at: dict[str, float] = {}
        """By kind, when a notification of a change arrived: an earlier read is too old."""
        self._listeners: set[Listener] = set()
        self._reading = asyncio.Lock()
        self._loop = asyncio.get_running_loop()

    def watch(self, kind: str) -> None:
        """Include this kind in every read from now on."""
        self._kinds.add(kind)

    def changes(self, kind: str, poll: float) -> RecordChanges:
        """Watch a kind, and wait for its changes."""
        self.watch(kind)
        listener = self._store.listen([f"record/{kind}"])
        self._listeners.add(listener)
        return RecordChanges(self, kind, listener, poll)

    @property
    def notified(self) -> bool:
        """Whether notifications of changes are known to arrive."""
        return bool(self._listeners) and all(listener.reliable for listener in self._listeners)

    async def wait(self, kind: str, listener: Listener, seconds: float) -> None:
        """Wait for a change of a kind, at most this long. After a change, an earlier read is too old."""
        if await listener.wait(seconds):
            self.changed(kind)

    def changed(self, kind: str) -> None:
        """A kind has changed: an earlier read of it is too old."""
        self._changed_at[kind] = self._loop.time()

    def close(self, listener: Listener) -> None:
        self._listeners.discard(listener)
        listener.close()

    async def of(self, kind: str, max_age: float = 0.0) -> dict[str, Versioned]:
        """The records of a kind, by name, from a read that began at most `max_age` seconds before the call.

        Reads are sequential, so a later answer is never from an earlier read.
        """
        self.watch(kind)
        asked = self._loop.time()
        async with self._reading:
            oldest = max(asked - max_age, self._changed_at.get(kind, -math.inf))
            if kind not in self._found or self._read_at <= oldest:
                await asyncio.sleep(0)  # callers that were notified of the same change share the read
                begun = self._loop.time()
                self._found, self._read_at = await self._store.records(sorted(self._kinds)), begun
            return dict(self._found[kind])


class RecordChanges:
    """Waits for changes of one kind of records, by notifications and by polling."""

    def __init__(self, watched: WatchedRecords, kind: str, listener: Listener, poll: float) -> None:
        self._watched = watched
        self._kind = kind
        self._listener = listener
        self._poll = poll

    @property
    def pause(self) -> float:
        """Seconds between two polls."""
        return idle_pause(self._poll, notified=self._watched.notified)

    @property
    def max_age(self) -> float:
        """Seconds for which a read of any part of the worker may be used."""
        return 1.8 * self.pause if self._watched.notified else self._poll / 2

    async def wait(self, seconds: float) -> None:
        """Wait for a change, at most this long."""
        await self._watched.wait(self._kind, self._listener, seconds)

    def close(self) -> None:
        self._watched.close(self._listener)
