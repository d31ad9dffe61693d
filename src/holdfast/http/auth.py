"""Who may come in: by which name the server is called, from which site's page, and with which token.

1. Host: an address, localhost, this machine's name or one that was listed. A page that points its own name at this
   machine (DNS rebinding) still says its own name.
2. Origin: a browser says whose page calls. Only the server's own pages may: those of its Host, or of an address that
   was listed, where a proxy changes the Host.
3. Token: `Authorization: Bearer`, nowhere else. Without any token in existence, and only where it was opened for that
   (loopback), everybody may do everything; that ends with the first token, and never comes back.
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


class WrongToken(Refused):
    """A request with a token that is not known, or has expired."""


class Door:
    """Lets requests in, or says why not."""

    def __init__(
        self,
        parts: Parts,
        *,
        token: str | None,
        unguarded: bool,
        hosts: Iterable[str],
        origins: Iterable[str],
    ) -> None:
        self.keyring = Keyring(parts.records, parts.runtime.clock, token)
        self.failures = Failures(parts.runtime.clock)
        self.open_without_token = False
        """Set by a server that only this machine can reach."""
        self._unguarded = unguarded
        self._hosts = {"localhost", socket.gethostname().lower(), *(host.lower() for host in hosts)}
        self._origins = {_origin(origin) for origin in origins}
        self._checked: dict[bytes, bool] = {}

    async def admit(self, headers: Headers) -> Access:
        """What the sender may do; Refused for a stranger, WrongToken where it has a token that counts for nothing."""
        authorization = self.check_place(headers)
        if self._unguarded:
            return EVERYTHING
        try:
            return await self._access(authorization)
        except StoreUnavailable as error:  # which may name the store, and this may be a stranger
            raise Refused(
                STORE_UNAVAILABLE,
                "the store does not answer, and without it nobody is known here",
                retry_safe=True,
                retry_after=limits.RETRY_AFTER,
            ) from error

    async def _access(self, authorization: bytes | None) -> Access:
        if self.open_without_token and not self.keyring.seen:
            await self.keyring.refresh()
            if not self.keyring.seen:
                return EVERYTHING
        if authorization is None:
            detail = "this needs a token: `Authorization: Bearer …`; `holdfast token create` makes one"
            raise Refused(UNAUTHORIZED, detail, www_authenticate="Bearer")
        scheme, _, token = authorization.decode("latin-1").partition(" ")
        access = await self.keyring.access(token.strip()) if scheme.lower() == "bearer" else None
        if access is None:
            raise WrongToken(
                UNAUTHORIZED,
                "this token is not known here; it may have been revoked, or have expired",
                www_authenticate="Bearer",
            )
        return access

    def check_place(self, headers: Headers) -> bytes | None:
        """Whether it is meant for this server, and comes from a page that may call it; its Authorization."""
        host, origin, authorization = self._read(headers)
        if not self._known(host):
            raise Refused(
                WRONG_HOST,
                f"this server is not called {host.decode('latin-1')!r:.200}; if it should be, start it with that name "
                "(--allow-host)",
            )
        if origin is not None and not self._same_site(origin, host):
            raise Refused(WRONG_ORIGIN, f"a page of {origin.decode('latin-1')!r:.200} may not call this server")
        return authorization

    def _read(self, headers: Headers) -> tuple[bytes, bytes | None, bytes | None]:
        host = origin = authorization = None
        for name, value in headers:
            if name == b"host":
                if host is not None:
                    raise Refused(BAD_REQUEST, "there is more than one Host header")
                host = value
            elif name == b"origin":
                if origin is not None:
                    raise Refused(BAD_REQUEST, "there is more than one Origin header")
                origin = value
            elif name == b"authorization":
                if authorization is not None:
                    raise Refused(BAD_REQUEST, "there is more than one Authorization header")
                authorization = value
        if not host:
            raise Refused(BAD_REQUEST, "there is no Host header")
        return host, origin, authorization

    def _known(self, host: bytes) -> bool:
        known = self._checked.get(host)
        if known is None:
            known = self._check(host)
            if len(self._checked) < 1000:  # nobody may fill the memory with names
                self._checked[host] = known
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
    """Whether only this machine can reach an address."""
    return is_address(address) and ipaddress.ip_address(address).is_loopback


def _origin(text: str) -> str:
    return text.strip().lower().removesuffix("/")
