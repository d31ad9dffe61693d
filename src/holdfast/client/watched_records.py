"""Records that a process reads repeatedly (pauses, schedules, ends of flow jobs), fetched by one read."""

from __future__ import annotations

import asyncio
import math

from ..store.protocol import Store, Versioned


class WatchedRecords:
    """The last read of all watched kinds. Each part of a worker takes its kind from it, or reads if it is too old."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kinds: set[str] = set()
        self._found: dict[str, dict[str, Versioned]] = {}
        self._read_at = -math.inf
        self._reading = asyncio.Lock()
        self._loop = asyncio.get_running_loop()

    def watch(self, kind: str) -> None:
        """Include this kind in every read from now on."""
        self._kinds.add(kind)

    async def of(self, kind: str, max_age: float = 0.0) -> dict[str, Versioned]:
        """The records of a kind, by name, from a read that began less than `max_age` seconds ago; 0: from a new read.

        Reads are sequential, so a later answer is never from an earlier read.
        """
        self.watch(kind)
        async with self._reading:
            asked = self._loop.time()
            if kind not in self._found or asked - self._read_at >= max_age:
                self._found, self._read_at = await self._store.records(sorted(self._kinds)), asked
            return dict(self._found[kind])
