"""Isolation levels: the store sets its own, whatever the database's default is, and users keep theirs."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest
import pytest_asyncio

from holdfast import ConfigError
from holdfast.core.job import LimitKey, State
from holdfast.store.postgres import Address, PostgresStore
from holdfast.store.postgres import sql as statements
from holdfast.store.postgres.call import Call
from holdfast.store.protocol import Batch
from holdfast.testing.build import ask, new_job, succeeded
from holdfast.testing.verbs import claim, claim_one, insert, job, settle
from support.eventually import eventually

LIMIT_KEY = LimitKey("one", concurrency=1)


@pytest.fixture
def strict(server):
    """Connects with repeatable read as the default isolation level."""

    async def connect():
        settings = {"default_transaction_isolation": "repeatable read"}
        return await asyncpg.connect(server.url, server_settings=settings, statement_cache_size=0)

    return connect


@pytest_asyncio.fixture
async def guarded(strict, schema):
    store = PostgresStore(Address("", schema=schema, connect=strict))
    await store.open()
    yield store
    await store.close()


async def test_a_claim_that_waited_for_another_counts_what_that_one_took(guarded, sql, schema):
    await insert(guarded, *(new_job(f"a{n}", limit_key=LIMIT_KEY) for n in range(3)))
    assert await settle(guarded, succeeded(await claim_one(guarded)))
    assert await claim(guarded, "eve", "nowhere") == []  # takes in that it has left
    async with sql.transaction():
        await sql.fetch(statements.for_schema(statements.WRITE, schema), *Call(one_ask(), with_hint=False).arguments)
        waiting = asyncio.create_task(claim(guarded, "bob"))
        await eventually(lambda: sql.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"))
    assert await waiting == []
    assert await sql.fetchval(f"SELECT count(*) FROM {schema}.job WHERE state = 'running'") == 1


async def test_a_claim_of_a_limit_key_at_another_isolation_level_is_refused(guarded, strict, schema):
    shared = PostgresStore(Address("", schema=schema, connect=strict, pgbouncer="transaction"))
    await shared.open()
    await insert(shared, new_job("plain", priority=-1), new_job("limited", limit_key=LIMIT_KEY))
    assert (await claim_one(shared)).id == "plain"
    with pytest.raises(ConfigError, match="default_transaction_isolation"):
        await claim(shared)
    assert (await job(shared, "limited")).state == State.QUEUED
    assert "repeatable read" in " ".join(found.what for found in await shared.examine() if not found.fine)
    assert "repeatable read" not in " ".join(found.what for found in await guarded.examine())
    await shared.close()


async def test_a_tasks_transaction_keeps_the_level_of_the_database(guarded):
    await insert(guarded, new_job("a", limit_key=LIMIT_KEY))
    record = await claim_one(guarded)
    async with guarded.transaction(lambda: succeeded(record)) as connection:
        assert await connection.fetchval("SHOW transaction_isolation") == "repeatable read"
    assert (await job(guarded, "a")).state == State.SUCCEEDED


async def test_a_users_transaction_of_any_level_may_enqueue(guarded, strict):
    user = await strict()
    async with user.transaction(isolation="serializable"):
        await guarded.insert_bound(user, [new_job("a", limit_key=LimitKey("one", concurrency=1, weight=1), key="k")])
    assert (await claim_one(guarded)).id == "a"
    await user.close()


def one_ask():
    return Batch(asks=[ask()])
