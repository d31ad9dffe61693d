"""The cost of a claim: its plan at any depth, without statistics, and with an old snapshot.

HOLDFAST_DEPTH and HOLDFAST_WEAR make longer runs: 1,000,000 each is what the documentation speaks of.
"""

from __future__ import annotations

import json
import os
import re
import time

import asyncpg
import pytest

from holdfast.core.job import LimitKey
from holdfast.core.operations import Where
from holdfast.core.waiting import Waiting
from holdfast.store import checked_pages
from holdfast.store.postgres import observe
from holdfast.store.postgres import sql as statements
from holdfast.store.postgres.call import Call
from holdfast.store.protocol import Batch
from holdfast.testing.build import ask, dead, holder, new_job, says, succeeded
from holdfast.testing.verbs import answer_to, claim, every, insert, running, settle

DEPTH = int(os.environ.get("HOLDFAST_DEPTH", "60000"))
WEAR = int(os.environ.get("HOLDFAST_WEAR", "12000"))
CHOICE, CLAIM = "SELECT array_agg(f.ctid)", "UPDATE holdfast.job AS j SET state = 'running'"
"""The two statements of a claim."""


async def fill(sql, schema, number):
    """Insert many queued jobs, as an enqueue would."""
    await sql.execute(
        f"INSERT INTO {schema}.job (seq, id, queue, task, state, priority, run_at, payload, codec, max_attempts,"
        f" created_at, gen) SELECT nextval('{schema}.job_seq'), 'fill-' || n, 'default', 'work', 'queued', n % 3,"
        f" 1000000 + n, '{{}}', 'json', 5, n, g.last_value"
        f" FROM generate_series(1, $1::integer) AS n, {schema}.newest_generation AS g",
        number,
    )


async def explained(store, *asks, settles=()):
    """The plans of every statement that a write ran, as the server logs them."""
    said = []
    async with store._pool.link() as link:
        link.raw.add_log_listener(lambda _, message: said.append(str(message)))
        await link.raw.execute(
            "LOAD 'auto_explain'; SET auto_explain.log_min_duration = 0; SET auto_explain.log_analyze = on;"
            " SET auto_explain.log_buffers = on; SET auto_explain.log_timing = off;"
            " SET auto_explain.log_nested_statements = on; SET client_min_messages = log"
        )
        call = Call(Batch(settles=settles, asks=asks), with_hint=False)
        said.clear()
        await link.fetch(store._say(statements.WRITE), *call.arguments)
        await link.raw.execute("SET auto_explain.log_min_duration = -1")
        link.raw.terminate()
    return [plan for plan in said if "pg_type" not in plan]  # the driver's own questions


def buffers(plan):
    """Blocks that the whole statement touched."""
    counts = re.search(r"Buffers: shared ([^\n]*)", plan).group(1)
    return sum(int(number) for number in re.findall(r"\d+", counts))


async def claim_plans(store, schema):
    plans = await explained(store, ask("me", limit=10))
    [choice] = [plan for plan in plans if CHOICE in plan]
    [claim] = [plan for plan in plans if CLAIM.replace("holdfast.", f"{schema}.") in plan]
    return choice, claim


@pytest.mark.timeout(600)
async def test_the_claim_reads_its_index_in_order_at_any_depth_without_statistics(store, sql, schema):
    await sql.execute(f"ALTER TABLE {schema}.job SET (autovacuum_enabled = off)")
    read = {}
    for depth in (1000, DEPTH):
        await sql.execute(f"TRUNCATE {schema}.job")
        await fill(sql, schema, depth)
        choice, claim = await claim_plans(store, schema)
        assert "Index Scan using job_ready" in choice
        assert "Tid Scan" in claim
        for plan in (choice, claim):
            assert "Sort" not in plan
            assert "Seq Scan" not in plan
            assert "Bitmap" not in plan
        read[depth] = buffers(choice) + buffers(claim)
    assert read[DEPTH] <= read[1000] * 1.5 + 20, read


async def test_every_statement_of_an_idle_ask_is_a_handful_of_reads(store, sql, schema):
    await fill(sql, schema, 5000)
    plans = await explained(store, ask("me", "nowhere", limit=10))
    for plan in plans:
        assert "Seq Scan" not in plan
        if f"FROM {schema}.job AS" in plan and "holdfast.write" not in plan:
            assert buffers(plan) < 20


