"""Closing while others use the app, and first uses that were interrupted: the app goes on to work."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from holdfast import ConfigError, Holdfast, State, Worker
from support.eventually import eventually
from support.inside import session_of


async def test_a_use_during_close_opens_the_app_anew(make_app):
    app = make_app()
    await app.open()
    busy = [asyncio.create_task(app.enqueue("noop")) for _ in range(50)]
    await asyncio.sleep(0)
    closing = asyncio.create_task(app.close())
    await asyncio.sleep(0)
    late = asyncio.create_task(app.enqueue("noop"))
    await asyncio.gather(closing, late)
    await asyncio.gather(*busy, return_exceptions=True)
    await app.enqueue("noop")
    assert (await app.stats()).counts["queued"] >= 2


def test_a_first_use_that_was_cut_short_leaves_an_app_that_works_on_the_next_loop(app_url):
    app = Holdfast(app_url)

    async def cut_short() -> None:
        opening = asyncio.create_task(app.open())
        await asyncio.sleep(0)
        opening.cancel()

    asyncio.run(cut_short())
    for _ in range(2):
        asyncio.run(asyncio.wait_for(app.enqueue("noop"), 90))
    app.sync.close()


async def test_closing_the_app_stops_its_worker_first(make_app):
    app = make_app()
    handle = await app.enqueue("noop")
    working = asyncio.create_task(Worker(app).run())
    await handle.result(timeout=30)
    await app.close()
    assert working.done()
    await working


async def test_a_worker_that_is_cancelled_twice_still_gives_its_job_back(make_app):
    app = make_app()
    begun = asyncio.Event()

    @app.task
    async def stubborn() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0.05)

    handle = await stubborn.enqueue()
    working = asyncio.create_task(Worker(app).run())
    await asyncio.wait_for(begun.wait(), 90)
    working.cancel()
    await asyncio.sleep(0)
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    assert (await handle.job()).state != State.RUNNING
    assert not await app.workers()
    await asyncio.wait_for(app.close(), 90)


async def test_a_worker_stops_while_others_go_on_enqueueing(make_app):
    app = make_app()
    worker = Worker(app, ["other"], grace=0.1)
    working = asyncio.create_task(worker.run())
    await eventually(lambda: worker.holder)
    going = True

    async def produce() -> None:
        while going:
            await app.enqueue("noop")
            await asyncio.sleep(0)

    producers = [asyncio.create_task(produce()) for _ in range(4)]
    worker.stop()
    await asyncio.wait_for(working, 90)
    going = False
    await asyncio.gather(*producers)


LOST_LOOP = """
import asyncio, sys
from holdfast import Holdfast, State, Worker

url = f"sqlite:///{sys.argv[1]}?synchronous=normal"
app = Holdfast(url, lease=0.4, poll=0.05)

@app.task
async def endless() -> None:
    await asyncio.Event().wait()

async def begin() -> str:
    handle = await endless.enqueue()
    app.keep = asyncio.create_task(Worker(app).run())
    while (await handle.job()).state != State.RUNNING:
        await asyncio.sleep(0.01)
    return handle.id

async def recover(id) -> None:
    async with Holdfast(url) as other:
        while not await other.bulk.recover():
            await asyncio.sleep(0.01)
        print((await other.job(id)).state)

loop = asyncio.new_event_loop()
id = loop.run_until_complete(begin())
loop.close()
asyncio.run(recover(id))
"""


def test_the_claim_of_a_worker_whose_loop_is_gone_is_recovered(tmp_path):
    """In another process: the worker would capture the output of this one until its end."""
    command = [sys.executable, "-c", LOST_LOOP, str(tmp_path / "jobs.db")]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=90)
    assert done.stdout.split() == ["queued"]


async def test_a_call_that_outlives_its_session_is_reported_so_and_touches_no_store(app):
    await app.open()
    session = session_of(app)
    await app.close()
    await app.open()  # the same store, for another session
    with pytest.raises(ConfigError, match="closed, or opened on another event loop"):
        await session.store.stats()
    with pytest.raises(ConfigError, match="closed, or opened on another event loop"):
        await session.commit.insert([])
