"""A claim that is cancelled, or a worker that is stopped, at each single step of its loop: nothing stays held. (N)

Here the loop is the test's own, so that every step can be met; on a store of several processes the steps are sampled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from holdfast import Holdfast, State, Worker

STEPS = 60


def some(chance) -> list[int]:
    """Moments of a store of several processes, where a step takes many turns of the loop."""
    return [chance.randrange(3000) for _ in range(STEPS)]


async def demand_nothing_held(app: Holdfast, step: int) -> None:
    await app.session.commit.drain()
    held = (await app.jobs(state="running")).jobs
    assert not held, f"after {step} steps: {held}"


async def test_a_claim_cancelled_at_any_step_is_received_or_given_back():
    await cancel_claims("memory://", range(STEPS))


async def test_a_claim_cancelled_at_some_step_is_received_or_given_back(store_url, chance):
    await cancel_claims(store_url, some(chance))


async def cancel_claims(url: str, moments: Iterable[int]) -> None:
    async with Holdfast(url) as app:
        id = (await app.submit("by_hand", b"{}", json=True)).id
        received = 0
        for step in moments:
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


async def test_a_worker_stopped_at_any_step_leaves_nothing_held():
    await stop_workers("memory://", range(STEPS))


async def test_a_worker_stopped_at_some_step_leaves_nothing_held(store_url, chance):
    await stop_workers(store_url, some(chance))


async def stop_workers(url: str, moments: Iterable[int]) -> None:
    async with Holdfast(url, poll=0.05) as app:
        starts = []

        @app.task
        async def short(n: int) -> None:
            starts.append(n)
            await asyncio.sleep(0)

        for step in moments:
            await app.enqueue_many([(short, n) for n in range(5)])
            worker = Worker(app, concurrency=2, grace=10.0)
            working = asyncio.create_task(worker.run())
            for _ in range(step):
                await asyncio.sleep(0)
            worker.stop()
            await asyncio.wait_for(working, 60.0)
            await demand_nothing_held(app, step)
        counts = (await app.stats()).counts
        assert counts[State.SUCCEEDED] == len(starts) > 0, "each job that started has finished"
        assert counts[State.SUCCEEDED] + counts[State.QUEUED] == 5 * STEPS
        page = await app.jobs(state="queued", limit=1000)
        assert {job.attempt for job in page.jobs} <= {0}, "a claim given back is not charged"
