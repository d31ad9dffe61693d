"""The link to the server: calls over kept connections, and what becomes of a lost answer."""

from __future__ import annotations

import asyncio
import io
import os
import socket
import ssl
import weakref
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import aiohttp
import msgspec
from aiohttp.client_exceptions import ConnectionTimeoutError

from ...core.clock import Entropy
from ...core.errors import ConfigError, OutcomeUnknown, StoreUnavailable
from ...version import __version__
from ..rpc import PATH, PROTOCOL, PROTOCOL_HEADER, RECALL, REQUEST_HEADER, Method
from ..transports import release
from . import trouble
from .address import Address

A = TypeVar("A")
CLIENT_CONNECTIONS = 64
"""Of one store object; what comes beyond waits its turn."""
PIECEWISE_BYTES = 2**20
"""Bytes of a body from which it is sent piece by piece, so that others get their turn meanwhile."""
KEPT = 4.0
"""Seconds for which an idle connection is kept: less than servers do, so that none closes as it is used again."""
NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE")
"""What OpenSSL makes of an answer that is no TLS."""
_forgotten: list[object] = []
"""Connections of a parent process or an ended loop: kept, for they would complain, and disturb, as they go."""


class _Connector(aiohttp.TCPConnector):
    """Knows its sockets, and can be left without a word."""

    def __init__(self, address: Address) -> None:
        self.sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self.forgotten = False
        super().__init__(  # pyright: ignore[reportUnknownMemberType]  # a tuple without types in its signature
            ssl=address.tls(), keepalive_timeout=KEPT, limit=CLIENT_CONNECTIONS, socket_factory=self._make
        )

    def _make(self, info: Any) -> socket.socket:
        family, kind, protocol = info[:3]
        made = socket.socket(family, kind, protocol)
        self.sockets.add(made)
        return made

    def transports(self) -> list[asyncio.Transport]:
        """Of the connections that are kept and those that are in use."""
        kept = [one for pool in self._conns.values() for one, _ in pool]
        return [one.transport for one in (*kept, *self._acquired) if one.transport is not None]

    def __del__(self, *_: object) -> None:
        if not self.forgotten:
            super().__del__()


