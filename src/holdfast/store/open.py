"""Makes a store from a URL or the user's own client; the only importer of store engines, each on first use."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from ..core.clock import Clock
from ..core.errors import ConfigError, requires
from ..core.url import SQLITE, Url, split
from .protocol import Store

REDIS_SCHEMES = frozenset({
    "redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster",
})  # fmt: skip


BUCKET_SCHEMES = frozenset({"s3", "gs", "az", "file"})
_METHODS = (*Store.__annotations__, *(name for name in vars(Store) if not name.startswith("_")))
"""What every store has."""
ENGINES = frozenset({"bucket", "postgres", "redis", "remote", "sqlite"})
"""The stores by name, each in a separate folder."""


def open_store(url: str, clock: Clock) -> Store:
    """The store at a URL, not yet connected."""
    parts = split(url)
    if parts.scheme == "memory":
        from .reference.memory import MemoryStore

        parts.refuse_unknown(())
        return MemoryStore(clock)
    if parts.scheme in SQLITE:
        return _open_sqlite(parts, clock)
    if parts.scheme in REDIS_SCHEMES:
        return _open_redis(parts)
    if parts.scheme.startswith("postgres"):
        return _open_postgres(url)
    if parts.scheme in BUCKET_SCHEMES:
        return _open_bucket(parts, clock)
    if parts.scheme in ("http", "https"):
        return _open_remote(parts, clock)
    raise parts.wrong(
        f"there is no store for the scheme {parts.scheme!r};"
        " use memory://, sqlite:///…, postgresql://…, redis://…, s3://…, gs://…, az://…, file:///… or http://…"
    )


def preload(name: str) -> None:
    """Import the engine of a store with this name, and open nothing."""
    if name in ENGINES:
        import_module(f".{name}.store", __package__)


def _open_sqlite(url: Url, clock: Clock) -> Store:
    from .sqlite import SqliteStore

    url.refuse_unknown(("synchronous",))
    if url.authority or url.username is not None:
        raise ConfigError("a SQLite URL has three slashes: sqlite:///jobs.db (or sqlite:////var/lib/jobs.db)")
    path = url.path[1:]
    if not path:
        raise url.wrong("name a file, such as sqlite:///jobs.db (or sqlite:////var/lib/jobs.db)")
    if path == ":memory:":
        raise url.wrong("a SQLite store must be a file; for a store in memory use memory://")
    if path.startswith("file:"):
        raise url.wrong("name the file itself, such as sqlite:///jobs.db: SQLite's own file: URIs are not accepted")
    return SqliteStore(path, synchronous=url.options.get("synchronous", "full"), clock=clock)


def _open_postgres(url: str) -> Store:
    with requires("a Postgres store", "postgres", "asyncpg"):
        from .postgres import PostgresStore
    return PostgresStore(url)


def _open_redis(url: Url) -> Store:
    with requires("a Redis store", "redis", "hiredis"):
        from .redis import RedisStore
        from .redis.address import OPTIONS, parse
    url.refuse_unknown(OPTIONS)
    return RedisStore(parse(url))


def _open_bucket(url: Url, clock: Clock) -> Store:
    from .bucket import BucketStore
    from .bucket.address import OPTIONS, parse

    url.refuse_unknown(OPTIONS[url.scheme])
    return BucketStore(*parse(url), clock=clock)


def given_store(client: object, clock: Clock | None) -> str | Store:
    """The store that the user passes instead of a URL: a store, or the place to which a client of theirs connects.

    Holdfast makes its own connections, with the settings of the client.
    """
    if hasattr(client, "write"):
        missing = [name for name in _METHODS if not hasattr(client, name)]
        if missing:
            raise ConfigError(f"a {type(client).__name__} cannot be a store: add {', '.join(missing)} to it")
        return cast("Store", client)
    modules = {parent.__module__.partition(".")[0] for parent in type(client).__mro__}
    if modules & {"redis", "valkey"}:
        with requires("a Redis store", "redis", "hiredis"):
            from .redis import url_of
        return url_of(client)
    if "asyncpg" in modules:
        from .postgres import PostgresStore
        from .postgres.client import address_of

        return PostgresStore(address_of(client))
    if "obstore" in modules:
        from .bucket import BucketStore
        from .bucket.cloud import Cloud

        return BucketStore(Cloud.of_client(client), clock=clock)
    raise ConfigError(
        "the store of an app must be a URL, a store object, a Redis client, an asyncpg pool or an obstore store, not"
        f" {client!r:.100}"
    )


def _open_remote(url: Url, clock: Clock) -> Store:
    with requires("a remote store", "remote", "aiohttp"):
        from .remote import RemoteStore
        from .remote.address import OPTIONS, parse
    url.refuse_unknown(OPTIONS)
    return RemoteStore(parse(url), clock)
