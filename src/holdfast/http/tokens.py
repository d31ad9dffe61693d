"""Tokens: made once and shown once, kept in the store as digests, each with the roles that it has.

A token is `hf_ID_SECRET`. The id finds its record; the secret's digest is compared in constant time. What is stored
opens nothing, and neither a log nor a list ever has the secret.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from ..checks import checked_text
from ..clock import fresh_secret
from ..errors import ConfigError, HoldfastError, OutcomeUnknown
from ..view import moment

if TYPE_CHECKING:
    from ..app import Holdfast

KIND = "token"
"""Of the store's small shared records."""
ROLES = ("read", "submit", "work", "operate")
ALL = frozenset(ROLES)
LABEL_LIMIT = 100
TOKEN_LEAST = 16
"""Characters of a token that somebody made up."""
NOBODY = "0" * 64
"""A digest that no secret has."""
STALE = 5.0
"""Seconds after which the store is asked again: how long a revoked token may still be let in."""


class Stored(msgspec.Struct, frozen=True):
    """A token as the store has it."""

    digest: str
    roles: tuple[str, ...]
    label: str
    created_at: int


class TokenSeen(msgspec.Struct, frozen=True):
    """What can be seen of a token."""

    id: str
    label: str
    roles: tuple[str, ...]
    created_at: datetime


async def create(app: Holdfast, roles: Iterable[str], label: str = "") -> str:
    """Make a token and keep its digest; the token itself exists only in the answer."""
    wanted = checked_roles(roles)
    if label:
        checked_text(label, "a label", LABEL_LIMIT)
    secret = fresh_secret()
    stored = Stored(_digest(secret), wanted, label, app.clock.now())
    id = ""
    try:
        while not id or not await app.put_record(KIND, id, msgspec.json.encode(stored), 0):  # an id may be taken
            id = hashlib.sha256(fresh_secret().encode()).hexdigest()[:12]
    except OutcomeUnknown as error:
        said = f"token {id} may be stored, and nobody has it; revoke it, and make another: {error}"
        raise OutcomeUnknown(said) from error
    return f"hf_{id}_{secret}"


async def tokens(app: Holdfast) -> list[TokenSeen]:
    """Every token, oldest first."""
    found = [TokenSeen(id, one.label, one.roles, moment(one.created_at)) for id, one in (await _stored(app)).items()]
    return sorted(found, key=lambda one: one.created_at)


async def revoke(app: Holdfast, id: str) -> None:
    """Forget a token: servers refuse it from then on, within seconds."""
    if id.startswith("hf_"):
        raise ConfigError("give the token's id, as `holdfast token list` shows it, not the token")
    if id not in await app.records(KIND):
        raise ConfigError(f"there is no token {id!r}; see `holdfast token list`")
    await app.put_record(KIND, id, None)


def checked_roles(roles: Iterable[str]) -> tuple[str, ...]:
    """Roles in their usual order, each once."""
    given = set(roles)
    if not given or not given <= ALL:
        raise ConfigError(f"a token has one or more of the roles {', '.join(ROLES)}, not {', '.join(sorted(given))!r}")
    return tuple(role for role in ROLES if role in given)


class Keyring:
    """Who is let in, as a server knows it: the one token of its environment, and those in the store."""

    def __init__(self, app: Holdfast, token: str | None) -> None:
        if token is not None and not (len(token) >= TOKEN_LEAST and token.isascii() and token.isprintable()):
            raise ConfigError(f"HOLDFAST_TOKEN must be at least {TOKEN_LEAST} plain characters")
        self._app = app
        self._own = None if token is None else _digest(token)
        self._stored: dict[str, Stored] = {}
        self._read_at: float | None = None
        self.seen = token is not None
        """There is a token, or was since this server started."""

    async def roles(self, token: str) -> frozenset[str] | None:
        """What the bearer of a token may do; None where it is not one."""
        if self._own is not None and hmac.compare_digest(self._own, _digest(token)):
            return ALL
        prefix, _, rest = token.partition("_")
        id, _, secret = rest.partition("_")
        if prefix != "hf":
            return None
        await self.refresh()
        stored = self._stored.get(id)
        # An unknown id takes as long as a wrong secret.
        same = hmac.compare_digest(_digest(secret), NOBODY if stored is None else stored.digest)
        return frozenset(stored.roles) if stored is not None and same else None

    async def refresh(self) -> None:
        """Read the store's tokens, where that is some time ago. A store that is down changes nothing that was known."""
        now, first = self._app.clock.monotonic(), self._read_at is None
        if self._read_at is not None and now - self._read_at < STALE:
            return
        if not first:
            self._read_at = now  # meanwhile others go by what is known
        try:
            self._stored = await _stored(self._app)
        except HoldfastError:
            if first:
                raise
        self._read_at = now
        self.seen = self.seen or bool(self._stored)


async def _stored(app: Holdfast) -> dict[str, Stored]:
    found: dict[str, Stored] = {}
    for id, kept in (await app.records(KIND)).items():
        with suppress(msgspec.DecodeError, UnicodeDecodeError):  # one that cannot be read lets nobody in
            found[id] = msgspec.json.decode(kept.value, type=Stored)
    return found


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
