"""ctx.transaction(): the task's writes and the job's completion commit together, under the claim's fence."""

from __future__ import annotations

import asyncio
import pickle

import pytest

from holdfast import Context
from holdfast.core.job import State
from holdfast.testing.build import change
from holdfast.worker.lease import Leases
from support.eventually import eventually
from support.inside import session_of
from support.terminal import terminal
from support.workers import work_off, working

__all__ = ["terminal"]


@pytest.fixture
def table(schema):
    return f"{schema}.effect"


async def make_table(app, sql, table):
    await app.open()
    await sql.execute(f"CREATE TABLE {table} (n integer)")


async def test_the_writes_and_the_completion_commit_together(app, sql, table):
    await make_table(app, sql, table)
    seen = []

    @app.task
    async def pay(ctx: Context, n: int) -> None:
        async with ctx.transaction(result=lambda: {"paid": n}) as connection:
            await connection.execute(f"INSERT INTO {table} VALUES ($1)", n)
            seen.append((await app.job(ctx.job.id)).state)
        seen.append((await app.job(ctx.job.id)).state)

    handle = await pay.enqueue(7)
    await work_off(app)
    assert seen == [State.RUNNING, State.SUCCEEDED]
    assert await handle.result(timeout=30) == {"paid": 7}
    assert (await handle.job()).attempt == 1
    assert await sql.fetchval(f"SELECT array_agg(n) FROM {table}") == [7]


async def test_an_exception_rolls_back_and_fails_the_attempt(app, sql, table):
    await make_table(app, sql, table)

    @app.task(max_attempts=1)
    async def pay(ctx: Context) -> None:
        async with ctx.transaction() as connection:
            await connection.execute(f"INSERT INTO {table} VALUES (1)")
            raise ValueError("no")

    handle = await pay.enqueue()
    await work_off(app)
    job = await handle.job()
    assert (job.state, job.error) == (State.DEAD, "ValueError: no")
    assert await sql.fetchval(f"SELECT count(*) FROM {table}") == 0


async def test_a_claim_that_was_ended_meanwhile_keeps_nothing(app, sql, table):
    await make_table(app, sql, table)

    @app.task(max_attempts=3)
    async def pay(ctx: Context) -> None:
        async with ctx.transaction() as connection:
            await connection.execute(f"INSERT INTO {table} VALUES (1)")
            record = (await session_of(app).store.get([ctx.job.id]))[0]
            # A monitor ends the claim while the task's transaction is open.
            [done] = await session_of(app).commit.change([change(record, state=State.DEAD, error="monitor", keep=None)])
            assert done

    handle = await pay.enqueue()
    await work_off(app)
    job = await handle.job()
    assert (job.state, job.error) == (State.DEAD, "monitor")
    assert await sql.fetchval(f"SELECT count(*) FROM {table}") == 0


async def test_the_result_of_a_transaction_is_encoded_by_the_tasks_own_codec(app):
    @app.task(codec=pickle)
    async def strange(ctx: Context) -> None:
        async with ctx.transaction(result={("a", 1): {2}}):
            pass

    handle = await strange.enqueue()
    await work_off(app)
    assert await handle.result(timeout=30) == {("a", 1): {2}}
    assert await app.handle(handle.id).result(timeout=30) == {("a", 1): {2}}


async def test_heartbeats_notes_and_sweeps_do_not_wait_for_an_open_transaction(app, sql, table, monkeypatch):
    monkeypatch.setattr(Leases, "watch", lambda self, heartbeat_soon: None)  # it would stop the cancelled job
    await make_table(app, sql, table)
    inside, leave = asyncio.Event(), asyncio.Event()

    @app.task
    async def pay(ctx: Context) -> None:
        async with ctx.transaction() as connection:
            await connection.execute(f"INSERT INTO {table} VALUES (1)")
            inside.set()
            await leave.wait()

    handle = await pay.enqueue()
    async with working(app, lease=3600) as worker:  # its next heartbeat, which would notice the cancellation, is far
        await inside.wait()
        store = session_of(app).store

        async def first_heartbeat_sent():
            return (await store.holders())[0].heartbeat > 1  # the first of all registers the worker

        await eventually(first_heartbeat_sent)
        record = (await store.get([handle.id]))[0]
        async with asyncio.timeout(30):
            [heartbeat] = await store.heartbeat([worker.holder])
            assert [held.id for held in heartbeat.held] == [handle.id]
            assert await store.expired(9) == []
            await app.cancel(handle.id)
            assert record.holder == worker.holder.id
        leave.set()
        await eventually(lambda: handle_state(app, handle.id))
    assert (await handle.job()).state == State.SUCCEEDED


async def handle_state(app, id):
    return (await app.job(id)).state == State.SUCCEEDED


JOBS = """
import os
from holdfast import Context, Holdfast

app = Holdfast()

@app.task(run_in="process", max_attempts=1)
async def pay(ctx: Context, table: str) -> None:
    async with ctx.transaction(result=os.getpid()) as connection:
        await connection.execute(f"INSERT INTO {table} VALUES (1)")
"""


@pytest.mark.extended
async def test_a_job_in_its_own_process_completes_in_its_own_transaction(app, sql, url, table, terminal):
    await make_table(app, sql, table)
    (terminal.folder / "paying.py").write_text(JOBS)
    terminal.env["HOLDFAST_URL"] = url
    handle = await app.enqueue("pay", table)
    await asyncio.to_thread(terminal, "worker", "start", "-A", "paying:app")
    assert await handle.result(timeout=60) > 0
    await asyncio.to_thread(terminal, "worker", "stop")
    assert await sql.fetchval(f"SELECT count(*) FROM {table}") == 1


async def test_a_plain_function_is_told_to_be_async(app):
    @app.task(max_attempts=1)
    def pay(ctx: Context) -> None:
        with ctx.transaction():
            pass

    handle = await pay.enqueue()
    await work_off(app)
    assert "declare the task with `async def`" in (await handle.job()).error
