"""Enqueue inside the user's own transaction, with every kind of connection that is taken."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, contextmanager

import asyncpg
import psycopg
import pytest
import sqlalchemy
from psycopg.rows import dict_row
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from holdfast import ConfigError, Holdfast, JobNotFound, KeyConflict
from holdfast.app import parts_of
from support.inside import session_of


@asynccontextmanager
async def by_asyncpg(server):
    connection = await asyncpg.connect(server.url)
    transaction = connection.transaction()
    await transaction.start()
    yield connection, transaction.commit, transaction.rollback
    await connection.close()


@asynccontextmanager
async def by_psycopg(server):
    async with await psycopg.AsyncConnection.connect(server.url, row_factory=dict_row) as connection:
        yield connection, connection.commit, connection.rollback


@asynccontextmanager
async def by_sqlalchemy(server, driver, make):
    engine = create_async_engine(server.url.replace("postgresql", f"postgresql+{driver}"))
    async with make(engine) as connection:
        yield connection, connection.commit, connection.rollback
    await engine.dispose()


ASYNC = {
    "asyncpg": by_asyncpg,
    "psycopg": by_psycopg,
    "sqlalchemy connection over asyncpg": lambda server: by_sqlalchemy(server, "asyncpg", lambda e: e.connect()),
    "sqlalchemy session over asyncpg": lambda server: by_sqlalchemy(server, "asyncpg", AsyncSession),
    "sqlalchemy session over psycopg": lambda server: by_sqlalchemy(server, "psycopg", AsyncSession),
}


@pytest.mark.parametrize("kind", ASYNC)
async def test_a_job_exists_if_and_only_if_the_transaction_commits(server, app, kind):
    async with ASYNC[kind](server) as (connection, commit, _):
        handle = await app.add.using(connection=connection, tags=["a"], key="k").enqueue(1, 2)
        with pytest.raises(JobNotFound):
            await handle.job()
        await commit()
        assert (await handle.job()).tags == ("a",)
    async with ASYNC[kind](server) as (connection, _, rollback):
        handle = await app.add.using(connection=connection).enqueue(1, 2)
        await rollback()
        with pytest.raises(JobNotFound):
            await handle.job()


@pytest.mark.parametrize("kind", ASYNC)
async def test_the_same_key_gives_the_same_job_and_another_payload_an_error(server, app, kind):
    first = await app.add.using(key="k").enqueue(1, 2)
    async with ASYNC[kind](server) as (connection, commit, _):
        again = await app.add.using(connection=connection, key="k").enqueue(1, 2)
        with pytest.raises(KeyConflict):
            await app.add.using(connection=connection, key="k").enqueue(3, 4)
        await commit()
    assert again.id == first.id


@pytest.mark.parametrize("kind", ASYNC)
@pytest.mark.parametrize("unique", ["until_end", "until_start", 60])
async def test_a_unique_job_can_be_enqueued_in_a_transaction(server, app, kind, unique):
    first = await app.add.using(unique=unique).enqueue(1, 2)
    async with ASYNC[kind](server) as (connection, commit, _):
        again = await app.add.using(connection=connection, unique=unique).enqueue(1, 2)
        other = await app.add.using(connection=connection, unique=unique).enqueue(3, 4)
        await commit()
    assert (again.id, (await other.job()).id) == (first.id, other.id)


@contextmanager
def psycopg_blocking(server):
    with psycopg.connect(server.url) as connection:
        yield connection


@contextmanager
def sqlalchemy_blocking(server, make):
    engine = sqlalchemy.create_engine(server.url.replace("postgresql", "postgresql+psycopg"))
    with make(engine) as connection:
        yield connection
    engine.dispose()


BLOCKING = {
    "psycopg": psycopg_blocking,
    "sqlalchemy connection": lambda server: sqlalchemy_blocking(server, lambda engine: engine.connect()),
    "sqlalchemy session": lambda server: sqlalchemy_blocking(server, Session),
}


@pytest.mark.parametrize("kind", BLOCKING)
def test_blocking_code_enqueues_on_its_own_thread(server, url, kind):
    app = Holdfast(url)

    @app.task
    def add(a: int, b: int) -> int:
        return a + b

    with app.sync, BLOCKING[kind](server) as connection:
        handle = add.sync.using(connection=connection).enqueue(1, 2)
        with pytest.raises(JobNotFound):
            handle.job()
        connection.commit()
        assert handle.job().task == "add"
        lost = add.sync.using(connection=connection).enqueue(3, 4)
        connection.rollback()
        with pytest.raises(JobNotFound):
            lost.job()


async def test_another_kind_of_connection_is_refused_with_the_reason(app):
    with pytest.raises(ConfigError, match="asyncpg, psycopg 3 or SQLAlchemy"):
        await app.add.using(connection=object()).enqueue(1, 2)


async def test_fifty_submissions_of_one_key_make_one_job(url):
    apps = [Holdfast(url) for _ in range(5)]
    for app in apps:
        app.task(name="work")(lambda: None)
    try:
        handles = await asyncio.gather(
            *(apps[n % 5].enqueue(parts_of(apps[n % 5]).registry.tasks["work"].using(key="one")) for n in range(50))
        )
        assert len({handle.id for handle in handles}) == 1
        assert len((await apps[0].jobs()).jobs) == 1
    finally:
        for app in apps:
            await app.close()


async def test_fifty_submissions_while_the_winner_rolls_back_still_make_one_job(server, app):
    connection = await asyncpg.connect(server.url)
    transaction = connection.transaction()
    await transaction.start()
    winner = await app.add.using(connection=connection, key="one").enqueue(1, 2)
    others = [Holdfast(session_of(app).store.sibling()) for _ in range(5)]
    for each in others:
        each.add = each.task(name="add")(lambda a, b: a + b)
    waiting = [asyncio.create_task(others[n % 5].add.using(key="one").enqueue(1, 2)) for n in range(49)]
    await asyncio.sleep(0.3)
    assert not any(task.done() for task in waiting)
    await transaction.rollback()
    handles = await asyncio.gather(*waiting)
    [only] = (await app.jobs()).jobs
    assert {handle.id for handle in handles} == {only.id} != {winner.id}
    await connection.close()
    for each in others:
        await each.close()
