"""Authentication of requests by Host, Origin and token.

1. Host: an IP address, localhost, this machine's name or a name of `hosts`; in tests of a program also `testserver`,
   which test clients send. This blocks DNS rebinding, where the Host is the attacker's name.
2. Origin: if a browser sends it, it must be the origin of the Host, or one of `origins`.
3. Token: only in `Authorization: Bearer`. On loopback, all requests are allowed until the first token exists; after
   that a token is always needed.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ..core.errors import StoreUnavailable
from ..core.hosts import is_address, named
from . import limits
from .failures import Failures
from .problems import BAD_REQUEST, STORE_UNAVAILABLE, UNAUTHORIZED, WRONG_HOST, WRONG_ORIGIN, Refused
from .tokens import EVERYTHING, Access, Keyring

if TYPE_CHECKING:
    from ..parts import Parts

Headers = Sequence[tuple[bytes, bytes]]
ANY = "*"
TEST_HOST = b"testserver"
"""The Host that the test clients of Starlette and Django send."""


class WrongToken(Refused):
    """A request with an unknown or expired token."""


class Auth:
    """Authenticates requests, or raises Refused with the reason."""

    def __init__(
        self, parts: Parts, *, token: str | None, unguarded: bool, hosts: Iterable[str], origins: Iterable[str]
    ) -> None:
        self._runtime = parts.runtime
        self.keyring = Keyring(parts.records, parts.runtime.clock, token)
        self.failures = Failures(parts.runtime.clock)
        self.open_without_token = False
        """Set by a server that listens on loopback only."""
        self._unguarded = unguarded
        self._hosts = {"localhost", socket.gethostname().lower(), *(host.lower() for host in hosts)}
        self._origins = {_origin(origin) for origin in origins}
        self._accepted: dict[bytes, bool] = {}

    async def admit(self, headers: Headers) -> Access:
        """The access of a request's sender; WrongToken for an unknown or expired token, Refused for other reasons."""
        authorization = self.check_host_and_origin(headers)
        if self._unguarded:
            return EVERYTHING
        try:
            return await self._access(authorization)
        except StoreUnavailable as error:  # its text may contain the store's URL, and the sender is not authenticated
            raise Refused(
                STORE_UNAVAILABLE,
                "the token could not be checked because the store does not respond; try again later",
                retry_safe=True,
                retry_after=limits.RETRY_AFTER,
            ) from error

    async def _access(self, authorization: bytes | None) -> Access:
        if self.open_without_token and not self.keyring.seen:
            await self.keyring.refresh()
            if not self.keyring.seen:
                return EVERYTHING
        if authorization is None:
            detail = "this request needs a token: `Authorization: Bearer …`; `holdfast token create` creates one"
            raise Refused(UNAUTHORIZED, detail, www_authenticate="Bearer")
        scheme, _, token = authorization.decode("latin-1").partition(" ")
        access = await self.keyring.access(token.strip()) if scheme.lower() == "bearer" else None
        if access is None:
            raise WrongToken(
                UNAUTHORIZED,
                "this token is unknown, revoked or expired; `holdfast token create` creates a new one",
                www_authenticate="Bearer",
            )
        return access

    def check_host_and_origin(self, headers: Headers) -> bytes | None:
        """Check Host and Origin; returns the Authorization header."""
        host, origin, authorization = self._read(headers)
        if not self._host_accepted(host):
            raise Refused(
                WRONG_HOST,
                f"Host {host.decode('latin-1')!r:.200} is not accepted by this server; to accept it, start the server "
                "with --allow-host, or mount it with hosts=[…]",
            )
        if origin is not None and not self._same_site(origin, host):
            raise Refused(
                WRONG_ORIGIN,
                f"pages of origin {origin.decode('latin-1')!r:.200} may not call this server; to allow them, start the "
                "server with --allow-origin, or mount it with origins=[…]",
            )
        return authorization

    def _read(self, headers: Headers) -> tuple[bytes, bytes | None, bytes | None]:
        host = origin = authorization = None
        for name, value in headers:
            if name == b"host":
                if host is not None:
                    raise Refused(BAD_REQUEST, "the request has more than one Host header: send only one")
                host = value
            elif name == b"origin":
                if origin is not None:
                    raise Refused(BAD_REQUEST, "the request has more than one Origin header: send only one")
                origin = value
            elif name == b"authorization":
                if authorization is not None:
                    raise Refused(BAD_REQUEST, "the request has more than one Authorization header: send only one")
                authorization = value
        if not host:
            raise Refused(BAD_REQUEST, "the request has no Host header: send one")
        return host, origin, authorization

    def _host_accepted(self, host: bytes) -> bool:
        if host == TEST_HOST and self._runtime.in_test:
            return True
        known = self._accepted.get(host)
        if known is None:
            known = self._check(host)
            if len(self._accepted) < 1000:  # bound the memory that clients can use
                self._accepted[host] = known
        return known

    def _check(self, host: bytes) -> bool:
        name = named(host.decode("latin-1"))
        return name is not None and (ANY in self._hosts or name in self._hosts or is_address(name))

    def _same_site(self, origin: bytes, host: bytes) -> bool:
        given = _origin(origin.decode("latin-1"))
        parts = urlsplit(given)
        ours = host.decode("latin-1").lower()
        own = {ours, ours.removesuffix(":80" if parts.scheme == "http" else ":443")}
        return given in self._origins or (parts.scheme in ("http", "https") and parts.netloc in own)


def is_loopback(address: str) -> bool:
    return is_address(address) and ipaddress.ip_address(address).is_loopback


def _origin(text: str) -> str:
    return text.strip().lower().removesuffix("/")
