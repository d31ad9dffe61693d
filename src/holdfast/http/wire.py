"""The connection below the service: uvicorn's, with limits that it does not have.

1. Line and headers arrive within a time and a size, bodies within a time, or the client is told and cut off.
2. A client that leaves its answer unread is cut off.
3. What is not HTTP gets a problem document like everything else.
"""

from __future__ import annotations

import asyncio
from typing import cast

from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from . import limits
from .call import encode, problem
from .problems import BAD_REQUEST, BUSY, CONTENT_TYPE, TOO_SLOW, Kind, Problem, Refused

HEADERS_TOO_LARGE = Kind("headers-too-large", 431, "The request's line and headers are too large")


HEADERS_DETAIL = f"they may have {limits.HEADERS} bytes"


async def _too_large(_: Scope, __: Receive, send: Send) -> None:
    """What a request with too large headers is handed to, where they came all at once; the connection ends with it."""
    await problem(Refused(HEADERS_TOO_LARGE, HEADERS_DETAIL, connection="close")).send(send)


async def _too_many(_: Scope, __: Receive, send: Send) -> None:
    """What a request is handed to that came on one connection too many."""
    detail = f"this server has {limits.CONNECTIONS} connections already"
    busy = Refused(BUSY, detail, retry_safe=True, retry_after=limits.RETRY_AFTER, connection="close")
    await problem(busy).send(send)


class Connection(HttpToolsProtocol):
    """One client's connection. What arrives whole, as most requests do, costs no timer."""

    _header_bytes = 0
    _in_headers = True
    _late: asyncio.TimerHandle | None = None
    """Runs while a request has begun to arrive and is not whole."""
    _unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        super().connection_made(transport)
        self._late = self.loop.call_later(limits.HEADERS_SECONDS, self._headers_late)

    def connection_lost(self, exc: Exception | None) -> None:
        self._arrived()
        if self._unread is not None:
            self._unread.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._in_headers:
            self._header_bytes += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._in_headers:
            if self._header_bytes > limits.HEADERS:
                self._refuse(HEADERS_TOO_LARGE, HEADERS_DETAIL)
            elif self._late is None and self._header_bytes:
                self._late = self.loop.call_later(limits.HEADERS_SECONDS, self._headers_late)
        elif self._late is None and self.cycle.more_body:
            self._late = self.loop.call_later(limits.BODY_SECONDS, self._body_late)

    def on_headers_complete(self) -> None:
        self._in_headers = False
        self._arrived()
        if sum(len(name) + len(value) for name, value in self.headers) + len(self.url) > limits.HEADERS:
            self.app = _too_large
        elif len(self.connections) > limits.CONNECTIONS:
            self.app = _too_many
        super().on_headers_complete()

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
        last = cast("RequestResponseCycle | None", self.cycle)  # None at first, whatever uvicorn declares
        if last is not None and not last.response_complete:
            return  # it is still being answered: its end, or the next bytes, start the time again
        if not self.transport.is_closing():
            self._refuse(TOO_SLOW, f"line and headers did not arrive within {limits.HEADERS_SECONDS:g} s")

    def _body_late(self) -> None:
        if self.transport.is_closing():
            return
        if self.cycle.response_started:  # it was answered before it was whole, and the rest is not awaited
            self.transport.close()
        else:
            self._refuse(TOO_SLOW, f"the body did not arrive within {limits.BODY_SECONDS:g} s")

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.loop.call_later(limits.UNREAD_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()

    def send_400_response(self, msg: str) -> None:
        self._refuse(BAD_REQUEST, msg)

    def _refuse(self, kind: Kind, detail: str) -> None:
        """Say so, and close: what comes next on this connection cannot be told from what came before."""
        body = encode(Problem(kind.type, kind.title, kind.status, detail))
        head = b"content-type: %s\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % (CONTENT_TYPE, len(body))
        self.transport.write(STATUS_LINE[kind.status] + head + body)
        self.transport.close()
