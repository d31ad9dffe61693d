"""`connection=` with every kind of connection, on Postgres; and what is refused, with the reason."""

import asyncio
import sqlite3
from contextlib import closing

import asyncpg
import psycopg
import psycopg2.pool
import pytest
import pytest_asyncio
import sqlalchemy
from django.db import transaction
from sqlalchemy.orm import Session

from holdfast import ConfigError, Holdfast, JobNotFound
from holdfast.store.postgres.address import from_url
from support.connections import (
    by_async_psycopg,
    by_asyncpg,
    by_asyncpg_pool,
    by_psycopg,
    by_psycopg2,
    check_async,
    check_blocking,
    django_database,
    engine,
    pairs,
)  # fmt: skip

SCHEMA = "connections"
BLOCKING = {"psycopg": by_psycopg, "psycopg2": by_psycopg2}
ASYNC = {"asyncpg": by_asyncpg, "asyncpg pool": by_asyncpg_pool, "psycopg": by_async_psycopg}


def made(url):
    app = Holdfast(url)

    @app.task
    def ship(order: int) -> None: ...

    return app, ship


@pytest.fixture(scope="module")
def ship(server):
    app, ship = made(f"{server.url}?schema={SCHEMA}")
    with app.sync:
        yield ship


@pytest_asyncio.fixture
async def other(server, sql):
    """The URL of another database of the server."""
    await sql.execute("CREATE DATABASE other")
    yield server.url.removesuffix("postgres") + "other"
    await sql.execute("DROP DATABASE other WITH (FORCE)")


def exists(handle):
    try:
        return handle.job() is not None
    except JobNotFound:
        return False


@pytest.mark.parametrize("pair", pairs("Postgres", is_async=False))
def test_a_blocking_job_exists_if_and_only_if_the_transaction_commits(pair, server, ship):
    check_blocking(pair, server.url, ship)


@pytest.mark.parametrize("pair", pairs("Postgres", is_async=True))
async def test_an_async_job_exists_if_and_only_if_the_transaction_commits(pair, server, ship):
    await check_async(pair, server.url, ship)


def test_a_savepoint_of_each_library_is_respected(server, ship):
    with engine(server.url, "psycopg2") as of, Session(of) as session:
        kept = [ship.using(connection=session).sync.enqueue(1)]
        savepoint = session.begin_nested()
        lost = [ship.using(connection=session).sync.enqueue(2)]
        savepoint.rollback()
        session.commit()
    with django_database(server.url) as connection, transaction.atomic():
        kept.append(ship.using(connection=connection).sync.enqueue(1))
        with transaction.atomic():
            lost.append(ship.using(connection=connection).sync.enqueue(2))
            transaction.set_rollback(True)
    assert [exists(handle) for handle in kept + lost] == [True, True, False, False]


async def test_without_a_transaction_the_job_is_there_at_once(server, ship):
    async with asyncpg.create_pool(server.url, min_size=1) as pool, pool.acquire() as connection:
        await (await ship.using(connection=connection).enqueue(1)).job()
    async with await psycopg.AsyncConnection.connect(server.url, autocommit=True) as connection:
        await (await ship.using(connection=connection).enqueue(1)).job()


def test_without_a_transaction_a_blocking_job_is_there_at_once(server, ship):
    with closing(psycopg2.connect(server.url)) as connection:
        connection.autocommit = True
        assert exists(ship.using(connection=connection).sync.enqueue(1))
    with engine(server.url, "psycopg", isolation_level="AUTOCOMMIT") as of, of.connect() as connection:
        assert exists(ship.using(connection=connection).sync.enqueue(1))
    with django_database(server.url) as connection:
        assert exists(ship.using(connection=connection).sync.enqueue(1))


# -- what is refused


@pytest.mark.parametrize("name", BLOCKING)
def test_a_connection_to_another_database_stores_nothing_there(name, other, ship):
    there, shipping = made(f"{other}?schema={SCHEMA}")
    with BLOCKING[name](other) as mine:
        with pytest.raises(ConfigError, match=f"database of connection= has no Holdfast schema {SCHEMA}.*the jobs are"):
            ship.using(connection=mine.connection).sync.enqueue(1)
        mine.rollback()
        with there.sync:
            with pytest.raises(ConfigError, match=r"nothing was enqueued: .* of another database, other, but the jobs"):
                ship.using(connection=mine.connection).sync.enqueue(1)
            shipping.using(connection=mine.connection).sync.enqueue(2)
            mine.commit()
            assert [job.payload for job in there.sync.jobs().jobs] == [{"order": 2}]


