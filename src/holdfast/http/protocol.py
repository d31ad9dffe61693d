"""The connection below the service: uvicorn's, with limits that it does not have.

1. Line and headers arrive within a time and a size, bodies within a time, or the client is told and cut off.
2. Nothing follows a body: a trailer would be a header that comes when the door has let its request in.
3. A client that stops reading its answer is cut off.
4. A request that waits learns that another stands behind it: from then on nobody hears whether the client is there.
5. What is not HTTP gets a problem document like everything else.
6. `room.py` says which connections may stay, and hears from which of them a valid token came.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from . import limits
from .call import ADMITTED, FOLLOWED, REFUSED, encode, problem
from .connection_limits import Room
from .problems import BAD_REQUEST, BUSY, CONTENT_TYPE, TOO_SLOW, Kind, Problem, Refused

HEADERS_TOO_LARGE = Kind("headers-too-large", 431, "The request's line and headers are too large")


ADMITTED_EVERY = 60.0
"""Seconds after which the room hears of a connection's valid token again."""
HEADERS_DETAIL = f"they may have {limits.HEADERS} bytes"
TRAILERS = "there is something behind the body: trailers are not taken here"


async def _too_large(_: Scope, __: Receive, send: Send) -> None:
    """What a request with too large headers is handed to, where they came all at once; the connection ends with it."""
    await problem(Refused(HEADERS_TOO_LARGE, HEADERS_DETAIL, connection="close")).send(send)


async def _too_many(_: Scope, __: Receive, send: Send) -> None:
    """What a request is handed to that came on one connection too many."""
    detail = "this server has as many connections as it takes"
    busy = Refused(BUSY, detail, retry_safe=True, retry_after=limits.RETRY_AFTER, connection="close")
    await problem(busy).send(send)


