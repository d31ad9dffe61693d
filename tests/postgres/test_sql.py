"""holdfast.enqueue(...): jobs from triggers, cron jobs and other languages."""

from __future__ import annotations

import asyncio
import json

import asyncpg
import pytest

from holdfast import Worker


async def test_a_trigger_enqueues_a_job_that_a_worker_runs(app, sql, schema):
    await sql.execute(f"""
        CREATE TABLE {schema}.customer (email text);
        CREATE FUNCTION {schema}.greet() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            PERFORM {schema}.enqueue('add', jsonb_build_object('a', 1, 'b', length(new.email)), tags => '{{sql}}');
            RETURN new;
        END $$;
        CREATE TRIGGER greet AFTER INSERT ON {schema}.customer FOR EACH ROW EXECUTE FUNCTION {schema}.greet();
        INSERT INTO {schema}.customer VALUES ('abcde')
    """)
    worker = asyncio.create_task(Worker(app, until_idle=True).run())
    [job] = (await app.jobs()).jobs
    assert await app.handle(job.id).result(timeout=10) == 6
    assert job.tags == ("sql",)
    await worker


async def test_a_job_of_a_transaction_that_is_rolled_back_never_was(app, sql, schema):
    transaction = sql.transaction()
    await transaction.start()
    await sql.fetchval(f"SELECT {schema}.enqueue('add')")
    await transaction.rollback()
    assert (await app.jobs()).jobs == []


async def test_keys_ids_delays_and_priorities_are_taken(app, sql, schema):
    options = "queue => 'mail', priority => -3, delay => '1 hour', key => 'k', meta => '{}'"
    call = f"SELECT {schema}.enqueue('add', $1, {options})"
    first = await sql.fetchval(call, json.dumps({"a": 1}))
    assert await sql.fetchval(call, json.dumps({"a": 1})) == first
    with pytest.raises(asyncpg.UniqueViolationError, match="another task or payload"):
        await sql.fetchval(call, json.dumps({"a": 2}))
    job = await app.job(first)
    assert (job.queue, job.priority, job.state, job.key) == ("mail", -3, "scheduled", "k")
    assert await sql.fetchval(f"SELECT {schema}.enqueue('add', id => 'mine')") == "mine"
    with pytest.raises(asyncpg.UniqueViolationError, match="exists already"):
        await sql.fetchval(f"SELECT {schema}.enqueue('add', id => 'mine')")


async def test_a_payload_that_is_no_object_is_refused(app, sql, schema):
    with pytest.raises(asyncpg.InvalidParameterValueError):
        await sql.fetchval(f"SELECT {schema}.enqueue('add', '[1, 2]')")
