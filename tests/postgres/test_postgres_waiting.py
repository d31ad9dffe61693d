"""Lock order: all transactions take their locks in the same order, so there are no deadlocks."""

from __future__ import annotations

import asyncio

import pytest
import pytest_asyncio

from holdfast.core.job import LimitKey
from holdfast.store.protocol import Batch
from holdfast.testing.build import ask, cancellation, failed, holder, new_job, says, succeeded, swept
from holdfast.testing.verbs import answer_to, claim, claim_one, insert, job
from support.crossing import write_on
from support.eventually import eventually

FAIR = LimitKey("fair", weight=1)


@pytest_asyncio.fixture
async def user(begun):
    return await begun()


async def until_one_waits(sql):
    await eventually(lambda: sql.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"))


async def test_keys_are_locked_in_order_before_shares(store, sql, user):
    """A batch that waits for a key has locked no later key, and no share."""
    other = store.sibling()
    await other.open()
    await store.insert_bound(user, [new_job("mine", key="m")])
    waiting = asyncio.create_task(insert(store, *(new_job(f"{key}1", key=key, limit_key=FAIR) for key in "zma")))
    await until_one_waits(sql)
    async with asyncio.timeout(30):
        assert [each.outcome for each in await insert(other, new_job("z2", key="z", limit_key=FAIR))] == ["created"]
    await user.execute("ROLLBACK")
    assert [(each.outcome, each.id) for each in await waiting] == [
        ("existing", "z2"),
        ("created", "m1"),
        ("created", "a1"),
    ]
    await other.close()


async def test_fair_positions_and_refusals_follow_the_order_of_the_batch(store):
    await insert(store, *(new_job(f"{key}1", key=key, limit_key=FAIR) for key in "cab"))
    assert [record.id for record in await claim(store, limit=9)] == ["c1", "a1", "b1"]
    answers = await insert(store, *(new_job(f"{key}2", key=f"{key}2", max_depth=2) for key in "cab"))
    assert [each.outcome for each in answers] == ["created", "created", "full"]


async def test_a_key_whose_first_job_is_refused_goes_to_the_next_job(store):
    await insert(store, new_job("there"))
    first, second, third = (new_job("a", key="k", max_depth=1), new_job("b", key="k"), new_job("c", key="k"))
    answers = await insert(store, first, second, third)
    assert [(each.outcome, each.id) for each in answers] == [("full", "a"), ("created", "b"), ("existing", "b")]
    assert [each.outcome for each in await insert(store, new_job("d", key="k"))] == ["existing"]


@pytest.mark.parametrize("kind", ["a note and an end", "ends of two kinds", "an end and a change"])
async def test_the_jobs_of_a_batch_are_locked_in_their_order(store, sql, schema, user, kind):
    await insert(store, new_job("a"), new_job("b"))
    first, second = await claim(store, limit=2)
    batch = {
        "a note and an end": Batch(notes=[says(second, progress=b"1")], settles=[succeeded(first)]),
        "ends of two kinds": Batch(settles=[succeeded(second), failed(first, delay=9.0)]),
        "an end and a change": Batch(settles=[succeeded(second)], changes=[cancellation(first)]),
    }[kind]
    await user.fetch(f"SELECT FROM {schema}.job WHERE seq = $1 FOR UPDATE", first.seq)
    waiting = asyncio.create_task(store.write(batch))
    await until_one_waits(sql)
    await user.fetch(f"SELECT FROM {schema}.job WHERE seq = $1 FOR UPDATE NOWAIT", second.seq)
    await user.execute("COMMIT")
    answers = await waiting
    assert [*answers.notes, *answers.settles, *answers.changes] == [True, True]


async def test_ends_lock_keys_in_the_order_of_enqueues(store, sql, schema, user):
    await insert(store, new_job("b", key="b"), new_job("a", key="a"))
    ends = [succeeded(each) for each in await claim(store, limit=2)]
    await store.insert_bound(user, [new_job(key="a")])
    waiting = asyncio.create_task(store.write(Batch(settles=ends)))
    await until_one_waits(sql)
    await user.fetch(f"SELECT FROM {schema}.key WHERE key = 'b' FOR UPDATE NOWAIT")
    await user.execute("COMMIT")
    assert list((await waiting).settles) == [True, True]


async def test_a_claim_of_a_holder_that_is_being_swept_does_not_wait(store, schema, user):
    """The sweeper has locked its holder, and may wait for the limiters that the claim would have locked."""
    await insert(store, *(new_job(f"a{n}", limit_key=LimitKey("l", concurrency=5)) for n in range(3)))
    silent = holder("silent", 0.01)
    await claim(store, silent)
    await eventually(lambda: store.expired(9))
    [lost] = await store.expired(9)
    await write_on(user, schema, Batch(settles=[swept(lost)]))
    async with asyncio.timeout(30):
        answer = await answer_to(store, ask(silent))
    assert (answer.records, answer.due_in) == ([], 0.0)
    await write_on(user, schema, Batch(asks=[ask("sweeper")]))
    await user.execute("COMMIT")
    assert (await job(store, "a0")).holder == "sweeper"
    assert (await claim_one(store, silent)).id == "a1"
