"""A connection for blocking callers: each uses it on its own thread, one at a time, without the event loop.

The loop connects, with the engine's own code, when a caller first asks; the socket is then taken from the loop. A call
that finds no connection, or finds it in use, sends nothing: its caller writes on the loop instead.
"""

from __future__ import annotations

import asyncio
import math
import os
import select
import socket
import struct
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from ..core.clock import MICROS

R = TypeVar("R")
READ_SIZE = 64 * 1024
"""Bytes of one read from the socket, at most."""
RECONNECT_PAUSE = 5.0
"""Seconds between two attempts to connect, at least: a server may refuse all, or close each at once."""


class NoAnswer(Exception):
    """The request was sent, at least in part, and not answered."""


class Rejected(Exception):
    """The server has answered that it wrote nothing. `usable`: it may accept the next request."""

    def __init__(self, *, usable: bool = False) -> None:
        self.usable = usable


class BlockingConnection:
    """One socket, connected by `connect` at the first use, and again after an error."""

    def __init__(self, connect: Callable[[], Awaitable[socket.socket]], timeout: float) -> None:
        self._connect = connect
        self._timeout = timeout
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._line: tuple[socket.socket, select.poll] | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._wanted = False
        self._not_before = 0.0
        self._closed = False

    @property
    def connected(self) -> bool:
        return self._line is not None

    def exchange(self, request: Callable[[], bytes], read: Callable[[bytes], R | None]) -> R | None:
        """Send a request, and pass what arrives to `read` until it returns the answer. From any thread.

        None: nothing was written, because it is in use, not connected, or `read` raised Rejected.
        """
        if not self._lock.acquire(blocking=False):
            return None
        try:
            line = self._line
            if line is None or line[1].poll(0):  # unrequested bytes: the server has closed it
                if line is not None:
                    self._drop()
                self._want()
                return None
            data = request()
            try:
                return self._talk(line[0], data, read)
            except Rejected as rejected:
                if not rejected.usable:
                    self._drop()
                return None
            except BaseException as error:  # whatever it is, the next caller must not read this answer
                self._drop()
                if isinstance(error, OSError) and error.errno is not None:
                    late = isinstance(error, BlockingIOError)
                    raise NoAnswer(f"no answer within {self._timeout:g} s" if late else str(error)) from error
                raise  # also an OSError of a signal handler, which has no number
        finally:
            self._lock.release()
            if self._closed:
                self._end()

    def _talk(self, sock: socket.socket, data: bytes, read: Callable[[bytes], R | None]) -> R:
        sock.sendall(data)
        while True:
            part = sock.recv(READ_SIZE)
            if not part:
                raise NoAnswer("the server closed the connection")
            answer = read(part)
            if answer is not None:
                return answer

    def _want(self) -> None:
        """Have the loop connect."""
        if not (self._wanted or self._closed) and self._loop.time() >= self._not_before:
            self._wanted = True
            self._not_before = self._loop.time() + RECONNECT_PAUSE
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._start)

    def _start(self) -> None:
        if not self._closed:
            self._connecting = self._loop.create_task(self._open())

    async def _open(self) -> None:
        try:
            sock = await self._connect()
            sock.setblocking(True)
            for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):  # `settimeout` would poll before each call
                sock.setsockopt(socket.SOL_SOCKET, option, _timeval(self._timeout))
            poll = select.poll()
            poll.register(sock, select.POLLIN)
            self._line = sock, poll
            if self._closed:
                self._end()
        except Exception:  # noqa: BLE001, S110  # the loop's own connection reports the error
            pass
        finally:
            self._wanted = False  # last: a caller would ask for another connection

    def _drop(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            line[0].close()

    def close(self) -> None:
        """Close it, or have the caller close it that uses it now. From any thread, also after the loop has ended."""
        self._closed = True
        if self._connecting is not None:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._connecting.cancel)
        self._end()

    def _end(self) -> None:
        if self._lock.acquire(blocking=False):
            self._drop()
            self._lock.release()

    def forget(self) -> None:
        """In a forked child: close the child's copy of the socket, which leaves the parent's connection open."""
        self._closed = True
        self._drop()


def _timeval(seconds: float) -> bytes:
    fraction, whole = math.modf(seconds)
    return struct.pack("ll", int(whole), int(fraction * MICROS))


def taken_from(transport: asyncio.BaseTransport) -> socket.socket:
    """The socket of a transport without TLS, for use after the transport was aborted."""
    return socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno()))
