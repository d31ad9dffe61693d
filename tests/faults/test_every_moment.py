"""A claim that is cancelled, or a worker that is stopped, at each single step of its loop: nothing stays held. (N)

Here the loop is the test's own, so that every step can be met; on a store of several processes the steps are sampled.
"""

from __future__ import annotations

import asyncio

import pytest

from holdfast import Holdfast, State, Worker

STEPS = 60


@pytest.fixture(params=["memory", "shared"])
def url(request):
    return "memory://" if request.param == "memory" else request.getfixturevalue("store_url")


def moments(url: str, chance) -> list[int]:
    return list(range(STEPS)) if url == "memory://" else [chance.randrange(3000) for _ in range(STEPS)]


async def demand_nothing_held(app: Holdfast, step: int) -> None:
    await app.session.commit.drain()
    held = (await app.jobs(state="running")).jobs
    assert not held, f"after {step} steps: {held}"


async def test_a_claim_cancelled_at_any_step_is_received_or_given_back(url, chance):
    async with Holdfast(url) as app:
        id = (await app.submit("by_hand", b"{}", json=True)).id
        received = 0
        for step in moments(url, chance):
            claiming = asyncio.create_task(app.claim())
            for _ in range(step):
                await asyncio.sleep(0)
            claiming.cancel()
            try:
                claims = await claiming
            except asyncio.CancelledError:
                claims = []
            for claim in claims:
                received += 1
                await claim.release()
            await demand_nothing_held(app, step)
            assert (await app.job(id)).attempt == 0, f"after {step} steps: charged for a claim that was never received"
        assert received, "no claim was ever received: the steps end too early to show anything"


async def test_a_worker_stopped_at_any_step_leaves_nothing_held(url, chance):
    async with Holdfast(url, poll=0.05) as app:
        starts = []

        @app.task
        async def short(n: int) -> None:
            starts.append(n)
            await asyncio.sleep(0)

        for step in moments(url, chance):
            await app.enqueue_many([(short, n) for n in range(5)])
            worker = Worker(app, concurrency=2, grace=10.0)
            working = asyncio.create_task(worker.run())
            for _ in range(step):
                await asyncio.sleep(0)
            worker.stop()
            await asyncio.wait_for(working, 20.0)
            await demand_nothing_held(app, step)
        counts = (await app.stats()).counts
        assert counts[State.SUCCEEDED] == len(starts) > 0, "each job that started has finished"
        assert counts[State.SUCCEEDED] + counts[State.QUEUED] == 5 * STEPS
        page = await app.jobs(state="queued", limit=1000)
        assert {job.attempt for job in page.jobs} <= {0}, "a claim given back is not charged"
