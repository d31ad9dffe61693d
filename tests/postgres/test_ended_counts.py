"""The counts of ended jobs are kept, not counted: appended by every statement, and added up by `tidy`."""

from __future__ import annotations

import pytest

from holdfast.store.postgres import sql as statements
from holdfast.store.postgres.call import Call
from holdfast.store.protocol import Batch
from holdfast.testing.build import change, dead, deletion, new_job, retrial, succeeded
from holdfast.testing.verbs import apply, claim, insert, job, running, settle


async def counts(store):
    return {(queue.name, state): number for queue in await store.stats() for state, number in queue.counts.items()}


async def rows(sql, schema):
    found = await sql.fetch(f"SELECT queue, state, count(*) FROM {schema}.ended GROUP BY queue, state")
    return {(queue, state): number for queue, state, number in found}


async def many(store, ends, queue="default", **options):
    """Settle so many new jobs of a queue in one batch."""
    await insert(store, *(new_job(queue=queue) for _ in range(ends)))
    claims = await claim(store, "ann", queue, limit=ends)
    assert all((await store.write(Batch(settles=[succeeded(one, **options) for one in claims]))).settles)
    return claims


async def test_every_way_in_and_out_of_the_table_is_counted(store, sql, schema):
    first, second, third, *_ = await many(store, 20)
    await many(store, 5, "mail")
    await many(store, 3, "mail", keep=0.0)
    await settle(store, dead(await running(store), error="no", expected_heartbeat=None))
    assert await counts(store) == await rows(sql, schema) == {
        ("default", "succeeded"): 20, ("default", "dead"): 1, ("mail", "succeeded"): 5,
    }  # fmt: skip
    await apply(store, retrial(await job(store, first.id)))
    await apply(store, change(await job(store, second.id), state="dead"))
    await apply(store, deletion(await job(store, third.id)))
    await sql.execute(f"UPDATE {schema}.ended SET expires_at = 1 WHERE queue = 'mail'")
    assert (await store.tidy(3)).jobs == 3
    await sql.execute(f"DELETE FROM {schema}.ended WHERE id = $1", second.id)
    found = await counts(store)
    assert found.pop(("default", "queued")) == 1
    assert found == await rows(sql, schema) == {
        ("default", "succeeded"): 17, ("default", "dead"): 1, ("mail", "succeeded"): 2,
    }  # fmt: skip


@pytest.mark.parametrize("folds", [1, 2])
async def test_tidy_adds_the_counts_up(store, sql, schema, folds):
    await many(store, 10)
    for _ in range(folds):
        await sql.execute(
            f"INSERT INTO {schema}.ended_count SELECT 'default', 'succeeded', n FROM generate_series(-600, 600) AS n"
        )
        await store.tidy(1000)
        assert await sql.fetchval(f"SELECT count(*) FROM {schema}.ended_count") == 1
    assert await counts(store) == {("default", "succeeded"): 10}
    await sql.execute(f"DELETE FROM {schema}.ended")
    assert await store.stats() == []


async def test_settlements_of_one_queue_do_not_wait_for_each_other(store, begun, sql, schema):
    await insert(store, new_job(), new_job())
    first, second = await claim(store, limit=2)
    other = await begun()
    statement = statements.for_schema(statements.WRITE, schema)
    await other.fetch(statement, *Call(Batch(settles=[succeeded(first)]), with_hint=False).arguments)
    assert await settle(store, succeeded(second))
    await store.tidy(1000)
    assert await counts(store) == {("default", "running"): 1, ("default", "succeeded"): 1}
    await other.execute("COMMIT")
    assert await counts(store) == await rows(sql, schema) == {("default", "succeeded"): 2}
