"""Listeners: notified by writes of this store object at once, and by other clients through sharded channels.

One connection per store object, opened by the first listener. A listener for the end of a job also subscribes to the
channel `job`, so that the scripts publish the end of each job. A listener is also notified once its topics are
subscribed, so that its owner checks for events before that.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable
from typing import Any, cast

from ...core.errors import HoldfastError
from ..notify import LINGER, LocalListener
from .address import Address
from .connect import connect
from .resp import Connection, Lost, Reply, ReplyError

log = logging.getLogger("holdfast")
PAUSES = (0.05, 0.2, 1.0, 5.0)
"""Seconds before each attempt to listen again; the last one repeats."""
MARK = "job"
"""The channel of all listeners for the end of a job."""
PING_EVERY = 15.0
"""Seconds without data after which the server is sent a PING."""


class Listeners:
    """All listeners of one store object, and the connection that receives notifications for them."""

    def __init__(self, address: Address, key: str) -> None:
        self._address = address
        self._key = key
        self._head = key.removesuffix("seq")
        self._all: set[LocalListener] = set()
        self._topics: Counter[str] = Counter()
        self._leaving: Counter[str] = Counter()
        """Unsubscribed topics that the server has not confirmed yet."""
        self._listening: asyncio.Task[None] | None = None
        self._connection: Connection | None = None
        self._subscribed: set[str] = set()
        """Topics whose subscription the server has confirmed."""
        self._received = False
        self._warned = False

    def make(self, topics: Iterable[str]) -> LocalListener:
        listener = LocalListener(frozenset(topics), self.remove, lambda names: names <= self._subscribed)
        self._all.add(listener)
        new = [topic for topic in listener.topics if not self._topics[topic]]
        self._topics.update(listener.topics)
        new += self._mark(listener, 1)
        if self._listening is None:
            self._listening = asyncio.get_running_loop().create_task(self._listen())
        elif self._connection is not None:
            self._subscribe(self._connection, new)
            if not new:
                listener.event.set()
        return listener

    def remove(self, listener: LocalListener) -> None:
        if listener not in self._all:
            return
        self._all.discard(listener)
        self._topics.subtract(listener.topics)
        self._mark(listener, -1)
        for topic in [
            topic for topic in (*listener.topics, MARK) if topic in self._topics and self._topics[topic] <= 0
        ]:
            del self._topics[topic]
            self._subscribed.discard(topic)
            if self._connection is not None:
                self._connection.send("SUNSUBSCRIBE", self._head + topic)
                self._leaving[topic] += 1
        if not self._all and self._listening is not None and not (loop := self._listening.get_loop()).is_closed():
            loop.call_later(LINGER, self._rest)

    def _rest(self) -> None:
        """Close the connection after some time without listeners."""
        if not self._all and self._listening is not None:
            self._listening.cancel()
            self._listening = None

    def _mark(self, listener: LocalListener, by: int) -> list[str]:
        """Count the listeners that wait for jobs; returns [MARK] for the first."""
        if not any(topic.startswith("job/") for topic in listener.topics):
            return []
        self._topics[MARK] += by
        return [MARK] if self._topics[MARK] == by else []

    @property
    def wait_for_jobs(self) -> bool:
        """Whether a listener of this process waits for the end of a job."""
        return self._topics[MARK] > 0

    def notify(self, topics: Iterable[str]) -> None:
        """Notify listeners of a write of this store object."""
        if self._all:
            notified = set(topics)
            for listener in self._all:
                if not listener.topics.isdisjoint(notified):
                    listener.event.set()

    async def close(self) -> None:
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.wait([self._listening])
            self._listening = None
        for listener in self._all:
            listener.event.set()

    def leave(self) -> None:
        """Another server is the primary: listen there."""
        if self._connection is not None:
            self._connection.close()

    def release(self) -> None:
        """The loop has ended."""
        if self._connection is not None:
            self._connection.release()

    def forget(self) -> None:
        """In a forked child."""
        if self._connection is not None:
            self._connection.forget()

    # -- the connection

    async def _listen(self) -> None:
        """Listen for as long as the store is open, whatever happens to the connection."""
        faults = 0
        while True:
            try:
                connection = await connect(self._address, self._key)
            except (HoldfastError, OSError) as error:
                self._warn(error)
            else:
                faults, self._warned = 0, False
                await self._serve(connection)
            await asyncio.sleep(PAUSES[min(faults, len(PAUSES) - 1)])
            faults += 1

    async def _serve(self, connection: Connection) -> None:
        connection.listen(self._message)
        self._connection = connection
        self._leaving.clear()
        try:
            self._subscribe(connection, list(self._topics))
            while not connection.closed:
                self._received = False
                await asyncio.wait([connection.ended], timeout=PING_EVERY)
                if not self._received and not connection.closed:
                    # Idle, or a dead connection: send a PING, and reconnect if it is not answered.
                    connection.send("PING")
                    await asyncio.wait([connection.ended], timeout=self._address.timeout)
                    if not self._received:
                        break
        finally:
            self._connection = None
            self._subscribed.clear()
            connection.close()

    def _subscribe(self, connection: Connection, topics: list[str]) -> None:
        for topic in topics:
            connection.send("SSUBSCRIBE", self._head + topic)

    def _message(self, reply: Reply) -> None:
        self._received = True
        if isinstance(reply, ReplyError):
            # The slot has moved, or the user may not listen: connect again, and poll until then.
            self._warn(reply)
            if self._connection is not None:
                self._connection.close()
            return
        if not isinstance(reply, list):
            return
        parts = cast("list[Any]", reply)
        kind = parts[0]
        if kind in (b"smessage", b"ssubscribe"):
            topic = parts[1].decode().removeprefix(self._head)
            if kind == b"ssubscribe" and topic in self._topics:
                self._subscribed.add(topic)
            self.notify([topic])
        elif kind == b"sunsubscribe" and parts[1] is not None:
            self._unsubscribed(parts[1].decode().removeprefix(self._head))

    def _unsubscribed(self, topic: str) -> None:
        """A subscription ended: because this store ended it, or because the slot has moved to another node."""
        if self._leaving[topic] > 0:
            self._leaving[topic] -= 1
        elif self._topics[topic] > 0 and self._connection is not None:
            self._connection.close()

    def _warn(self, error: Exception | Lost) -> None:
        if not self._warned:
            self._warned = True
            log.warning(
                "no notifications from %s for now, so this process finds jobs by polling; check that server: %s",
                self._address,
                error,
            )
