"""Timeouts: a coroutine is interrupted, a thread keeps its slot until it ends."""

import asyncio
import contextlib
import threading
import time

from holdfast import Backoff, Context, State
from support.eventually import eventually
from support.inside import session_of
from support.workers import work_off, working


async def test_an_async_task_is_interrupted_at_its_timeout(app):
    cleaned = []

    @app.task(timeout=0.1, max_attempts=1)
    async def slow() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            cleaned.append(1)

    handle = await slow.enqueue()
    await work_off(app)
    job = await handle.job()
    assert (job.state, job.error) == (State.DEAD, "TimeoutError: ran longer than its timeout of 0.1 s")
    assert "await asyncio.sleep(60)" in job.traceback, "where it was is worth knowing"
    assert cleaned == [1]


async def test_a_timeout_is_a_failure_like_any_other(app):
    runs = []

    @app.task(timeout=0.05, retry=Backoff(base=0, jitter=0))
    async def slow() -> str:
        runs.append(1)
        if len(runs) < 3:
            await asyncio.sleep(60)
        return "in time"

    handle = await slow.enqueue()
    await work_off(app)
    assert await handle.result(timeout=30) == "in time"


async def test_the_calls_timeout_comes_before_the_tasks(app):
    @app.task(timeout=60, max_attempts=1)
    async def slow() -> None:
        await asyncio.sleep(60)

    handle = await slow.using(timeout=0.05).enqueue()
    await work_off(app)
    assert "timeout of 0.05 s" in (await handle.job()).error


async def test_a_task_that_swallows_its_interruption_has_timed_out_all_the_same(app):
    @app.task(timeout=0.05, max_attempts=1)
    async def stubborn() -> str:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        return "as if nothing had happened"

    handle = await stubborn.enqueue()
    await work_off(app)
    assert (await handle.job()).state == State.DEAD


async def test_a_thread_keeps_its_slot_and_lease_until_it_really_ends(make_app):
    app = make_app(lease=0.9, poll=0.05)
    entered, gate = threading.Event(), threading.Event()

    @app.task(timeout=0.1, max_attempts=1)
    def block(ctx: Context) -> str:
        entered.set()
        while not ctx.cancelled:
            time.sleep(0.01)
        gate.wait(90)
        return "late"

    handle, waiting = await block.enqueue(), await app.enqueue("noop")
    async with working(app, concurrency=1):
        await eventually(entered.is_set)

        async def past_its_lease():
            seen = await session_of(app).store.holders()
            return bool(seen) and seen[0].heartbeat >= 6

        await eventually(past_its_lease)
        assert (await handle.job()).state == State.RUNNING
        assert (await waiting.job()).state == State.QUEUED, "its slot is not free"
        gate.set()
        assert await waiting.result(timeout=30) is None
    job = await handle.job()
    assert (job.state, job.error) == (State.DEAD, "TimeoutError: ran longer than its timeout of 0.1 s")


async def test_a_job_that_ends_in_time_knows_nothing_of_its_timeout(app):
    @app.task(timeout=5)
    async def quick(ctx: Context) -> bool:
        return ctx.cancelled

    handle = await quick.enqueue()
    await work_off(app)
    assert await handle.result(timeout=30) is False
