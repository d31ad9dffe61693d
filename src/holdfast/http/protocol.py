"""The HTTP connection: uvicorn's protocol class with additional limits.

1. Request line and headers have a time and a size limit, bodies a time limit; beyond, the client gets an error and is
   disconnected.
2. Trailers are refused: they would be headers that arrive after authentication.
3. A client that stops reading its answer is disconnected.
4. A waiting request is notified when another follows on the connection: from then on a disconnect cannot be seen.
5. Malformed HTTP gets a problem document too.
6. `connection_limits.py` decides which connections stay open, and is notified of valid tokens.
7. A complete answer is sent at once.
"""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import chain
from typing import Any, cast

from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from . import limits
from .call import ADMITTED, FOLLOWED, REFUSED, WHOLE, Answer, encode, problem
from .connection_limits import ConnectionLimits
from .problems import BAD_REQUEST, BUSY, CONTENT_TYPE, TOO_SLOW, Kind, Problem, Refused

HEADERS_TOO_LARGE = Kind("headers-too-large", 431, "The request's line and headers are too large")


ADMITTED_EVERY = 60.0
"""Seconds between two reports of a connection's valid token to `ConnectionLimits`."""
HEADERS_DETAIL = f"request line and headers may have at most {limits.HEADERS} bytes together"
CLOSE = (b"connection", b"close")
TRAILERS = "the request has trailers after its body, which this server does not accept"


async def _too_large(_: Scope, __: Receive, send: Send) -> None:
    """The ASGI app for a request whose headers are too large; closes the connection."""
    await problem(Refused(HEADERS_TOO_LARGE, HEADERS_DETAIL, connection="close")).send(send)


async def _too_many(_: Scope, __: Receive, send: Send) -> None:
    """The ASGI app for a request on a connection over the limit."""
    detail = "this server has reached its maximum of connections; nothing was done, try again later"
    busy = Refused(BUSY, detail, retry_safe=True, retry_after=limits.RETRY_AFTER, connection="close")
    await problem(busy).send(send)


def send_whole(cycle: RequestResponseCycle, answer: Answer) -> bool:
    """Send a complete answer. uvicorn would write its head and its body separately: two system calls and packets.

    False: not now, because the client does not read.
    """
    cycle.scope.pop(WHOLE, None)  # pyright: ignore[reportCallIssue, reportArgumentType]  # else a reference cycle
    if cycle.flow.write_paused or cycle.disconnected:
        return False
    lines = [STATUS_LINE[answer.status]]
    for name, value in (*cycle.default_headers, *answer.headers):
        lines += (name, b": ", value, b"\r\n")
    if CLOSE in answer.headers:
        cycle.keep_alive = False
    elif not cycle.keep_alive:
        lines.append(b"connection: close\r\n")
    lines.append(b"\r\n")
    body = b"" if cycle.scope["method"] == "HEAD" else answer.body
    cycle.response_started = cycle.response_complete = True
    cycle.waiting_for_100_continue = False
    if len(body) <= limits.SMALL:
        cycle.transport.write(b"".join((*lines, body)))
    else:  # not copied
        cycle.transport.write(b"".join(lines))
        cycle.transport.write(body)
    cycle.message_event.set()
    if not cycle.keep_alive:
        cycle.transport.close()
    cycle.on_response()
    return True


