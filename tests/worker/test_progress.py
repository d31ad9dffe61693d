"""What a running job says of itself: progress, checkpoints, meta."""

import asyncio

import pytest

from holdfast import Backoff, Context, Holdfast, State
from holdfast.store.reference.memory import MemoryStore
from holdfast.testing import ManualClock
from support.eventually import eventually
from support.inside import session_of
from support.workers import work_off, working


async def test_progress_is_seen_while_the_job_runs(app):
    gate = asyncio.Event()

    @app.task
    async def work(ctx: Context) -> None:
        ctx.progress(3, 10, "mixing")
        await gate.wait()

    handle = await work.enqueue()
    async with working(app):

        async def seen():
            return (await handle.job()).progress

        progress = await eventually(seen)
        assert (progress.done, progress.total, progress.note) == (3, 10, "mixing")
        gate.set()
        await handle.wait(timeout=30)


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_the_last_progress_is_kept_though_the_job_ends_right_after_it(app, kind):
    if kind == "async":

        @app.task
        async def work(ctx: Context) -> None:
            for done in range(1, 101):
                ctx.progress(done, 100)

    else:

        @app.task
        def work(ctx: Context) -> None:
            for done in range(1, 101):
                ctx.progress(done, 100)

    handle = await work.enqueue()
    await work_off(app)
    assert (await handle.job()).progress.done == 100


async def test_progress_costs_a_few_writes_a_second_at_most(app):
    written = []

    @app.task
    async def work(ctx: Context) -> None:
        for done in range(1000):
            ctx.progress(done, 1000)
            if done % 100 == 0:
                await asyncio.sleep(0.01)

    handle = await work.enqueue()
    await app.open()
    write = session_of(app).store.write

    async def counted(batch):
        written.extend(batch.notes)
        return await write(batch)

    session_of(app).store.write = counted
    await work_off(app)
    assert (await handle.job()).state == State.SUCCEEDED
    assert 1 <= len(written) <= 5


@pytest.mark.parametrize("wrong", [object(), "half", float("nan"), None])
async def test_progress_that_is_no_number_harms_at_most_its_own_job(app, wrong):
    @app.task(max_attempts=1)
    def work(ctx: Context) -> None:
        ctx.progress(wrong)

    handle, other = await work.enqueue(), await app.enqueue("noop")
    await work_off(app)
    assert (await other.job()).state == State.SUCCEEDED
    assert (await handle.job()).state in (State.SUCCEEDED, State.DEAD)


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_a_checkpoint_is_read_by_the_next_attempt(app, kind):
    seen = []

    if kind == "async":

        @app.task(retry=Backoff(base=0, jitter=0))
        async def work(ctx: Context) -> dict:
            seen.append(ctx.last_checkpoint)
            if ctx.attempt < 3:
                await ctx.checkpoint({"page": ctx.attempt})
                seen.append(ctx.last_checkpoint)
                raise RuntimeError("power cut")
            return ctx.last_checkpoint

    else:

        @app.task(retry=Backoff(base=0, jitter=0))
        def work(ctx: Context) -> dict:
            seen.append(ctx.last_checkpoint)
            if ctx.attempt < 3:
                ctx.checkpoint({"page": ctx.attempt})
                seen.append(ctx.last_checkpoint)
                raise RuntimeError("power cut")
            return ctx.last_checkpoint

    handle = await work.enqueue()
    await work_off(app)
    assert await handle.result(timeout=30) == {"page": 2}
    assert seen == [None, {"page": 1}, {"page": 1}, {"page": 2}, {"page": 2}]
    assert (await handle.job()).checkpoint == {"page": 2}


async def test_a_checkpoint_is_stored_once_it_was_awaited(app):
    @app.task
    async def work(ctx: Context) -> None:
        await ctx.checkpoint([1, 2])
        assert (await app.job(ctx.job.id)).checkpoint == [1, 2]

    handle = await work.enqueue()
    await work_off(app)
    assert (await handle.job()).state == State.SUCCEEDED


@pytest.mark.parametrize("wrong", [object(), float("nan"), "x" * 5000], ids=["object", "nan", "too large"])
async def test_a_checkpoint_that_cannot_be_kept_is_refused_where_it_is_made(make_app, wrong):
    app = make_app(max_payload=1000)

    @app.task(max_attempts=1)
    async def work(ctx: Context) -> str:
        try:
            await ctx.checkpoint(wrong)
        except ValueError as error:
            return type(error).__name__

    handle = await work.enqueue()
    await work_off(app)
    assert await handle.result(timeout=30) in ("InvalidJob", "PayloadTooLarge")


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_a_job_can_add_to_its_meta(app, kind):
    if kind == "async":

        @app.task
        async def work(ctx: Context) -> None:
            await ctx.update_meta(b=2, id=3)

    else:

        @app.task
        def work(ctx: Context) -> None:
            ctx.update_meta(b=2, id=3)

    handle = await work.using(meta={"a": 1, "b": 1}).enqueue()
    await work_off(app)
    assert (await handle.job()).meta == {"a": 1, "b": 2, "id": 3}


async def test_a_job_that_lost_its_claim_is_reported_when_it_says_something():
    clock = ManualClock()
    app = Holdfast(MemoryStore(clock), clock=clock)
    reported, entered, gate = [], asyncio.Event(), asyncio.Event()

    @app.task(max_attempts=1)
    async def work(ctx: Context) -> None:
        entered.set()
        await gate.wait()
        try:
            await ctx.checkpoint(1)
        except Exception as error:
            reported.append(type(error).__name__)
            raise

    async with app:
        handle = await work.enqueue()
        async with working(app):
            await asyncio.wait_for(entered.wait(), 90)
            await handle.mark_failed("a monitor's word")
            gate.set()
            await eventually(lambda: reported)
    assert reported == ["LeaseLost"]
