"""Every kind of connection that `connection=` accepts, with each store and driver: the table of the guide."""

from __future__ import annotations

import sqlite3
import warnings
from collections.abc import Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass
from typing import Any

import aiosqlite
import asyncpg
import django.db
import psycopg
import psycopg2
import psycopg2.extras
import pytest
import sqlalchemy
from django.conf import UserSettingsHolder, global_settings, settings
from django.db import transaction
from django.db.utils import ConnectionHandler
from psycopg.rows import dict_row
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from holdfast import JobNotFound


@dataclass
class Mine:
    """An open connection of the user's, and how its transaction ends."""

    connection: Any
    commit: Callable[[], Any]
    rollback: Callable[[], Any]


@dataclass(frozen=True)
class Pair:
    """One cell of the table."""

    kind: str
    store: str
    driver: str
    open: Callable[[str], Any]
    """Opens a connection to the database of a URL without options."""
    is_async: bool = False

    def __str__(self) -> str:
        return f"{self.kind} over {self.driver} ({self.store})"


def sqlalchemy_url(url: str, driver: str) -> str:
    scheme, rest = url.split(":", 1)
    return f"{scheme}+{'pysqlite' if driver == 'sqlite3' else driver}:{rest}"


@contextmanager
def engine(url: str, driver: str, **options: Any) -> Iterator[sqlalchemy.Engine]:
    engine = sqlalchemy.create_engine(sqlalchemy_url(url, driver), **options)
    yield engine
    engine.dispose()


@asynccontextmanager
async def async_engine(url: str, driver: str, **options: Any):
    engine = create_async_engine(sqlalchemy_url(url, driver), **options)
    yield engine
    await engine.dispose()


def by_sqlalchemy(driver: str, make: Callable[[sqlalchemy.Engine], Any]) -> Callable[[str], Any]:
    @contextmanager
    def opened(url):
        with engine(url, driver) as of:
            connection = make(of)
            yield Mine(connection, connection.commit, connection.rollback)
            connection.close()

    return opened


def by_async_sqlalchemy(driver: str, make: Callable[[Any], Awaitable[Any]]) -> Callable[[str], Any]:
    @asynccontextmanager
    async def opened(url):
        async with async_engine(url, driver) as of:
            connection = await make(of)
            yield Mine(connection, connection.commit, connection.rollback)
            await connection.close()

    return opened


async def _async_session(engine):
    return AsyncSession(engine)


async def _async_scoped_session(engine):
    return async_scoped_session(async_sessionmaker(engine), scopefunc=lambda: 0)


async def _async_connection(engine):
    return await engine.connect()


SQLALCHEMY = {
    "`Session`": Session,
    "`scoped_session`": lambda engine: scoped_session(sessionmaker(engine)),
    "`Connection`": lambda engine: engine.connect(),
}
ASYNC_SQLALCHEMY = {
    "`AsyncSession`": _async_session,
    "`async_scoped_session`": _async_scoped_session,
    "`AsyncConnection`": _async_connection,
}


@contextmanager
def by_sqlite3(url):
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
        yield Mine(connection, connection.commit, connection.rollback)


@asynccontextmanager
async def by_aiosqlite(url):
    async with aiosqlite.connect(url.removeprefix("sqlite:///")) as connection:
        yield Mine(connection, connection.commit, connection.rollback)


@contextmanager
def by_psycopg(url):
    with psycopg.connect(url, row_factory=dict_row, cursor_factory=psycopg.RawCursor) as connection:
        yield Mine(connection, connection.commit, connection.rollback)


@asynccontextmanager
async def by_async_psycopg(url):
    async with await psycopg.AsyncConnection.connect(url, row_factory=dict_row) as connection:
        yield Mine(connection, connection.commit, connection.rollback)


@contextmanager
def by_psycopg2(url):
    with closing(psycopg2.connect(url, cursor_factory=psycopg2.extras.RealDictCursor)) as connection:
        yield Mine(connection, connection.commit, connection.rollback)


@asynccontextmanager
async def by_asyncpg(url):
    connection = await asyncpg.connect(url)
    of = connection.transaction()
    await of.start()
    yield Mine(connection, of.commit, of.rollback)
    await connection.close()


@asynccontextmanager
async def by_asyncpg_pool(url):
    async with asyncpg.create_pool(url, min_size=1) as pool, pool.acquire() as connection:
        of = connection.transaction()
        await of.start()
        yield Mine(connection, of.commit, of.rollback)


@contextmanager
def django_database(url: str, alias: str = "default", **options: Any) -> Iterator[Any]:
    """A database of Django, whatever settings other tests have."""
    file = url.removeprefix("sqlite:///")
    database: dict[str, Any] = {"ENGINE": "django.db.backends.sqlite3", "NAME": file}
    if file == url:
        parts = psycopg.conninfo.conninfo_to_dict(url)
        database = {"ENGINE": "django.db.backends.postgresql", "NAME": parts["dbname"], "USER": parts["user"]}
        database |= {"HOST": parts["host"], "PORT": parts["port"]}
    before, settings._wrapped = settings._wrapped, UserSettingsHolder(global_settings)
    django.db.connections[alias] = ConnectionHandler({"default": {}, alias: database | options})[alias]
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Accessing the database during app initialization")  # there are no apps
            yield django.db.connections[alias]
    finally:
        django.db.connections[alias].close()
        del django.db.connections[alias]
        settings._wrapped = before


