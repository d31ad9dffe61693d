"""Handles and results: a value, a failure, not ready, or no such job."""

import asyncio
import time

import pytest

from holdfast import Discard, JobCancelled, JobFailed, JobNotFound, State
from holdfast.app import parts_of
from support.eventually import eventually
from support.workers import work_off, working


@pytest.fixture
def app(make_app):
    app = make_app()

    @app.task
    def echo(value: object) -> object:
        return value

    @app.task(max_attempts=1)
    def fail(text: str) -> int:
        return int(text)

    @app.task
    def discard() -> None:
        raise Discard("not worth it")

    return app


@pytest.fixture
def task(app):
    return lambda name: parts_of(app).registry.tasks[name]


@pytest.mark.parametrize("value", [None, 0, False, "", [], {}, "text", 1.5, [1, {"a": None}], "\u2028 ü 🎈"])
async def test_a_result_is_the_value_that_was_returned(app, task, value):
    handle = await task("echo").enqueue(value)
    await work_off(app)
    assert await handle.result(timeout=30) == value
    job = await handle.job()
    assert (job.state, job.result, job.error) == (State.SUCCEEDED, value, None)


async def test_none_is_a_result_and_not_the_absence_of_one(app, task):
    handle = await task("echo").enqueue(None)
    with pytest.raises(TimeoutError):
        await handle.result(timeout=0)
    await work_off(app)
    assert await handle.result(timeout=0) is None


async def test_a_failed_job_raises_with_the_remote_traceback(app, task):
    handle = await task("fail").enqueue("seven")
    await work_off(app)
    with pytest.raises(JobFailed) as failed:
        await handle.result(timeout=30)
    error = failed.value
    assert error.job_id == handle.id
    assert error.error == "ValueError: invalid literal for int() with base 10: 'seven'"
    assert "in fail\n    return int(text)" in error.traceback
    assert error.traceback.rstrip().endswith(error.error)
    assert error.traceback.rstrip() in str(error), "a person sees it without asking"
    assert "holdfast/worker" not in error.traceback, "the worker's own frames are of no use to a person"


async def test_a_chained_exception_is_seen_whole(app):
    @app.task(max_attempts=1)
    async def chained() -> None:
        try:
            _ = {}["inner"]
        except KeyError as error:
            raise RuntimeError("outer") from error

    handle = await chained.enqueue()
    await work_off(app)
    with pytest.raises(JobFailed, match="KeyError: 'inner'") as failed:
        await handle.result(timeout=30)
    assert failed.value.error == "RuntimeError: outer"


async def test_a_cancelled_job_raises_what_is_also_a_failure(app, task):
    handle = await task("echo").enqueue(1)
    assert await handle.cancel() is True
    with pytest.raises(JobCancelled, match="cancelled before it ran") as cancelled:
        await handle.result(timeout=30)
    assert isinstance(cancelled.value, JobFailed)


async def test_a_discarded_job_gives_its_reason(app, task):
    handle = await task("discard").enqueue()
    await work_off(app)
    with pytest.raises(JobFailed, match="Discard: not worth it"):
        await handle.result(timeout=30)


async def test_not_ready_in_time_says_what_the_job_is_doing(app, task):
    handle = await task("echo").enqueue(1)
    started = time.monotonic()
    with pytest.raises(TimeoutError, match=r"has not ended after 0\.1 s, its state is queued"):
        await handle.result(timeout=0.1)
    assert time.monotonic() - started > 0.08


async def test_an_unknown_id_is_reported_at_once_whatever_the_timeout(app):
    handle = app.handle("no such")
    for call in (handle.result, handle.wait):
        with pytest.raises(JobNotFound, match="no job 'no such' in this store"):
            await asyncio.wait_for(call(timeout=3600), 90)


async def test_a_waiter_is_notified_when_its_job_is_deleted(app, task):
    handle = await task("echo").enqueue(1)
    waiting = asyncio.create_task(handle.result(timeout=3600))
    await asyncio.sleep(0)
    await app.delete(handle.id)
    with pytest.raises(JobNotFound):
        await asyncio.wait_for(waiting, 90)


