"""Progress as an iterator, the estimated end, and many handles as their jobs end."""

import asyncio
from datetime import timedelta

import msgspec
import pytest

from holdfast import Context, Holdfast, InvalidJob, JobNotFound, as_completed
from holdfast.store.reference.memory import MemoryStore
from support.eventually import eventually
from support.workers import work_off, working


async def test_progress_is_iterated_until_the_end(app):
    go = asyncio.Event()

    @app.task
    async def work(ctx: Context) -> None:
        for done in range(1, 4):
            ctx.progress(done, 3, f"part {done}")
            await go.wait()
            go.clear()

    handle = await work.enqueue()
    progress = handle.progress()
    async with working(app):
        for done in range(1, 4):
            seen = await asyncio.wait_for(anext(progress), 30)
            assert (seen.done, seen.total, seen.note, seen.share) == (done, 3, f"part {done}", done / 3)
            go.set()
        assert [one async for one in progress] == []
    assert [one.done async for one in handle.progress()] == [3]  # a late reader gets the last one
    with pytest.raises(JobNotFound):
        await anext(app.handle("unknown").progress())


async def test_the_end_is_estimated_from_the_progress_by_the_clock_of_the_store(clocked):
    app, clock = clocked
    ends = []

    @app.task
    async def work(ctx: Context) -> None:
        handle = app.handle(ctx.job.id)
        ends.append((await handle.job()).estimated_end)
        clock.advance(60)
        ctx.progress(1, 4)
        await eventually(lambda: _progressed(handle))
        job = await handle.job()
        ends.append(job.estimated_end - job.started_at)
        for wrong in ({"done": 0.0, "total": 4.0}, {"done": 1.0}, {"done": 1e-300, "total": 1.0}):
            assert msgspec.structs.replace(job, progress=type(job.progress)(**wrong)).estimated_end is None

    handle = await work.enqueue()
    await work_off(app)
    assert ends == [None, timedelta(seconds=240)]
    assert (await handle.job()).estimated_end is None


async def _progressed(handle):
    return (await handle.job()).progress is not None


async def test_handles_come_in_the_order_in_which_their_jobs_end(app):
    gates = [asyncio.Event() for _ in range(5)]

    @app.task
    async def work(number: int) -> int:
        await gates[number].wait()
        if number == 3:
            raise ValueError
        return number

    handles = [await work.using(max_attempts=1).enqueue(number) for number in range(5)]
    found = []
    async with working(app):
        order = [3, 0, 4, 2, 1]
        gates[order[0]].set()
        async for handle in as_completed(handles):
            found.append(handles.index(handle))
            if len(found) < 5:
                gates[order[len(found)]].set()
    assert found == order


async def test_a_handle_without_a_job_and_a_timeout(app):
    @app.task
    async def work() -> None: ...

    handle = await work.enqueue()
    with pytest.raises(TimeoutError, match=r"1 of 1 jobs have not ended after 0.01 s; they were not cancelled"):
        [one async for one in as_completed([handle], timeout=0.01)]
    assert [one.id async for one in as_completed([app.handle("unknown")])] == ["unknown"]
    assert [one async for one in as_completed([])] == list(as_completed([])) == []
    with pytest.raises(InvalidJob, match="cannot wait for: use `async for`"):
        list(as_completed([handle]))
    with pytest.raises(InvalidJob, match="cannot wait for: use `for`"):
        [one async for one in as_completed([handle.sync])]
    with pytest.raises(InvalidJob, match="timeout"):
        as_completed([handle], timeout="soon")


def test_blocking_handles_as_their_jobs_end():
    app = Holdfast(MemoryStore())

    @app.task
    async def work(number: int) -> int:
        return number

    with app.sync:
        handles = [work.sync.enqueue(number) for number in range(4)]
        asyncio.run(work_off(app))
        found = list(as_completed(handles, timeout=30))
        assert sorted(handle.result() for handle in found) == [0, 1, 2, 3]
        assert set(map(id, found)) == set(map(id, handles))
        for handle in as_completed(handles):  # left half-way
            assert handle.result() in range(4)
            break