def by_django(alias: str, connection: Callable[[], Any]) -> Callable[[str], Any]:
    @contextmanager
    def opened(url):
        with django_database(url, alias):
            block = transaction.atomic(alias)

            def rollback():
                transaction.set_rollback(True, alias)
                block.__exit__(None, None, None)

            block.__enter__()
            yield Mine(connection(), lambda: block.__exit__(None, None, None), rollback)

    return opened


DJANGO = {
    "`django.db.connection`": by_django("default", lambda: django.db.connection),
    '`connections["shop"]`': by_django("shop", lambda: django.db.connections["shop"]),
}

PAIRS = [
    *(Pair(kind, store, driver, by_sqlalchemy(driver, make))
      for kind, make in SQLALCHEMY.items()
      for store, driver in (("SQLite", "sqlite3"), ("Postgres", "psycopg"), ("Postgres", "psycopg2"))),
    *(Pair(kind, store, driver, by_async_sqlalchemy(driver, make), is_async=True)
      for kind, make in ASYNC_SQLALCHEMY.items()
      for store, driver in (("SQLite", "aiosqlite"), ("Postgres", "asyncpg"), ("Postgres", "psycopg"))),
    *(Pair(kind, store, driver, opened)
      for kind, opened in DJANGO.items() for store, driver in (("SQLite", "sqlite3"), ("Postgres", "psycopg"))),
    Pair("`sqlite3.Connection`", "SQLite", "sqlite3", by_sqlite3),
    Pair("`aiosqlite.Connection`", "SQLite", "aiosqlite", by_aiosqlite, is_async=True),
    Pair("`psycopg.Connection`", "Postgres", "psycopg", by_psycopg),
    Pair("`psycopg.AsyncConnection`", "Postgres", "psycopg", by_async_psycopg, is_async=True),
    Pair("`psycopg2` connection", "Postgres", "psycopg2", by_psycopg2),
    Pair("`asyncpg.Connection`", "Postgres", "asyncpg", by_asyncpg, is_async=True),
    Pair("`asyncpg` connection of a pool", "Postgres", "asyncpg", by_asyncpg_pool, is_async=True),
]  # fmt: skip

DAILY = {
    ("`Session`", "psycopg2"), ("`Connection`", "psycopg"), ("`AsyncSession`", "asyncpg"),
    ("`async_scoped_session`", "psycopg"), ("`django.db.connection`", "psycopg"), ("`psycopg.Connection`", "psycopg"),
    ("`psycopg.AsyncConnection`", "psycopg"), ("`psycopg2` connection", "psycopg2"),
    ("`asyncpg` connection of a pool", "asyncpg"),
}  # fmt: skip
"""With Postgres; the other pairs only in `make test-all`, since they repeat a mechanism."""


def pairs(store: str, *, is_async: bool) -> list[Any]:
    """Parameters of a test: the pairs of a store that a blocking, or an async, caller uses."""
    found = [pair for pair in PAIRS if (pair.store, pair.is_async) == (store, is_async)]
    return [
        pytest.param(
            pair,
            id=str(pair),
            marks=() if store == "SQLite" or (pair.kind, pair.driver) in DAILY else pytest.mark.extended,
        )
        for pair in found
    ]


def check_blocking(pair: Pair, url: str, task: Any) -> None:
    """A job exists if and only if the transaction of a blocking caller commits."""
    with pair.open(url) as mine:
        kept = task.using(connection=mine.connection, tags=["a"], key=str(pair)).sync.enqueue(1)
        with pytest.raises(JobNotFound):
            kept.job()
        mine.commit()
    assert (kept.job().payload, kept.job().tags) == ({"order": 1}, ("a",))
    with pair.open(url) as mine:
        assert task.using(connection=mine.connection, key=str(pair)).sync.enqueue(1).id == kept.id
        lost = task.using(connection=mine.connection).sync.enqueue(2)
        mine.rollback()
    with pytest.raises(JobNotFound):
        lost.job()


async def check_async(pair: Pair, url: str, task: Any) -> None:
    """As `check_blocking`, of an async caller."""
    async with pair.open(url) as mine:
        kept = await task.using(connection=mine.connection, tags=["a"], key=str(pair)).enqueue(1)
        with pytest.raises(JobNotFound):
            await kept.job()
        await mine.commit()
    kept = await kept.job()
    assert (kept.payload, kept.tags) == ({"order": 1}, ("a",))
    async with pair.open(url) as mine:
        assert (await task.using(connection=mine.connection, key=str(pair)).enqueue(1)).id == kept.id
        lost = await task.using(connection=mine.connection).enqueue(2)
        await mine.rollback()
    with pytest.raises(JobNotFound):
        await lost.job()
