"""Limits at work: how many jobs of a key run, when the next may start, and what is said of those that wait."""

import asyncio
import threading
from collections import Counter

import pytest

from holdfast import ConfigError, Context, Retry, State, limit
from holdfast.core.waiting import Waiting
from holdfast.views import LimitInfo
from support.eventually import eventually, still
from support.workers import work_off, working


async def test_no_more_of_a_key_run_than_its_limit_says_and_the_rest_goes_on(app):
    now, most, ran = Counter(), Counter(), []

    @app.task(limit=limit(key="tenant", concurrency=2))
    async def work(tenant: str) -> None:
        now[tenant] += 1
        most[tenant] = max(most[tenant], now[tenant])
        ran.append(tenant)
        await asyncio.sleep(0.005)
        now[tenant] -= 1

    await app.enqueue_many([(work, "a")] * 12 + [(work, "b")] * 6 + [(work, "c")])
    await work_off(app, concurrency=16)
    assert most == {"a": 2, "b": 2, "c": 1}
    assert Counter(ran) == {"a": 12, "b": 6, "c": 1}
    assert "c" in ran[:5]


async def test_a_full_key_keeps_no_slot(app):
    release = asyncio.Event()

    @app.task(limit=limit(key="tenant", concurrency=1))
    async def work(tenant: str) -> None:
        if tenant == "a":
            await release.wait()

    async with working(app, concurrency=2):
        await app.enqueue_many([(work, "a")] * 5)
        others = await app.enqueue_many([(work, f"b{n}") for n in range(5)])
        for handle in others:
            await handle.wait(timeout=30)
        release.set()


async def test_a_limit_of_a_queue_applies_to_all_its_tasks(make_app):
    app = make_app(queue_limits={"mail": limit(concurrency=1)})
    running, most = 0, 0

    async def work() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.005)
        running -= 1

    one, two = app.task(work, name="one", queue="mail"), app.task(work, name="two", queue="mail")
    await app.enqueue_many([(one,), (two,)] * 4)
    await work_off(app)
    assert most == 1


async def test_a_rate_spreads_the_starts(app):
    starts = []

    @app.task(limit=limit(rate="20/s", burst=2))
    async def work(ctx: Context) -> None:
        starts.append(ctx.job.started_at)

    async with working(app):
        handles = await app.enqueue_many([(work,)] * 6)
        for handle in handles:
            await handle.wait(timeout=30)
    starts.sort()
    for first in range(6):
        for last in range(first + 1, 6):
            span = (starts[last] - starts[first]).total_seconds()
            assert last - first + 1 <= 2 + span * 20 + 1e-6, "more than the burst and what the rate adds in that time"


@pytest.mark.parametrize("in_thread", [False, True], ids=["async", "in a thread"])
async def test_a_task_may_slow_its_key_for_everyone(app, in_thread):
    ran = []

    async def call(ctx: Context, tenant: str) -> None:
        ran.append(tenant)
        if tenant == "slow":
            await ctx.report_rate_limit(retry_after=600)
            raise Retry("429", after=600)

    def call_in_thread(ctx: Context, tenant: str) -> None:
        ran.append(tenant)
        if tenant == "slow":
            ctx.report_rate_limit(retry_after=600)
            raise Retry("429", after=600)

    task = app.task(call_in_thread if in_thread else call, name="call", limit=limit(key="tenant", concurrency=1))
    async with working(app, concurrency=4):
        held = await app.enqueue_many([(task, "slow")] * 3)
        others = await app.enqueue_many([(task, f"{n}") for n in range(3)])
        for handle in others:
            await handle.wait(timeout=30)
        await eventually(lambda: _state(held[0], State.FAILED))
        await still(lambda: ran.count("slow") == 1)
    assert [(await handle.job()).state for handle in held] == [State.FAILED, State.BLOCKED, State.BLOCKED]
    said = await app.explain(held[1].id)
    assert said.details[0] == "it starts at the next claim, unless a task has reported a rate limit that still applies"


async def test_a_limit_key_that_was_slowed_goes_on_when_the_time_is_over(app):
    ran = []

    @app.task(limit=limit(concurrency=1))
    async def call(ctx: Context, n: int) -> None:
        ran.append(n)
        if n == 0:
            await ctx.report_rate_limit(retry_after=0.1)

    async with working(app):
        handles = await app.enqueue_many([(call, n) for n in range(3)])
        for handle in handles:
            await handle.wait(timeout=30)
    assert ran == [0, 1, 2]


async def test_a_job_of_no_limit_key_cannot_be_slowed_down(app):
    @app.task(max_attempts=1)
    async def call(ctx: Context) -> None:
        with pytest.raises(ConfigError, match="has no limit, so its starts cannot be paused: give the task a limit="):
            await ctx.report_rate_limit(retry_after=5)

    handle = await call.enqueue()
    await work_off(app)
    await handle.result(timeout=30)


async def test_how_long_to_slow_down_is_checked(app):
    @app.task(limit=limit(concurrency=1), max_attempts=1)
    async def call(ctx: Context, seconds: float) -> None:
        await ctx.report_rate_limit(retry_after=seconds)

    for seconds, says in (
        (-1, "retry_after must be a number of seconds above 0"),
        (86401, "retry_after=…) must be at most 86400 seconds"),
    ):
        handle = await call.enqueue(seconds)
        await work_off(app)
        assert says in (await handle.job()).error
    handle = await call.enqueue(1_700_000_000)  # a date, by mistake: the limit key goes on
    await work_off(app)
    assert (await handle.job()).state == State.DEAD


# -- what is said


async def test_a_job_says_what_its_limit_key_waits_for(app):
    release = threading.Event()

    @app.task(limit=limit(key="tenant", concurrency=2))
    def work(tenant: int) -> None:
        release.wait(90)

    async with working(app, concurrency=4):
        handles = await app.enqueue_many([(work, 42)] * 4)
        await eventually(lambda: _state(handles[2], State.BLOCKED))
        said = await app.explain(handles[2].id)
        job = await handles[2].job()
        release.set()
        for handle in handles:
            await handle.wait(timeout=30)
    assert said.reason == "it waits for its limit key 'work/42', with 2 of 2 jobs running"
    assert {handles[0].id, handles[1].id} == set(
        said.details[0].removeprefix("running under its limit key: ").split(", ")
    )
    assert (job.limits, job.waiting_for) == ((LimitInfo("work", "42"),), Waiting("limit", "work/42"))
    assert (await handles[0].job()).limits == (LimitInfo("work", "42"),)


async def test_a_job_says_how_often_its_limit_key_may_start(app):
    @app.task(limit=limit(rate="2/min", burst=3))
    async def work() -> None: ...

    handles = await app.enqueue_many([(work,)] * 5)
    await work_off(app)
    said = await app.explain(handles[4].id)
    assert said.reason == "it waits for its limit key 'work', with one start every 30 s, 3 at once after an idle time"
    assert said.details[0].startswith("it starts when its rate allows it, at the next claim")


async def test_a_job_with_a_later_fair_position_is_ready(app):
    @app.task(limit=limit(key="tenant"))
    async def work(tenant: int) -> None: ...

    handles = await app.enqueue_many([(work, 1)] * 2000)
    said = await app.explain(handles[-1].id)
    assert (said.state, said.reason) == ("queued", "no worker is alive")


async def _state(handle, state):
    return (await handle.job()).state == state