class Connection(HttpToolsProtocol):
    """One client's connection. A request that arrives in one piece needs no timer."""

    _header_bytes = 0
    _in_headers = True
    _bare_bytes = 0
    """Bytes received since the last piece of the body: chunk sizes and trailers."""
    _malformed: str | None = None
    """The error of the request, if more precise than the parser's."""
    _late: asyncio.TimerHandle | None = None
    """Runs while a request has arrived in part."""
    _unread: asyncio.TimerHandle | None = None
    _peer = ""
    _proxied = False
    """The peer is a trusted proxy."""
    _address = ""
    """The client's address: the peer's, or the one forwarded by a proxy."""
    _admitted_at = float("-inf")
    _refused = False
    """An error was sent, and the connection is about to close."""

    def __init__(self, connection_limits: ConnectionLimits, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._connection_limits = connection_limits

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        super().connection_made(transport)
        now = self.loop.time()
        self._peer = self.client[0] if self.client else ""
        self._proxied = self._connection_limits.trusts(self._peer)
        over = self._connection_limits.over(len(self.connections), now)
        if over > limits.REFUSED_WITH_ANSWER:
            transport.abort()
        elif over > 0:
            self.app = _too_many
        elif not self._proxied and not self._connection_limits.enter(self, self._peer, now):
            transport.abort()
        self._late = self.loop.call_later(limits.HEADERS_SECONDS, self._headers_late)

    @property
    def idle(self) -> bool:
        """Whether no request is being answered, except one with a wrong token."""
        return self._answered or REFUSED in self.cycle.scope

    @property
    def _answered(self) -> bool:
        last = cast("RequestResponseCycle | None", self.cycle)
        return last is None or last.response_complete

    def abort(self) -> None:
        """Close the connection now and stop counting it."""
        self.connections.discard(self)
        self.transport.abort()

    def _admitted(self) -> None:
        now = self.loop.time()
        if self._proxied or now - self._admitted_at >= ADMITTED_EVERY:
            self._admitted_at = now
            self._connection_limits.admitted(self, self._address, now)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection_limits.leave(self)
        self._arrived()
        if self._unread is not None:
            self._unread.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._refused:  # ignored; read a little, so that the answer arrives
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
        elif self._bare_bytes > limits.HEADERS:  # the parser reports a trailer only at its end, which may never come
            self._refuse(BAD_REQUEST, TRAILERS)
        elif self._late is None and self.cycle.more_body:
            self._late = self.loop.call_later(limits.BODY_SECONDS, self._body_late)

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_headers:
            self._malformed = TRAILERS
            raise ValueError(TRAILERS)  # stops the parser; `send_400_response` answers
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_headers, self._bare_bytes = False, 0
        self._arrived()
        if sum(map(len, chain.from_iterable(self.headers))) + len(self.url) > limits.HEADERS:
            self.app = _too_large
        if self._proxied:
            self._address = self._connection_limits.forwarded(self.headers, self._peer)
            self.scope["client"] = (self._address, 0)
            if self._answered and not self._connection_limits.enter(self, self._address, self.loop.time()):
                self.app = _too_many
        else:
            self._address = self._peer
        self.scope[ADMITTED] = self._admitted  # pyright: ignore[reportGeneralTypeIssues]
        before = cast("RequestResponseCycle | None", self.cycle)  # None at first, whatever uvicorn declares
        super().on_headers_complete()
        self.scope[WHOLE] = partial(send_whole, self.cycle)  # pyright: ignore[reportGeneralTypeIssues]
        if before is not None and not before.response_complete:
            before.scope[FOLLOWED] = True  # pyright: ignore[reportGeneralTypeIssues]
            before.message_event.set()

    def on_response_complete(self) -> None:
        if self._proxied:
            self._connection_limits.leave(self)
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
            return  # still being answered: its end or the next bytes restart the timer
        if not self.transport.is_closing() and not self._refused:
            self._refuse(
                TOO_SLOW, f"request line and headers did not arrive within {limits.HEADERS_SECONDS:g} s; try again"
            )

    def _body_late(self) -> None:
        if self.transport.is_closing() or self._refused:
            return
        if self.cycle.response_started:  # answered before the body was complete; the rest is not read
            self.transport.close()
        else:
            self._refuse(
                TOO_SLOW, f"the body did not arrive within {limits.BODY_SECONDS:g} s; nothing was done, try again"
            )

    def pause_writing(self) -> None:
        super().pause_writing()
        self._await_reading()

    def _await_reading(self) -> None:
        unread = self.transport.get_write_buffer_size()
        self._unread = self.loop.call_later(limits.UNREAD_SECONDS, self._check_reading, unread)

    def _check_reading(self, before: int) -> None:
        """Disconnect if nothing of the answer was read since the last check."""
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
        """Send a problem document and close: the start of a next request cannot be determined."""
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
