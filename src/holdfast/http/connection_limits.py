"""Limits on the connections of a server process: each uses a file descriptor, and the store needs some too.

A connection is unauthenticated until a request on it had a valid token.

1. Unauthenticated clients may use half of the connections, so they cannot lock out clients with a token.
2. An address that sent no valid token recently may have `limits.UNAUTHENTICATED` connections. Behind a trusted proxy
   the forwarded address counts, and requests are counted instead of connections.
3. At a limit of unauthenticated connections, the oldest idle one is closed in favour of the new one.
"""

from __future__ import annotations

import ipaddress
import logging
import resource
from collections.abc import Iterable, Sequence
from typing import Protocol

from ..core.errors import ConfigError
from ..core.hosts import is_address, subnet
from . import limits

logger = logging.getLogger("holdfast.http")
KNOWN_SECONDS = 600.0
"""Seconds for which an address counts as known after a valid token."""
KNOWN = 10_000
"""Maximum number of known addresses."""


class Closable(Protocol):
    """A connection."""

    @property
    def idle(self) -> bool: ...

    def abort(self) -> None: ...


class ConnectionLimits:
    """Decides which connections stay open. `proxies`: addresses or networks whose X-Forwarded-For is trusted."""

    def __init__(self, proxies: Iterable[str] = ()) -> None:
        self._max_files = files()
        self._proxies = [_network(text) for text in proxies]
        self._anonymous: dict[Closable, str] = {}
        """Unauthenticated connections with their addresses, oldest first."""
        self._by_address: dict[str, dict[Closable, None]] = {}
        self._known: dict[str, float] = {}
        """Time of the last valid token by address, oldest first."""
        self._logged: dict[str, float] = {}

    @property
    def max_connections(self) -> int:
        return max(1, min(limits.SERVER_CONNECTIONS, self._max_files - limits.FILES))

    def over(self, connections: int, now: float) -> int:
        """The number of connections over the maximum, after closing an unauthenticated one."""
        over = connections - self.max_connections
        if over > 0 and self._abort_oldest(self._anonymous):
            over -= 1
        if over > 0:
            self._log(
                now,
                "a connection was refused: the server already has its maximum of %d connections; close some of them, or"
                " start another server",
                self.max_connections,
            )
        return over

    def enter(self, connection: Closable, address: str, now: float) -> bool:
        """Add an unauthenticated connection; False if it must be closed."""
        address = subnet(address)
        others = self._by_address.get(address, {})
        if len(others) >= limits.UNAUTHENTICATED and now - self._known.get(address, -KNOWN_SECONDS) >= KNOWN_SECONDS:
            self._log(
                now,
                "address %s has %d connections without a token: the oldest idle one is closed",
                address,
                len(others),
            )
            if not self._abort_oldest(others):
                return False
        if len(self._anonymous) >= max(1, self.max_connections // 2):
            self._log(
                now,
                "the server has %d connections without a token: the oldest idle one is closed",
                len(self._anonymous),
            )
            if not self._abort_oldest(self._anonymous):
                return False
        self._anonymous[connection] = address
        self._by_address.setdefault(address, {})[connection] = None
        return True

    def leave(self, connection: Closable) -> None:
        """Remove a connection that is closed or now authenticated."""
        address = self._anonymous.pop(connection, None)
        if address is not None:
            others = self._by_address[address]
            del others[connection]
            if not others:
                del self._by_address[address]

    def admitted(self, connection: Closable, address: str, now: float) -> None:
        """Record a valid token on this connection."""
        self.leave(connection)
        address = subnet(address)
        self._known.pop(address, None)
        self._known[address] = now
        if len(self._known) > KNOWN:
            del self._known[next(iter(self._known))]

    def trusts(self, address: str) -> bool:
        if not self._proxies or not is_address(address):
            return False
        return any(ipaddress.ip_address(address) in network for network in self._proxies)

    def forwarded(self, headers: Sequence[tuple[bytes, bytes]], proxy: str) -> str:
        """The forwarded client address: the last one that is not a trusted proxy; without one, the proxy's own."""
        given = b",".join(value for name, value in headers if name == b"x-forwarded-for").decode("latin-1")
        for text in reversed(given.split(",")):
            address = text.strip()
            if not is_address(address):
                break
            if not self.trusts(address):
                return address
        return proxy

    def _abort_oldest(self, connections: Iterable[Closable]) -> bool:
        connection = next((one for one in connections if one.idle), None)
        if connection is None:
            return False
        self.leave(connection)
        connection.abort()
        return True

    def _log(self, now: float, message: str, *arguments: object) -> None:
        if now - self._logged.get(message, -limits.LOG_EVERY) >= limits.LOG_EVERY:
            self._logged[message] = now
            logger.warning(message, *arguments)


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        return ipaddress.ip_network(text.strip(), strict=False)
    except ValueError:
        raise ConfigError(f"--trust-proxy takes an address or a network, such as 10.0.0.0/8, not {text!r}") from None


def files() -> int:
    """The limit of open files of this process."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return limits.SERVER_CONNECTIONS + limits.FILES if soft == resource.RLIM_INFINITY else soft


def raise_file_limit() -> None:
    """Raise the limit of open files to what the connections need, at most to the hard limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = limits.SERVER_CONNECTIONS + limits.FILES
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
