"""API tokens: shown once when created, stored as digests with roles, scope and expiry.

A token is `hf_ID_SECRET`. The id selects the record; the secret's digest is compared in constant time. The stored
digest cannot be used as a token, and the secret is never logged or listed.

A token that was created with another token (`POST /v1/tokens`) is valid only as long as that one, and has at most its
roles. Its name in logs begins with the name of its creator, who chose the label.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NoReturn

import msgspec

from ..client.audited import audited
from ..client.search import Scope
from ..core.clock import MICROS, fresh_secret
from ..core.errors import ConfigError, HoldfastError, OutcomeUnknown
from ..core.validation import checked_name, checked_seconds, checked_text
from ..observe.actors import ACTOR_LIMIT, note_before, note_target
from ..store.worker_writes import RecordKind, WorkerWrites
from ..views import moment

if TYPE_CHECKING:
    from ..client.records import Records
    from ..core.clock import Clock
    from ..store.protocol import Versioned

KIND = "token"
"""The kind of the store's records."""
ROLES = ("read", "submit", "work", "operate")
ALL = frozenset(ROLES)
LABEL_LIMIT = 100
"""Maximum characters of a token's label."""
NAMES_LIMIT = 50
"""Maximum queues, and tasks, of a token's scope: they are compared at every request."""
MIN_TOKEN_LENGTH = 16
"""Minimum characters of HOLDFAST_TOKEN."""
NO_DIGEST = "0" * 64
"""A digest that no secret has."""
TOKENS_MAX_AGE = 5.0
"""Seconds for which tokens are cached: how long a revoked token may still be accepted."""


class Stored(msgspec.Struct, frozen=True):
    """A token as stored."""

    digest: str
    roles: tuple[str, ...]
    label: str
    created_at: int
    expires_at: int | None = None
    """Microseconds of the store's clock; None: valid until revoked."""
    scope: Scope | None = None
    made_with: str = ""
    """The id of the token with which it was created; "" if by a command, or with HOLDFAST_TOKEN."""
    created_by: str = ""
    """Who created it over HTTP, as logs name the sender; "" if it was created by a command."""


class Access(msgspec.Struct, frozen=True):
    """What the sender of a request may do."""

    roles: frozenset[str]
    scope: Scope | None = None
    """None: all queues and tasks."""
    token: str = ""
    """The token's id; "" for HOLDFAST_TOKEN, and if no token is needed."""
    expires_at: int | None = None
    label: str = ""
    """The token's name for logs: its label; `HOLDFAST_TOKEN` for that one, "" if no token is needed."""

    @property
    def anonymous(self) -> bool:
        """Whether the sender was admitted without a token."""
        return not (self.token or self.label)

    @property
    def who(self) -> str:
        """The sender, for logs: the token's label, else its id."""
        return self.label or (f"token {self.token}" if self.token else "anonymous")


class TokenInfo(msgspec.Struct, frozen=True):
    """A token without its secret."""

    id: str
    label: str
    roles: tuple[str, ...]
    created_at: datetime
    expires_at: datetime | None
    queues: tuple[str, ...]
    """Empty: all. `tasks` likewise."""
    tasks: tuple[str, ...]
    expired: bool
    created_by: str
    """Who created it over HTTP; empty: `holdfast token create`."""
    made_with: str
    """The id of the token with which it was created: it ends with that one. Empty: with none."""


class UnknownToken(HoldfastError, LookupError):
    """There is no token with this id."""

    def __init__(self, id: str) -> None:
        super().__init__(f"there is no token {id!r}; `holdfast token list` lists all tokens")


EVERYTHING = Access(ALL)
OWN = Access(ALL, label="HOLDFAST_TOKEN")


