"""Limit keys under concurrent claims: limits hold, no deferred job is forgotten, and there are no needless waits."""

from __future__ import annotations

import asyncio
import sys

import pytest

from holdfast.core.job import LimitKey, State
from holdfast.core.operations import Where
from holdfast.store.protocol import Batch
from holdfast.testing.build import ask, cancellation, change, new_job, says, succeeded
from holdfast.testing.verbs import answer_to, apply, claim, claim_one, every, insert, job, note, settle
from support.crossing import write_on

LIMIT_KEYS, JOBS, PROCESSES = 50, 3000, 8

WORKER = """
import asyncio, sys
from holdfast.store.postgres import PostgresStore
from holdfast.store.protocol import Batch
from holdfast.testing.build import ask, holder, succeeded

async def work(url, name):
    store, me, held = PostgresStore(url), holder(name, 600.0), []
    await store.open()
    while True:
        # Ends and a wish for more in one batch, as a worker has it; half are kept running while it asks.
        ends, held = held[::2], held[1::2]
        answers = await store.write(Batch(settles=[succeeded(each) for each in ends], asks=[ask(me, limit=5)]))
        assert all(answers.settles)
        held += answers.asks[0].records
        if not held and not any(queue.counts.get(state) for queue in await store.stats()
                                for state in ("queued", "blocked", "running")):
            break
    await store.close()

asyncio.run(work(*sys.argv[1:]))
"""


@pytest.mark.extended
async def test_many_processes_never_exceed_a_limit_key_and_end_all_jobs(store, sql, schema, url):
    await insert(
        store,
        *(new_job(f"job-{n}", limit_key=LimitKey(f"limit_key-{n % LIMIT_KEYS}", concurrency=2)) for n in range(JOBS)),
    )
    workers = [
        await asyncio.create_subprocess_exec(sys.executable, "-c", WORKER, url, f"w{n}") for n in range(PROCESSES)
    ]
    ended = asyncio.gather(*(worker.wait() for worker in workers))
    most, samples = 0, 0
    try:
        while not ended.done():
            running = await sql.fetch(
                f"SELECT count(*) FROM {schema}.job WHERE state = 'running' GROUP BY limit_key ->> 'name'"
            )
            most, samples = max([most, *(count for (count,) in running)]), samples + 1
            await asyncio.sleep(0.005)
    finally:
        for worker in workers:
            if worker.returncode is None:
                worker.kill()
    assert await ended == [0] * PROCESSES
    assert samples > 10
    assert most == 2
    assert len(await every(store, Where(states=(State.SUCCEEDED,)))) == JOBS
    assert await sql.fetchval(f"SELECT count(*) FROM {schema}.job") == 0


async def test_starts_never_exceed_their_rate(store, sql, schema):
    """Concurrent claims cannot use the same capacity twice."""
    others = [store.sibling() for _ in range(4)]
    for other in others:
        await other.open()
    limit_key = LimitKey("slow", interval=3_600_000_000, burst=3)
    await insert(store, *(new_job(limit_key=limit_key) for _ in range(40)))
    answers = await asyncio.gather(
        *(other.write(Batch(asks=[ask(f"w{n}", limit=9)])) for n, other in enumerate(others))
    )
    assert sum(len(answer.asks[0].records) for answer in answers) == 3
    for other in others:
        await other.close()


async def test_an_end_that_a_claim_cannot_see_frees_capacity(store, begun, schema):
    """The end commits during a claim that still counts its job: jobs that this claim defers must be released."""
    first = await one_of_two(store)
    other = await begun()
    await write_on(other, schema, Batch(asks=[ask("bob", limit=9)]))  # holds b
    assert await settle(store, succeeded(first))  # sees nothing held
    await other.execute("COMMIT")
    assert (await job(store, "b")).state == State.BLOCKED
    assert (await claim_one(store)).id == "b"


async def test_a_claim_between_an_end_and_a_deferral_loses_neither(store, begun, schema):
    """It applies the notice of the end, and cannot see the deferred job yet."""
    first = await one_of_two(store)
    other = await begun()
    await write_on(other, schema, Batch(asks=[ask("bob", limit=9)]))  # holds b
    assert await settle(store, succeeded(first))
    assert await claim(store, "eve") == []
    await other.execute("COMMIT")
    assert (await claim_one(store)).id == "b"


async def test_jobs_deferred_because_of_own_starts_are_released(store, begun, schema):
    """It fills the limit key itself. An end that it still counts, and the next claim, see no deferred job."""
    limit_key = LimitKey("two", concurrency=2)
    await insert(store, new_job("a", limit_key=limit_key))
    first = await claim_one(store)
    await insert(store, new_job("b", limit_key=limit_key), new_job("c", limit_key=limit_key))
    other = await begun()
    await write_on(other, schema, Batch(asks=[ask("bob", limit=2)]))  # starts b, holds c
    assert await settle(store, succeeded(first))
    assert await claim(store, "eve") == []
    await other.execute("COMMIT")
    assert (await claim_one(store)).id == "c"


