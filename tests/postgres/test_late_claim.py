"""Holders: a claim that commits after its holder was removed; what a heartbeat answers about requests to workers."""

from __future__ import annotations

import asyncio

from holdfast.core.job import State
from holdfast.store.protocol import CONTROL, Batch
from holdfast.testing.build import ask, holder, new_job, succeeded
from holdfast.testing.verbs import claim_one, insert, job, settle
from support.crossing import write_on
from support.eventually import eventually


async def test_a_claim_that_commits_after_its_holder_was_removed_is_found_lost(store, sql, schema, begun):
    await insert(store, new_job(id="first"), new_job(id="second"))
    me = holder("killed", 60.0)
    await settle(store, succeeded(await claim_one(store, me)))
    late = await begun()
    await write_on(late, schema, Batch(asks=[ask(me, limit=1)]))
    await sql.execute(f"UPDATE {schema}.holder SET expires = 0")
    assert (await store.tidy(100)).holders == 1
    await late.execute("COMMIT")
    assert (await job(store, "second")).state == State.RUNNING
    await store.tidy(100)
    (lost,) = await store.expired(10)
    assert lost.record.id == "second"


async def test_a_heartbeat_excludes_requests_to_workers_while_there_are_none(store):
    assert not (await store.heartbeat([holder()]))[0].requests
    await store.put_record(CONTROL, "bob/1", b"{}", 0)
    assert (await store.heartbeat([holder()]))[0].requests
    await store.put_record(CONTROL, "bob/1", None)
    assert not (await store.heartbeat([holder()]))[0].requests


async def test_a_heartbeat_does_not_list_a_claim_that_a_sweep_ended_while_it_waited(store, sql, schema, begun):
    await insert(store, new_job(id="swept"))
    me = holder("slow", 60.0)
    claim = await claim_one(store, me)
    sweep = await begun()
    await write_on(sweep, schema, Batch(settles=[succeeded(claim, expected_heartbeat=1)]))
    waiting = asyncio.create_task(store.heartbeat([me]))
    await eventually(lambda: sql.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"))
    await sweep.execute("COMMIT")
    assert (await waiting)[0].held == ()
    assert (await job(store, "swept")).state == State.SUCCEEDED
