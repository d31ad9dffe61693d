"""A claim that is cancelled, or a worker that is stopped, at each single step of its loop: nothing stays held. (N)

Here the loop is the test's own, so that every step can be met; on a store of several processes the steps are sampled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from holdfast import Holdfast, State, Worker
from support.inside import session_of

STEPS = 60
JOBS = 5


async def moments(app: Holdfast, chance, done: Callable[[], bool]) -> Sequence[int]:
    """When to interrupt: at every step in memory; else at some, from here until twice as late as it is `done`."""
    turns = 0
    while not done():
        await asyncio.sleep(0)
        turns += 1
    return (
        range(STEPS) if session_of(app).store.name == "memory" else [chance.randrange(2 * turns) for _ in range(STEPS)]
    )


async def demand_nothing_held(app: Holdfast, step: int) -> None:
    await session_of(app).commit.drain()
    held = (await app.jobs(state="running")).jobs
    assert not held, f"after {step} steps: {held}"


async def test_a_claim_cancelled_in_memory_is_received_or_given_back(chance):
    await cancel_claims("memory://", chance)


async def test_a_claim_cancelled_on_a_shared_store_is_received_or_given_back(store_url, chance):
    await cancel_claims(store_url, chance)


async def cancel_claims(url: str, chance) -> None:
    async with Holdfast(url) as app:
        id = (await app.submit("by_hand", b"{}", json=True)).id
        undisturbed = asyncio.create_task(app.claim())
        steps = await moments(app, chance, undisturbed.done)
        [claim] = await undisturbed
        await claim.release()
        received = 0
        for step in steps:
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


async def test_a_worker_stopped_in_memory_leaves_no_claims(chance):
    await stop_workers("memory://", chance)


async def test_a_worker_stopped_on_a_shared_store_leaves_no_claims(store_url, chance):
    await stop_workers(store_url, chance)


async def stop_workers(url: str, chance) -> None:
    async with Holdfast(url, poll=0.05) as app:
        starts = []

        @app.task
        async def short(n: int) -> None:
            starts.append(n)
            await asyncio.sleep(0)

        async def start() -> tuple[Worker, asyncio.Task]:
            await app.enqueue_many([(short, n) for n in range(JOBS)])
            worker = Worker(app, concurrency=2, grace=10.0)
            return worker, asyncio.create_task(worker.run())

        async def stop(worker: Worker, working: asyncio.Task) -> None:
            worker.stop()
            await asyncio.wait_for(working, 60.0)

        undisturbed = await start()
        steps = await moments(app, chance, lambda: len(starts) == JOBS)
        await stop(*undisturbed)
        for step in steps:
            started = await start()
            for _ in range(step):
                await asyncio.sleep(0)
            await stop(*started)
            await demand_nothing_held(app, step)
        counts = (await app.stats()).counts
        assert counts[State.SUCCEEDED] == len(starts) > JOBS, "each job that started has finished"
        assert counts[State.SUCCEEDED] + counts[State.QUEUED] == JOBS * (len(steps) + 1)
        page = await app.jobs(state="queued", limit=1000)
        assert {job.attempt for job in page.jobs} <= {0}, "a claim given back is not charged"
