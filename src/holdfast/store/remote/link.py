"""The connection pool to a server: calls, and their repeats after a lost answer."""

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
"""Connections of one store object; further calls wait."""
PIECEWISE_BYTES = 2**20
"""Bytes of a body from which it is sent in pieces, so that the event loop is not blocked."""
KEPT = 4.0
"""Seconds that an idle connection is kept: less than servers keep it, so that none is closed while it is reused."""
NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE")
"""Reasons of OpenSSL for an answer that is not TLS."""
_forgotten: list[object] = []
"""Connections of a parent process or an ended loop: kept, since their finalizers would warn or fail."""


class _Connector(aiohttp.TCPConnector):
    """A connector that knows its sockets, and can be abandoned without warnings."""

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
        """The transports of idle and used connections."""
        kept = [one for pool in self._conns.values() for one, _ in pool]
        return [one.transport for one in (*kept, *self._acquired) if one.transport is not None]

    def __del__(self, *_: object) -> None:
        if not self.forgotten:
            super().__del__()


class Link:
    """One client's connections to one server, opened when needed; belongs to one event loop.

    1. A call that could not be sent raises StoreUnavailable.
    2. The answer of a call that was sent and not answered is queried by its request id; a harmless call is repeated.
    3. If its answer stays unknown, it raises OutcomeUnknown, or StoreUnavailable if it only reads.
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
        """Make one call and return its decoded answer."""
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
            raise self._unreachable(error) from error
        except trouble.Lost as lost:
            try:
                return await self._post(RECALL, b"", request)
            except (trouble.Unsent, trouble.Lost, trouble.NotTaken, ConfigError):
                raise self._unsure(lost) from lost  # the query was refused: the write may have happened

    async def _again(self, method: Method[Any], body: bytes) -> bytes:
        try:
            return await self._post(method.name, body)
        except trouble.Unsent as error:
            raise self._unreachable(error) from error
        except trouble.Lost as lost:
            try:
                return await self._post(method.name, body)
            except (trouble.Unsent, trouble.Lost) as error:
                if method.kind == "repeats":
                    raise self._unsure(lost) from lost
                raise StoreUnavailable(
                    f"{self.address}: no answer to the call {method.name!r}: {error}; try again"
                ) from error

    def _unsure(self, lost: trouble.Lost) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"{self.address}: {lost}; the write may have happened: check the store before you repeat the call"
        )

    def _unreachable(self, unsent: trouble.Unsent) -> StoreUnavailable:
        return StoreUnavailable(
            f"{unsent}; nothing was written. Check the URL, and that `holdfast serve` is running there"
        )

    async def _post(self, name: str, body: bytes, request: str | None = None) -> bytes:
        async with self._sent(name, body, request) as response:
            return await response.read()

    @asynccontextmanager
    async def _sent(
        self, name: str, body: bytes, request: str | None = None, silence: float | None = None
    ) -> AsyncGenerator[aiohttp.ClientResponse]:
        """Send one request; yields its response if it is a success."""
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
        """A streamed response; raises Lost if it ends, or after `silence` seconds without data."""
        async with self._sent(name, body, silence=silence) as response:
            yield response.content

    async def close(self) -> None:
        await self._session.close()

    def release(self) -> None:
        """Close all sockets after the loop has ended."""
        self._connector.forgotten = True
        _forgotten.append((self._connector, self._session))
        for each in self._connector.transports():
            release(each)
        for each in list(self._connector.sockets):
            each.close()
        self._session.detach()

    def forget(self) -> None:
        """In a forked child: release all sockets without using the connections or the loop.

        Their descriptors are redirected to /dev/null instead of closed, so that they are not reused while transports,
        which cannot be closed without their loop, refer to them.
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
    """Why a connection failed, as the system reports it."""
    reason = getattr(error, "os_error", None)
    if isinstance(reason, ssl.SSLError) and reason.reason in NO_TLS:
        return "the server does not use TLS: write http:// instead of https://"
    if isinstance(reason, ConnectionError) and reason.errno is not None:
        return os.strerror(reason.errno)
    return str(reason or error) or type(error).__name__
