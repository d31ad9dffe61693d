"""A completion that the store refuses, since another process ended the claim, is not reported as a success."""

import asyncio
import json

import pytest

from holdfast import LeaseLost, State
from holdfast.app import parts_of
from holdfast.observe.tally import Tally
from holdfast.webhooks.service import QUEUE, TASK
from support.eventually import eventually
from support.inside import session_of
from support.workers import working


async def by_a_worker(app):
    """Two jobs succeed, but the claim of the first has been ended by a monitor meanwhile; their ids."""
    given_up = asyncio.Event()

    @app.task
    async def work() -> str:
        await given_up.wait()
        return "done"

    async def renewed():
        """It runs, and the next heartbeat, which would report that the job is lost, is far away."""
        return [one for one in await session_of(app).store.holders() if one.heartbeat > 1 and one.jobs]

    async with working(app, concurrency=1, lease=300):
        taken, kept = [await work.enqueue() for _ in range(2)]
        await eventually(renewed)
        await app.handle(taken.id).mark_failed("given up")
        given_up.set()
        await kept.result(timeout=30)
    return taken.id, kept.id


async def by_hand(app):
    ids = [(await app.enqueue("work")).id for _ in range(2)]
    claims = {claim.job.id: claim for claim in await app.claim(limit=2)}
    await app.handle(ids[0]).mark_failed("given up")
    with pytest.raises(LeaseLost):
        await claims[ids[0]].complete("done")
    await claims[ids[1]].complete("done")
    return ids


@pytest.mark.parametrize("complete", [by_a_worker, by_hand])
async def test_a_refused_completion_is_no_success_in_events_webhooks_and_metrics(make_app, complete):
    app = make_app(secret="an app's secret")
    received, tally = [], Tally()
    for name in ("job_succeeded", "job_failed", "lease_lost"):
        app.on(name, received.append)
    tally.listen(parts_of(app).events)
    await app.pause(QUEUE)  # deliveries are made, and stay
    await app.webhooks.add("shop", "https://example.com/hook")
    taken, kept = await complete(app)

    assert [(await app.job(id)).state for id in (taken, kept)] == [State.FAILED, State.SUCCEEDED]
    assert [(event.name, event.job_id) for event in received if event.job_type == "work"] == [
        ("job_failed", taken),
        ("lease_lost", taken),
        ("job_succeeded", kept),
    ]
    assert tally.sums["holdfast_jobs_succeeded_total", "work"] == 1
    assert tally.sums["holdfast_jobs_failed_total", "work"] == 1
    assert tally.sums["holdfast_lease_rejected_total",] == 1
    assert ("holdfast_job_duration_seconds", "work", "succeeded", "sum") in tally.sums

    async def reported():
        messages = [json.loads(job.payload["message"]) for job in (await app.jobs(task=TASK)).jobs]
        ends = {(message["type"], message["data"]["job_id"]) for message in messages}
        return ends if wanted <= ends else None  # the deliveries are made independently of each other

    wanted = {("job_failed", taken), ("job_succeeded", kept)}
    assert await eventually(reported) == wanted
