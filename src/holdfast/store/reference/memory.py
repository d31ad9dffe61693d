"""The in-memory store, which is also the reference: jobs of this process, with a lock and a clock.

Its answers define what other stores must answer; the conformance suite's state machine compares them with it.
A sibling shares the same jobs, so several loops and threads of one process may use one memory store.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from copy import copy
from itertools import islice

from ...core import operations as ops
from ...core.clock import MICROS, Clock, SystemClock
from ...core.job import Record
from ..notify import LocalListener
from ..protocol import WATCH, Answers, Batch, Listener, Versioned
from .jobs import Holding, Jobs


class _Data:
    """What siblings share: the jobs, and the time of each holder's last heartbeat by the machine's boot clock."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.lock = threading.Lock()
        self.jobs = Jobs()
        self.heartbeats: dict[str, tuple[int, int]] = {}
        """The number of each holder's last heartbeat, and its time."""
        self.watched_until = 0
        self.listeners: dict[LocalListener, None] = {}
        """In the order of their creation, so that every run notifies them in the same order."""

    def mark(self, holder: str) -> None:
        """Store the time of the holder's last heartbeat, if it is new."""
        known = self.jobs.holders.get(holder)
        if known is not None and self.heartbeats.get(holder, (0, 0))[0] != known.heartbeat:
            self.heartbeats[holder] = (known.heartbeat, self.clock.boot())

    def silent(self, holder: str) -> int:
        """Microseconds since the holder's last heartbeat; 0 for one that the current write creates."""
        return self.clock.boot() - self.heartbeats[holder][1] if holder in self.heartbeats else 0

    def renews(self, holder: ops.Holder) -> bool:
        lease = int(holder.lease * MICROS)
        return self.silent(holder.id) > lease - lease // 2

    def ended(self, known: Holding) -> bool:
        return known.left or self.silent(known.holder.id) >= int(known.lease * MICROS)

    def write(self, batch: Batch) -> Answers:
        self.jobs.records_transitions = self.clock.boot() < self.watched_until
        answers = self.jobs.write(batch, self.clock.now(), self.renews)
        for ask in batch.asks:
            self.mark(ask.holder.id)
        return answers

    def heartbeat(self, holder: ops.Holder) -> ops.HeartbeatReply:
        heartbeat = self.jobs.heartbeat(holder)
        self.mark(holder.id)
        return heartbeat

    def tidy(self, limit: int) -> ops.Tidied:
        tidied = self.jobs.tidy(self.clock.now(), limit, self.ended)
        self.heartbeats = {name: heartbeat for name, heartbeat in self.heartbeats.items() if name in self.jobs.holders}
        return tidied

    def watch(self, since: str | None, limit: int) -> ops.Transitions:
        self.watched_until = self.clock.boot() + int(WATCH * MICROS)
        return self.jobs.transitions_since(since, limit)

    def remove(self, listener: LocalListener) -> None:
        with self.lock:
            self.listeners.pop(listener, None)

    def notified(self) -> list[LocalListener]:
        """The listeners to notify once the lock is released."""
        notified, self.jobs.notified = self.jobs.notified, set()
        return [listener for listener in self.listeners if not listener.topics.isdisjoint(notified)] if notified else []


