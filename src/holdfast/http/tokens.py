"""Tokens: made once and shown once, kept in the store as digests, each with its roles, its scope and its end.

A token is `hf_ID_SECRET`. The id finds its record; the secret's digest is compared in constant time. What is stored
opens nothing, and neither a log nor a list ever has the secret.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NoReturn

import msgspec

from ..client.search import Scope
from ..core.clock import MICROS, fresh_secret
from ..core.errors import ConfigError, HoldfastError, OutcomeUnknown
from ..core.validation import checked_name, checked_seconds, checked_text
from ..store.worker_writes import RecordKind, WorkerWrites
from ..views import moment

if TYPE_CHECKING:
    from ..client.records import Records
    from ..core.clock import Clock

KIND = "token"
"""Of the store's small shared records."""
ROLES = ("read", "submit", "work", "operate")
ALL = frozenset(ROLES)
LABEL_LIMIT = 100
"""Characters of a token's label."""
NAMES_LIMIT = 50
"""Queues, and tasks, of one token's scope: they are compared at every request."""
TOKEN_LEAST = 16
"""Characters of a token that somebody made up."""
NOBODY = "0" * 64
"""A digest that no secret has."""
TOKENS_MAX_AGE = 5.0
"""Seconds after which the store is asked again: how long a revoked token may still be let in."""


class Stored(msgspec.Struct, frozen=True):
    """A token as the store has it."""

    digest: str
    roles: tuple[str, ...]
    label: str
    created_at: int
    expires_at: int | None = None
    """By the store's clock; None: it holds until it is revoked."""
    scope: Scope | None = None


class Access(msgspec.Struct, frozen=True):
    """What the sender of a request may do."""

    roles: frozenset[str]
    scope: Scope | None = None
    """None: all queues and tasks."""
    token: str = ""
    """The token's id; "" for the server's own, and where none is needed."""
    expires_at: int | None = None


class TokenInfo(msgspec.Struct, frozen=True):
    """What can be seen of a token."""

    id: str
    label: str
    roles: tuple[str, ...]
    created_at: datetime
    expires_at: datetime | None
    queues: tuple[str, ...]
    """Empty: all. The same holds for `tasks`."""
    tasks: tuple[str, ...]
    expired: bool


EVERYTHING = Access(ALL)


async def create(
    records: Records,
    roles: Iterable[str],
    label: str = "",
    *,
    expires: timedelta | float | None = None,
    queues: Iterable[str] = (),
    tasks: Iterable[str] = (),
) -> str:
    """Make a token and keep its digest; the token itself exists only in the answer.

    `expires`: seconds for which it holds. `queues` and `tasks`: those that it is for, by name, a `*` standing for any
    characters; all, where none is given.
    """
    wanted = checked_roles(roles)
    if label:
        checked_text(label, "a label", LABEL_LIMIT)
    lasts = None if expires is None else checked_seconds(expires, "expires", positive=True)
    scope = Scope(
        tuple(dict.fromkeys(checked_name(queue, "queue") for queue in queues)),
        tuple(dict.fromkeys(checked_name(task, "task") for task in tasks)),
    )
    if max(len(scope.queues), len(scope.tasks)) > NAMES_LIMIT:
        raise ConfigError(f"a token is for at most {NAMES_LIMIT} queues and {NAMES_LIMIT} tasks; a * stands for many")
    secret = fresh_secret()
    now = await records.now()
    ends = None if lasts is None else now + int(lasts * MICROS)
    stored = Stored(_digest(secret), wanted, label, now, ends, scope if scope.queues or scope.tasks else None)
    id = ""
    try:
        while not id or not await records.put(KIND, id, msgspec.json.encode(stored), 0):  # an id may be taken
            id = hashlib.sha256(fresh_secret().encode()).hexdigest()[:12]
    except OutcomeUnknown as error:
        said = f"token {id} may be stored, and nobody has it; revoke it, and make another: {error}"
        raise OutcomeUnknown(said) from error
    return f"hf_{id}_{secret}"


async def tokens(records: Records) -> list[TokenInfo]:
    """Every token, oldest first; also those that have expired, until they are revoked."""
    now = await records.now()
    found = [_seen(id, one, now) for id, one in (await _stored(records)).items()]
    return sorted(found, key=lambda one: one.created_at)


