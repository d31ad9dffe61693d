"""`connection=` with every kind of connection, on SQLite; and what is refused, with the reason."""

import asyncio
import re
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import aiosqlite
import django.db
import pytest
import sqlalchemy
from django.db import transaction
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker
from sqlalchemy.orm import Session, sessionmaker

from holdfast import ConfigError, Holdfast, JobNotFound, StoreUnavailable
from holdfast.store import user_connection
from support.connections import (
    DJANGO,
    PAIRS,
    async_engine,
    by_sqlite3,
    check_async,
    check_blocking,
    django_database,
    engine,
    pairs,
)  # fmt: skip

BLOCKING = [each for each in pairs("SQLite", is_async=False) if each.values[0].kind not in DJANGO]
GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "transactions.md"


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/shop.db"


@pytest.fixture
def ship(url):
    app = Holdfast(f"{url}?synchronous=normal")

    @app.task
    def ship(order: int) -> None: ...

    with app.sync:
        yield ship


def exists(handle):
    try:
        return handle.job() is not None
    except JobNotFound:
        return False


@pytest.mark.parametrize("pair", pairs("SQLite", is_async=False))
def test_a_blocking_job_exists_if_and_only_if_the_transaction_commits(pair, url, ship):
    check_blocking(pair, url, ship)


@pytest.mark.parametrize("pair", pairs("SQLite", is_async=True))
async def test_an_async_job_exists_if_and_only_if_the_transaction_commits(pair, url, ship):
    await check_async(pair, url, ship)


@pytest.mark.parametrize("pair", BLOCKING)
async def test_async_code_may_pass_a_blocking_connection_of_its_thread(pair, url, ship):
    with pair.open(url) as mine:
        handle = await ship.using(connection=mine.connection).enqueue(1)
        mine.commit()
    assert (await handle.job()).payload == {"order": 1}


def test_the_table_of_the_guide_lists_the_pairs_that_are_tested():
    tables = [line.strip("| ").split("|") for line in GUIDE.read_text().splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in row] for row in tables]
    heading = next(row for row in rows if "SQLite" in row)
    listed = {
        (kind.strip(), store, driver)
        for kinds, *cells in rows[rows.index(heading) + 2 :]
        for kind in kinds.split(", ")
        for store, drivers in zip(heading[1:], cells, strict=True)
        for driver in re.findall(r"\w+", drivers)
    }
    assert listed == {(pair.kind, pair.store, pair.driver) for pair in PAIRS}


@pytest.mark.parametrize("driver", ["pysqlite", "aiosqlite"])
def test_one_url_is_for_the_app_and_for_sqlalchemy(driver, url, ship):
    kept = ship.sync.enqueue(1)
    with Holdfast(url.replace("sqlite", f"sqlite+{driver}")).sync as same:
        assert same.handle(kept.id).job().payload == {"order": 1}


# -- transactions of each library


def test_a_savepoint_of_sqlalchemy_is_respected(url, ship):
    with engine(url, "sqlite3") as of, Session(of) as session:
        kept = ship.using(connection=session).sync.enqueue(1)
        savepoint = session.begin_nested()
        lost = ship.using(connection=session).sync.enqueue(2)
        savepoint.rollback()
        session.commit()
    assert (exists(kept), exists(lost)) == (True, False)


def test_a_block_of_sqlalchemy_commits_the_job_with_the_data(url, ship):
    with engine(url, "sqlite3") as of:
        with of.begin() as connection:
            connection.execute(sqlalchemy.text("CREATE TABLE orders (number INTEGER)"))
            kept = ship.using(connection=connection).sync.enqueue(1)
        lost = []

        def fail_half_way():
            with sessionmaker(of).begin() as session:
                session.execute(sqlalchemy.text("INSERT INTO orders VALUES (2)"))
                lost.append(ship.using(connection=session).sync.enqueue(2))
                raise RuntimeError("out of stock")

        with pytest.raises(RuntimeError, match="out of stock"):
            fail_half_way()
        with of.connect() as connection:
            assert connection.execute(sqlalchemy.text("SELECT * FROM orders")).all() == []
    assert (exists(kept), exists(lost[0])) == (True, False)


def test_a_transaction_of_sqlalchemy_that_has_ended_takes_no_job(url, ship):
    with engine(url, "sqlite3") as of, of.connect() as connection, connection.begin() as block:
        block.rollback()
        with pytest.raises(sqlalchemy.exc.InvalidRequestError, match="closed transaction"):
            ship.using(connection=connection).sync.enqueue(1)


