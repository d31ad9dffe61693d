"""Transitions of jobs as server-sent events: each read ends with a cursor, from which Last-Event-ID resumes.

Streams at the same cursor share one read of the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from ..core.errors import InvalidJob, OutcomeUnknown, StoreUnavailable
from ..core.operations import Transitions
from ..core.validation import checked_cursor
from ..views import moment
from . import limits
from .call import Call, Stream, encode
from .problems import BUSY, Refused
from .shapes import TransitionOut

if TYPE_CHECKING:
    from ..app import Holdfast

TRANSITIONS_EVERY = 0.25
"""Seconds between two reads of the store, while a stream is open."""
TROUBLE = 2.0
"""Seconds until the next read if the store did not answer."""
STILL_HERE = 15.0
"""Seconds without events after which a comment is sent to keep the connection open."""
TRANSITIONS_PER_READ = 500
"""Maximum transitions per read."""


async def events(call: Call) -> Stream:
    """Stream transitions of jobs: `job` events, and `reset` if some were missed."""
    last = call.header(b"last-event-id")
    try:
        since = None if not last else checked_cursor(last.decode())
    except UnicodeDecodeError:
        raise InvalidJob("Last-Event-ID is not an id of this stream; omit it to start from now") from None
    service = call.service
    if service.streams >= limits.STREAMS:
        detail = f"{limits.STREAMS} event streams are already open on this server; try again later"
        raise Refused(BUSY, detail, retry_safe=True, retry_after=limits.RETRY_AFTER)
    service.streams += 1  # before the first await, so that concurrent requests are counted
    try:
        first = await call.app.transitions(since, TRANSITIONS_PER_READ)
    except BaseException:
        service.stream_ended()
        raise
    return Stream(_stream(call, first), b"text/event-stream; charset=utf-8", service.stream_ended)


async def _stream(call: Call, answer: Transitions) -> AsyncGenerator[bytes]:
    service = call.service
    gone, stopping = asyncio.ensure_future(call.gone()), asyncio.ensure_future(service.stopping.wait())
    looking: asyncio.Task[Transitions] | None = None
    try:
        yield b"retry: 2000\n\n"
        while True:
            yield _written(answer)
            looking = asyncio.ensure_future(service.feed.after(answer.cursor))
            while not looking.done():
                await asyncio.wait([looking, gone, stopping], timeout=STILL_HERE, return_when=asyncio.FIRST_COMPLETED)
                if gone.done() or stopping.done() or not await call.still_may("read"):
                    return
                if not looking.done():
                    yield b": still here\n\n"
            answer = looking.result()
    finally:
        for task in (gone, stopping, looking):
            if task is not None:
                task.cancel()


def _written(answer: Transitions) -> bytes:
    """The events of one read. The cursor comes last, so an interrupted client gets all of them again."""
    bodies = [encode(TransitionOut(one.id, one.state, moment(one.at))) for one in answer.transitions]
    lines = [b"event: reset\ndata: {}\n"] * answer.missed + [b"event: job\ndata: %s\n" % one for one in bodies]
    if not lines:
        return b"event: here\nid: " + answer.cursor.encode() + b"\ndata: {}\n\n"
    lines[-1] += b"id: " + answer.cursor.encode() + b"\n"
    return b"\n".join(lines) + b"\n"


class Feed:
    """Reads the store once for all streams at the same cursor, and not at all without streams."""

    def __init__(self, app: Holdfast) -> None:
        self._app = app
        self._looks: dict[str, _Look] = {}

    async def after(self, cursor: str) -> Transitions:
        """Wait for transitions after a cursor."""
        look = self._looks.get(cursor)
        if look is None:
            look = self._looks[cursor] = _Look(asyncio.ensure_future(self._look(cursor)))
            look.task.add_done_callback(lambda _, look=look: self._forget(cursor, look))
        look.watchers += 1
        try:
            return await asyncio.shield(look.task)
        finally:
            look.watchers -= 1
            if look.watchers == 0:
                self._forget(cursor, look)  # before the cancel, so that no new stream shares it
                look.task.cancel()

    def _forget(self, cursor: str, look: _Look) -> None:
        if self._looks.get(cursor) is look:
            del self._looks[cursor]

    async def _look(self, cursor: str) -> Transitions:
        since = cursor
        while True:
            await asyncio.sleep(TRANSITIONS_EVERY)
            try:
                answer = await self._app.transitions(since, TRANSITIONS_PER_READ)
            except (StoreUnavailable, OutcomeUnknown):
                await asyncio.sleep(TROUBLE)
                continue
            if answer.transitions or answer.missed:
                return answer
            since = answer.cursor

    def close(self) -> None:
        for look in list(self._looks.values()):
            look.task.cancel()


class _Look:
    """A pending read of the store, and the number of streams that wait for it."""

    def __init__(self, task: asyncio.Task[Transitions]) -> None:
        self.task = task
        self.watchers = 0
