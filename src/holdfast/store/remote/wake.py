"""Waking: listeners, notified through one stream of hints from the server.

The stream is opened when somebody first listens, with all topics of then. Later ones are told to it by calls of their
own; a server that does not know the stream (it is another process, or was restarted) gets a new one. A listener also rings
once its topics are listened for: whatever happened before that is then looked for.
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
"""Topics that nobody listens for any more, and that the server is yet to be told of: they wait for the next new one."""


class Listeners:
    """All listeners of one store object, and the stream that rings them."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._wanted: dict[str, set[LocalListener]] = {}
        """The listeners that listen, by topic."""
        self._told: set[str] = set()
        """What the server knows that we listen for."""
        self._news = asyncio.Event()
        self._listening: asyncio.Task[None] | None = None
        self._warned = False

    def make(self, topics: Iterable[str]) -> LocalListener:
        listener = LocalListener(frozenset(topics), self.remove)
        for topic in listener.topics:
            self._wanted.setdefault(topic, set()).add(listener)
        if self._told.issuperset(listener.topics):
            listener.event.set()
        if self._listening is None:
            self._listening = asyncio.get_running_loop().create_task(self._listen())
        self._news.set()
        return listener

    def remove(self, listener: LocalListener) -> None:
        for topic in listener.topics:
            listeners = self._wanted.get(topic, set())
            listeners.discard(listener)
            if not listeners:
                self._wanted.pop(topic, None)
        self._news.set()
        if not self._wanted and self._listening is not None and not (loop := self._listening.get_loop()).is_closed():
            loop.call_later(LINGER, self._rest)

    def _rest(self) -> None:
        """Nobody has listened for a while: let the stream go."""
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
                faults = 0 if self._told else faults + 1
                self._warn(error)
            finally:
                self._told = set()
            await asyncio.sleep(PAUSES[min(faults, len(PAUSES) - 1)])

    async def _serve(self) -> None:
        """One stream, from its first line, which is its name, to its end."""
        first = set(self._wanted)
        silence = EMPTY_LINE_EVERY + self._link.address.timeout
        async with self._link.stream(LISTEN, msgspec.json.encode((sorted(first),)), silence) as content:
            name = msgspec.json.decode(await _line(content), type=str)
            self._told, self._warned = first, False
            self._notify(first)
            telling = asyncio.create_task(self._tell(name))
            telling.add_done_callback(lambda task: task.cancelled() or content.set_exception(_reason(task)))
            try:
                while True:
                    if text := await _line(content):
                        self._notify([msgspec.json.decode(text, type=str)])
            finally:
                telling.cancel()
                await asyncio.wait([telling])

    async def _tell(self, stream: str) -> None:
        """Tell the server of topics that come and go, as many at once as there are."""
        while True:
            await self._news.wait()
            self._news.clear()
            new, stale = self._wanted.keys() - self._told, self._told - self._wanted.keys()
            if not new and len(stale) < STALE_TOPICS:
                continue
            await self._link.call(TOPICS, Topics(stream, sorted(new), sorted(stale)))
            self._told = (self._told | new) - stale
            self._notify(new)

    def _warn(self, error: Exception) -> None:
        if not self._warned:
            self._warned = True
            log.warning("no notifications from %s for now, polling instead: %s", self._link.address, error)


def _reason(task: asyncio.Task[None]) -> BaseException:
    return task.exception() or trouble.Lost("the task that sends topics to the server ended")


async def _line(content: aiohttp.StreamReader) -> bytes:
    line = await content.readuntil(b"\n")
    if not line.endswith(b"\n"):
        raise trouble.Lost("the server ended the stream")
    return line[:-1]
