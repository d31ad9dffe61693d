"""A claim by hand that waits for jobs, and all dead letters at once."""

import asyncio
import threading

import pytest

from holdfast import Discard, InvalidJob, State
from holdfast.app import parts_of
from support.eventually import eventually, still
from support.workers import work_off


async def test_a_claim_waits_for_the_first_job(app):
    await app.open()
    waiting = asyncio.create_task(app.claim("mail", wait=30))
    await still(lambda: not waiting.done())
    handle = await app.submit("t", b"x", queue="mail")
    [claim] = await asyncio.wait_for(waiting, 90)
    assert claim.job.id == handle.id


async def test_a_claim_that_waits_in_vain_is_empty(app):
    await app.open()
    begun = asyncio.get_running_loop().time()
    assert await app.claim(wait=0.05) == []
    assert asyncio.get_running_loop().time() - begun >= 0.05
    assert await asyncio.to_thread(lambda: app.sync.claim(wait=0.05)) == []


async def test_a_waiting_claim_finds_a_job_whose_lease_was_lost(make_app):
    app = make_app(poll=0.05)
    await app.submit("t", b"x")
    [lost] = await app.claim()
    waiting = asyncio.create_task(app.claim(wait=30))
    await parts_of(app).claims.leave([lost.holder.id])  # its lease ends now
    [held] = await asyncio.wait_for(waiting, 60)
    assert held.fence == lost.fence + 1


async def test_a_waiting_claim_that_is_cancelled_takes_nothing(app):
    waiting = asyncio.create_task(app.claim(wait=30))
    await asyncio.sleep(0.01)
    waiting.cancel()
    await asyncio.wait([waiting])
    await app.submit("t", b"x")
    assert len(await app.claim()) == 1


async def test_a_time_to_wait_is_a_number(app):
    with pytest.raises(InvalidJob, match="wait"):
        await app.claim(wait="long")


async def test_every_dead_job_runs_again_once(app):
    @app.task
    async def bad() -> None:
        raise Discard("no use")

    for queue in ("a", "a", "b"):
        await app.task(bad.fn, name="bad").using(queue=queue).enqueue()
    await work_off(app, queues=["a", "b"])
    assert await app.bulk.retry_dead(queue="b") == 1
    assert await app.bulk.retry_dead() == 2
    assert await app.bulk.retry_dead() == 0
    assert (await app.stats()).counts["queued"] == 3


async def test_a_claim_whose_caller_on_another_loop_was_cancelled_is_given_back(app):
    await app.submit("t", b"x", id="job")
    claimed, cancel = threading.Event(), threading.Event()
    app.on("lease_acquired", lambda _: claimed.set())

    async def claim_and_leave():
        claiming = asyncio.create_task(app.claim())
        await asyncio.sleep(0)
        claimed.wait(90)  # this loop hears of the answer only when it has cancelled the call
        cancel.wait(90)
        claiming.cancel()
        await asyncio.wait([claiming])
        return claiming.cancelled()

    calling = asyncio.create_task(asyncio.to_thread(asyncio.run, claim_and_leave()))
    await asyncio.to_thread(claimed.wait, 30)
    await asyncio.sleep(0)
    cancel.set()
    assert await calling

    async def waits_again():
        return (await app.job("job")).state == State.QUEUED

    await eventually(waits_again)
