"""The address of a store: a URL, split into Holdfast's options and the driver's."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from ...core.errors import ConfigError
from ...core.url import redact, split

SCHEMES = frozenset({"postgresql", "postgres", "postgresql+asyncpg", "postgresql+psycopg", "postgresql+psycopg2"})
"""With the names of SQLAlchemy's drivers, so that one URL is for both."""
OPTIONS = ("schema", "signal", "pool", "pgbouncer")
PGBOUNCER = ("transaction", "session")
POOL = 4
"""Connections for claims, settles and reads; group commit needs one, concurrent reads the others."""
_DRIVERS = frozenset(
    {"sslmode", "sslcert", "sslkey", "sslrootcert", "sslcrl", "ssl_min_protocol_version", "ssl_max_protocol_version",
     "host", "port", "user", "dbname", "database", "password", "passfile", "application_name", "options",
     "target_session_attrs", "krbsrvname", "gsslib", "service", "servicefile", "connect_timeout"}
)  # fmt: skip

Connect = Callable[[], Awaitable[Any]]


class Address(msgspec.Struct, frozen=True):
    """One schema of one database, and how to reach it."""

    dsn: str
    schema: str = "holdfast"
    signal: str | None = None
    pool: int = POOL
    pgbouncer: str | None = None
    """The pool mode of the pgbouncer in between, if there is one: `transaction` or `session`."""
    connect: Connect | None = None
    """The user's own function that connects, instead of `dsn`: for tokens that expire, or a cloud's connector."""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z_][a-z0-9_]{0,39}", self.schema):
            raise ConfigError(
                f"the schema name {self.schema!r} is not valid: use at most 40 lower-case letters, digits and"
                " underscores, and begin with a letter or underscore"
            )
        if self.pgbouncer not in (None, *PGBOUNCER):
            raise ConfigError(f"?pgbouncer= must be one of {', '.join(PGBOUNCER)}, not {self.pgbouncer!r}")
        if self.pool < 1:
            raise ConfigError(f"?pool= must be a number of connections of at least 1, not {self.pool}")

    @property
    def shown(self) -> str:
        """The address for messages, without secrets."""
        where = redact(self.dsn) if self.dsn else "Postgres"
        return where if self.schema == "holdfast" else f"{where} (schema {self.schema})"

    @property
    def shared(self) -> bool:
        """Whether two statements may run on two server connections, so that nothing may depend on session state."""
        return self.pgbouncer == "transaction"

    @property
    def channel(self) -> str:
        """The NOTIFY channel of hints."""
        return f"{self.schema}."


def from_url(url: str) -> Address:
    """The address in a URL. Parameters that are not Holdfast's must be known to the driver."""
    parts = split(url)
    if parts.scheme not in SCHEMES:
        raise parts.wrong("a Postgres URL must begin with postgresql://")
    options = parts.options
    parts.refuse_unknown((*OPTIONS, *_DRIVERS), OPTIONS)
    if not (pool := options.get("pool", str(POOL))).isdecimal():
        raise parts.wrong("?pool= must be a number of connections")
    if not re.fullmatch(r"(?:[0-9]{1,5}(?:,[0-9]{1,5})*)?", options.get("port", "")):
        raise parts.wrong("?port= must be a number")
    dsn = parts.encoded("postgresql", {name: value for name, value in options.items() if name not in OPTIONS})
    signal = _signal(options["signal"]) if options.get("signal") else None
    return Address(dsn, options.get("schema", "holdfast"), signal, int(pool), options.get("pgbouncer") or None)


def _signal(url: str) -> str:
    """The URL of the Redis server for hints, encoded so that redis-py parses it in the same way."""
    parts = split(url)
    if parts.scheme not in ("redis", "rediss", "unix"):
        raise parts.wrong("?signal= accepts redis://, rediss:// and unix:// URLs only")
    if parts.username and parts.password is None:
        raise parts.wrong(
            "the URL of ?signal= has a user name and no password: write redis://:PASSWORD@HOST or"
            " redis://USER:PASSWORD@HOST"
        )
    return parts.encoded(parts.scheme, parts.options)