def _seen(id: str, one: Stored, now: int) -> TokenInfo:
    scope = one.scope or Scope()
    ends = None if one.expires_at is None else moment(one.expires_at)
    expired = one.expires_at is not None and one.expires_at <= now
    return TokenInfo(id, one.label, one.roles, moment(one.created_at), ends, scope.queues, scope.tasks, expired)


async def revoke(records: Records, id: str) -> None:
    """Forget a token: servers refuse it from then on, within seconds."""
    if id.startswith("hf_"):
        raise ConfigError("give the token's id, as `holdfast token list` shows it, not the token")
    if id not in await records.all(KIND):
        raise HoldfastError(f"there is no token {id!r}; see `holdfast token list`")
    await records.put(KIND, id, None)


def checked_roles(roles: Iterable[str]) -> tuple[str, ...]:
    """Roles in their usual order, each once."""
    given = set(roles)
    if not given or not given <= ALL:
        raise ConfigError(f"a token has one or more of the roles {', '.join(ROLES)}, not {', '.join(sorted(given))!r}")
    return tuple(role for role in ROLES if role in given)


class Keyring:
    """Who is let in, as a server knows it: the one token of its environment, and those in the store."""

    def __init__(self, records: Records, clock: Clock, token: str | None) -> None:
        if token is not None and not (len(token) >= TOKEN_LEAST and token.isascii() and token.isprintable()):
            raise ConfigError(f"HOLDFAST_TOKEN must be at least {TOKEN_LEAST} plain characters")
        self._records = records
        self._clock = clock
        self._own = None if token is None else _digest(token)
        self._stored: dict[str, tuple[str, Access]] = {}
        """By the token's id: the digest of its secret, and what it allows."""
        self._read_at: float | None = None
        self._read_time = 0
        """The store's time when it was read: all servers end a token at the same moment, whatever their own clocks."""
        self.seen = token is not None
        """There is a token, or was since this server started."""

    async def access(self, token: str) -> Access | None:
        """What the bearer of a token may do; None where it is not one, or one that has expired."""
        if self._own is not None and hmac.compare_digest(self._own, _digest(token)):
            return EVERYTHING
        prefix, _, rest = token.partition("_")
        id, _, secret = rest.partition("_")
        if prefix != "hf":
            return None
        await self.refresh()
        # An unknown id takes as long as a wrong secret.
        digest, access = self._stored.get(id, (NOBODY, None))
        if not hmac.compare_digest(_digest(secret), digest) or access is None:
            return None
        return None if access.expires_at is not None and access.expires_at <= self._now() else access

    def _now(self) -> int:
        """The store's time, by what it was when it was asked."""
        assert self._read_at is not None
        return self._read_time + int((self._clock.monotonic() - self._read_at) * MICROS)

    async def refresh(self) -> None:
        """Read the store's tokens, where that is some time ago. A store that is down changes nothing that was known."""
        now, first = self._clock.monotonic(), self._read_at is None
        if self._read_at is not None and now - self._read_at < TOKENS_MAX_AGE:
            return
        if not first:
            self._read_at, self._read_time = now, self._now()  # meanwhile others go by what is known
        try:
            stored, time = await _stored(self._records), await self._records.now()
        except HoldfastError:
            if first:
                raise
            return
        self._stored = {
            id: (one.digest, Access(frozenset(one.roles), one.scope, id, one.expires_at)) for id, one in stored.items()
        }
        self._read_at, self._read_time = now, time
        self.seen = self.seen or bool(self._stored)


async def _stored(records: Records) -> dict[str, Stored]:
    found: dict[str, Stored] = {}
    for id, kept in (await records.all(KIND)).items():
        with suppress(msgspec.DecodeError, UnicodeDecodeError):  # one that cannot be read lets nobody in
            found[id] = msgspec.json.decode(kept.value, type=Stored)
    return found


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


async def _out_of_reach(*_: object) -> NoReturn:
    raise ConfigError(f"records of the kind {KIND!r} are out of reach over HTTP")


WRITES = WorkerWrites(records=(RecordKind(KIND, check=_out_of_reach, before_read=_out_of_reach),))
"""Nobody makes or lists tokens through the store API."""
