"""Notification streams for remote stores: one listener on the server's store per topic, shared by all streams."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress

import msgspec

from ..store.protocol import Listener
from ..store.rpc import EMPTY_LINE_EVERY

MAX_STREAMS = 1024
"""Maximum streams of one server; further clients poll."""
MAX_TOPICS = 10_000
"""Maximum topics of one stream; clients poll for further ones."""
LONG = 3600.0
"""Seconds after which a listener without notifications wakes anyway."""


class Notifications:
    """All notification streams of this server, by name."""

    def __init__(self, listen: Callable[[str], Listener]) -> None:
        self._listen = listen
        self._streams: dict[str, Stream] = {}
        self._watches: dict[str, _Watch] = {}

    def __len__(self) -> int:
        return len(self._streams)

    def open(self, name: str, topics: Iterable[str]) -> Stream:
        stream = self._streams[name] = Stream(name)
        self.change(name, topics, ())
        return stream

    def change(self, name: str, add: Iterable[str], remove: Iterable[str]) -> bool:
        """Add and remove topics of a stream; False if the stream does not exist."""
        stream = self._streams.get(name)
        if stream is None:
            return False
        for topic in stream.topics.intersection(remove):
            self._drop(stream, topic)
        for topic in add:
            if len(stream.topics) >= MAX_TOPICS:
                break
            stream.topics.add(topic)
            watch = self._watches.get(topic)
            if watch is None:
                watch = self._watches[topic] = _Watch(topic, self._listen(topic))
            watch.streams.add(stream)
        return True

    def close(self, stream: Stream) -> None:
        """Close a stream and the listeners that only it used."""
        if self._streams.pop(stream.name, None) is not None:
            for topic in list(stream.topics):
                self._drop(stream, topic)

    def _drop(self, stream: Stream, topic: str) -> None:
        stream.topics.discard(topic)
        watch = self._watches[topic]
        watch.streams.discard(stream)
        if not watch.streams:
            watch.close()
            del self._watches[topic]


class Stream:
    """The topics of one client, and those notified since the last answer."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.topics: set[str] = set()
        self._notified: dict[str, None] = {}
        self._news = asyncio.Event()

    def notify(self, topic: str) -> None:
        self._notified[topic] = None
        self._news.set()

    async def news(self) -> bytes:
        """One line of JSON per notified topic; an empty line after `EMPTY_LINE_EVERY` seconds without any."""
        with suppress(TimeoutError):
            async with asyncio.timeout(EMPTY_LINE_EVERY):
                await self._news.wait()
        self._news.clear()
        notified, self._notified = self._notified, {}
        return b"".join(msgspec.json.encode(topic) + b"\n" for topic in notified) or b"\n"


class _Watch:
    """The listener of one topic, and the streams that use it."""

    def __init__(self, topic: str, listener: Listener) -> None:
        self.streams: set[Stream] = set()
        self._topic = topic
        self._listener = listener
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while True:
            await self._listener.wait(LONG)
            for stream in self.streams:
                stream.notify(self._topic)

    def close(self) -> None:
        self._task.cancel()
        self._listener.close()
