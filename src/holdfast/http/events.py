"""What jobs do, as server-sent events: each ends with a cursor, and Last-Event-ID goes on from it.

Streams that stand at the same moment share one look at the store.
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
from .shapes import Moved

if TYPE_CHECKING:
    from ..app import Holdfast

MOVES_EVERY = 0.25
"""Seconds between two looks at the store, while somebody watches."""
TROUBLE = 2.0
"""Seconds until the next look, where the store did not answer."""
STILL_HERE = 15.0
"""Seconds of silence after which a comment keeps the line open."""
TRANSITIONS_PER_READ = 500
"""Moves of one look."""


async def events(call: Call) -> Stream:
    """What jobs do, as it happens: `job` events, and `reset` where some were missed."""
    last = call.header(b"last-event-id")
    try:
        since = None if not last else checked_cursor(last.decode())
    except UnicodeDecodeError:
        raise InvalidJob("Last-Event-ID is not one that this stream gave") from None
    service = call.service
    if service.streams >= limits.STREAMS:
        raise Refused(BUSY, "too many streams are open already", retry_safe=True, retry_after=limits.RETRY_AFTER)
    service.streams += 1  # before anything is awaited, so that those who come at once are counted too
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
    """The events of one look. The cursor stands at its end, so whoever is cut off before gets it all again."""
    told = [encode(Moved(move.id, move.state, moment(move.at))) for move in answer.transitions]
    lines = [b"event: reset\ndata: {}\n"] * answer.missed + [b"event: job\ndata: %s\n" % one for one in told]
    if not lines:
        return b"event: here\nid: " + answer.cursor.encode() + b"\ndata: {}\n\n"
    lines[-1] += b"id: " + answer.cursor.encode() + b"\n"
    return b"\n".join(lines) + b"\n"


class Feed:
    """One look at the store for all who stand at the same moment, and none while nobody watches."""

    def __init__(self, app: Holdfast) -> None:
        self._app = app
        self._looks: dict[str, _Look] = {}

    async def after(self, cursor: str) -> Transitions:
        """What came after a moment, as soon as something has."""
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
                self._forget(cursor, look)  # first, so that nobody who comes now shares its end
                look.task.cancel()

    def _forget(self, cursor: str, look: _Look) -> None:
        if self._looks.get(cursor) is look:
            del self._looks[cursor]

    async def _look(self, cursor: str) -> Transitions:
        since = cursor
        while True:
            await asyncio.sleep(MOVES_EVERY)
            try:
                answer = await self._app.transitions(since, TRANSITIONS_PER_READ)
            except (StoreUnavailable, OutcomeUnknown):
                await asyncio.sleep(TROUBLE)
                continue
            if answer.transitions or answer.missed:
                return answer
            since = answer.cursor

    def close(self) -> None:
        """Stop looking."""
        for look in list(self._looks.values()):
            look.task.cancel()


class _Look:
    """A look at the store, and how many wait for it."""

    def __init__(self, task: asyncio.Task[Transitions]) -> None:
        self.task = task
        self.watchers = 0
