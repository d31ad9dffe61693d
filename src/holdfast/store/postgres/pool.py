"""A small connection pool: connections are made on demand, used by one caller at a time, replaced when they fail."""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from ...core.errors import ConfigError, StoreUnavailable
from .. import transports
from . import trouble
from .address import Address
from .driver import asyncpg

STATEMENT_TIMEOUT = 60.0
"""Seconds that one statement may take, and that a caller waits for a free connection, before it fails."""
CONNECT_LIMIT = 10.0
"""Seconds that connecting may take."""
TLS_FILES = ("sslrootcert", "sslcert", "sslkey", "sslcrl")


class Link:
    """A connection with its prepared statements. Nothing is prepared on a connection that pgbouncer shares."""

    __slots__ = ("_prepared", "_shared", "answered", "raw")

    def __init__(self, raw: Any, *, shared: bool) -> None:
        self.raw = raw
        self._shared = shared
        self.answered = False
        """Whether a statement of the present caller has been answered."""
        self._prepared: dict[str, Any] = {}

    async def fetch(self, statement: str, *values: Any) -> list[Any]:
        """Run a statement, prepared at its first use here: one round trip from then on."""
        if self._shared:
            rows = await self.raw.fetch(statement, *values, timeout=STATEMENT_TIMEOUT)
            self.answered = True
            return rows
        prepared = self._prepared.get(statement)
        if prepared is None:
            prepared = self._prepared[statement] = await self.raw.prepare(statement)
        return await prepared.fetch(*values, timeout=STATEMENT_TIMEOUT)

    async def close(self) -> None:
        try:
            await self.raw.close(timeout=2.0)
        except Exception:  # noqa: BLE001  # the connection is discarded anyway
            self.raw.terminate()


class Loan:
    """A connection for one block. A class rather than a generator for speed: every write uses it."""

    __slots__ = ("_link", "_pool")
    _link: Link

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def __aenter__(self) -> Link:
        self._link = await self._pool.take()
        return self._link

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        link = self._link
        if error is not None and (
            trouble.is_gone(error) or not isinstance(error, Exception) or link.raw.is_in_transaction()
        ):
            link.raw.terminate()
            if not isinstance(error, Exception):
                self._pool.drop_idle()
        self._pool.give(link)


class Pool:
    """At most `size` connections; the one used last is used next, so that idle ones stay idle."""

    def __init__(self, address: Address, size: int, purpose: str = "", setting: str | None = None) -> None:
        """`setting`: a statement for each new connection, unless pgbouncer shares it; `purpose`: for messages."""
        self._address = address
        self._size = size
        self._purpose = purpose
        self._setting = None if address.shared else setting
        self._idle: list[Link] = []
        self._made: weakref.WeakSet[Any] = weakref.WeakSet()
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._used = 0
        self._closed = False

    def link(self) -> Loan:
        """A connection for one block. It is closed if the block fails and leaves it in an unknown state."""
        return Loan(self)

    async def take(self) -> Link:
        """A connection, to be given back."""
        if self._closed or self._used >= self._size:
            await self._wait_for_slot()
        else:
            self._used += 1
        try:
            while self._idle:
                link = self._idle.pop()
                if not link.raw.is_closed():
                    return link
            raw = await connect(self._address, self._setting)
            self._made.add(raw)
            return Link(raw, shared=self._address.shared)
        except BaseException:
            self._free_slot()
            raise

    async def _wait_for_slot(self) -> None:
        """Wait until a connection is free; the caller that has waited longest gets it."""
        if self._closed:
            raise StoreUnavailable.not_open(self._address.shown)
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            async with asyncio.timeout(STATEMENT_TIMEOUT):
                await waiter
        except BaseException as error:
            if waiter.done() and not waiter.cancelled():
                self._free_slot()  # it was assigned just as the caller gave up
            if isinstance(error, TimeoutError):
                advice = "Make these transactions shorter" if self._purpose else "Set a larger ?pool= in the URL"
                raise StoreUnavailable(
                    f"{self._address.shown}: all {self._size} connections{self._purpose} were busy for"
                    f" {STATEMENT_TIMEOUT:g} s; nothing was written. {advice}"
                ) from None
            raise

    def _free_slot(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self._used -= 1

    def give(self, link: Link) -> None:
        if self._closed:
            link.raw.terminate()
        elif not link.raw.is_closed():
            self._idle.append(link)
        self._free_slot()

    def drop_idle(self) -> None:
        """A caller gave up a statement without an answer: the network may have lost the idle connections too.

        Else the next caller, such as a heartbeat, would wait for each of them in turn until its lease has expired.
        """
        idle, self._idle = self._idle, []
        for link in idle:
            link.raw.terminate()

    async def close(self) -> None:
        self._closed = True
        idle, self._idle = self._idle, []
        for link in idle:
            await link.close()

    def release(self) -> None:
        """Close every socket after the loop has ended, also of connections that were in use."""
        self._closed = True
        for raw in list(self._made):
            release(raw)
        self._idle = []

    def forget(self) -> None:
        """In a forked child: neither use nor close the parent's connections."""
        self._closed = True
        _parents.append(self._idle)
        self._idle = []


def release(raw: Any) -> None:
    """Close the socket of a connection whose loop has ended."""
    transport = getattr(raw, "_transport", None)
    if transport is not None:
        transports.release(transport)
        raw._aborted = True  # noqa: SLF001  # else it warns when it is collected


_parents: list[object] = []
"""A parent's connections, never collected in a forked child: collecting would send a Terminate to the server."""


async def connect(address: Address, setting: str | None = None) -> Any:
    """A new connection on which `setting` was run; StoreUnavailable or ConfigError if it cannot be made."""
    if address.connect is None:
        _check_files(address)
    try:
        async with asyncio.timeout(CONNECT_LIMIT):
            raw = await (_connect(address) if address.connect is None else address.connect())
            if setting is not None:
                try:
                    await raw.execute(setting)
                except BaseException:  # also if the caller is cancelled: nothing else would close it
                    raw.terminate()
                    raise
            return raw
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
        raise trouble.connecting(error, address.shown) from error
    except ValueError:
        # Without the driver's own message: it may contain a part of the password.
        raise ConfigError(
            f"{address.shown}: the URL or the settings of the connection are not valid; check host, port and parameters"
        ) from None


def _check_files(address: Address) -> None:
    """Raise ConfigError if a TLS file cannot be read; the driver's own error would not name it."""
    for name, path in parse_qsl(urlsplit(address.dsn).query):
        if name in TLS_FILES:
            try:
                open(path, "rb").close()
            except OSError as error:
                raise ConfigError(
                    f"{address.shown}: the file of ?{name}= cannot be read: {path}: {error.strerror}; correct its"
                    " path or permissions"
                ) from None


async def _connect(address: Address) -> Any:
    return await asyncpg.connect(
        address.dsn,
        timeout=CONNECT_LIMIT,
        statement_cache_size=0 if address.shared else 100,
        # pgbouncer refuses settings that it does not know.
        server_settings={"application_name": "holdfast"} | ({} if address.pgbouncer else {"jit": "off"}),
        target_session_attrs="read-write" if "," in address.dsn else None,
    )
