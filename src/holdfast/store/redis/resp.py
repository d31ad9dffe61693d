"""One RESP connection: calls are pipelined, answers come back in order."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections import deque
from collections.abc import Callable
from typing import Any, cast

import hiredis

from ...core.errors import ConfigError
from ..blocking import NoAnswer, Rejected, taken_from
from ..transports import release
from .tls import TLS_PROBE, is_plain

Reply = Any
ReplyError = hiredis.ReplyError
_MORE = object()
NOT_RESP = "the answer is not in the protocol of Redis (RESP)"
_forgotten: list[object] = []
BUFFER = 64 * 1024
"""Maximum bytes of one read. (asyncio would allocate four times as much for each read.)"""
pack_command = cast("Callable[[tuple[str | bytes | int, ...]], bytes]", getattr(hiredis, "pack_command"))  # noqa: B009  # its stub says a tuple of one
SENT_ALONE = 128 * 1024
"""Bytes of a word that is sent by itself, since a command is copied twice when it is packed."""
UNANSWERED = 1.0
"""Seconds without an answer while a call waits for one, after which a connection counts as silent."""


def in_parts(words: tuple[str | bytes | int, ...]) -> list[bytes]:
    """A packed command in parts, one for each large word."""
    parts, packed = [b"*%d\r\n" % len(words)], 0
    for at, word in enumerate(words):
        if type(word) is bytes and len(word) >= SENT_ALONE:
            parts[-1] += _without_head(words[packed:at]) + b"$%d\r\n" % len(word)
            parts += [word, b"\r\n"]
            packed = at + 1
    parts[-1] += _without_head(words[packed:])
    return parts


def _without_head(words: tuple[str | bytes | int, ...]) -> bytes:
    return pack_command(words).partition(b"\r\n")[2]


class Lost(Exception):
    """The connection ended, or did not answer in time, during a call."""


class ReplyReader:
    """Reads one answer."""

    def __init__(self) -> None:
        self._reader = hiredis.Reader(notEnoughData=None)

    def read(self, data: bytes) -> Reply | None:
        """The answer, once all of it has arrived; Rejected if it is an error."""
        self._reader.feed(data)
        try:
            reply = self._reader.gets()
        except hiredis.ProtocolError as error:
            raise NoAnswer(f"{NOT_RESP}: {error}") from error
        if isinstance(reply, ReplyError):
            raise Rejected(usable=str(reply).partition(" ")[0] == "NOSCRIPT")
        return reply


class Connection(asyncio.BufferedProtocol):
    """Calls and answers over one transport.

    1. Sends each call at once, so that several are pending, and assigns answers in order.
    2. Detects a server that stopped answering: the oldest call waits `patience` seconds, at most twice that.
    3. Passes everything to `on_message` if it is set: a subscribed connection has no answers.
    """

    def __init__(self, patience: float, on_message: Callable[[Reply], None] | None = None) -> None:
        self._patience = patience
        self._on_message = on_message
        self._reader = hiredis.Reader(notEnoughData=_MORE)
        self._feed = cast("Callable[[memoryview, int, int], None]", self._reader.feed)  # its stub says bytes
        self._view = memoryview(bytearray(BUFFER))
        self._waiting: deque[asyncio.Future[Reply]] = deque()
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._answered = self._seen = 0
        self._active_at = 0.0
        """When the last answer came, or the first call after it was sent, by the loop's clock."""
        self._retiring = False
        self.closed = False
        self.fences = b""
        """The answer of fences.lua; empty before it was read."""
        self.ended = self._loop.create_future()
        """Done once the connection has ended."""

    # -- calls

    def call(self, *words: str | bytes | int) -> asyncio.Future[Reply]:
        """Send one command; the answer, which may be a ReplyError."""
        waiter = self._loop.create_future()
        if self.closed or self._transport is None:
            waiter.set_exception(Lost("the connection is closed"))
            return waiter
        for word in words:  # faster than any(…)
            if type(word) is bytes and len(word) >= SENT_ALONE:
                for part in in_parts(words):
                    self._transport.write(part)
                break
        else:
            self._transport.write(pack_command(words))
        if not self._waiting:
            self._active_at = self._loop.time()
        self._waiting.append(waiter)
        if self._watch is None:
            self._seen = self._answered
            self._watch = self._loop.call_later(self._patience, self._look)
        return waiter

    @property
    def silent(self) -> bool:
        """Whether a call has waited for UNANSWERED seconds in which no answer came."""
        return bool(self._waiting) and self._loop.time() - self._active_at >= UNANSWERED

    def send(self, *words: str | bytes) -> None:
        """Send one command whose answer is a message."""
        if not self.closed and self._transport is not None:
            self._transport.write(pack_command(words))

    def listen(self, on_message: Callable[[Reply], None]) -> None:
        """From now on everything that arrives is a message."""
        self._on_message = on_message

    def close(self) -> None:
        """Close the connection; pending calls raise Lost."""
        if self._transport is not None and not self.closed:
            self._transport.abort()
        self._end(Lost("the connection was closed"))

    def taken(self) -> socket.socket:
        """Its socket, for blocking use; this object is closed."""
        assert self._transport is not None
        sock = taken_from(self._transport)
        self.close()
        return sock

    def retire(self) -> None:
        """Close the connection once pending calls are answered."""
        self._retiring = True
        if not self._waiting:
            self.close()

    def release(self) -> None:
        """The loop has ended."""
        transport, self._transport, self.closed = self._transport, None, True
        if transport is not None:
            release(transport)

    def forget(self) -> None:
        """In a forked child: release the socket without using the connection or the loop.

        Its descriptor is redirected to /dev/null instead of closed, so that it is not reused while the transport, which
        cannot be closed without its loop, refers to it. The transport is kept, since its finalizer would warn.
        """
        transport, self._transport, self.closed = self._transport, None, True
        if transport is None:
            return
        _forgotten.append(transport)
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.fileno() >= 0:
            nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
            os.dup2(nothing, sock.fileno(), inheritable=False)
            os.close(nothing)

    def _look(self) -> None:
        """Check whether the server still answers."""
        self._watch = None
        if not self._waiting:
            return
        if self._answered == self._seen:
            if self._transport is not None:
                self._transport.abort()
            self._end(Lost(f"no answer within {self._patience:g} s"))
            return
        self._seen = self._answered
        self._watch = self._loop.call_later(self._patience, self._look)

    # -- the transport's callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002  # how much asyncio would like
        return self._view

    def buffer_updated(self, nbytes: int) -> None:
        reader, waiting = self._reader, self._waiting
        self._active_at = self._loop.time()
        self._feed(self._view, 0, nbytes)
        try:
            while (reply := reader.gets()) is not _MORE:
                if self._on_message is not None:
                    self._on_message(reply)
                    continue
                waiter = waiting.popleft()
                self._answered += 1
                if not waiter.done():
                    waiter.set_result(reply)
            if self._retiring and not waiting:
                self.close()
        except (hiredis.ProtocolError, IndexError) as error:
            if self._transport is not None:
                self._transport.abort()
            self._end(Lost(f"{NOT_RESP}: {error}"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(Lost(str(exc) if exc else "the server closed the connection"))

    def _end(self, reason: Lost) -> None:
        if self.closed:
            return
        self.closed = True
        if self._watch is not None:
            self._watch.cancel()
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_exception(reason)
        if not self.ended.done():
            self.ended.set_result(None)


async def dial(
    host: str, port: int, *, path: str | None = None, tls: ssl.SSLContext | None = None, patience: float
) -> Connection:
    """Connect to one server, by host and port or by socket path; OSError if that fails within `patience` seconds."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(patience):
            if path is not None:
                _, connection = await loop.create_unix_connection(lambda: Connection(patience), path)
            elif tls is not None:
                connection = await _dial_tls(host, port, tls, patience)
            else:
                _, connection = await loop.create_connection(lambda: Connection(patience), host, port)
    except TimeoutError:
        raise OSError(f"no {'TLS ' if tls else ''}connection within {patience:g} s") from None
    return connection


async def _dial_tls(host: str, port: int, tls: ssl.SSLContext, patience: float) -> Connection:
    """The same over TLS. A server without TLS takes the handshake for an incomplete command and does not answer."""
    loop = asyncio.get_running_loop()
    connecting = loop.create_task(loop.create_connection(lambda: Connection(patience), host, port, ssl=tls))
    try:
        done, _ = await asyncio.wait([connecting], timeout=min(TLS_PROBE, patience / 2))
        if not done and await is_plain(host, port):
            raise ConfigError(f"{host}:{port} does not use TLS: write redis:// instead of rediss://")
        return (await connecting)[1]
    finally:
        connecting.cancel()
        await asyncio.wait([connecting])
