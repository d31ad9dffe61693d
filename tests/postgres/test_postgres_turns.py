"""Turns by weight, where users enqueue in transactions of their own."""

from __future__ import annotations

import asyncio

from holdfast.core.job import Lane
from holdfast.testing.build import new_job
from holdfast.testing.verbs import claim, insert

A, B = Lane("a", weight=1), Lane("b", weight=1)


async def test_an_open_transaction_takes_no_turns_from_others(store, begun):
    user = await begun()
    await insert(store, new_job("first", lane=Lane("c", weight=1)))
    await store.insert_bound(user, [new_job("mine", lane=A), new_job("yours", lane=B)])
    async with asyncio.timeout(30):
        await insert(store, *(new_job(f"b{n}", lane=B) for n in range(5)))
        for n in range(20):
            await insert(store, new_job(f"a{n}", lane=A))
    order = [record.id for record in await claim(store, limit=99)]
    assert order[1:11] == ["b0", "a0", "b1", "a1", "b2", "a2", "b3", "a3", "b4", "a4"]


async def test_what_transactions_have_enqueued_counts_once_they_have_committed(store, sql):
    for n in range(5):
        async with sql.transaction():
            await store.insert_bound(sql, [new_job(f"a{n}", lane=A)])
            await store.insert_bound(sql, [new_job(f"b{n}", lane=B)])
    await insert(store, new_job("a5", lane=A), new_job("late", lane=Lane("c", weight=1)))
    order = [record.id for record in await claim(store, limit=99)]
    assert order == ["a0", "b0", "late", "a1", "b1", "a2", "b2", "a3", "b3", "a4", "b4", "a5"]


async def test_retention_puts_the_shares_of_transactions_together(store, sql, schema):
    for n in range(3):
        async with sql.transaction():
            await store.insert_bound(sql, [new_job(f"a{n}", lane=A)])
    last = await sql.fetchval(f"SELECT max(finish) FROM {schema}.share_part")
    await store.tidy(100)
    assert await sql.fetch(f"SELECT lane, finish FROM {schema}.share") == [("a", last)]
    assert await sql.fetchval(f"SELECT count(*) FROM {schema}.share_part") == 0
    async with sql.transaction():
        await store.insert_bound(sql, [new_job("a3", lane=A)])
    assert [record.id for record in await claim(store, limit=9)] == ["a0", "a1", "a2", "a3"]
    assert await sql.fetchval(f"SELECT finish FROM {schema}.share_part") > last
