"""From a URL to a store; the only importer of engines, each when it is first asked for."""

from __future__ import annotations

from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from ..clock import Clock
from ..errors import ConfigError, MissingExtra
from ..settings import redact
from .protocol import Store

REDIS_SCHEMES = frozenset({
    "redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster",
})  # fmt: skip


def open_store(url: str, clock: Clock) -> Store:
    """The store that a URL names, not yet connected."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise ConfigError(f"{redact(url)} is not a URL: {error}") from None
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if parts.scheme == "memory":
        from .memory import MemoryStore

        _refuse_unknown(url, options, ())
        return MemoryStore(clock)
    if parts.scheme == "sqlite":
        from .sqlite import SqliteStore

        _refuse_unknown(url, options, ("synchronous",))
        if parts.netloc:
            raise ConfigError(f"{redact(url)}: a SQLite URL has three slashes: sqlite:///{parts.netloc}{parts.path}")
        path = unquote(parts.path)[1:]
        if not path:
            raise ConfigError(f"{redact(url)}: name a file, such as sqlite:///jobs.db (or sqlite:////var/lib/jobs.db)")
        return SqliteStore(path, synchronous=options.get("synchronous", "full"), clock=clock)
    if parts.scheme in REDIS_SCHEMES:
        return _open_redis(url, parts, options)
    if parts.scheme.startswith("postgres"):
        return _open_postgres(url)
    raise ConfigError(
        f"{redact(url)}: there is no store for {parts.scheme or 'no scheme'!r};"
        " use memory://, sqlite:///…, postgresql://… or redis://…"
    )


def _open_postgres(url: str) -> Store:
    try:
        from .postgres import PostgresStore
    except ImportError as error:
        if error.name != "asyncpg":
            raise
        raise MissingExtra("a Postgres store", "postgres") from error
    return PostgresStore(url)


def _open_redis(url: str, parts: SplitResult, options: dict[str, str]) -> Store:
    try:
        from .redis import RedisStore
        from .redis.address import OPTIONS, parse
    except ImportError as error:
        if error.name != "hiredis":
            raise
        raise MissingExtra("a Redis store", "redis") from error
    _refuse_unknown(url, options, OPTIONS)
    return RedisStore(parse(url, parts, options))


def _refuse_unknown(url: str, options: dict[str, str], known: tuple[str, ...]) -> None:
    if unknown := sorted(set(options) - set(known)):
        allowed = f"; known: {', '.join(known)}" if known else ""
        raise ConfigError(f"{redact(url)}: unknown parameter {', '.join(unknown)}{allowed}")
