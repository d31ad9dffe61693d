"""Server-sent events: the chunks of a job as events, and streams that end with their client, token or server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any

import msgspec

from ..client.handles import MAX_POSITION
from ..core.errors import InvalidJob, JobNotFound, OutcomeUnknown, StoreUnavailable
from ..tasks.handle import Handle
from . import limits
from .call import Call, Stream, encode
from .problems import BUSY, Refused
from .shapes import REMOVED, StreamEnd

RETRY = b"retry: 2000\n\n"
"""The first line: clients reconnect after 2 s."""
RETRY_EVERY = 2.0
"""Seconds until the next read if the store did not respond."""
COMMENT_EVERY = 2.0
"""Seconds without events after which a comment is sent: the dashboard reports a server that is silent for 4 s."""


async def alive(
    pieces: AsyncGenerator[bytes],
    over: Sequence[asyncio.Future[Any]] = (),
    may_go_on: Callable[[], Awaitable[bool]] | None = None,
    first: bytes = b"",
) -> AsyncGenerator[bytes]:
    """The first and the other pieces, with comments in between, until one of `over` is done or the client may not read
    on.
    """
    reading: asyncio.Future[bytes | None] | None = None
    try:
        yield RETRY + first
        while True:
            reading = asyncio.ensure_future(anext(pieces, None))
            while not reading.done():
                await asyncio.wait([reading, *over], timeout=COMMENT_EVERY, return_when=asyncio.FIRST_COMPLETED)
                if any(one.done() for one in over) or (may_go_on is not None and not await may_go_on()):
                    return
                if not reading.done():
                    yield b": keep-alive\n\n"
            if (piece := reading.result()) is None:
                return
            yield piece
    finally:
        if reading is not None and not reading.done():
            reading.cancel()
            await asyncio.wait([reading])
        await pieces.aclose()


def reserve(call: Call) -> None:
    """Count a stream of this server, before the first await; Refused if there are too many."""
    if call.service.streams >= limits.STREAMS:
        detail = f"{limits.STREAMS} event streams are already open on this server; try again later"
        raise Refused(BUSY, detail, retry_safe=True, retry_after=limits.RETRY_AFTER)
    call.service.streams += 1


def answer(call: Call, pieces: AsyncGenerator[bytes], first: bytes = b"") -> Stream:
    """A reserved stream of these pieces."""
    return Stream(_live(call, pieces, first), b"text/event-stream; charset=utf-8", call.service.stream_ended)


async def _live(call: Call, pieces: AsyncGenerator[bytes], first: bytes) -> AsyncGenerator[bytes]:
    over = asyncio.ensure_future(call.gone()), asyncio.ensure_future(call.service.stopping.wait())
    try:
        async with aclosing(alive(pieces, over, lambda: call.still_may("read"), first)) as sent:
            async for piece in sent:
                yield piece
    finally:
        for task in over:
            task.cancel()


# -- the chunks of a job


def resumed_at(last_event_id: bytes | str | None, position: int = 0) -> int:
    """Where a client continues: the id of the last event that it has, else `position`."""
    if not last_event_id:
        return position
    text = last_event_id.decode("latin-1") if isinstance(last_event_id, bytes) else last_event_id
    if not text.isascii() or not text.isdecimal() or len(text) > 18 or int(text) >= MAX_POSITION:
        raise InvalidJob("Last-Event-ID is not an id of this stream; omit the header to start from the beginning")
    return int(text)


async def checked(handle: Handle[Any], position: int) -> None:
    """Raise what a stream from this position would raise: before its first byte is sent."""
    await handle.job()
    async with aclosing(handle.stream(position, follow=False)) as chunks:
        await anext(chunks, None)


async def chunk_events(handle: Handle[Any], position: int, *, follow: bool = True) -> AsyncGenerator[bytes]:
    """The chunks after a position as `chunk` events, whose ids are positions, and `end` once the job has ended.

    While the store does not respond, it goes on: a browser would not connect again after the answer 503. It ends
    before a damaged chunk, of which the answer to the next connection tells. Without `follow`, only the stored chunks,
    and no `end`.
    """
    status = ""
    while not status:
        try:
            async with aclosing(handle.stream(position, follow=follow)) as chunks:
                async for chunk in chunks:
                    position, data = chunk.position, encode(msgspec.structs.asdict(chunk))
                    yield b"event: chunk\nid: %d\ndata: %s\n\n" % (position, data)
            if not follow:
                return
            status = (await handle.job()).state.value
        except JobNotFound:  # removed at its end
            status = REMOVED
        except (StoreUnavailable, OutcomeUnknown):
            await asyncio.sleep(RETRY_EVERY)
        except InvalidJob:
            return
    yield b"event: end\ndata: %s\n\n" % encode(StreamEnd(status))