class Connection(HttpToolsProtocol):
    """One client's connection. What arrives whole, as most requests do, costs no timer."""

    _header_bytes = 0
    _in_headers = True
    _bare_bytes = 0
    """Of a request's body, since there was last something of it among what came: sizes of chunks, and trailers."""
    _malformed: str | None = None
    """What is wrong with the request, where we know better than the parser."""
    _late: asyncio.TimerHandle | None = None
    """Runs while a request has begun to arrive and is not whole."""
    _unread: asyncio.TimerHandle | None = None
    _peer = ""
    _proxied = False
    """It comes from a proxy that is trusted."""
    _address = ""
    """Of the client: the peer's, or the one that a proxy forwards."""
    _admitted_at = float("-inf")
    _refused = False
    """It was told why, and is about to be closed."""

    def __init__(self, room: Room, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._room = room

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        super().connection_made(transport)
        now = self.loop.time()
        self._peer = self.client[0] if self.client else ""
        self._proxied = self._room.trusts(self._peer)
        over = self._room.over(len(self.connections), now)
        if over > limits.TOLD:
            transport.abort()
        elif over > 0:
            self.app = _too_many
        elif not self._proxied and not self._room.enter(self, self._peer, now):
            transport.abort()
        self._late = self.loop.call_later(limits.HEADERS_SECONDS, self._headers_late)

    @property
    def idle(self) -> bool:
        """No request on it waits for its answer, but for one with a wrong token."""
        return self._answered or REFUSED in self.cycle.scope

    @property
    def _answered(self) -> bool:
        last = cast("RequestResponseCycle | None", self.cycle)
        return last is None or last.response_complete

    def cut(self) -> None:
        """Close it now; it counts no more."""
        self.connections.discard(self)
        self.transport.abort()

    def _admitted(self) -> None:
        now = self.loop.time()
        if self._proxied or now - self._admitted_at >= ADMITTED_EVERY:
            self._admitted_at = now
            self._room.admitted(self, self._address, now)

    def connection_lost(self, exc: Exception | None) -> None:
        self._room.leave(self)
        self._arrived()
        if self._unread is not None:
            self._unread.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._refused:  # nothing of it counts; a little is taken in, so that the answer arrives
            self._bare_bytes += len(data)
            if self._bare_bytes > limits.HEADERS:
                self.transport.abort()
            return
        if self._in_headers:
            self._header_bytes += len(data)
        else:
            self._bare_bytes += len(data)
        super().data_received(data)
        if self.transport.is_closing() or self._refused:
            return
        if self._in_headers:
            if self._header_bytes > limits.HEADERS:
                self._refuse(HEADERS_TOO_LARGE, HEADERS_DETAIL)
            elif self._late is None and self._header_bytes:
                self._late = self.loop.call_later(limits.HEADERS_SECONDS, self._headers_late)
        elif self._bare_bytes > limits.HEADERS:  # a trailer is told of when it has ended, which one may never do
            self._refuse(BAD_REQUEST, TRAILERS)
        elif self._late is None and self.cycle.more_body:
            self._late = self.loop.call_later(limits.BODY_SECONDS, self._body_late)

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_headers:
            self._malformed = TRAILERS
            raise ValueError(TRAILERS)  # which the parser ends with, and `send_400_response` tells
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_headers, self._bare_bytes = False, 0
        self._arrived()
        if sum(len(name) + len(value) for name, value in self.headers) + len(self.url) > limits.HEADERS:
            self.app = _too_large
        if self._proxied:
            self._address = self._room.forwarded(self.headers, self._peer)
            self.scope["client"] = (self._address, 0)
            if self._answered and not self._room.enter(self, self._address, self.loop.time()):
                self.app = _too_many
        else:
            self._address = self._peer
        self.scope[ADMITTED] = self._admitted  # pyright: ignore[reportGeneralTypeIssues]
        before = cast("RequestResponseCycle | None", self.cycle)  # None at first, whatever uvicorn declares
        super().on_headers_complete()
        if before is not None and not before.response_complete:
            before.scope[FOLLOWED] = True  # pyright: ignore[reportGeneralTypeIssues]
            before.message_event.set()

    def on_response_complete(self) -> None:
        if self._proxied:
            self._room.leave(self)
        super().on_response_complete()

    def on_body(self, body: bytes) -> None:
        self._bare_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_headers, self._header_bytes = True, 0
        self._arrived()
        super().on_message_complete()

    def _arrived(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _headers_late(self) -> None:
        self._late = None
        if not self._answered:
            return  # it is still being answered: its end, or the next bytes, start the time again
        if not self.transport.is_closing() and not self._refused:
            self._refuse(TOO_SLOW, f"line and headers did not arrive within {limits.HEADERS_SECONDS:g} s")

    def _body_late(self) -> None:
        if self.transport.is_closing() or self._refused:
            return
        if self.cycle.response_started:  # it was answered before it was whole, and the rest is not awaited
            self.transport.close()
        else:
            self._refuse(TOO_SLOW, f"the body did not arrive within {limits.BODY_SECONDS:g} s")

    def pause_writing(self) -> None:
        super().pause_writing()
        self._await_reading()

    def _await_reading(self) -> None:
        unread = self.transport.get_write_buffer_size()
        self._unread = self.loop.call_later(limits.UNREAD_SECONDS, self._check_reading, unread)

    def _check_reading(self, before: int) -> None:
        """A large answer may take its time, as long as some of it is read."""
        if self.transport.get_write_buffer_size() < before:
            self._await_reading()
        else:
            self.transport.abort()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()

    def send_400_response(self, msg: str) -> None:
        self._refuse(BAD_REQUEST, self._malformed or msg)

    def _refuse(self, kind: Kind, detail: str) -> None:
        """Say so, and close: what comes next on this connection cannot be told from what came before."""
        body = encode(Problem(kind.type, kind.title, kind.status, detail))
        head = b"content-type: %s\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % (CONTENT_TYPE, len(body))
        self.transport.write(STATUS_LINE[kind.status] + head + body)
        self._arrived()
        if self.transport.can_write_eof():
            self.transport.write_eof()
            self._refused, self._bare_bytes = True, 0
            self._late = self.loop.call_later(limits.LINGER_SECONDS, self.transport.close)
        else:
            self.transport.close()
