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
from . import sse
from .call import Call, Stream, encode
from .shapes import TransitionOut

if TYPE_CHECKING:
    from ..app import Holdfast

TRANSITIONS_EVERY = 0.25
"""Seconds between two reads of the store, while a stream is open."""
TRANSITIONS_PER_READ = 500
"""Maximum transitions per read."""


async def events(call: Call) -> Stream:
    """Stream transitions of jobs: `job` events, and `reset` if some were missed."""
    last = call.header(b"last-event-id")
    try:
        since = None if not last else checked_cursor(last.decode())
    except (UnicodeDecodeError, InvalidJob):
        raise InvalidJob("Last-Event-ID is not an id of this stream; omit the header to start from now") from None
    sse.reserve(call)
    try:
        first = await call.app.timeseries.transitions(since, TRANSITIONS_PER_READ)
    except BaseException:
        call.service.stream_ended()
        raise
    return sse.answer(call, _reads(call, first.cursor), _written(first))


async def _reads(call: Call, cursor: str) -> AsyncGenerator[bytes]:
    while True:
        answer = await call.service.feed.after(cursor)
        yield _written(answer)
        cursor = answer.cursor


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
        self._reads: dict[str, _Read] = {}

    async def after(self, cursor: str) -> Transitions:
        """Wait for transitions after a cursor."""
        read = self._reads.get(cursor)
        if read is None:
            read = self._reads[cursor] = _Read(asyncio.ensure_future(self._read(cursor)))
            read.task.add_done_callback(lambda _, read=read: self._drop(cursor, read))
        read.streams += 1
        try:
            return await asyncio.shield(read.task)
        finally:
            read.streams -= 1
            if read.streams == 0:
                self._drop(cursor, read)  # before the cancel, so that no new stream shares it
                read.task.cancel()

    def _drop(self, cursor: str, read: _Read) -> None:
        if self._reads.get(cursor) is read:
            del self._reads[cursor]

    async def _read(self, cursor: str) -> Transitions:
        since = cursor
        while True:
            await asyncio.sleep(TRANSITIONS_EVERY)
            try:
                answer = await self._app.timeseries.transitions(since, TRANSITIONS_PER_READ)
            except (StoreUnavailable, OutcomeUnknown):
                await asyncio.sleep(sse.RETRY_EVERY)
                continue
            if answer.transitions or answer.missed:
                return answer
            since = answer.cursor

    def close(self) -> None:
        for read in list(self._reads.values()):
            read.task.cancel()


class _Read:
    """A pending read of the store, and the number of streams that wait for it."""

    def __init__(self, task: asyncio.Task[Transitions]) -> None:
        self.task = task
        self.streams = 0