@pytest.mark.parametrize("name", ASYNC)
async def test_an_async_connection_to_another_database_stores_nothing_there(name, other, ship):
    async with ASYNC[name](other) as mine:
        with pytest.raises(ConfigError, match=f"database of connection= has no Holdfast schema {SCHEMA}"):
            await ship.using(connection=mine.connection).enqueue(1)
        await mine.rollback()


def test_a_user_without_permission_is_told_so(server, ship):
    with engine(server.url, "psycopg") as of, of.connect() as connection:
        connection.execute(sqlalchemy.text("CREATE ROLE stranger"))
        connection.execute(sqlalchemy.text("SET LOCAL ROLE stranger"))
        with pytest.raises(ConfigError, match=r"the user of connection= may not write .* grant"):
            ship.using(connection=connection).sync.enqueue(1)


def test_errors_of_the_transaction_stay_those_of_its_driver(server, ship):
    with by_psycopg2(server.url) as mine, mine.connection.cursor() as cursor:
        with pytest.raises(psycopg2.errors.DivisionByZero):
            cursor.execute("SELECT 1 / 0")
        with pytest.raises(psycopg2.errors.InFailedSqlTransaction):
            ship.using(connection=mine.connection).sync.enqueue(1)


async def test_what_makes_connections_is_refused_with_the_alternatives(server, ship):
    text = "pass a connection of asyncpg, psycopg or psycopg2, .* SQLAlchemy, or Django.* not an engine, a pool"
    with engine(server.url, "psycopg") as of, closing(sqlite3.connect(":memory:")) as file:
        for wrong in (of, psycopg2.pool.SimpleConnectionPool(0, 1), file, object()):
            with pytest.raises(ConfigError, match=text):
                await ship.using(connection=wrong).enqueue(1)
    async with asyncpg.create_pool(server.url, min_size=0) as pool:
        with pytest.raises(ConfigError, match=text):
            await ship.using(connection=pool).enqueue(1)


async def test_a_connection_to_another_kind_of_database_is_refused(server, ship, tmp_path):
    file = Holdfast(f"sqlite:///{tmp_path}/b.db")
    with (
        engine(f"sqlite:///{tmp_path}/a.db", "sqlite3") as of,
        of.connect() as connection,
        pytest.raises(ConfigError, match="leads to a database of sqlite, but the jobs are in postgresql:"),
    ):
        await ship.using(connection=connection).enqueue(1)
    with (
        engine(server.url, "psycopg") as of,
        of.connect() as connection,
        pytest.raises(ConfigError, match=r"object of psycopg\.Connection: the jobs are in .*b\.db"),
    ):
        await file.submit("raw", b"{}", connection=connection)


async def test_a_closed_connection_is_refused(server, ship):
    for opened in BLOCKING.values():
        with opened(server.url) as mine:
            pass
        with pytest.raises(ConfigError, match="is closed: open it"):
            await ship.using(connection=mine.connection).enqueue(1)
    for opened in ASYNC.values():
        async with opened(server.url) as mine:
            await mine.rollback()
        with pytest.raises(ConfigError, match="is closed: open it"):
            await ship.using(connection=mine.connection).enqueue(1)


@pytest.mark.parametrize("name", ASYNC)
async def test_blocking_code_cannot_use_an_async_connection(name, server, ship):
    async with ASYNC[name](server.url) as mine:
        with pytest.raises(ConfigError, match="cannot be used in blocking code: use `await task"):
            await asyncio.to_thread(ship.using(connection=mine.connection, key=name).sync.enqueue, 1)
        kept = await ship.using(connection=mine.connection, key=name).enqueue(2)
        await mine.commit()
    assert (await kept.job()).payload == {"order": 2}


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg", "psycopg2"])
def test_one_url_is_for_the_app_and_for_sqlalchemy(driver, server):
    assert from_url(server.url.replace("postgresql", f"postgresql+{driver}")) == from_url(server.url)
