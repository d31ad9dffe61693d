"""Hooks around runs and for errors."""

import asyncio
import threading

import pytest

from holdfast import Backoff, Context, Discard, Retry, Snooze, State
from support.workers import work_off


@pytest.fixture
def app(make_app):
    app = make_app()

    @app.task
    async def on_loop(n: int) -> int:
        return n * 2

    @app.task
    def in_thread(n: int) -> int:
        return n * 2

    @app.task(max_attempts=1)
    async def broken() -> None:
        raise ValueError("no")

    return app


def hook(name, seen):
    async def around(context, run):
        seen.append(f"{name} before")
        try:
            return await run()
        finally:
            seen.append(f"{name} after")

    return around


@pytest.mark.parametrize("task", ["on_loop", "in_thread"])
async def test_hooks_nest_around_every_run(app, task):
    seen = []
    app.around_run += [hook("inner", seen), hook("outer", seen)]
    handle = await app.enqueue(task, 21)
    await work_off(app)
    assert await handle.result(timeout=30) == 42
    assert seen == ["outer before", "inner before", "inner after", "outer after"]


async def test_a_hook_has_the_context_though_the_task_does_not_ask_for_it(app):
    seen = []

    async def around(context: Context, run):
        seen.append((context.job.id, context.job.task, context.attempt))
        await context.update_meta(traced=True)
        return await run()

    app.around_run.append(around)
    handle = await app.enqueue("on_loop", 1)
    await work_off(app)
    assert seen == [(handle.id, "on_loop", 1)]
    assert (await handle.job()).meta == {"traced": True}


async def test_a_hook_can_change_the_result_or_answer_itself(app):
    async def around(context, run):
        return 7 if context.job.payload == {"n": 0} else await run() + 1

    app.around_run.append(around)
    handles = [await app.enqueue("on_loop", n) for n in (0, 5)]
    await work_off(app)
    assert [await handle.result(timeout=30) for handle in handles] == [7, 11]


async def test_a_hook_sees_what_the_task_raised_and_may_raise_something_else(app):
    async def around(context, run):
        try:
            return await run()
        except ValueError as error:
            raise Discard(f"seen: {error}") from error

    app.around_run.append(around)
    handle = await app.enqueue("broken")
    await work_off(app)
    assert (await handle.job()).error == "Discard: seen: no"


async def test_a_hook_that_raises_fails_that_job_alone(app):
    async def around(context, run):
        if context.job.payload == {"n": 0}:
            raise RuntimeError("a defect of the hook")
        return await run()

    app.around_run.append(around)
    bad, good = await app.enqueue("on_loop", 0), await app.enqueue("on_loop", 1)
    await work_off(app)
    assert (await bad.job()).error == "RuntimeError: a defect of the hook"
    assert await good.result(timeout=30) == 2


async def test_a_hook_that_is_no_coroutine_fails_the_job_with_a_reason(app):
    app.around_run.append(lambda context, run: 5)
    handle, other = await app.enqueue("on_loop", 0), await app.enqueue("on_loop", 1)
    await work_off(app)
    for one in (handle, other):
        assert "TypeError" in (await one.job()).error


async def test_context_variables_that_a_hook_sets_reach_the_task(app):
    import contextvars

    user = contextvars.ContextVar("user", default=None)

    @app.task
    def who() -> str:
        return user.get()

    async def around(context, run):
        user.set("ann")
        return await run()

    app.around_run.append(around)
    handle = await who.enqueue()
    await work_off(app)
    assert await handle.result(timeout=30) == "ann"


# -- errors


@pytest.fixture
def reported(app):
    reported = []
    app.on_error.append(lambda error, job: reported.append((error, job)))
    return reported


async def test_an_error_hook_gets_the_exception_itself_and_the_job(app, reported):
    handle = await app.enqueue("broken")
    await work_off(app)
    [(error, job)] = reported
    assert isinstance(error, ValueError)
    assert error.__traceback__ is not None
    assert (job.id, job.task, job.attempt) == (handle.id, "broken", 1)


async def test_every_failed_attempt_is_reported(app, reported):
    @app.task(max_attempts=3, retry=Backoff(base=0, jitter=0))
    def bad() -> None:
        raise KeyError("no")

    await bad.enqueue()
    await work_off(app)
    assert [job.attempt for _, job in reported] == [1, 2, 3]


async def test_what_a_task_says_on_purpose_is_not_reported(app, reported):
    @app.task(max_attempts=2)
    async def on_purpose(kind: str) -> None:
        raise {"retry": Retry(after=60), "snooze": Snooze(60), "discard": Discard("no")}[kind]

    for kind in ("retry", "snooze", "discard"):
        await on_purpose.enqueue(kind)
    await work_off(app)
    assert reported == []


async def test_a_timeout_is_reported(app, reported):
    @app.task(timeout=0.05, max_attempts=1)
    async def slow() -> None:
        await asyncio.sleep(60)

    handle = await slow.enqueue()
    await work_off(app)
    [(error, job)] = reported
    assert isinstance(error, TimeoutError)
    assert job.id == handle.id


async def test_an_unknown_task_is_reported(app, reported):
    await app.enqueue("no_such_task")
    await work_off(app)
    [(error, _)] = reported
    assert type(error).__name__ == "UnknownTask"


async def test_an_error_hook_that_raises_harms_nobody(app, reported, caplog):
    def broken_hook(error, job):
        raise RuntimeError("a defect of the hook")

    app.on_error.insert(0, broken_hook)
    handle, other = await app.enqueue("broken"), await app.enqueue("on_loop", 1)
    await work_off(app)
    assert (await handle.job()).state == State.DEAD
    assert await other.result(timeout=30) == 2
    assert len(reported) == 1
    assert "broken_hook" in caplog.text
    assert f"raised an exception for job {handle.id}: correct the hook" in caplog.text


async def test_an_error_in_a_thread_is_reported_on_the_loop(app):
    where = []
    app.on_error.append(lambda error, job: where.append(threading.current_thread()))

    @app.task(max_attempts=1)
    def bad() -> None:
        raise KeyError("no")

    await bad.enqueue()
    await work_off(app)
    assert where == [threading.main_thread()]
