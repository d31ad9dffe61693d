"""A job that sleeps gives its slot back, uncharged, and goes on behind it."""

import asyncio
from datetime import timedelta

import pytest

from holdfast import Backoff, Context, State
from support.workers import work_off

AT_ONCE = Backoff(base=0, jitter=0)
KINDS = ["async", "thread"]
DAY = 86400


def sleeper(app, kind, *args, **kwargs):
    ran = []
    if kind == "async":

        @app.task
        async def work(ctx: Context) -> str:
            ran.append(ctx.attempt)
            await ctx.step("before", int)
            try:
                await ctx.sleep(*args, **kwargs)
            except Exception as error:  # noqa: BLE001  # as tasks do
                return f"swallowed {error!r}"
            return "awake"

    else:

        @app.task
        def work(ctx: Context) -> str:
            ran.append(ctx.attempt)
            ctx.step("before", int)
            try:
                ctx.sleep(*args, **kwargs)
            except Exception as error:  # noqa: BLE001
                return f"swallowed {error!r}"
            return "awake"

    return work, ran


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("span", [{"days": 3}, {"hours": 71, "minutes": 60}, timedelta(days=3), 3 * DAY])
async def test_a_sleeping_job_gives_its_slot_back_and_goes_on_when_its_time_has_come(clocked, kind, span):
    app, clock = clocked
    work, ran = sleeper(app, kind, **span) if isinstance(span, dict) else sleeper(app, kind, span)
    handle = await work.enqueue()
    await work_off(app, concurrency=1)
    job = await handle.job()
    assert (job.state, job.attempt) == (State.SCHEDULED, 0)
    assert [(step.kind, step.name) for step in job.steps] == [("step", "before"), ("sleep", "1")]
    assert job.steps[1].until == job.run_at
    said = await app.explain(handle.id)
    assert said.reason.startswith(f"it sleeps until {job.run_at.isoformat(' ', 'seconds')} (in 3 d)")
    assert "1 step is done: before" in said.details
    clock.advance(3 * DAY - 1)
    await work_off(app)
    assert (await handle.job()).state == State.SCHEDULED
    clock.advance(1.01)
    await work_off(app)
    job = await handle.job()
    assert (job.result, job.attempt, ran) == ("awake", 1, [1, 1])
    assert [line.outcome for line in job.history] == ["snoozed", "succeeded"]


async def test_a_sleep_is_not_begun_anew_by_a_crash_a_failure_or_a_retry(clocked):
    app, clock = clocked

    @app.task(retry=Backoff(base=3600, jitter=0))
    async def work(ctx: Context) -> None:
        await ctx.sleep(hours=2)
        if ctx.attempt == 1:
            raise RuntimeError("power cut")
        await ctx.sleep(hours=2)

    handle = await work.enqueue()
    await work_off(app)
    began = (await handle.job()).created_at
    await app.retry(handle.id)  # an operator wakes it too early
    await work_off(app)
    clock.advance(2 * 3600 + 1)
    await work_off(app)
    assert (await handle.job()).state == State.FAILED
    clock.advance(3600)
    await work_off(app)
    job = await handle.job()
    assert job.state == State.SCHEDULED
    assert [round((step.until - began).total_seconds() / 3600) for step in job.steps] == [2, 5]
    assert [line.outcome for line in job.history] == ["snoozed", "snoozed", "failed", "snoozed"]


@pytest.mark.parametrize("wrong", [{"weekdays": 3}, {"days": "three"}, {"days": 10**12}, {"days": float("nan")}])
async def test_a_sleep_that_makes_no_sense_is_refused(app, wrong):
    @app.task(max_attempts=1)
    async def work(ctx: Context) -> None:
        await ctx.sleep(**wrong)

    handle = await work.enqueue()
    await work_off(app)
    job = await handle.job()
    assert (job.state, job.steps) == (State.DEAD, ())
    assert "InvalidJob: ctx.sleep" in job.error


async def test_no_sleep_at_all_is_no_pause(app):
    work, ran = sleeper(app, "async", seconds=0)
    handle = await work.enqueue()
    await work_off(app)
    assert (await handle.result(30), ran) == ("awake", [1])


async def test_a_sleep_in_a_task_group_is_a_sleep(app):
    @app.task
    async def work(ctx: Context) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(ctx.sleep(days=1))

    handle = await work.enqueue()
    await work_off(app)
    assert (await handle.job()).state == State.SCHEDULED


async def test_a_sleeping_job_can_be_cancelled(app):
    work, _ = sleeper(app, "async", days=1)
    handle = await work.enqueue()
    await work_off(app)
    assert await handle.cancel()
    assert (await handle.job()).state == State.CANCELLED
