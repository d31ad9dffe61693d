"""Where the jobs are: what a URL says, split into what is ours and what is the driver's."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import msgspec

from ...errors import ConfigError
from ...settings import redact

SCHEMES = frozenset({"postgresql", "postgres", "postgresql+asyncpg", "postgresql+psycopg"})
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


class Place(msgspec.Struct, frozen=True):
    """One schema of one database, and how to reach it."""

    dsn: str
    schema: str = "holdfast"
    signal: str | None = None
    pool: int = POOL
    pgbouncer: str | None = None
    """How the pgbouncer that stands in between pools, if one does: by `transaction` or by `session`."""
    connect: Connect | None = None
    """The user's own way to a connection, instead of `dsn`: for tokens that expire, or a cloud's connector."""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z_][a-z0-9_]{0,39}", self.schema):
            raise ConfigError(
                f"schema {self.schema!r}: use at most 40 lower-case letters, digits and underscores, no digit first"
            )
        if self.pgbouncer not in (None, *PGBOUNCER):
            raise ConfigError(f"pgbouncer must be one of {', '.join(PGBOUNCER)}, not {self.pgbouncer}")
        if self.pool < 1:
            raise ConfigError(f"pool must be at least 1, not {self.pool}")

    @property
    def shown(self) -> str:
        """The place in a message, without secrets."""
        where = redact(self.dsn) if self.dsn else "Postgres"
        return where if self.schema == "holdfast" else f"{where} (schema {self.schema})"

    @property
    def shared(self) -> bool:
        """Whether two statements may run on two connections of the server: nothing may be left on a connection."""
        return self.pgbouncer == "transaction"

    @property
    def channel(self) -> str:
        """Where hints are sent."""
        return f"{self.schema}."


def from_url(url: str) -> Place:
    """The place that a URL names. Parameters that are not ours must be ones that the driver knows."""
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES:
        raise ConfigError(f"{redact(url)}: a Postgres URL begins with postgresql://")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    unknown = sorted(set(options) - set(OPTIONS) - _DRIVERS)
    if unknown:
        raise ConfigError(f"{redact(url)}: unknown parameter {', '.join(unknown)}; known: {', '.join(OPTIONS)}")
    try:
        pool = int(options.get("pool", POOL))
    except ValueError:
        raise ConfigError(f"{redact(url)}: pool must be a number") from None
    rest = urlencode({name: value for name, value in options.items() if name not in OPTIONS}, quote_via=quote)
    dsn = urlunsplit(("postgresql", parts.netloc, parts.path, rest, ""))
    return Place(
        dsn, options.get("schema", "holdfast"), options.get("signal") or None, pool, options.get("pgbouncer") or None
    )
