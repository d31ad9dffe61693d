"""Steps beside what ends the run: no run ends before what was done in it is remembered."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast import Backoff, Context, Holdfast, State
from holdfast.core.waiting import Waiting
from holdfast.store.reference.memory import MemoryStore
from holdfast.testing import ManualClock
from support.eventually import eventually
from support.workers import work_off, working

AT_ONCE = Backoff(base=0, jitter=0)


async def gathered(one, other):
    return await asyncio.gather(one, other)


async def gathered_the_other_way(one, other):
    second, first = await asyncio.gather(other, one)
    return [first, second]


async def grouped(one, other):
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one), group.create_task(other)]
    return [task.result() for task in tasks]


WAYS = [gathered, gathered_the_other_way, grouped]


class Slow:
    """A step that the test lets go on."""

    def __init__(self):
        self.ran, self.begun, self.go_on = 0, asyncio.Event(), asyncio.Event()

    async def run(self) -> str:
        self.ran += 1
        self.begun.set()
        await self.go_on.wait()
        return "receipt"


def names(job):
    return [step.name for step in job.steps if step.kind == "step"]


@pytest.mark.parametrize("way", WAYS)
async def test_a_step_beside_a_wait_runs_once_and_is_remembered(app, way):
    slow = Slow()

    @app.task
    async def work(ctx: Context) -> list:
        return await way(ctx.step("charge", slow.run), ctx.wait_for("approval"))

    handle = await work.enqueue()
    async with working(app):
        await asyncio.wait_for(slow.begun.wait(), 90)
        assert (await handle.job()).state == State.RUNNING
        slow.go_on.set()
        job = await eventually(lambda: resting(handle))
        assert (job.waiting_for, names(job)) == (Waiting("signal", "approval"), ["charge"])
        await app.signal("approval", "ann")
        assert await handle.result(30) == ["receipt", "ann"]
    assert slow.ran == 1


@pytest.mark.parametrize("way", WAYS)
async def test_a_step_beside_a_sleep_runs_once_and_is_remembered(way):
    clock, slow = ManualClock(), Slow()
    async with Holdfast(MemoryStore(clock), clock=clock) as app:

        @app.task
        async def work(ctx: Context) -> list:
            return await way(ctx.step("charge", slow.run), ctx.sleep(days=1))

        handle = await work.enqueue()
        slow.go_on.set()
        await work_off(app)
        assert names(await handle.job()) == ["charge"]
        clock.advance(86401)
        await work_off(app)
        assert (await handle.result(30), slow.ran) == (["receipt", None], 1)


async def test_a_sleep_that_is_over_when_the_step_beside_it_ends_is_no_pause():
    clock, slow = ManualClock(), Slow()
    async with Holdfast(MemoryStore(clock), clock=clock) as app:

        @app.task
        async def work(ctx: Context) -> list:
            return await asyncio.gather(ctx.step("charge", slow.run), ctx.sleep(60))

        handle = await work.enqueue()
        async with working(app):
            await eventually(lambda: len_of_steps(handle, 1))
            clock.advance(61)
            slow.go_on.set()
            assert await handle.result(30) == ["receipt", None]
        assert [line.outcome for line in (await handle.job()).history] == ["succeeded"]


async def test_steps_one_after_the_other_beside_a_wait_are_all_run(app):
    ran = []

    @app.task
    async def work(ctx: Context) -> None:
        async def three():
            for name in "abc":
                await ctx.step(name, ran.append, name)

        await asyncio.gather(three(), ctx.wait_for("go"))

    handle = await work.enqueue()
    await work_off(app)
    assert names(await handle.job()) == ran == ["a", "b", "c"]


async def test_a_step_that_is_asked_for_once_the_run_rests_is_left_to_the_next_run(app):
    ran, runs, go_on = [], [], asyncio.Event()

    @app.task
    async def work(ctx: Context) -> None:
        runs.append(ctx.fence)

        async def later():
            if len(runs) == 1:
                await go_on.wait()
            await ctx.step("late", ran.append, len(runs))

        work.beside = asyncio.create_task(later())
        await ctx.wait_for("go")
        await work.beside

    handle = await work.enqueue()
    await work_off(app)
    go_on.set()
    await asyncio.wait([work.beside])
    assert "waits for signal go" in str(work.beside.exception())
    await app.signal("go")
    await work_off(app)
    assert ((await handle.job()).state, ran) == (State.SUCCEEDED, [2])


async def test_a_step_in_a_thread_of_a_plain_task_runs_once_beside_its_sleep():
    clock, begun, go_on, ran = ManualClock(), threading.Event(), threading.Event(), []

    def charge() -> str:
        ran.append(1)
        begun.set()
        assert go_on.wait(90)
        return "receipt"

    async with Holdfast(MemoryStore(clock), clock=clock) as app:

        @app.task
        def work(ctx: Context) -> str:
            pool = ThreadPoolExecutor(1)
            charging = pool.submit(ctx.step, "charge", charge)
            if not ctx.job.steps:
                assert begun.wait(90)
            ctx.sleep(days=1)
            return charging.result()

        handle = await work.enqueue()
        async with working(app):
            await eventually(lambda: len_of_steps(handle, 1))  # it is about to sleep
            go_on.set()
            assert names(await eventually(lambda: resting(handle))) == ["charge"]
            clock.advance(86401)
            assert await handle.result(30) == "receipt"
    assert ran == [1]


async def test_a_step_that_fails_beside_a_wait_fails_the_attempt(app):
    ran = []

    def shaky() -> str:
        ran.append(1)
        if len(ran) == 1:
            raise OSError("no answer")
        return "receipt"

    @app.task(retry=AT_ONCE)
    async def work(ctx: Context) -> list:
        return await asyncio.gather(ctx.step("charge", shaky), ctx.wait_for("go"))

    handle = await work.enqueue()
    await work_off(app)
    job = await handle.job()
    assert [(line.number, line.outcome) for line in job.history] == [(1, "failed"), (2, "suspended")]
    assert job.history[1].error is None, "the error was that of the attempt before"
    assert names(job) == ["charge"]
    await app.signal("go", 7)
    await work_off(app)
    assert (await handle.result(30), len(ran)) == (["receipt", 7], 2)


async def test_a_step_beside_one_that_fails_is_remembered(app):
    slow, runs = Slow(), []

    async def shaky() -> None:
        await slow.begun.wait()
        runs.append(1)
        if len(runs) == 1:
            raise OSError("no answer")

    @app.task(retry=AT_ONCE)
    async def work(ctx: Context) -> str:
        return (await asyncio.gather(ctx.step("charge", slow.run), ctx.step("shaky", shaky)))[0]

    handle = await work.enqueue()
    async with working(app):
        await eventually(lambda: runs)
        slow.go_on.set()
        assert await handle.result(30) == "receipt"
    assert (slow.ran, len(runs)) == (1, 2)


async def test_a_worker_that_stops_meanwhile_gives_the_job_back(app):
    slow = Slow()

    @app.task
    async def work(ctx: Context) -> list:
        return await asyncio.gather(ctx.step("charge", slow.run), ctx.wait_for("go"))

    handle = await work.enqueue()
    async with working(app) as worker:
        await asyncio.wait_for(slow.begun.wait(), 90)
        worker.stop()
        worker.stop()  # twice: give everything back now
    job = await handle.job()
    assert (job.state, job.waiting_for, job.attempt, names(job)) == (State.QUEUED, None, 0, [])
    slow.go_on.set()
    await work_off(app)
    assert names(await handle.job()) == ["charge"]


async def test_two_parallel_waits_both_get_their_signals_in_either_order(app):
    @app.task
    async def work(ctx: Context) -> list:
        return await asyncio.gather(ctx.wait_for("a"), ctx.wait_for("b", timeout=600))

    handles = [await work.enqueue() for _ in range(2)]
    await work_off(app)
    await app.signal("b", 2)
    await work_off(app)
    await app.signal("a", 1)
    await work_off(app)
    assert [await handle.result(30) for handle in handles] == [[1, 2]] * 2


@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_a_step_cannot_sleep_or_wait(app, kind):
    refused, ran = [], []

    async def naps(ctx) -> None:
        ran.append(1)
        for rest in (ctx.sleep, ctx.wait_for):
            try:
                await asyncio.gather(asyncio.create_task(_called(rest)))
            except ValueError as error:
                refused.append(str(error))

    async def _called(rest):
        await rest(*(["go"] if rest.__name__ == "wait_for" else [1]))

    def naps_plainly(ctx) -> None:
        ran.append(1)
        for rest, what in ((ctx.sleep, 1), (ctx.wait_for, "go")):
            try:
                rest(what)
            except ValueError as error:
                refused.append(str(error))

    if kind == "async":

        @app.task
        async def work(ctx: Context) -> None:
            await ctx.step("nap", naps, ctx)

    else:

        @app.task
        def work(ctx: Context) -> None:
            ctx.step("nap", naps_plainly, ctx)

    handle = await work.enqueue()
    await work_off(app)
    assert (await handle.job()).state == State.SUCCEEDED
    assert (len(ran), [text.partition(": ")[0].removeprefix(f"a step of job {handle.id!r} ") for text in refused]) == (
        1,
        ["cannot sleep", "cannot wait for a signal"],
    )


async def resting(handle):
    """The job, once its run has ended by a sleep or a wait."""
    job = await handle.job()
    return job if job.state in (State.SCHEDULED, State.BLOCKED) else None


async def len_of_steps(handle, count):
    return len((await handle.job()).steps) >= count