@audited("token.create")
async def create(
    records: Records,
    roles: Iterable[str],
    label: str = "",
    *,
    expires: timedelta | float | None = None,
    queues: Iterable[str] = (),
    tasks: Iterable[str] = (),
    made_with: str = "",
    created_by: str = "",
) -> str:
    """Create a token and store its digest; returns the token, which is not stored.

    `expires`: seconds of validity. `queues` and `tasks`: its scope, by name with `*` as wildcard; empty: all.
    `made_with`, `created_by`: the token and the name of the sender of a request. Its roles and scope are checked there.
    """
    wanted = checked_roles(roles)
    if label:
        checked_text(label, "a label", LABEL_LIMIT)
    lasts = _lasts(expires)
    scope = Scope(
        tuple(dict.fromkeys(checked_name(queue, "queue") for queue in queues)),
        tuple(dict.fromkeys(checked_name(task, "task") for task in tasks)),
    )
    if max(len(scope.queues), len(scope.tasks)) > NAMES_LIMIT:
        raise ConfigError(
            f"no token was created: a scope has at most {NAMES_LIMIT} queues and {NAMES_LIMIT} tasks; use a pattern"
            " with * instead of single names"
        )
    secret = fresh_secret()
    now = await records.now()
    ends = None if lasts is None else now + int(lasts * MICROS)
    limited = scope if scope.queues or scope.tasks else None
    stored = Stored(_digest(secret), wanted, label, now, ends, limited, made_with, created_by[:ACTOR_LIMIT])
    id = ""
    try:
        while not id or not await records.put(KIND, id, msgspec.json.encode(stored), 0):  # an id may be taken
            id = hashlib.sha256(fresh_secret().encode()).hexdigest()[:12]
    except OutcomeUnknown as error:
        message = f"token {id} may be stored, but its secret is lost; revoke it and create another: {error}"
        raise OutcomeUnknown(message) from error
    note_target(id=id)
    return f"hf_{id}_{secret}"


async def tokens(records: Records) -> list[TokenInfo]:
    """All tokens, oldest first; expired ones are listed until they are revoked."""
    now = await records.now()
    found = [_seen(id, one, now) for id, one in (await _stored(records)).items()]
    return sorted(found, key=lambda one: one.created_at)


def _lasts(expires: timedelta | float | None) -> float | None:
    return None if expires is None else checked_seconds(expires, "expires", positive=True)


def _seen(id: str, one: Stored, now: int) -> TokenInfo:
    scope = one.scope or Scope()
    ends = None if one.expires_at is None else moment(one.expires_at)
    expired = one.expires_at is not None and one.expires_at <= now
    made = moment(one.created_at)
    return TokenInfo(
        id, one.label, one.roles, made, ends, scope.queues, scope.tasks, expired, one.created_by, one.made_with
    )


@audited("token.edit")
async def edit(
    records: Records, id: str, *, roles: Iterable[str] | None = None, expires: timedelta | float | None = None
) -> None:
    """Restrict a token: to some of its roles, or to a shorter validity (seconds from now). It never gains anything."""
    wanted, lasts = None if roles is None else checked_roles(roles), _lasts(expires)
    while True:
        kept = (await records.all(KIND)).get(_checked_id(id))
        now = await records.now()
        found = None if kept is None else _decoded({id: kept}).get(id)
        if kept is None or found is None:
            raise UnknownToken(id)
        if wanted is not None and not set(wanted) <= set(found.roles):
            raise ConfigError(
                f"token {id} was not changed: its roles are {', '.join(found.roles)}, and a token gets no more roles; "
                "create another one"
            )
        ends = found.expires_at if lasts is None else now + int(lasts * MICROS)
        if ends is not None and found.expires_at is not None and ends > found.expires_at:
            raise ConfigError(
                f"token {id} was not changed: it expires at {moment(found.expires_at)}, and expires can only be "
                "earlier; create another one"
            )
        note_before(roles=found.roles, expires_at=found.expires_at)
        changed = msgspec.structs.replace(found, roles=wanted or found.roles, expires_at=ends)
        if await records.put(KIND, id, msgspec.json.encode(changed), kept.version):
            return


@audited("token.revoke")
async def revoke(records: Records, id: str) -> list[str]:
    """Revoke a token and those that were created with it; returns the ids of the latter.

    Servers refuse them within `TOKENS_MAX_AGE` seconds.
    """
    kept = await records.all(KIND)
    if _checked_id(id) not in kept:
        raise UnknownToken(id)
    await records.put(KIND, id, None)  # without it, the others are invalid already
    others = _decoded(kept)
    others.pop(id, None)
    ended = sorted(others.keys() - _valid(others).keys())
    for one in ended:
        await records.put(KIND, one, None)
    if ended:
        note_target(revoked_too=ended)
    return ended


def _checked_id(id: str) -> str:
    if id.startswith("hf_"):
        raise ConfigError("nothing was changed: give the token's id, as `holdfast token list` shows it, not the token")
    return id


def checked_roles(roles: Iterable[str]) -> tuple[str, ...]:
    """The roles in canonical order, without duplicates; ConfigError for an unknown role or none."""
    given = set(roles)
    if not given or not given <= ALL:
        raise ConfigError(
            f"a token needs one or more of the roles {', '.join(ROLES)}, not {', '.join(sorted(given))!r}"
        )
    return tuple(role for role in ROLES if role in given)


