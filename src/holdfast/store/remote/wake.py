"""Listeners, notified through one stream from the server.

The first listener opens the stream, with all topics at that time. Separate calls add and remove topics later; if the
server does not know the stream (another process, or a restart), a new one is opened. A listener is also notified once
its topics are registered, so that its owner checks for events before that.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

import aiohttp
import msgspec

from ...core.errors import HoldfastError
from ..notify import LINGER, LocalListener
from ..rpc import EMPTY_LINE_EVERY, LISTEN, TOPICS, Topics
from . import trouble
from .link import Link

log = logging.getLogger("holdfast")
PAUSES = (0.05, 0.2, 1.0, 5.0)
"""Seconds before each attempt to listen again; the last one repeats."""
STALE_TOPICS = 64
"""Unused topics from which the server is called to remove them; fewer wait for the next new topic."""


class Listeners:
    """All listeners of one store object, and the stream that notifies them."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._wanted: dict[str, set[LocalListener]] = {}
        """The listeners by topic."""
        self._registered: set[str] = set()
        """The topics that are registered at the server."""
        self._topics_changed = asyncio.Event()
        self._listening: asyncio.Task[None] | None = None
        self._warned = False

    def make(self, topics: Iterable[str]) -> LocalListener:
        listener = LocalListener(frozenset(topics), self.remove)
        for topic in listener.topics:
            self._wanted.setdefault(topic, set()).add(listener)
        if self._registered.issuperset(listener.topics):
            listener.event.set()
        if self._listening is None:
            self._listening = asyncio.get_running_loop().create_task(self._listen())
        self._topics_changed.set()
        return listener

    def remove(self, listener: LocalListener) -> None:
        for topic in listener.topics:
            listeners = self._wanted.get(topic, set())
            listeners.discard(listener)
            if not listeners:
                self._wanted.pop(topic, None)
        self._topics_changed.set()
        if not self._wanted and self._listening is not None and not (loop := self._listening.get_loop()).is_closed():
            loop.call_later(LINGER, self._rest)

    def _rest(self) -> None:
        """Close the stream after some time without listeners."""
        if not self._wanted and self._listening is not None:
            self._listening.cancel()
            self._listening = None

    def _notify(self, topics: Iterable[str]) -> None:
        for topic in topics:
            for listener in self._wanted.get(topic, ()):
                listener.event.set()

    async def close(self) -> None:
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.wait([self._listening])
            self._listening = None
        self._notify(self._wanted)

    # -- the stream

    async def _listen(self) -> None:
        """Listen for as long as the store is open, whatever happens to the stream."""
        faults = 0
        while True:
            try:
                await self._serve()
            except (HoldfastError, trouble.Unsent, trouble.Lost, trouble.Failed, ValueError) as error:
                faults = 0 if self._registered else faults + 1
                self._warn(error)
            finally:
                self._registered = set()
            await asyncio.sleep(PAUSES[min(faults, len(PAUSES) - 1)])

    async def _serve(self) -> None:
        """Read one stream, from its first line, which is its name, to its end."""
        first = set(self._wanted)
        silence = EMPTY_LINE_EVERY + self._link.address.timeout
        async with self._link.stream(LISTEN, msgspec.json.encode((sorted(first),)), silence) as content:
            name = msgspec.json.decode(await _line(content), type=str)
            self._registered, self._warned = first, False
            self._notify(first)
            registering = asyncio.create_task(self._register_topics(name))
            registering.add_done_callback(lambda task: task.cancelled() or content.set_exception(_reason(task)))
            try:
                while True:
                    if text := await _line(content):
                        self._notify([msgspec.json.decode(text, type=str)])
            finally:
                registering.cancel()
                await asyncio.wait([registering])

    async def _register_topics(self, stream: str) -> None:
        """Send new and unused topics to the server, all pending ones in one call."""
        while True:
            await self._topics_changed.wait()
            self._topics_changed.clear()
            new, stale = self._wanted.keys() - self._registered, self._registered - self._wanted.keys()
            if not new and len(stale) < STALE_TOPICS:
                continue
            await self._link.call(TOPICS, Topics(stream, sorted(new), sorted(stale)))
            self._registered = (self._registered | new) - stale
            self._notify(new)

    def _warn(self, error: Exception) -> None:
        if not self._warned:
            self._warned = True
            log.warning(
                "no notifications from %s for now, so this process finds jobs by polling; check that server: %s",
                self._link.address,
                error,
            )


def _reason(task: asyncio.Task[None]) -> BaseException:
    return task.exception() or trouble.Lost("the task that sends topics to the server ended")


async def _line(content: aiohttp.StreamReader) -> bytes:
    line = await content.readuntil(b"\n")
    if not line.endswith(b"\n"):
        raise trouble.Lost("the server ended the stream")
    return line[:-1]