async def test_notes_and_ends_find_their_jobs_by_number_though_planned_on_an_empty_table(store, sql, schema):
    """The index of running jobs is the cheapest plan while there are few, and the most expensive later."""
    await sql.execute(f"ALTER TABLE {schema}.job SET (autovacuum_enabled = off)")
    said, records = [], []
    async with store._pool.link() as link:
        link.raw.add_log_listener(lambda _, message: said.append(str(message)))
        for turn in range(8):
            call = Call(
                Batch(
                    inserts=[new_job() for _ in range(50)],
                    notes=[says(record, progress=b"{}") for record in records],
                    settles=[succeeded(record) for record in records],
                    asks=[ask("me", limit=50)],
                ),
                with_hint=False,
            )
            if turn == 7:
                await link.raw.execute(
                    "LOAD 'auto_explain'; SET auto_explain.log_min_duration = 0; SET client_min_messages = log;"
                    " SET auto_explain.log_nested_statements = on"
                )
            rows = await link.fetch(store._say(statements.WRITE), *call.arguments)
            records = call.answers(rows)[0].asks[0].records
        link.raw.terminate()
    plans = [
        plan for plan in said if f"UPDATE {schema}.job AS j SET\n" in plan or f"DELETE FROM {schema}.job AS j" in plan
    ]
    assert len(plans) >= 2
    for plan in plans:
        assert "Index Scan using job_pkey on job j" in plan, plan
        assert "using job_running" not in plan, plan


async def test_a_limit_key_is_read_by_its_indexes_if_planned_on_an_empty_table(store, sql, schema):
    """The running and the deferred jobs of a limit key, however many other jobs run and wait."""
    me, limit_key = holder("me", 3600.0), LimitKey("one", concurrency=1)
    await insert(store, *(new_job(f"a{n}", limit_key=limit_key, queue="limited") for n in range(300)))
    [first] = await claim(store, me, "limited", limit=300)
    await insert(
        store,
        *(new_job() for _ in range(2000)),
        *(new_job(waiting_for=Waiting("dependency", f"{n}")) for n in range(2000)),
    )
    await claim(store, me, limit=1000)
    await settle(store, succeeded(first))
    plans = [plan for plan in await explained(store, ask(me, "limited", limit=10)) if f"{schema}.job AS" in plan]
    assert [record.id for record in await every(store, Where(states=("running",), queue="limited"))] == ["a1"]
    for name in ("job_limit_key", "job_deferred"):
        assert any(f"using {name}" in plan for plan in plans), name
    for plan in plans:
        assert "Seq Scan on job" not in plan
        if "Buffers" in plan:
            assert buffers(plan) < 60, plan


async def test_an_end_and_a_claim_read_no_more_where_many_limit_keys_are_full(store):
    me, limit_keys = holder("me", 3600.0), [LimitKey(f"l{n}", concurrency=1) for n in range(500)]
    await insert(store, *(new_job(limit_key=limit_key) for limit_key in [*limit_keys, *limit_keys]))
    running = await claim(store, me, limit=500)
    for _ in range(2):  # one holds, the next looks at what is held
        assert await claim(store, me, limit=500) == []
    plans = await explained(store, ask(me, limit=5), settles=[succeeded(record) for record in running[:5]])
    assert len(await every(store, Where(states=("running",)))) == 500
    looks = [plan for plan in plans if re.search("using job_(deferred|limit_key|waiting_for)", plan)]
    assert len(looks) > 3
    for plan in looks:
        assert buffers(plan) < 150, plan


@pytest.mark.parametrize("analyzed", [False, True])
async def test_what_waits_is_found_by_its_index(store, sql, schema, analyzed):
    await fill(sql, schema, 5000)
    await insert(store, *(new_job(f"a{n}", waiting_for=Waiting("signal", "w")) for n in range(30)))
    if analyzed:
        await sql.execute(f"ANALYZE {schema}.job")
    for where in (
        Where(waiting_for=Waiting("signal", "w")),
        Where(waiting_for=Waiting("signal", "w"), queue="default", states=("blocked",)),
    ):
        assert not observe.checks_each_job(where)
        statement, values = observe.page(where, None, None, 11)
        said = await sql.fetch(f"EXPLAIN {statements.for_schema(statement, schema)}", *values)
        plan = "\n".join(row[0] for row in said)
        assert "job_waiting_for" in plan
        assert "job_pkey" not in plan
        assert "Seq Scan on job" not in plan


