"""How many connections a server process has room for: each takes a file descriptor, and the store needs some too.

A connection is a stranger's until a request on it had a valid token.

1. Strangers have half of the room. Clients with a token have all of it, so strangers cannot lock them out.
2. An address from which no valid token came of late has a few connections. Behind a trusted proxy it is the address
   that the proxy forwards, and requests are counted in the place of connections.
3. Where strangers are too many, their oldest idle connection is closed for the new one, which may bring a token.
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
"""Seconds for which an address is known after a valid token came from it."""
KNOWN = 10_000
"""Addresses that are known at the same time."""


class Guest(Protocol):
    """A connection."""

    @property
    def idle(self) -> bool:
        """No request on it waits for its answer, but for one with a wrong token."""
        ...

    def cut(self) -> None:
        """Close it now."""
        ...


class Room:
    """Says which connections may stay. `proxies`: addresses or networks whose X-Forwarded-For is believed."""

    def __init__(self, proxies: Iterable[str] = ()) -> None:
        self._files = files()
        self._proxies = [_network(text) for text in proxies]
        self._strangers: dict[Guest, str] = {}
        """With their addresses, oldest first."""
        self._by_address: dict[str, dict[Guest, None]] = {}
        self._known: dict[str, float] = {}
        """When a valid token last came from an address, oldest first."""
        self._said: dict[str, float] = {}

    @property
    def most(self) -> int:
        """Connections that there may be."""
        return max(1, min(limits.SERVER_CONNECTIONS, self._files - limits.FILES))

    def over(self, connections: int, now: float) -> int:
        """By how many there are too many, once a stranger was sent away for the newest."""
        over = connections - self.most
        if over > 0 and self._cut_oldest(self._strangers):
            over -= 1
        if over > 0:
            self._say(now, "connections are refused: there are %d already, of at most %d", connections - 1, self.most)
        return over

    def enter(self, guest: Guest, address: str, now: float) -> bool:
        """Count a stranger; False where there is no room for it."""
        address = subnet(address)
        others = self._by_address.get(address, {})
        if len(others) >= limits.STRANGERS and now - self._known.get(address, -KNOWN_SECONDS) >= KNOWN_SECONDS:
            self._say(now, "%s has %d connections without a token: the oldest is closed", address, len(others))
            if not self._cut_oldest(others):
                return False
        if len(self._strangers) >= max(1, self.most // 2):
            self._say(now, "there are %d connections without a token: the oldest is closed", len(self._strangers))
            if not self._cut_oldest(self._strangers):
                return False
        self._strangers[guest] = address
        self._by_address.setdefault(address, {})[guest] = None
        return True

    def leave(self, guest: Guest) -> None:
        """It is gone, or is a stranger's no more."""
        address = self._strangers.pop(guest, None)
        if address is not None:
            others = self._by_address[address]
            del others[guest]
            if not others:
                del self._by_address[address]

    def admitted(self, guest: Guest, address: str, now: float) -> None:
        """A valid token came on this connection."""
        self.leave(guest)
        address = subnet(address)
        self._known.pop(address, None)
        self._known[address] = now
        if len(self._known) > KNOWN:
            del self._known[next(iter(self._known))]

    def trusts(self, address: str) -> bool:
        """Whether an address is a proxy's."""
        if not self._proxies or not is_address(address):
            return False
        return any(ipaddress.ip_address(address) in network for network in self._proxies)

    def forwarded(self, headers: Sequence[tuple[bytes, bytes]], proxy: str) -> str:
        """The address that a proxy forwards: the last one that is no proxy's. The proxy's own, where there is none."""
        given = b",".join(value for name, value in headers if name == b"x-forwarded-for").decode("latin-1")
        for text in reversed(given.split(",")):
            address = text.strip()
            if not is_address(address):
                break
            if not self.trusts(address):
                return address
        return proxy

    def _cut_oldest(self, guests: Iterable[Guest]) -> bool:
        guest = next((one for one in guests if one.idle), None)
        if guest is None:
            return False
        self.leave(guest)
        guest.cut()
        return True

    def _say(self, now: float, words: str, *given: object) -> None:
        if now - self._said.get(words, -limits.LOG_EVERY) >= limits.LOG_EVERY:
            self._said[words] = now
            logger.warning(words, *given)


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        return ipaddress.ip_network(text.strip(), strict=False)
    except ValueError:
        raise ConfigError(f"--trust-proxy takes an address or a network, such as 10.0.0.0/8, not {text!r}") from None


def files() -> int:
    """How many files this process may open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return limits.SERVER_CONNECTIONS + limits.FILES if soft == resource.RLIM_INFINITY else soft


def make_room() -> None:
    """Let this process open as many files as it wants for its connections, or as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = limits.SERVER_CONNECTIONS + limits.FILES
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