class Link:
    """One client's connections to one server, made as they are needed; belongs to one event loop.

    1. A call that could not be sent is StoreUnavailable.
    2. One that was sent and not answered is asked for again by its request id, or made again where that does no harm.
    3. Where nobody knows its answer any more it is OutcomeUnknown, or, where it only reads, StoreUnavailable.
    """

    def __init__(self, address: Address, entropy: Entropy) -> None:
        self.address = address
        self._entropy = entropy
        self._token = address.token()
        self._connector = _Connector(address)
        self._session = aiohttp.ClientSession(
            connector=self._connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=address.timeout, sock_read=address.timeout),
            headers={
                PROTOCOL_HEADER: str(PROTOCOL),
                "Content-Type": "application/json",
                "User-Agent": f"holdfast/{__version__}",
            },
        )
        self._readers: dict[str, msgspec.json.Decoder[Any]] = {}

    async def call(self, method: Method[A], *arguments: Any) -> A:
        """Make one call, and be sure of its answer."""
        body = msgspec.json.encode(arguments)
        if method.kind == "once":
            answer = await self._once(method.name, body)
        else:
            answer = await self._again(method, body)
        reader = self._readers.get(method.name)
        if reader is None:
            reader = self._readers[method.name] = method.reader()
        return reader.decode(answer)

    async def _once(self, name: str, body: bytes) -> bytes:
        request = f"{self._entropy.token():016x}{self._entropy.token():016x}"
        try:
            return await self._post(name, body, request)
        except trouble.Unsent as error:
            raise StoreUnavailable(str(error)) from error
        except trouble.Lost as lost:
            try:
                return await self._post(RECALL, b"", request)
            except (trouble.Unsent, trouble.Lost, trouble.NotTaken, ConfigError):
                raise self._unsure(lost) from lost  # the question was refused, which says nothing of the write

    async def _again(self, method: Method[Any], body: bytes) -> bytes:
        try:
            return await self._post(method.name, body)
        except trouble.Unsent as error:
            raise StoreUnavailable(str(error)) from error
        except trouble.Lost as lost:
            try:
                return await self._post(method.name, body)
            except (trouble.Unsent, trouble.Lost) as error:
                if method.kind == "repeats":
                    raise self._unsure(lost) from lost
                raise StoreUnavailable(f"{self.address}: no answer to {method.name}: {error}; try again") from error

    def _unsure(self, lost: trouble.Lost) -> OutcomeUnknown:
        return OutcomeUnknown(f"{self.address}: {lost}; the write may have happened")

    async def _post(self, name: str, body: bytes, request: str | None = None) -> bytes:
        async with self._sent(name, body, request) as response:
            return await response.read()

    @asynccontextmanager
    async def _sent(
        self, name: str, body: bytes, request: str | None = None, silence: float | None = None
    ) -> AsyncGenerator[aiohttp.ClientResponse]:
        """One request, and its answer where that is a success."""
        headers = {} if self._token is None else {"Authorization": f"Bearer {self._token}"}
        if request is not None:
            headers[REQUEST_HEADER] = request
        patience = self._session.timeout
        if silence is not None:
            patience = aiohttp.ClientTimeout(total=None, sock_connect=self.address.timeout, sock_read=silence)
        data = body if len(body) <= PIECEWISE_BYTES else io.BytesIO(body)
        try:
            async with self._session.post(
                f"{self.address.base}{PATH}/{name}", data=data, headers=headers, allow_redirects=False, timeout=patience
            ) as response:
                if response.status != 200 or PROTOCOL_HEADER not in response.headers:
                    if response.status == 401:
                        self._token = self.address.token()  # it may have been replaced by now
                    raise trouble.refusal(response.status, response.headers, await response.read(), str(self.address))
                yield response
        except (aiohttp.ClientConnectorError, ConnectionTimeoutError) as error:
            raise trouble.Unsent(f"no connection to {self.address}: {_why(error)}") from error
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise trouble.Lost(str(error) or type(error).__name__) from error

    @asynccontextmanager
    async def stream(self, name: str, body: bytes, silence: float) -> AsyncGenerator[aiohttp.StreamReader]:
        """An answer that goes on and on; Lost where it ends, or falls silent for too long."""
        async with self._sent(name, body, silence=silence) as response:
            yield response.content

    async def close(self) -> None:
        await self._session.close()

    def release(self) -> None:
        """When the loop has ended: close all sockets."""
        self._connector.forgotten = True
        _forgotten.append((self._connector, self._session))
        for each in self._connector.transports():
            release(each)
        for each in list(self._connector.sockets):
            each.close()
        self._session.detach()

    def forget(self) -> None:
        """In a forked child: let go of all sockets without a word to server or loop.

        Their numbers go to /dev/null instead of being closed, so that nobody else gets them while transports, which
        cannot be closed without their loop, believe to own them.
        """
        self._connector.forgotten = True
        _forgotten.append((self._connector, self._session))
        nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for each in list(self._connector.sockets):
            if each.fileno() >= 0:
                os.dup2(nothing, each.fileno(), inheritable=False)
        os.close(nothing)
        self._session.detach()


def _why(error: aiohttp.ClientError) -> str:
    """What kept a connection from being made, in the system's words."""
    reason = getattr(error, "os_error", None)
    if isinstance(reason, ssl.SSLError) and reason.reason in NO_TLS:
        return "the server does not use TLS: write http:// instead of https://"
    if isinstance(reason, ConnectionError) and reason.errno is not None:
        return os.strerror(reason.errno)
    return str(reason or error) or type(error).__name__
