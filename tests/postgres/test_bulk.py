"""Plain jobs in bulk: the fast insert that expects no conflict, and the repeat with ON CONFLICT."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from holdfast.core.operations import Inserted
from holdfast.store.postgres.call import insert_arguments
from holdfast.store.protocol import Batch
from holdfast.testing.build import new_job, succeeded
from holdfast.testing.verbs import claim, every, insert, settle


def outcomes(answers):
    return [answer.outcome for answer in answers]


@pytest.mark.parametrize("number", [2, 50])
async def test_a_batch_that_is_sent_again_is_created_once(store, number):
    jobs = [new_job(f"job-{n}") for n in range(number)]
    assert await insert(store, *jobs) == [Inserted("created", new.id) for new in jobs]
    assert await insert(store, *jobs) == [Inserted("created", new.id) for new in jobs]
    assert [record.id for record in await claim(store, limit=1000)] == [new.id for new in jobs]


async def test_what_is_new_in_a_batch_that_is_partly_sent_again_is_created(store):
    jobs = [new_job(f"job-{n}") for n in range(60)]
    await insert(store, *jobs[:30])
    for record in await claim(store, limit=10):
        await settle(store, succeeded(record))
    assert outcomes(await insert(store, *jobs)) == ["created"] * 60
    assert len(await every(store)) == 60
    assert [record.id for record in await claim(store, limit=1000)] == [new.id for new in jobs[10:]]


async def test_ids_of_other_jobs_are_refused(store):
    await insert(store, *(new_job(f"job-{n}", nonce=n + 1) for n in range(20)))
    [ended] = await claim(store, limit=1)
    await settle(store, succeeded(ended))
    again = await insert(store, *(new_job(f"job-{n}", nonce=n + 1) for n in range(10)))
    others = await insert(store, *(new_job(f"job-{n}", nonce=99) for n in range(15)))
    plain = await insert(store, *(new_job(f"job-{n}") for n in range(25)))
    assert outcomes(again) == ["created"] * 10
    assert outcomes(others) == ["exists"] * 15
    assert outcomes(plain) == ["exists"] * 20 + ["created"] * 5
    assert len(await every(store)) == 25


async def test_columns_that_differ_and_columns_that_do_not(store):
    same = [new_job(f"a-{n}", task="t", payload=b'{"n":1}', max_attempts=3, priority=4) for n in range(12)]
    mixed = [
        new_job(f"b-{n}", task=f"t{n % 2}", payload=b'{"n":%d}' % n, max_attempts=n, timeout=n or None, tags=("x",) * n)
        for n in range(12)
    ]
    assert [len(column) for column in insert_arguments(same) if column is not None] == [12, 1, 1, 1, 1, 1]
    await insert(store, *same)
    await insert(store, *mixed)
    kept = {record.id: record for record in await every(store)}
    for new in (*same, *mixed):
        record = kept[new.id]
        for name in ("task", "queue", "payload", "max_attempts", "priority", "timeout", "tags", "codec"):
            assert getattr(record, name) == getattr(new, name), name


async def test_in_a_users_transaction_a_batch_that_is_sent_again_harms_nothing(store, server):
    jobs = [new_job(f"job-{n}") for n in range(20)]
    await insert(store, *jobs[:5])
    user = await asyncpg.connect(server.url)
    async with user.transaction():
        assert outcomes(await store.insert_bound(user, jobs)) == ["created"] * 20
        assert await user.fetchval("SELECT 1") == 1
    await user.close()
    assert len(await every(store)) == 20


async def test_a_batch_that_is_sent_twice_at_once_is_created_once(store, url):
    twin = store.sibling()
    await twin.open()
    for turn in range(5):
        jobs = [new_job(f"job-{turn}-{n}") for n in range(40)]
        answers = await asyncio.gather(*(each.write(Batch(inserts=jobs)) for each in (store, twin)))
        assert [outcomes(answer.inserts) for answer in answers] == [["created"] * 40] * 2
    await twin.close()
    assert len(await every(store)) == 200