def test_events_that_begin_transactions_as_sqlalchemy_recommends_are_respected(url, ship):
    with engine(url, "sqlite3") as of:

        @sqlalchemy.event.listens_for(of, "connect")
        def connected(raw, _):
            raw.isolation_level = None

        @sqlalchemy.event.listens_for(of, "begin")
        def begun(connection):
            connection.exec_driver_sql("BEGIN")

        with Session(of) as session:
            savepoint = session.begin_nested()
            inner = ship.using(connection=session).sync.enqueue(1)
            savepoint.commit()
            session.rollback()
            kept = ship.using(connection=session).sync.enqueue(2)
            session.commit()
    assert (exists(inner), exists(kept)) == (False, True)


def test_a_block_of_django_in_a_block_is_respected(url, ship):
    with django_database(url) as connection:
        with transaction.atomic():
            kept = ship.using(connection=connection).sync.enqueue(1)
            with transaction.atomic():
                lost = ship.using(connection=connection).sync.enqueue(2)
                transaction.set_rollback(True)
        assert (exists(kept), exists(lost)) == (True, False)


def test_a_database_of_django_without_autocommit_is_respected(url, ship):
    with django_database(url, AUTOCOMMIT=False) as connection:
        lost = ship.using(connection=connection).sync.enqueue(1)
        transaction.rollback()
        kept = ship.using(connection=connection).sync.enqueue(2)
        transaction.commit()
    assert (exists(kept), exists(lost)) == (True, False)


def test_without_a_transaction_the_job_is_there_at_once(url, ship):
    with django_database(url) as connection:
        assert exists(ship.using(connection=connection).sync.enqueue(1))
    with engine(url, "sqlite3", isolation_level="AUTOCOMMIT") as of, of.connect() as connection:
        assert exists(ship.using(connection=connection).sync.enqueue(2))
    if sys.version_info >= (3, 12):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"), autocommit=True)) as connection:
            assert exists(ship.using(connection=connection).sync.enqueue(3))


async def test_the_row_factory_of_aiosqlite_is_kept_and_its_own_mode_respected(url, ship):
    async with aiosqlite.connect(url.removeprefix("sqlite:///"), isolation_level=None) as connection:
        connection.row_factory = sqlite3.Row
        handle = await ship.using(connection=connection, key="k").enqueue(1)
        assert (await handle.job()).key == "k"
        async with connection.execute("SELECT 1 AS one") as cursor:
            assert (await cursor.fetchone())["one"] == 1


async def test_a_lock_of_another_connection_is_reported_by_every_kind(url, ship):
    with by_sqlite3(url) as other:
        other.connection.execute("BEGIN IMMEDIATE")
        async with async_engine(url, "aiosqlite", connect_args={"timeout": 0}) as of, AsyncSession(of) as session:
            with pytest.raises(StoreUnavailable, match="Roll back and try again"):
                await ship.using(connection=session).enqueue(1)


@pytest.mark.parametrize("pair", [*pairs("SQLite", is_async=True)])
async def test_a_file_without_tables_is_reported_before_the_app_opens(pair, url):
    """An open transaction prevents the creation of the tables."""
    app = Holdfast(url)
    async with pair.open(url) as mine:
        run = mine.connection.execute
        await run("BEGIN" if pair.kind == "`aiosqlite.Connection`" else sqlalchemy.text("CREATE TABLE orders (n)"))
        if not pair.kind.startswith("`aio"):
            await run(sqlalchemy.text("INSERT INTO orders VALUES (1)"))
        with pytest.raises(ConfigError, match="no Holdfast tables"):
            await app.submit("raw", b"{}", connection=mine.connection)
        await mine.rollback()
        handle = await app.submit("raw", b"{}", connection=mine.connection)
        await mine.commit()
    async with app:
        assert (await handle.job()).task == "raw"


# -- what is refused


async def refused(ship, connection, text):
    """Refused in blocking and in async code."""
    with pytest.raises(ConfigError, match=text):
        await ship.using(connection=connection).enqueue(1)
    with pytest.raises(ConfigError, match=text):
        await asyncio.to_thread(ship.using(connection=connection).sync.enqueue, 1)