async def test_a_page_that_no_index_gives_stops_and_says_how_many_jobs_it_has_checked(monkeypatch, store):
    monkeypatch.setattr(checked_pages, "FIRST_CHECKED", 100)
    monkeypatch.setattr(checked_pages, "MAX_CHECKED", 2000)
    await insert(store, *(new_job(queue="old", task="rare") for _ in range(3)))
    for _ in range(5):
        await insert(store, *(new_job(queue="new") for _ in range(1000)))
    for record in await claim(store, "me", "new", limit=500):
        await settle(store, succeeded(record))
    for where in (Where(queue="old"), Where(task="rare"), Where(states=("queued", "dead"), task="rare")):
        found, steps = await store.find(where, None, 2), []
        while found.looked is not None:
            steps.append((len(found.records), found.looked))
            found = await store.find(where, found.cursor, 2)
        assert steps == [(0, 2000), (0, 2000)], where
        assert len(found.records) == 2, "a page whose jobs are found is not cut"
        assert len((await store.find(where, found.cursor, 2)).records) == 1


async def test_the_dead_jobs_of_a_queue_are_found_by_their_index(store, sql, schema):
    await insert(store, *(new_job(queue="few" if n % 100 == 0 else "many") for n in range(2000)))
    for queue, number in (("few", 20), ("many", 1980)):
        ended = [dead(record) for record in await claim(store, "me", queue, limit=number)]
        await store.write(Batch(settles=ended))
    await sql.execute(f"ANALYZE {schema}.ended")
    statement, values = observe.page(Where(states=("dead",), queue="few"), None, None, 11)
    said = await sql.fetch(f"EXPLAIN {statements.for_schema(statement, schema)}", *values)
    plan = "\n".join(row[0] for row in said)
    assert re.search(r"ended_unsuccessful.*\n.*Index Cond: .*queue = ", plan), plan


@pytest.mark.parametrize(
    ("state", "index"), [("failed", "job_delayed"), ("scheduled", "job_delayed"), ("running", "job_running")]
)
async def test_the_few_jobs_of_a_state_are_found_by_its_index_with_a_plan_for_any_values(
    store, sql, schema, state, index
):
    """asyncpg prepares statements: after five executions the server may keep one plan for all values."""
    await fill(sql, schema, 5000)
    await claim(store, "me", limit=10)
    await insert(store, *(new_job(delay=3600) for _ in range(20)))
    statement, values = observe.page(Where(states=(state,)), 1_000_000, None, 11)
    assert values == [1_000_000]
    await sql.execute("SET plan_cache_mode = force_generic_plan")
    await sql.execute(f"PREPARE page AS {statements.for_schema(statement, schema)}")
    for _ in ("without statistics", "with statistics"):
        plan = "\n".join(row[0] for row in await sql.fetch("EXPLAIN EXECUTE page (1000000)"))
        assert index in plan, plan
        assert "job_pkey" not in plan
        assert "Seq Scan on job" not in plan
        await sql.execute(f"ANALYZE {schema}.job")


def nodes(plan):
    """A node of a plan, and all below it."""
    return [plan, *(one for below in plan.get("Plans", ()) for one in nodes(below))]


async def test_statistics_of_past_minutes_are_read_without_being_sorted_or_added_up_again(store, sql, schema):
    await settle(store, succeeded(await running(store)))
    await sql.execute(
        f"INSERT INTO {schema}.minute (at, queue, task, outcome, count, waited, ran, waits, runs, part)"
        " SELECT 60000000, 'q' || n, 'work', 'succeeded', 1, 1, 1, '1', '1', false FROM generate_series(1, 2000) AS n"
    )
    assert len(await store.stats_by_minute(0)) == 2001
    statement = statements.for_schema(f"EXPLAIN (ANALYZE, FORMAT JSON) {statements.MINUTES}", schema)
    [plan] = json.loads(await sql.fetchval(statement, 0))
    read = [node for node in nodes(plan["Plan"]) if node["Node Type"] in ("Sort", "Aggregate", "Incremental Sort")]
    assert read
    assert all(below["Actual Rows"] <= 1 for node in read for below in node["Plans"]), plan


async def drain(store, me, number, size=100):
    """Enqueue, claim and settle; seconds per exchange, the last ones."""
    took, records, done = [], [], 0
    while done < number:
        batch = Batch(
            inserts=[new_job() for _ in range(size)],
            settles=[succeeded(record) for record in records],
            asks=[ask(me, limit=size)],
        )
        began = time.perf_counter()
        records = (await store.write(batch)).asks[0].records
        took.append(time.perf_counter() - began)
        done += len(records)
    await store.write(Batch(settles=[succeeded(record) for record in records]))
    return took