async def test_wait_gives_the_ended_job_however_it_ended(app, task):
    good, bad = await task("echo").enqueue(1), await task("fail").enqueue("x")
    await work_off(app)
    assert (await good.wait(timeout=30)).state == State.SUCCEEDED
    assert (await bad.wait(timeout=30)).state == State.DEAD


async def test_a_waiter_is_notified_of_the_end_at_once(make_app):
    app = make_app(poll=3600)  # neither the worker nor the waiter would look again in time

    @app.task
    async def quick() -> int:
        return 1

    async with working(app):
        assert await (await quick.enqueue()).result(timeout=30) == 1


async def test_a_hundred_waiters_share_the_answer(app, task):
    handle = await task("echo").enqueue("x")
    waiters = [asyncio.create_task(handle.result(timeout=30)) for _ in range(100)]
    await work_off(app)
    assert await asyncio.gather(*waiters) == ["x"] * 100


async def test_a_waiter_that_gives_up_does_not_disturb_the_others(app, task):
    handle = await task("echo").enqueue("x")
    gives_up, stays = (asyncio.create_task(handle.result(timeout=30)) for _ in range(2))
    await asyncio.sleep(0)
    gives_up.cancel()
    await work_off(app)
    assert await stays == "x"
    assert gives_up.cancelled()


async def test_a_handle_can_be_made_in_any_process_from_the_id_alone(app, task):
    handle = await task("echo").enqueue({"a": [1]})
    await work_off(app)
    again = app.handle(handle.id)
    assert await again.result(timeout=30) == {"a": [1]}
    assert repr(again) == f"Handle('{handle.id}')"


async def test_the_default_timeout_of_results_is_a_setting(make_app):
    app = make_app(default_result_timeout=0.05)
    handle = await app.enqueue("noop")
    with pytest.raises(TimeoutError, match=r"after 0\.05 s"):
        await handle.result()
    with pytest.raises(TimeoutError, match=r"after 0\.05 s"):
        await handle.wait()


async def test_a_failed_attempt_is_not_yet_a_failed_job(app):
    tries = []

    @app.task(retry=lambda error, attempt: 0.01)
    def at_second_try() -> str:
        tries.append(1)
        if len(tries) == 1:
            raise RuntimeError("not yet")
        return "done"

    async with working(app):
        assert await (await at_second_try.enqueue()).result(timeout=30) == "done"


async def test_a_snapshot_does_not_change(app, task):
    handle = await task("echo").enqueue(1)
    before = await handle.job()
    await work_off(app)
    assert before.state == State.QUEUED
    with pytest.raises(AttributeError):
        before.state = State.DEAD
    after = await handle.job()
    assert (after.state, after.attempt) == (State.SUCCEEDED, 1)
    assert after.created_at <= after.started_at <= after.finished_at


async def test_a_finished_job_says_who_ran_it(app, task):
    import os
    import socket

    handle = await task("echo").enqueue(1)
    await work_off(app)
    job = await handle.job()
    assert (job.node, job.pid) == (socket.gethostname(), os.getpid())
    assert job.worker.startswith(f"{job.node}:{job.pid}:")
    [line] = job.history
    assert (line.outcome, line.number, line.worker) == ("succeeded", 1, job.worker)


async def test_retention_zero_removes_a_job_as_it_ends(make_app):
    app = make_app(retention=0)
    handle = await app.enqueue("noop")
    await work_off(app)
    with pytest.raises(JobNotFound):
        await handle.job()


async def test_a_tasks_own_retention_comes_first(app):
    @app.task(retention=0)
    def forget() -> None: ...

    forgotten, kept = await forget.enqueue(), await app.enqueue("noop")
    await work_off(app)
    assert (await kept.job()).state == State.SUCCEEDED
    with pytest.raises(JobNotFound):
        await forgotten.job()


async def test_many_waiters_for_many_jobs_are_all_notified(app, task):
    handles = await app.enqueue_many([(task("echo"), n) for n in range(50)])
    waiters = [asyncio.create_task(handle.result(timeout=30)) for handle in handles]
    async with working(app):
        await eventually(lambda: all(waiter.done() for waiter in waiters))
    assert [waiter.result() for waiter in waiters] == list(range(50))
