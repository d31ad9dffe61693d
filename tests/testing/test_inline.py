"""Inline mode: a job runs where it is enqueued."""

import asyncio
import sqlite3
from contextlib import closing
from datetime import UTC, datetime

import pytest

from holdfast import Backoff, Context, Holdfast, InvalidJob, JobFailed, JobNotFound, Snooze, State
from holdfast.app import parts_of
from holdfast.testing import inline


@pytest.fixture
def app(make_app):
    app = make_app()
    app.ran = []

    @app.task
    def greet(name: str, at: datetime | None = None) -> str:
        app.ran.append(name)
        assert at is None or at.tzinfo is not None
        return f"hello {name}"

    @app.task
    async def greet_later(name: str) -> str:
        await asyncio.sleep(0)
        app.ran.append(name)
        return f"hello {name}"

    @app.task(max_attempts=3)
    async def flaky(ctx: Context) -> int:
        app.ran.append(ctx.attempt)
        if ctx.attempt < 3:
            raise RuntimeError(f"attempt {ctx.attempt}")
        return ctx.attempt

    return app


@pytest.mark.parametrize("task", ["greet", "greet_later"])
async def test_a_job_has_run_when_enqueue_returns(app, task):
    async with inline(app):
        handle = await app.enqueue(task, "ann")
        assert app.ran == ["ann"]
        job = await handle.job()
        assert (job.state, job.attempt, job.queue) == (State.SUCCEEDED, 1, "default")
        assert await handle.result(timeout=30) == "hello ann"


@pytest.mark.parametrize("task", ["greet", "greet_later"])
def test_blocking_code_runs_inline(app, task):
    with inline(app):
        assert app.sync.enqueue(task, "ann").result(timeout=30) == "hello ann"
    assert app.ran == ["ann"]


async def test_a_plain_with_block_runs_inline(app):
    with inline(app):
        await app.enqueue("greet", "ann")
    assert app.ran == ["ann"]


async def test_after_the_block_jobs_wait_for_a_worker_again(app):
    async with inline(app):
        pass
    handle = await app.enqueue("greet", "ann")
    assert (await handle.job()).state == State.QUEUED
    assert app.ran == []


async def test_a_block_in_a_block_changes_nothing(app):
    async with inline(app):
        async with inline(app):
            await app.enqueue("greet", "ann")
        await app.enqueue("greet", "bob")
    assert app.ran == ["ann", "bob"]


async def test_arguments_are_really_encoded(app):
    async with inline(app):
        await app.enqueue("greet", "ann", at=datetime(2030, 1, 1, tzinfo=UTC))
        with pytest.raises(InvalidJob, match="'name'"):
            await parts_of(app).registry.tasks["greet"].enqueue(object())


async def test_a_failed_attempt_is_repeated_without_waiting(app):
    async with inline(app):
        handle = await app.enqueue("flaky")
    assert await handle.result(timeout=30) == 3
    assert app.ran == [1, 2, 3]
    assert [line.outcome for line in (await handle.job()).history] == ["failed", "failed", "succeeded"]


async def test_a_job_that_fails_for_good_is_dead_and_says_why(app):
    @app.task(max_attempts=2, retry=Backoff(base=1000))
    def bad() -> None:
        raise ValueError("no")

    async with inline(app):
        handle = await bad.enqueue()
        with pytest.raises(JobFailed, match="ValueError: no"):
            await handle.result(timeout=30)


async def test_what_is_due_later_stays_where_it_is(app):
    @app.task
    async def snoozing() -> None:
        raise Snooze(60)

    async with inline(app):
        delayed = await parts_of(app).registry.tasks["greet"].using(delay=60).enqueue("ann")
        snoozed = await snoozing.enqueue()
    assert (await delayed.job()).state == (await snoozed.job()).state == State.SCHEDULED
    assert app.ran == []


async def test_a_paused_queue_stays_paused(app):
    await app.pause("default")
    async with inline(app):
        handle = await app.enqueue("greet", "ann")
    assert (await handle.job()).state == State.QUEUED


async def test_every_way_to_enqueue_runs_inline(app):
    async with inline(app):
        await app.enqueue_many([("greet", "a"), ("greet", "b")])
        await app.submit("greet", b'{"name": "c"}', json=True)
        await parts_of(app).registry.tasks["greet"].using(queue="elsewhere").enqueue("d")
    assert app.ran == ["a", "b", "c", "d"]


async def test_a_job_that_enqueues_another_waits_for_it(app):
    order = []

    @app.task
    async def parent() -> None:
        order.append("parent begins")
        await app.enqueue("greet", "child")
        order.append(f"child ran: {app.ran}")

    @app.task
    def parent_in_a_thread() -> str:
        return app.sync.enqueue("greet_later", "grandchild").result(timeout=30)

    async with inline(app):
        await parent.enqueue()
        handle = await parent_in_a_thread.enqueue()
        assert await handle.result(timeout=30) == "hello grandchild"
    assert order == ["parent begins", "child ran: ['child']"]


async def test_a_job_that_enqueues_itself_by_its_key_does_not_wait_for_itself(app):
    @app.task
    async def again() -> str:
        handle = await again.using(key="only one").enqueue()
        return handle.id

    async with inline(app):
        handle = await again.using(key="only one").enqueue()
        assert await handle.result(timeout=30) == handle.id


async def test_the_same_key_runs_once(app):
    async with inline(app):
        for _ in range(3):
            await parts_of(app).registry.tasks["greet"].using(key="k").enqueue("ann")
    assert app.ran == ["ann"]


async def test_many_callers_at_once_all_see_their_jobs_done(app):
    async with inline(app):
        handles = await asyncio.gather(*(app.enqueue("greet", f"{n}") for n in range(10)))
        states = [(await handle.job()).state for handle in handles]
    assert states == [State.SUCCEEDED] * 10
    assert sorted(app.ran) == [f"{n}" for n in range(10)]


async def test_a_job_with_retention_0_runs_inline(app):
    @app.task(retention=0)
    def forget() -> None:
        app.ran.append("forgotten")

    async with inline(app):
        handle = await forget.enqueue()
    assert app.ran == ["forgotten"]
    with pytest.raises(JobNotFound):
        await handle.job()


async def test_hooks_run_as_they_would(app):
    seen = []

    async def around_enqueue(job, store):
        seen.append("enqueue")
        return await store(job)

    async def around_run(context, run):
        seen.append("run")
        return await run()

    app.around_enqueue.append(around_enqueue)
    app.around_run.append(around_run)
    async with inline(app):
        await app.enqueue("greet", "ann")
    assert seen == ["enqueue", "run"]


def test_code_in_another_loop_runs_inline(app):
    app.sync.stats()  # the app runs on the loop of its own thread

    async def main():
        async with inline(app):
            handle = await app.enqueue("greet", "ann")
            return (await handle.job()).state

    assert asyncio.run(main()) == State.SUCCEEDED


def test_a_job_in_the_users_own_transaction_is_left_to_its_commit(tmp_path):
    app = Holdfast(f"sqlite:///{tmp_path}/jobs.db")
    with app.sync as sync, inline(app):
        sync.stats()
        with closing(sqlite3.connect(tmp_path / "jobs.db")) as connection:
            handle = sync.enqueue(parts_of(app).registry.tasks["noop"].using(connection=connection))
            connection.commit()
        assert handle.job().state == State.QUEUED