@pytest.mark.timeout(3600)
async def test_an_old_snapshot_does_not_slow_claims_down(store, sql, server, schema):
    old = await asyncpg.connect(server.url)
    transaction = old.transaction(isolation="repeatable_read")
    await transaction.start()
    await old.fetchval("SELECT txid_current()")  # a writer, too: nothing dead since then can be removed
    me = holder("me", 3600.0)
    first = await claim_cost(store, sql, schema, me)
    await drain(store, me, WEAR)
    assert await sql.fetchval(f"SELECT max(gen) FROM {schema}.generation") > 1
    last = await claim_cost(store, sql, schema, me)
    print(f"blocks that a claim reads: {first} at first, {last} after {WEAR:,} jobs")
    assert last <= max(2 * first, first + 90), (first, last)
    await transaction.rollback()
    await old.close()


async def claim_cost(store, sql, schema, me):
    """Blocks that a claim of ten reads."""
    await insert(store, *(new_job() for _ in range(20)))
    await store._generations.tidy()
    plans = await explained(store, ask(me, limit=10))
    for record in await claim(store, me, limit=100):
        await store.write(Batch(settles=[succeeded(record)]))
    return max(buffers(plan) for plan in plans if "Buffers" in plan)


async def test_nothing_is_lost_and_order_is_kept_during_rotations(store, sql, server, schema):
    old = await asyncpg.connect(server.url)
    transaction = old.transaction(isolation="repeatable_read")
    await transaction.start()
    await old.fetchval("SELECT count(*) FROM pg_class")
    me = holder("me", 3600.0)
    late = [new_job(f"late-{n}", priority=9) for n in range(5)] + [new_job("soon", delay=3600.0)]
    await insert(store, *late)
    [held] = await claim(store, "other", limit=1)
    await drain(store, me, 12000)
    for _ in range(3):
        store._generations.worn(["default"])
        await store._generations._rotating
    assert await sql.fetchval(f"SELECT count(*) FROM {schema}.generation") == 1
    assert await sql.fetchval(f"SELECT max(gen) FROM {schema}.generation") > 1
    [heartbeat] = await store.heartbeat([holder("other")])
    assert [one.id for one in heartbeat.held] == [held.id]
    rest = [record.id for record in await claim(store, me, limit=1000)]
    assert rest[-4:] == [f"late-{n}" for n in range(5) if f"late-{n}" != held.id][-4:]
    await transaction.rollback()
    await old.close()


async def test_jobs_of_a_transaction_from_before_a_rotation_are_found(store, sql, server, schema):
    """A user's repeatable-read transaction sees the generations of an hour ago; its jobs must be found all the same."""
    old = await asyncpg.connect(server.url)
    transaction = old.transaction(isolation="repeatable_read")
    await transaction.start()
    await old.fetchval(f"SELECT count(*) FROM {schema}.generation")
    await sql.execute(f"INSERT INTO {schema}.generation (gen) VALUES (2)")
    for _ in range(3):
        await store._generations._step()
    assert await sql.fetchval(f"SELECT array_agg(gen) FROM {schema}.generation") == [2]
    await store.insert_bound(old, [new_job("a")])
    await transaction.commit()
    assert [record.id for record in await claim(store)] == ["a"]
    await old.close()


async def test_a_generation_with_an_open_insert_is_not_closed(store, sql, server, schema):
    user = await asyncpg.connect(server.url)
    transaction = user.transaction()
    await transaction.start()
    await store.insert_bound(user, [new_job("a")])
    await sql.execute(f"INSERT INTO {schema}.generation (gen) VALUES (2)")
    for _ in range(3):
        await store._generations._step()
    assert await sql.fetchval(f"SELECT array_agg(gen ORDER BY gen) FROM {schema}.generation") == [1, 2]
    await transaction.commit()
    assert [record.id for record in await every(store)] == ["a"]
    assert [record.id for record in await claim(store)] == ["a"]
    await user.close()


async def test_an_ask_during_a_rotation_is_to_be_repeated_at_once(store, sql, schema):
    """Jobs that are being moved to another generation cannot be claimed, and no listener is notified afterwards."""
    await insert(store, *(new_job() for _ in range(3)))
    await sql.execute(f"INSERT INTO {schema}.generation (gen) VALUES (2)")
    transaction = sql.transaction()
    await transaction.start()
    await sql.fetch(f"SELECT * FROM {schema}.rotate('{{}}')")
    answer = await answer_to(store, ask(limit=9))
    assert (answer.records, answer.due_in) == ([], 0.0)
    await transaction.commit()
    assert len(await claim(store, limit=9)) == 3
    assert (await answer_to(store, ask(limit=9))).due_in is None