class MemoryStore:
    """Jobs in the memory of this process, lost when it ends: for tests and experiments."""

    name = "memory"
    features = frozenset[str]()

    def __init__(self, clock: Clock | None = None, *, _data: _Data | None = None) -> None:
        self._data = _data or _Data(clock or SystemClock())

    async def open(self) -> None:
        """Nothing to connect to."""

    async def close(self) -> None:
        """Nothing to close; the jobs stay for as long as the object exists."""

    def sibling(self) -> MemoryStore:
        return MemoryStore(_data=self._data)

    def release(self) -> None:
        """Nothing to release: listeners of a loop that has ended are not notified."""

    def abandon(self) -> None:
        """Replace the lock, which another thread may have held at the fork; the child has its own copy of the jobs."""
        self._data.lock = threading.Lock()
        self._data.listeners.clear()

    async def write(self, batch: Batch) -> Answers:
        with self._data.lock:
            answers = self._data.write(batch)
            listeners = self._data.notified()
        for listener in listeners:
            listener.notify()
        return answers

    async def heartbeat(self, holders: Sequence[ops.Holder]) -> list[ops.HeartbeatReply]:
        with self._data.lock:
            return [self._data.heartbeat(holder) for holder in holders]

    async def leave(self, holders: Sequence[str]) -> None:
        with self._data.lock:
            for holder in holders:
                self._data.jobs.leave(holder)
                if holder not in self._data.jobs.holders:
                    self._data.heartbeats.pop(holder, None)  # a new holder of this name starts afresh

    async def expired(self, limit: int, holder: str | None = None) -> list[ops.Lost]:
        def is_dead(known: Holding) -> bool:
            return known.holder.id == holder

        with self._data.lock:
            return self._data.jobs.lost(self._data.ended if holder is None else is_dead, limit)

    async def tidy(self, limit: int) -> ops.Tidied:
        with self._data.lock:
            return self._data.tidy(limit)

    async def get(self, ids: Sequence[str]) -> list[Record | None]:
        with self._data.lock:
            return [copy(record) if (record := self._data.jobs.jobs.get(id)) else None for id in ids]

    async def find(self, where: ops.Where, cursor: str | None, limit: int) -> ops.Found:
        before = int(cursor) if cursor is not None else None
        with self._data.lock:
            page = [copy(record) for record in islice(self._data.jobs.newest(where, before), limit + 1)]
        more = len(page) > limit
        return ops.Found(page[:limit], str(page[limit - 1].seq) if more else None)

    async def key_owners(self, keys: Sequence[str]) -> list[str | None]:
        with self._data.lock:
            return [self._data.jobs.key_owner(key) for key in keys]

    async def output(self, id: str, position: int, limit: int, stream: bool = False) -> list[ops.Printed]:
        with self._data.lock:
            return self._data.jobs.output(id, position, limit, stream)

    async def stats(self) -> list[ops.QueueStats]:
        with self._data.lock:
            return self._data.jobs.stats()

    async def transitions(self, since: str | None, limit: int) -> ops.Transitions:
        with self._data.lock:
            return self._data.watch(since, limit)

    async def stats_by_minute(self, since: int) -> list[ops.MinuteStats]:
        with self._data.lock:
            return self._data.jobs.minutes_since(since)

    async def holders(self) -> list[ops.HolderInfo]:
        with self._data.lock:
            return [
                ops.HolderInfo(
                    known.holder,
                    known.heartbeat,
                    self._data.silent(known.holder.id) / MICROS,
                    not self._data.ended(known),
                    tuple(known.jobs),
                )
                for known in self._data.jobs.holders.values()
            ]

    async def records(self, kinds: Sequence[str]) -> dict[str, dict[str, Versioned]]:
        with self._data.lock:
            return self._data.jobs.records(kinds)

    async def put_record(self, kind: str, name: str, value: bytes | None, expect: int | None = None) -> bool:
        with self._data.lock:
            done = self._data.jobs.put_record(kind, name, value, expect)
            listeners = self._data.notified()
        for listener in listeners:
            listener.notify()
        return done

    async def now(self) -> int:
        return self._data.clock.now()

    def notify_all(self) -> None:
        """Notify all listeners: for tests, whose clock may jump."""
        with self._data.lock:
            listeners = list(self._data.listeners)
        for listener in listeners:
            listener.notify()

    def listen(self, topics: Iterable[str]) -> Listener:
        listener = LocalListener(frozenset(topics), self._data.remove)
        with self._data.lock:
            self._data.listeners[listener] = None
        return listener