async def test_what_makes_connections_is_refused_with_the_alternatives(url, ship):
    text = "pass a connection of sqlite3 or aiosqlite, .* SQLAlchemy, or Django.* not an engine, a pool"
    with engine(url, "sqlite3") as of:
        for wrong in (of, sessionmaker(of), of.pool, of.dialect, django.db.connections, "shop.db", object()):
            await refused(ship, wrong, text)
    async with async_engine(url, "aiosqlite") as of:
        for wrong in (of, async_sessionmaker(of)):
            await refused(ship, wrong, text)


@pytest.mark.parametrize("pair", pairs("SQLite", is_async=False))
def test_a_blocking_connection_to_another_file_is_refused(pair, tmp_path, ship):
    with pair.open(f"sqlite:///{tmp_path}/other.db") as mine:
        with pytest.raises(ConfigError, match=r"is to .*other\.db, but the jobs are in .*shop\.db"):
            ship.using(connection=mine.connection).sync.enqueue(1)
        mine.rollback()


@pytest.mark.parametrize("pair", pairs("SQLite", is_async=True))
async def test_an_async_connection_to_another_file_is_refused(pair, tmp_path, ship):
    async with pair.open(f"sqlite:///{tmp_path}/other.db") as mine:
        with pytest.raises(ConfigError, match=r"is to .*other\.db, but the jobs are in .*shop\.db"):
            await ship.using(connection=mine.connection).enqueue(1)


@pytest.mark.parametrize("pair", pairs("SQLite", is_async=True))
async def test_blocking_code_cannot_use_an_async_connection(pair, url, ship):
    async with pair.open(url) as mine:
        with pytest.raises(ConfigError, match="cannot be used in blocking code: use `await task"):
            await asyncio.to_thread(ship.using(connection=mine.connection).sync.enqueue, 1)
        await mine.commit()
    with by_sqlite3(url) as mine:
        assert mine.connection.execute("SELECT count(*) FROM holdfast_job").fetchone() == (0,)


def test_django_refuses_its_connection_in_an_event_loop(url, ship):
    text = r"Django's connection cannot be used in an event loop: .*sync_to_async"
    with django_database(url) as connection, pytest.raises(ConfigError, match=text):
        asyncio.run(ship.using(connection=connection).enqueue(1))


async def test_a_connection_of_another_thread_is_refused(url, ship):
    text = r"created in a thread .*on the thread that made it"
    with by_sqlite3(url) as mine, pytest.raises(ConfigError, match=text):
        await asyncio.to_thread(ship.using(connection=mine.connection).sync.enqueue, 1)


async def test_a_closed_connection_is_refused(url, ship):
    with by_sqlite3(url) as mine:
        pass
    with pytest.raises(ConfigError, match=r"closed database.*pass an open connection"):
        await ship.using(connection=mine.connection).enqueue(1)
    with engine(url, "sqlite3") as of:
        connection = of.connect()
        connection.close()
        await refused(ship, connection, "is closed: open it")
    async with aiosqlite.connect(url.removeprefix("sqlite:///")) as connection:
        pass
    with pytest.raises(ConfigError, match="is closed: open it"):
        await ship.using(connection=connection).enqueue(1)


def test_a_session_of_several_engines_is_told_to_name_one(url, ship):
    with engine(url, "sqlite3") as of, Session(binds={sqlalchemy.Table("a", sqlalchemy.MetaData()): of}) as session:
        with pytest.raises(ConfigError, match=r"pass session\.connection\(bind_arguments="):
            ship.using(connection=session).sync.enqueue(1)
        kept = ship.using(connection=session.connection(bind_arguments={"bind": of})).sync.enqueue(2)
        session.commit()
    assert exists(kept)


@pytest.mark.parametrize("version", ["0.19.0", "0.23.0", "1.0b1"])
async def test_an_unknown_version_of_aiosqlite_is_refused(version, url, ship, monkeypatch):
    monkeypatch.setattr(aiosqlite, "__version__", version)
    async with aiosqlite.connect(url.removeprefix("sqlite:///")) as connection:
        with pytest.raises(ConfigError, match=rf"works with aiosqlite 0\.20 .* not with {version}"):
            await ship.using(connection=connection).enqueue(1)


def test_the_installed_version_of_aiosqlite_is_the_newest_that_is_accepted():
    major, minor = user_connection.AIOSQLITE[1]
    assert aiosqlite.__version__.startswith(f"{major}.{minor - 1}.")
