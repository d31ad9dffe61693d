"""Fair order by weight, if users enqueue in their own transactions."""

from __future__ import annotations

import asyncio

from holdfast.core.job import LimitKey
from holdfast.testing.build import new_job
from holdfast.testing.verbs import claim, insert

A, B = LimitKey("a", weight=1), LimitKey("b", weight=1)


async def test_an_open_transaction_does_not_change_the_fair_order(store, begun):
    user = await begun()
    await insert(store, new_job("first", limit_key=LimitKey("c", weight=1)))
    await store.insert_bound(user, [new_job("mine", limit_key=A), new_job("yours", limit_key=B)])
    async with asyncio.timeout(30):
        await insert(store, *(new_job(f"b{n}", limit_key=B) for n in range(5)))
        for n in range(20):
            await insert(store, new_job(f"a{n}", limit_key=A))
    order = [record.id for record in await claim(store, limit=99)]
    assert order[1:11] == ["b0", "a0", "b1", "a1", "b2", "a2", "b3", "a3", "b4", "a4"]


async def test_jobs_of_transactions_count_after_their_commit(store, sql):
    for n in range(5):
        async with sql.transaction():
            await store.insert_bound(sql, [new_job(f"a{n}", limit_key=A)])
            await store.insert_bound(sql, [new_job(f"b{n}", limit_key=B)])
    await insert(store, new_job("a5", limit_key=A), new_job("late", limit_key=LimitKey("c", weight=1)))
    order = [record.id for record in await claim(store, limit=99)]
    assert order == ["a0", "b0", "late", "a1", "b1", "a2", "b2", "a3", "b3", "a4", "b4", "a5"]


async def test_tidy_merges_the_shares_of_transactions(store, sql, schema):
    for n in range(3):
        async with sql.transaction():
            await store.insert_bound(sql, [new_job(f"a{n}", limit_key=A)])
    last = await sql.fetchval(f"SELECT max(finish) FROM {schema}.share_part")
    await store.tidy(100)
    assert await sql.fetch(f"SELECT limit_key, finish FROM {schema}.share") == [("a", last)]
    assert await sql.fetchval(f"SELECT count(*) FROM {schema}.share_part") == 0
    async with sql.transaction():
        await store.insert_bound(sql, [new_job("a3", limit_key=A)])
    assert [record.id for record in await claim(store, limit=9)] == ["a0", "a1", "a2", "a3"]
    assert await sql.fetchval(f"SELECT finish FROM {schema}.share_part") > last