class Keyring:
    """The tokens that a server accepts: HOLDFAST_TOKEN, and those in the store, cached."""

    def __init__(self, records: Records, clock: Clock, token: str | None) -> None:
        if token is not None and not (len(token) >= MIN_TOKEN_LENGTH and token.isascii() and token.isprintable()):
            raise ConfigError(f"HOLDFAST_TOKEN must have at least {MIN_TOKEN_LENGTH} printable ASCII characters")
        self._records = records
        self._clock = clock
        self._own = None if token is None else _digest(token)
        self._stored: dict[str, tuple[str, Access]] = {}
        """By the token's id: the digest of its secret, and its access."""
        self._read_at: float | None = None
        self._read_time = 0
        """The store's time when it was read, so that a token expires on all servers at the same time."""
        self.seen = token is not None
        """A token exists, or existed since this server started."""

    async def access(self, token: str) -> Access | None:
        """The access of a token; None if it is unknown or expired."""
        if self._own is not None and hmac.compare_digest(self._own, _digest(token)):
            return OWN
        prefix, _, rest = token.partition("_")
        id, _, secret = rest.partition("_")
        if prefix != "hf":
            return None
        await self.refresh()
        # An unknown id takes as long as a wrong secret.
        digest, access = self._stored.get(id, (NO_DIGEST, None))
        if not hmac.compare_digest(_digest(secret), digest) or access is None:
            return None
        return None if access.expires_at is not None and access.expires_at <= self._now() else access

    def _now(self) -> int:
        """The store's current time, extrapolated from the last read."""
        assert self._read_at is not None
        return self._read_time + int((self._clock.monotonic() - self._read_at) * MICROS)

    async def refresh(self, *, at_once: bool = False) -> None:
        """Read the tokens if the cache is too old, or `at_once`. If the store is down, the cache stays valid."""
        now, first = self._clock.monotonic(), self._read_at is None
        if self._read_at is not None and not at_once and now - self._read_at < TOKENS_MAX_AGE:
            return
        if not first:
            self._read_at, self._read_time = now, self._now()  # concurrent requests use the cache
        try:
            stored, time = await _stored(self._records), await self._records.now()
        except HoldfastError:
            if first and not at_once:
                raise
            return
        self._stored = {
            id: (one.digest, Access(frozenset(one.roles), one.scope, id, one.expires_at, _name(id, one)))
            for id, one in stored.items()
        }
        self._read_at, self._read_time = now, time
        self.seen = self.seen or bool(self._stored)


async def _stored(records: Records) -> dict[str, Stored]:
    return _valid(_decoded(await records.all(KIND)))


def _decoded(kept: dict[str, Versioned]) -> dict[str, Stored]:
    found: dict[str, Stored] = {}
    for id, one in kept.items():
        with suppress(msgspec.DecodeError, UnicodeDecodeError):  # a token that cannot be decoded is not accepted
            found[id] = msgspec.json.decode(one.value, type=Stored)
    return found


def _valid(stored: dict[str, Stored]) -> dict[str, Stored]:
    """Without tokens that were created with one that no longer exists; none has more roles or time than that one."""
    made: dict[str, list[str]] = {}
    for id, one in stored.items():
        made.setdefault(one.made_with, []).append(id)
    found: dict[str, Stored] = {}
    ids = made.pop("", [])
    for id in ids:  # grows as it is read: those that were created with it follow
        one = stored[id]
        found[id] = one if not one.made_with else _within(one, found[one.made_with])
        ids += made.pop(id, [])
    return found


def _within(one: Stored, maker: Stored) -> Stored:
    ends = [end for end in (one.expires_at, maker.expires_at) if end is not None]
    roles = tuple(role for role in one.roles if role in maker.roles)
    return msgspec.structs.replace(one, roles=roles, expires_at=min(ends, default=None))


def _name(id: str, one: Stored) -> str:
    """The name of a token for logs: its label, after the name of who chose it."""
    return f"{one.created_by}: {one.label or f'token {id}'}" if one.created_by else one.label


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


async def _not_over_http(*_: object) -> NoReturn:
    raise ConfigError(f"records of the kind {KIND!r} cannot be read or written over HTTP; open the store directly")


WRITES = WorkerWrites(records=(RecordKind(KIND, check=_not_over_http, before_read=_not_over_http),))
"""Tokens cannot be created or listed through the store protocol."""
