"""ctx.transaction() on SQLite: the task's writes and the job's completion commit together, under the claim's fence."""

import asyncio
import multiprocessing
import os
import pickle
import signal
import sqlite3
import threading

import pytest

from holdfast import Context, Flow, Holdfast
from holdfast.core.errors import ConfigError, StoreUnavailable
from holdfast.core.job import State
from holdfast.store.sqlite import SqliteStore
from holdfast.testing.build import change, succeeded
from holdfast.testing.verbs import job, running
from support.eventually import still
from support.inside import session_of
from support.workers import work_off, working


@pytest.fixture
def sql(path):
    """A connection of the user's own, and a table of theirs."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    connection.execute("CREATE TABLE effect (n INTEGER)")
    yield connection
    connection.close()


@pytest.fixture
async def app(path, sql):
    app = Holdfast(f"sqlite:///{path}", poll=0.2)
    async with app:
        yield app


def effects(sql):
    return [n for (n,) in sql.execute("SELECT n FROM effect ORDER BY n")]


async def test_the_writes_and_the_completion_commit_together(app, sql):
    seen = []

    @app.task
    async def pay(ctx: Context, n: int) -> None:
        async with ctx.transaction(result=lambda: {"paid": n}) as connection:
            connection.execute("INSERT INTO effect VALUES (?)", (n,))
            seen.append((await app.job(ctx.job.id)).state)
        seen.append((await app.job(ctx.job.id)).state)

    handle = await pay.enqueue(7)
    await work_off(app)
    assert seen == [State.RUNNING, State.SUCCEEDED]
    assert await handle.result(timeout=30) == {"paid": 7}
    assert (await handle.job()).attempt == 1
    assert effects(sql) == [7]


async def test_plain_functions_use_a_plain_with(app, sql):
    @app.task(codec=pickle)
    def pay(ctx: Context, n: int) -> None:
        with ctx.transaction(result={("a", n): {2}}) as connection:
            connection.row_factory = sqlite3.Row
            connection.execute("INSERT INTO effect VALUES (?)", (n,))

    handles = [await pay.enqueue(n) for n in range(20)]
    await work_off(app)
    assert [await handle.result(timeout=30) for handle in handles] == [{("a", n): {2}} for n in range(20)]
    assert effects(sql) == list(range(20))


async def test_an_exception_rolls_back_and_fails_the_attempt(app, sql):
    @app.task(max_attempts=1)
    def pay(ctx: Context) -> None:
        with ctx.transaction() as connection:
            connection.execute("INSERT INTO effect VALUES (1)")
            raise ValueError("no")

    handle = await pay.enqueue()
    await work_off(app)
    job = await handle.job()
    assert (job.state, job.error) == (State.DEAD, "ValueError: no")
    assert effects(sql) == []


async def test_a_claim_that_was_ended_meanwhile_keeps_nothing(app, sql):
    @app.task(max_attempts=3)
    async def pay(ctx: Context) -> None:
        record = (await session_of(app).store.get([ctx.job.id]))[0]
        # A monitor ends the claim before the task's transaction begins.
        [done] = await session_of(app).commit.change([change(record, state=State.DEAD, error="monitor", keep=None)])
        assert done
        async with ctx.transaction() as connection:
            connection.execute("INSERT INTO effect VALUES (1)")

    handle = await pay.enqueue()
    await work_off(app)
    job = await handle.job()
    assert (job.state, job.error) == (State.DEAD, "monitor")
    assert effects(sql) == []


async def test_a_cancelled_block_rolls_back_and_leaves_the_store_free(app, sql):
    inside = asyncio.Event()

    @app.task
    async def pay(ctx: Context) -> None:
        async with ctx.transaction() as connection:
            connection.execute("INSERT INTO effect VALUES (1)")
            inside.set()
            await asyncio.Event().wait()

    handle = await pay.using(timeout=1, max_attempts=1).enqueue()
    async with working(app):
        await inside.wait()
        with pytest.raises(Exception, match="ran longer than its timeout"):
            await handle.result(timeout=30)
    assert effects(sql) == []


ABANDONED = """
import asyncio, sqlite3, sys
from holdfast import Context, Holdfast, Worker

