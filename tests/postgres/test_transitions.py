"""Transitions are exact: an open transaction is reported once, after its commit."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest_asyncio

from holdfast.store.postgres import sql as statements
from holdfast.store.postgres.call import Call
from holdfast.store.protocol import Batch
from holdfast.testing.build import new_job, succeeded
from holdfast.testing.verbs import enqueue, insert, running, settle

MINUTE = 60_000_000


@pytest_asyncio.fixture
async def user(server):
    """A connection of the user's own, for transactions that stay open."""
    connection = await asyncpg.connect(server.url)
    yield connection
    await connection.close()


async def changes_since(store, cursor, limit=100):
    answer = await store.transitions(cursor, limit)
    assert not answer.missed
    return [(move.id, move.state) for move in answer.transitions], answer.cursor


async def test_transitions_are_reported_when_their_transaction_commits(store, user):
    cursor = (await store.transitions(None, 1)).cursor
    transaction = user.transaction()
    await transaction.start()
    await store.insert_bound(user, [new_job("early")])
    await enqueue(store, "late")
    transitions, cursor = await changes_since(store, cursor)
    assert transitions == [("late", "queued")]
    await enqueue(store, "later")
    await transaction.commit()
    transitions, cursor = await changes_since(store, cursor)
    assert transitions == [("early", "queued"), ("later", "queued")]
    assert (await changes_since(store, cursor))[0] == []


async def test_rolled_back_transitions_are_not_reported(store, user):
    cursor = (await store.transitions(None, 1)).cursor
    transaction = user.transaction()
    await transaction.start()
    await store.insert_bound(user, [new_job("never")])
    await transaction.rollback()
    assert (await changes_since(store, cursor))[0] == []


async def test_pages_are_of_one_snapshot_whatever_commits_between_them(store, user):
    cursor = (await store.transitions(None, 1)).cursor
    transaction = user.transaction()
    await transaction.start()
    await store.insert_bound(user, [new_job("open")])
    for n in range(4):
        await enqueue(store, f"job{n}")
    first, cursor = await changes_since(store, cursor, 2)
    await transaction.commit()
    await enqueue(store, "last")
    rest = []
    while True:
        page, cursor = await changes_since(store, cursor, 2)
        rest += page
        if not page:
            break
    assert first == [("job0", "queued"), ("job1", "queued")]
    assert rest == [("job2", "queued"), ("job3", "queued"), ("open", "queued"), ("last", "queued")]


async def test_a_transaction_with_an_old_snapshot_records_transitions(store, user):
    transaction = user.transaction(isolation="repeatable_read")
    await transaction.start()
    await user.fetchval("SELECT 1")
    cursor = (await store.transitions(None, 1)).cursor
    await store.insert_bound(user, [new_job("a")])
    await transaction.commit()
    assert (await changes_since(store, cursor))[0] == [("a", "queued")]


async def test_a_new_watch_waits_for_open_writes(store, user):
    """Such a transaction may have found no watch; its jobs must be visible to a reader that lists all jobs then."""
    transaction = user.transaction()
    await transaction.start()
    await store.insert_bound(user, [new_job("a")])
    watching = asyncio.create_task(store.transitions(None, 1))
    done, _ = await asyncio.wait([watching], timeout=0.3)
    assert not done
    await transaction.commit()
    answer = await watching
    assert [record.id for record in await store.get(["a"]) if record] == ["a"]
    assert (await changes_since(store, answer.cursor))[0] == []


async def test_nothing_is_recorded_without_a_reader(store, sql, schema):
    await settle(store, succeeded(await running(store)))
    assert await sql.fetchval(f"SELECT count(*) FROM {schema}.transition") == 0


async def test_only_a_late_reader_misses_removed_transitions(store, sql, schema):
    old = (await store.transitions(None, 1)).cursor
    for _ in range(12):
        await insert(store, *(new_job() for _ in range(1000)))
    await store.tidy(100)
    new = (await store.transitions(None, 1)).cursor
    assert (await store.transitions(old, 10)).missed
    assert not (await store.transitions(new, 10)).missed
    # Even once nothing is left of them.
    await sql.execute(
        f"UPDATE {schema}.transition SET emptied_at = emptied_at - 400000000 WHERE emptied_at IS NOT NULL"
    )
    await store.tidy(100)
    assert await sql.fetchval(f"SELECT count(*) FROM {schema}.transition WHERE emptied_at IS NOT NULL") == 0
    await sql.execute(f"SELECT setval('{schema}.transitions_gone', {schema}.micros())")
    assert (await store.transitions(old, 10)).missed


async def test_minutes_are_added_up_without_a_change_of_their_sums(store, sql, schema):
    for _ in range(5):
        await settle(store, succeeded(await running(store)))
    past = await store.now() // MINUTE * MINUTE - 5 * MINUTE
    await sql.execute(f"UPDATE {schema}.minute SET at = {past}, waits = waits || 'LBA', count = 4")
    before = await store.stats_by_minute(0)
    assert (before[0].count, before[0].waits[0] >= 5, before[0].waits[11]) == (20, True, 5)
    assert sum(before[0].waits) == 20
    await store.tidy(100)
    assert await store.stats_by_minute(0) == before
    assert await sql.fetchval(f"SELECT count(*) FROM {schema}.minute") == 1
    await sql.execute(f"INSERT INTO {schema}.minute SELECT * FROM {schema}.minute")
    [twice] = await store.stats_by_minute(0)
    assert (twice.count, twice.waits[11], sum(twice.runs)) == (40, 10, 10), "two sums of one minute are added up"


async def test_workers_that_settle_at_once_do_not_wait_for_each_other(store, user):
    """An open transaction that has counted its claims does not make others wait."""
    first, second = await running(store, "a"), await running(store, "b")
    call = Call(Batch(settles=[succeeded(first)]), with_hint=False)
    async with user.transaction():
        await user.fetch(store._say(statements.WRITE), *call.arguments)
        assert (await asyncio.wait_for(store.write(Batch(settles=[succeeded(second)])), 90)).settles == [True]
    assert sum(minute.count for minute in await store.stats_by_minute(0)) == 2
