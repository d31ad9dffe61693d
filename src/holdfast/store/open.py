"""From a URL, or a client of the user's own, to a store; the only importer of engines, each when first asked for."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from ..clock import Clock
from ..errors import ConfigError, MissingExtra
from ..settings import redact
from .protocol import Store

REDIS_SCHEMES = frozenset({
    "redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster",
})  # fmt: skip


BUCKET_SCHEMES = frozenset({"s3", "gs", "az", "file"})


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
    if parts.scheme in BUCKET_SCHEMES:
        return _open_bucket(url, parts, options, clock)
    if parts.scheme in ("http", "https"):
        return _open_remote(url, parts, options, clock)
    raise ConfigError(
        f"{redact(url)}: there is no store for {parts.scheme or 'no scheme'!r};"
        " use memory://, sqlite:///…, postgresql://…, redis://…, s3://…, gs://…, az://…, file:///… or http://…"
    )


def _open_postgres(url: str) -> Store:
    with _needs("asyncpg", "a Postgres store", "postgres"):
        from .postgres import PostgresStore
    return PostgresStore(url)


def _open_redis(url: str, parts: SplitResult, options: dict[str, str]) -> Store:
    with _needs("hiredis", "a Redis store", "redis"):
        from .redis import RedisStore
        from .redis.address import OPTIONS, parse
    _refuse_unknown(url, options, OPTIONS)
    return RedisStore(parse(url, parts, options))


def _open_bucket(url: str, parts: SplitResult, options: dict[str, str], clock: Clock) -> Store:
    from .bucket import BucketStore
    from .bucket.address import OPTIONS, parse

    _refuse_unknown(url, options, OPTIONS[parts.scheme])
    return BucketStore(*parse(parts, options), clock=clock)


def client_url(client: object) -> str:
    """The URL of where a client of the user's own goes: one can be given to other processes."""
    homes = {parent.__module__.partition(".")[0] for parent in type(client).__mro__}
    if homes & {"redis", "valkey"}:
        with _needs("hiredis", "a Redis store", "redis"):
            from .redis import url_of
        return url_of(client)
    raise ConfigError(f"an app is made on a URL, a store or a Redis client, not on {client!r:.100}")


def _open_remote(url: str, parts: SplitResult, options: dict[str, str], clock: Clock) -> Store:
    with _needs("aiohttp", "a remote store", "remote"):
        from .remote import RemoteStore
        from .remote.address import OPTIONS, parse
    _refuse_unknown(url, options, OPTIONS)
    return RemoteStore(parse(url, parts, options), clock)


@contextmanager
def _needs(driver: str, what: str, extra: str) -> Generator[None]:
    """A missing driver is told by the extra that has it."""
    try:
        yield
    except ImportError as error:
        if error.name != driver:
            raise
        raise MissingExtra(what, extra) from error


def _refuse_unknown(url: str, options: dict[str, str], known: tuple[str, ...]) -> None:
    if unknown := sorted(set(options) - set(known)):
        allowed = f"; known: {', '.join(known)}" if known else ""
        raise ConfigError(f"{redact(url)}: unknown parameter {', '.join(unknown)}{allowed}")