async def test_an_end_and_a_claim_that_cannot_see_each_other_are_both_repeated(store, begun, schema):
    """The one that commits last finds the deferred job, without a notification."""
    first = await one_of_two(store)
    holding, ending = await begun(), await begun()
    assert await write_on(holding, schema, Batch(asks=[ask("bob")]))  # holds b
    assert await write_on(ending, schema, Batch(settles=[succeeded(first)], asks=[ask()]))  # sees nothing held
    for connection in (ending, holding):
        await connection.execute("COMMIT")
    assert not await write_on(holding, schema, Batch(asks=[ask("bob")]))  # has b
    assert (await job(store, "b")).state == State.RUNNING
    assert not await write_on(holding, schema, Batch(asks=[ask("bob")]))  # nothing has happened since


async def test_a_store_repeats_a_claim_that_is_to_be_repeated(store, sql, schema):
    first = await one_of_two(store)
    assert await claim(store) == []  # holds b, says so, and has looked at that itself
    assert await sql.fetchval(f"SELECT count(*) FROM {schema}.notice") == 0
    await settle(store, succeeded(first))
    assert (await claim_one(store)).id == "b"


async def test_a_claim_that_reads_many_jobs_locks_only_what_it_takes(store, begun, schema):
    """After ten full limit keys it reads several jobs at once, and needs one of them."""
    limit_keys = [LimitKey(f"full-{n}", concurrency=1) for n in range(10)]
    await insert(store, *(new_job(limit_key=limit_key) for limit_key in limit_keys))
    assert len(await claim(store, limit=10)) == 10
    await insert(
        store, *(new_job(limit_key=limit_key) for limit_key in limit_keys), *(new_job(f"free-{n}") for n in range(9))
    )
    other = await begun()
    await write_on(other, schema, Batch(asks=[ask("bob", limit=1)]))
    assert [record.id for record in await claim(store, limit=9)] == [f"free-{n}" for n in range(1, 9)]
    await other.execute("COMMIT")
    assert (await job(store, "free-0")).state == State.RUNNING


async def test_a_second_ask_of_a_batch_does_not_apply_notices_of_the_first(store, begun, schema):
    first = await one_of_two(store)
    other = await begun()
    await write_on(other, schema, Batch(asks=[ask("bob", limit=9)]))  # holds b
    await write_on(other, schema, Batch(asks=[ask("bob", limit=9)]), patient=False)
    assert await settle(store, succeeded(first))
    assert await claim(store, "eve") == []
    await other.execute("COMMIT")
    assert (await claim_one(store)).id == "b"


async def test_a_claim_does_not_apply_the_notice_of_an_end_in_its_batch(store, begun, schema):
    first = await one_of_two(store)
    holding, ending = await begun(), await begun()
    await write_on(holding, schema, Batch(asks=[ask("bob", limit=9)]))  # holds b
    await write_on(ending, schema, Batch(settles=[succeeded(first)], asks=[ask()]))  # sees nothing held
    await holding.execute("COMMIT")
    assert await claim(store, "eve") == []  # looks at b, and still counts a
    await ending.execute("COMMIT")
    assert (await claim_one(store)).id == "b"


async def test_an_end_that_commits_after_other_claims_frees_capacity(store, begun, schema):
    first = await one_of_two(store)
    other = await begun()
    await write_on(other, schema, Batch(settles=[succeeded(first)]))  # sees nothing held
    for _ in range(3):
        assert await claim(store) == []  # holds b, and looks at what is held
    assert (await job(store, "b")).state == State.BLOCKED
    await other.execute("COMMIT")
    assert (await claim_one(store)).id == "b"


async def test_a_locked_deferred_job_is_released_later(store, begun, schema):
    first = await one_of_two(store)
    assert await claim(store) == []
    user = await begun()
    await user.execute(f"SELECT FROM {schema}.job WHERE id = 'b' FOR UPDATE")
    assert await settle(store, succeeded(first))
    answer = await answer_to(store, ask(limit=9))
    assert (answer.records, answer.due_in) == ([], 0.0)
    await user.execute("ROLLBACK")
    assert (await claim_one(store)).id == "b"


async def test_a_reported_rate_limit_counts_before_its_notice_is_applied(store, begun, schema):
    """Another claim has locked the limiter when the notice is read, and has unlocked it when a job is to start."""
    limit_key = LimitKey("slow", concurrency=5)
    await insert(store, *(new_job(f"a{n}", limit_key=limit_key) for n in range(3)))
    first = await claim_one(store)
    other, asking = await begun(), await begun()
    await write_on(other, schema, Batch(asks=[ask("bob")]))  # has the limiter
    assert await note(store, says(first, rest=600.0))
    await write_on(asking, schema, Batch(asks=[ask("eve", "nowhere")]))  # reads the word
    await other.execute("COMMIT")
    await write_on(asking, schema, Batch(asks=[ask("eve")]), patient=False)
    await asking.execute("COMMIT")
    assert {record.id for record in await every(store, Where(states=(State.RUNNING,)))} == {"a0", "a1"}