app = Holdfast(f"sqlite:///{sys.argv[1]}")

@app.task
async def pay(ctx: Context) -> None:
    ended = asyncio.Event()

    def write(connection, loop):
        try:
            while True:
                connection.execute("INSERT INTO effect VALUES (1)")
        except sqlite3.OperationalError:
            loop.call_soon_threadsafe(ended.set)

    try:
        async with ctx.transaction() as connection:
            await asyncio.to_thread(write, connection, asyncio.get_running_loop())
    finally:
        await ended.wait()

asyncio.run(Worker(app, until_idle=True).run())
"""


async def test_a_thread_that_outlives_its_block_writes_nothing(app, sql, path, python):
    @app.task
    async def pay(ctx: Context) -> None: ...

    handle = await pay.using(timeout=0.2, max_attempts=1).enqueue()
    program = python(ABANDONED, path)
    assert await asyncio.to_thread(program.wait) == 0
    assert "ran longer than its timeout" in (await handle.job()).error
    assert effects(sql) == []


async def test_jobs_that_wait_for_it_follow_at_once(app, sql):
    @app.task
    async def pay(ctx: Context) -> int:
        async with ctx.transaction(result=7):
            pass
        return 0

    @app.task
    async def confirm(paid: int) -> int:
        return paid

    flow = Flow()
    flow.add(confirm, flow.add(pay))
    await app.enqueue_flow(flow)
    await work_off(app)
    [job] = (await app.jobs(task="confirm")).jobs
    assert (job.state, job.result) == (State.SUCCEEDED, 7)


async def test_what_would_wait_for_the_block_is_refused_in_it(app, sql):
    refused = []

    @app.task
    async def other() -> None: ...

    @app.task
    async def pay(ctx: Context) -> None:
        async with ctx.transaction() as connection:
            another = ctx.transaction()
            for write in (other.enqueue, lambda: ctx.checkpoint(1), lambda: app.cancel(ctx.job.id), another.__aenter__):
                with pytest.raises(ConfigError, match="would wait for the block's end") as error:
                    await write()
                refused.append(error)
            await other.using(connection=connection, id="inside").enqueue()
        await other.using(id="after").enqueue()

    handle = await pay.enqueue()
    await work_off(app)
    assert (await handle.job()).state == State.SUCCEEDED
    assert len(refused) == 4
    assert {(await app.job(id)).state for id in ("inside", "after")} == {State.SUCCEEDED}


async def test_only_holdfast_ends_the_transaction(app, sql):
    @app.task(max_attempts=1)
    async def pay(ctx: Context, how: str) -> None:
        async with ctx.transaction() as connection:
            connection.execute("INSERT INTO effect VALUES (1)")
            if how == "with":
                with connection:
                    pass
            if how == "script":
                connection.cursor().executescript("INSERT INTO effect VALUES (2)")
            getattr(connection, how)() if hasattr(connection, how) else connection.execute(how)

    handles = [await pay.enqueue(how) for how in ("commit", "rollback", "with", "script", "ROLLBACK", "close")]
    await work_off(app)
    errors = [(await handle.job()).error for handle in handles]
    assert [error.partition(":")[0] for error in errors] == ["ConfigError"] * 5 + ["ProgrammingError"]
    assert "the end of its block commits it" in errors[0]
    assert "leave COMMIT and ROLLBACK to Holdfast" in errors[4]
    assert effects(sql) == []


async def test_a_block_that_outlives_its_store_is_rolled_back(path, sql):
    store = SqliteStore(path, busy_timeout=1)
    await store.open()
    block = store.transaction(lambda: pytest.fail("it ends nothing"))
    connection = await block.__aenter__()
    connection.execute("INSERT INTO effect VALUES (1)")
    await store.close()
    with pytest.raises(StoreUnavailable, match="was closed before the end"):
        await block.__aexit__(None, None, None)
    sql.execute("INSERT INTO effect VALUES (2)")
    assert effects(sql) == [2]


async def test_a_slow_commit_is_waited_for(path, sql):
    store, go = SqliteStore(path, busy_timeout=1), threading.Event()
    await store.open()
    held = await running(store)
    block = store.transaction(lambda: succeeded(held))
    connection = await block.__aenter__()
    connection.execute("INSERT INTO effect VALUES (1)")
    connection.set_trace_callback(lambda statement: statement == "COMMIT" and go.wait())
    ending = asyncio.create_task(block.__aexit__(None, None, None))
    await still(lambda: not ending.done(), 1.5)
    go.set()
    await ending
    assert (await job(store, held.id)).state == State.SUCCEEDED
    assert effects(sql) == [1]
    await store.close()


async def test_a_statement_with_unread_rows_is_named(app, sql):
    unread = []

    @app.task(max_attempts=1)
    def pay(ctx: Context) -> None:
        with ctx.transaction() as connection:
            unread.append(connection.execute("INSERT INTO effect VALUES (1), (2) RETURNING n"))

    handle = await pay.enqueue()
    await work_off(app)
    assert "has rows that were not read" in (await handle.job()).error
    assert effects(sql) == []


async def test_an_async_task_needs_async_with(app, sql):
    @app.task(max_attempts=1)
    async def pay(ctx: Context) -> None:
        with ctx.transaction():
            pass

    handle = await pay.enqueue()
    await work_off(app)
    assert "needs `async with`" in (await handle.job()).error


async def test_a_memory_store_says_so():
    app = Holdfast("memory://")

    @app.task(max_attempts=1)
    async def pay(ctx: Context) -> None:
        async with ctx.transaction():
            pass

    async with app:
        handle = await pay.enqueue()
        await work_off(app)
        assert "needs a SQLite or Postgres store" in (await handle.job()).error


DYING = """
import asyncio, os, signal, sqlite3, sys
from holdfast import Context, Holdfast, Worker