async def test_ends_enqueues_and_claims_do_not_wait_for_each_other(store, begun, schema):
    limit_key = LimitKey("one", concurrency=2, weight=1)
    await insert(store, *(new_job(f"a{n}", limit_key=limit_key) for n in range(4)))
    first = await claim_one(store)
    claiming, user = await begun(), await begun()
    await write_on(claiming, schema, Batch(asks=[ask("bob", limit=1)]))  # has the limiter
    assert await asyncio.wait_for(settle(store, succeeded(first)), 90)
    await store.insert_bound(user, [new_job("mine", limit_key=limit_key)])
    await asyncio.wait_for(insert(store, new_job("theirs", limit_key=limit_key)), 90)
    await claiming.execute("COMMIT")
    assert len(await asyncio.wait_for(claim(store, limit=9), 90)) == 1
    await user.execute("COMMIT")
    assert {record.id for record in await every(store)} == {"a0", "a1", "a2", "a3", "mine", "theirs"}


async def test_asks_of_two_batches_do_not_deadlock(store, begun, schema):
    """Each has locked one limiter and needs the other: it skips that, and is to be repeated."""
    for name in "xy":
        await insert(
            store, *(new_job(f"{name}{n}", queue=name, limit_key=LimitKey(name, concurrency=9)) for n in range(3))
        )
    other = await begun()
    await write_on(other, schema, Batch(asks=[ask("bob", "y")]))
    answers = await asyncio.wait_for(store.write(Batch(asks=[ask("ann", "x"), ask("ann", "y")])), 90)
    assert [[record.id for record in each.records] for each in answers.asks] == [["x0"], []]
    assert answers.asks[1].due_in == 0.0
    await other.execute("COMMIT")
    assert (await claim_one(store, "ann", "y")).id == "y1"


async def test_deferred_and_running_jobs_are_found_during_rotations(store, sql, schema):
    limit_key = LimitKey("one", concurrency=1)
    await insert(store, *(new_job(f"a{n}", limit_key=limit_key) for n in range(3)))
    first = await claim_one(store)
    assert await claim(store) == []
    for gen in (2, 3):
        await sql.execute(f"INSERT INTO {schema}.generation (gen) VALUES ({gen})")
        for _ in range(3):
            await store._generations._step()
        assert await sql.fetchval(f"SELECT array_agg(gen) FROM {schema}.generation") == [gen]
    assert await claim(store) == []
    assert await settle(store, succeeded(first))
    assert (await claim_one(store)).id == "a1"
    assert all(finding.fine for finding in await store.examine() if "living" in finding.what)


async def test_unused_limit_keys_are_removed(store, sql, schema):
    idle, busy = LimitKey("idle", concurrency=1, weight=1), LimitKey("busy", concurrency=1)
    await insert(store, new_job("a", limit_key=idle), new_job("b", limit_key=busy), new_job("c", limit_key=busy))
    for each in await claim(store, limit=9):
        if each.id == "a":
            await settle(store, succeeded(each))
    assert await claim(store) == []
    assert await names(sql, schema) == {"idle", "busy"}
    await store.tidy(100)
    assert await names(sql, schema) == {"idle", "busy"}
    day = 86_400_000_000
    await sql.execute(f"UPDATE {schema}.limiter SET used_at = used_at - 2 * {day}")
    await sql.execute(f"UPDATE {schema}.share SET finish = finish - 2 * {day}")
    await store.tidy(100)
    assert await names(sql, schema) == {"busy"}
    assert await sql.fetchval(f"SELECT count(*) FROM {schema}.share") == 0


async def test_an_empty_claim_writes_nothing_without_pending_notices(store, sql):
    limit_key = LimitKey("one", concurrency=1)
    await insert(store, *(new_job(f"a{n}", limit_key=limit_key) for n in range(3)))
    await claim(store, limit=9)
    await apply(store, cancellation(await job(store, "a1")))
    assert await claim(store) == []
    before = await sql.fetchval("SELECT pg_snapshot_xmax(pg_current_snapshot())::text")
    assert await claim(store) == []
    assert await apply(store, change(await job(store, "a2"), meta={"x": 1}))
    assert int(await sql.fetchval("SELECT pg_snapshot_xmax(pg_current_snapshot())::text")) - int(before) == 1


async def names(sql, schema):
    return {row[0] for row in await sql.fetch(f"SELECT name FROM {schema}.limiter")}


async def one_of_two(store):
    """Two jobs, a and b, of a limit key with concurrency 1: the claim of the first."""
    limit_key = LimitKey("one", concurrency=1)
    await insert(store, new_job("a", limit_key=limit_key), new_job("b", limit_key=limit_key))
    return await claim_one(store)