app, moment = Holdfast(f"sqlite:///{sys.argv[1]}"), sys.argv[2]

@app.task
async def pay(ctx: Context, n: int) -> None:
    async with ctx.transaction(result=n) as connection:
        connection.execute("INSERT INTO effect VALUES (?)", (n,))
        if moment == "inside":
            os.kill(os.getpid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(Worker(app).run())
"""


@pytest.mark.parametrize("moment", ["inside", "after"])
async def test_a_kill_keeps_both_or_neither(app, sql, path, python, moment):
    @app.task
    async def pay(ctx: Context, n: int) -> None:
        async with ctx.transaction(result=n) as connection:
            connection.execute("INSERT INTO effect VALUES (?)", (n,))

    handle = await pay.enqueue(5)
    dying = python(DYING, path, moment)
    assert await asyncio.to_thread(dying.wait) == -signal.SIGKILL
    assert effects(sql) == ([] if moment == "inside" else [5])
    async with working(app):
        assert await handle.result(timeout=60) == 5
    assert (await handle.job()).attempt == (2 if moment == "inside" else 1)
    assert effects(sql) == [5]


def _open_store(path, answer):
    if (grandchild := os.fork()) == 0:
        os._exit(0)
    os.waitpid(grandchild, 0)

    async def use():
        store = SqliteStore(path)
        await store.open()

    try:
        asyncio.run(use())
    except ConfigError as error:
        answer.send(str(error))


async def test_a_process_forked_during_the_block_is_refused_the_file_and_the_block_goes_on(path, sql):
    store = SqliteStore(path)  # without a worker, whose writes would wait for the block, and the fork for them
    await store.open()
    held = await running(store)
    async with store.transaction(lambda: succeeded(held)) as connection:
        connection.execute("INSERT INTO effect VALUES (1)")
        ours, theirs = multiprocessing.Pipe()
        child = multiprocessing.get_context("fork").Process(target=_open_store, args=(str(path), theirs))
        child.start()
        theirs.close()
        answer = await asyncio.to_thread(ours.recv)
        await asyncio.to_thread(child.join)
    assert (await job(store, held.id)).state == State.SUCCEEDED
    assert "it was forked during a ctx.transaction() of its parent" in answer
    assert effects(sql) == [1]
    await store.close()
