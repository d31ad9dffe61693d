"""Edits of a waiting job, clones of any job, and retries at a rate."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from holdfast import (
    Flow,
    InvalidJob,
    InvalidState,
    JobNotFound,
    KeyConflict,
    PayloadTooLarge,
    QueueFull,
    State,
    Worker,
    limit,
)
from holdfast.app import parts_of
from holdfast.client import bulk_change
from holdfast.client.search import Filter
from holdfast.core.clock import MICROS
from support.dead_jobs import make_dead
from support.inside import session_of
from support.workers import work_off


@pytest.fixture
def ran(app):
    return []


@pytest.fixture
def tasks(app, ran):
    @app.task
    def add(one: int, two: int = 2) -> int:
        ran.append((one, two))
        return one + two

    @app.task(limit=limit(concurrency=1, key="customer"))
    def limited(customer: str) -> None: ...

    return parts_of(app).registry.tasks


async def test_a_waiting_job_gets_other_arguments_time_priority_and_queue(app, tasks, ran):
    async with app:
        job = await tasks["add"].using(delay=600, tags=["t"], meta={"a": 1}).enqueue(1)
        edited = await job.edit(args={"one": 5, "two": 6}, queue="fast", priority=-7)
        assert (edited.payload, edited.queue, edited.priority) == ({"one": 5, "two": 6}, "fast", -7)
        assert (edited.state, edited.tags, edited.meta) == (State.SCHEDULED, ("t",), {"a": 1})
        later = datetime.now(UTC) + timedelta(hours=2)
        assert abs((await job.edit(at=later)).run_at - later) < timedelta(minutes=1)
        assert (await job.edit(args=[7], delay=0)).state == State.QUEUED
        await Worker(app, queues=["fast"], until_idle=True).run()
        assert (ran, await job.result()) == ([(7, 2)], 9)


async def test_a_job_that_has_started_or_ended_is_not_edited(app, tasks, ran):
    async with app:
        job = await tasks["add"].enqueue(1)
        [claim] = await app.claim()
        with pytest.raises(InvalidState, match="it has started, so it was not edited"):
            await job.edit(args=[9])
        await claim.complete(3)
        with pytest.raises(InvalidState, match="only a waiting job can be edited"):
            await job.edit(priority=1)
        with pytest.raises(JobNotFound):
            await app.handle("no-such-job").edit(priority=1)
        assert (await job.job()).payload == {"one": 1}


async def test_a_job_that_starts_during_its_edit_keeps_its_arguments(app, tasks):
    """The edit was decided before the claim: the store refuses it, and the next decision too."""
    async with app:
        job = await tasks["add"].enqueue(1)
        session = session_of(app)
        change, claims = session.commit.change, []

        async def claimed_first(changes):
            if not claims:
                claims.extend(await app.claim())
            return await change(changes)

        session.commit.change = claimed_first
        with pytest.raises(InvalidState, match="it has started"):
            await job.edit(args=[9])
        session.commit.change = change
        assert claims[0].job.payload == (await job.job()).payload == {"one": 1}


@pytest.mark.parametrize(
    ("edits", "why"),
    [
        ({}, "nothing to edit"),
        ({"args": {"three": 3}}, "unexpected keyword argument"),
        ({"args": ["text"]}, "one"),
        ({"args": "text"}, "args= must be a list"),
        ({"args": {1: 2}}, "args= must be a list"),
        ({"queue": "a\nb"}, "queue"),
        ({"priority": 99999}, "priority"),
        ({"delay": 1, "at": 1.0}, "either delay= or at="),
    ],
)
async def test_an_edit_is_checked_like_an_enqueue(app, tasks, edits, why):
    async with app:
        job = await tasks["add"].using(queue="slow").enqueue(1)
        before = await job.job()
        with pytest.raises(InvalidJob, match=why):
            await job.edit(**edits)
        assert await job.job() == before


async def test_a_large_edit_is_refused(make_app):
    app = make_app(max_payload=100)

    @app.task
    def work(text: str) -> None: ...

    async with app:
        job = await work.enqueue("a")
        with pytest.raises(PayloadTooLarge):
            await job.edit(args=["a" * 200])
        assert (await job.job()).payload == {"text": "a"}


async def test_a_job_is_not_moved_into_a_full_queue(make_app):
    app = make_app(max_depth=1)

    @app.task
    async def noop() -> None: ...

    async with app:
        await noop.using(queue="full").enqueue()
        job = await noop.enqueue()
        with pytest.raises(QueueFull, match="full"):
            await job.edit(queue="full")
        assert (await job.job()).queue == "default"
        assert (await job.edit(queue="default", priority=3)).priority == 3  # it is there already
        assert (await job.edit(queue="free")).queue == "free"


async def test_the_key_of_an_edited_job_stays_that_of_its_call(app, tasks):
    async with app:
        job = await tasks["add"].using(key="k").enqueue(1)
        await job.edit(args=[5])
        assert (await tasks["add"].using(key="k").enqueue(1)).id == job.id
        with pytest.raises(KeyConflict):
            await tasks["add"].using(key="k").enqueue(5)


async def test_an_edit_does_not_change_the_limit_of_a_job(app, tasks, make_app):
    async with app:
        job = await tasks["limited"].enqueue("ann")
        with pytest.raises(InvalidJob, match="cannot change its limit"):
            await job.edit(args=["bob"])
        assert (await job.edit(args={"customer": "ann"}, priority=5)).priority == 5
        copy = await job.clone(args=["bob"])
        assert [one.key for one in (await copy.job()).limits] == ["bob"]
        other = make_app(session_of(app).store.sibling())  # knows no task, as a command without -A
        async with other:
            with pytest.raises(InvalidJob, match="is not registered here"):
                await other.handle(job.id).edit(args={"customer": "ann"})
            assert (await other.handle(job.id).edit(priority=6)).priority == 6
            copied = await other.handle(job.id).clone()
            assert (await copied.job()).limits == (await job.job()).limits


async def test_a_blocked_job_keeps_what_it_waits_for(app, tasks):
    async with app:
        flow = Flow("f")
        first = flow.add(tasks["add"], 1)
        flow.add(tasks["add"], first)
        handle = await app.enqueue_flow(flow)
        blocked = app.handle(f"{handle.id}.1")
        assert (await blocked.edit(priority=3)).state == State.BLOCKED
        with pytest.raises(InvalidState, match="it waits for"):
            await blocked.edit(delay=5)
        with pytest.raises(InvalidJob, match="results of other jobs"):
            await blocked.edit(args=[1])
        with pytest.raises(InvalidJob, match="give args="):
            await blocked.clone()
        assert (await (await blocked.clone(args=[1])).job()).flow is None
        with pytest.raises(InvalidJob, match="internal"):
            await app.handle(handle.id).edit(priority=1)


@pytest.mark.parametrize(("limit", "said"), [("expires", "it expires at"), ("deadline", "its deadline is at")])
async def test_an_edit_beyond_the_expiry_or_deadline_is_refused(app, tasks, limit, said):
    async with app:
        job = await tasks["add"].using(**{limit: 60}).enqueue(1)
        with pytest.raises(InvalidJob, match=said):
            await job.edit(delay=120)
        assert (await job.edit(delay=30)).state == State.SCHEDULED


async def test_a_refused_job_with_corrected_arguments_is_due(app, make_app):
    @app.task
    def work(number: int) -> int:
        return number

    async with app:
        job = await app.submit("work", b'{"number": "text"}', json=True)
        await work_off(app)
        refused = await app.job(job.id)
        if refused.state == State.SCHEDULED:  # refused; a dead one is retried instead
            assert (await job.edit(args={"number": 3})).state == State.QUEUED
            await work_off(app)
            assert await job.result() == 3


async def test_a_clone_has_the_options_of_its_original_but_not_its_key(app, tasks):
    async with app:
        wanted = {"queue": "q", "priority": 4, "max_attempts": 2, "timeout": 9.0, "tags": ["t"], "meta": {"a": 1}}
        job = await tasks["add"].using(**wanted, key="k", expires=60).enqueue(1)
        await app.cancel(job.id)
        copy = await (await job.clone()).job()
        assert (copy.payload, copy.task, copy.state, copy.attempt) == ({"one": 1}, "add", State.QUEUED, 0)
        assert (copy.queue, copy.priority, copy.max_attempts, copy.timeout, copy.tags) == ("q", 4, 2, 9.0, ("t",))
        assert (copy.key, copy.expires_at, copy.meta) == (None, None, {"a": 1, "cloned_from": job.id})
        other = await (await job.clone(args=[3], queue="z", delay=60, key="k2", meta={"b": 2})).job()
        assert (other.payload, other.queue, other.state, other.key) == ({"one": 3}, "z", State.SCHEDULED, "k2")
        assert other.meta == {"b": 2, "cloned_from": job.id}
        assert (await job.clone(args=[3], queue="z", key="k2")).id == other.id
        with pytest.raises(InvalidJob):
            await job.clone(args=["text"])
        result = await job.clone(args=[20])
        await Worker(app, queues=["q", "z", "default"], until_idle=True).run()
        assert await result.result() == 22


async def test_a_clone_has_the_limit_and_stall_timeout_of_the_call(app, tasks):
    async with app:
        plain = tasks["add"].using(limit=limit(concurrency=1), stall_timeout=9)
        job = await plain.enqueue(1)
        copy, other = await (await job.clone()).job(), await (await job.clone(args=[2])).job()
        assert copy.limits == other.limits == (await job.job()).limits != ()
        assert copy.stall_timeout == other.stall_timeout == 9
        keyed = await tasks["add"].using(limit=limit(concurrency=1, key="one")).enqueue(1)
        assert (await (await keyed.clone(queue="q")).job()).limits == (await keyed.job()).limits
        with pytest.raises(InvalidJob, match="a limit= of its own"):
            await keyed.clone(args=[2])
        given = await keyed.clone(args=[2], limit=limit(concurrency=1, key="one"))
        assert [one.key for one in (await given.job()).limits] == ["2"]


async def test_a_clone_in_another_queue_has_the_limit_of_that_queue(make_app):
    app = make_app(queue_limits={"mail": limit(concurrency=1)})

    @app.task
    def send() -> None: ...

    async with app:
        job = await send.using(queue="mail").enqueue()
        assert [one.name for one in (await (await job.clone()).job()).limits] == ["#mail"]
        assert (await (await job.clone(queue="other")).job()).limits == ()


# -- at a rate


async def due_times(app, ids):
    return sorted([(await app.job(id)).run_at for id in ids])


async def test_a_pickled_callable_is_moved_and_cloned_but_its_arguments_stay(make_app):
    app = make_app(cloudpickle=True, secret="a long random text")
    handle = await app.using(delay=600).enqueue(lambda n: n * 3, 2)
    job = await handle.edit(priority=-1, queue="soon", delay=0)
    assert (job.priority, job.queue, job.state) == (-1, "soon", State.QUEUED)
    clone = await handle.clone()
    for change in (handle.edit, handle.clone):
        for edits in ({"args": [3]}, {"args": {"n": 3}}):
            with pytest.raises(InvalidJob, match="stored as 'cloudpickle', which args= cannot replace"):
                await change(**edits)
    await work_off(app, queues=["soon"])
    assert (await handle.result(timeout=30), await clone.result(timeout=30)) == (6, 6)


@pytest.mark.parametrize(("rate", "spacing"), [(10, 0.1), ("10/s", 0.1), ("30/m", 2.0), ("1800/h", 2.0)])
async def test_dead_jobs_become_due_at_a_rate(app, monkeypatch, rate, spacing):
    monkeypatch.setattr(bulk_change, "PAGE", 10)
    async with app:
        ids = await make_dead(app, 25)
        assert await app.bulk.retry_dead(rate=rate) == 25
        times = await due_times(app, ids)
        gaps = [(after - before).total_seconds() for before, after in pairwise(times)]
        assert min(gaps) >= spacing - 1e-5
        assert (times[-1] - times[0]).total_seconds() >= 24 * spacing - 1e-3
        states = [(await app.job(id)).state for id in ids]
        assert states.count(State.QUEUED) == 1
        assert states.count(State.SCHEDULED) == 24
        assert {(await app.job(id)).attempt for id in ids} == {0}


async def test_steps_continue_a_rate(app, monkeypatch):
    monkeypatch.setattr("holdfast.client.bulk.CHANGE_LIMIT", 10)
    async with app:
        ids = await make_dead(app, 25)
        cursor, spaced = None, 0
        while True:
            done = await app.bulk.change("retry", Filter(state="dead"), rate=1, spaced=spaced, cursor=cursor)
            spaced, cursor = spaced + done.changed, done.cursor
            if cursor is None:
                break
        times = await due_times(app, ids)
        assert (times[-1] - times[0]).total_seconds() >= 24 - 1e-3
        assert min(after - before for before, after in pairwise(times)) >= timedelta(seconds=0.999)


async def test_retried_at_a_rate_is_an_event_and_the_jobs_run(app):
    seen = []
    app.on("job_retried", seen.append)
    async with app:
        ids = await make_dead(app, 5)
        await app.bulk.retry_dead(rate=1000)
        assert {event.job_id for event in seen} == set(ids)
        last = max([(await app.job(id)).run_at for id in ids])
        while await session_of(app).store.now() < int(last.timestamp() * MICROS):
            pass
        await work_off(app)
        assert {(await app.job(id)).state for id in ids} == {State.SUCCEEDED}


@pytest.mark.parametrize(
    "rate",
    [0, -1, True, "10", "ten/s", "10/d", 1e9, pytest.param(10**400, id="huge"), float("nan"), "nan/s", None.__class__],
)
async def test_wrong_rates_are_refused(app, rate):
    async with app:
        await make_dead(app, 1)
        if rate == "10":  # a text without a unit is not a rate
            rate = "10/"
        with pytest.raises(InvalidJob, match="rate must be"):
            await app.bulk.retry_dead(rate=rate)
        with pytest.raises(InvalidJob):
            await app.bulk.change("cancel", Filter(state="dead"), rate=10)
        assert (await app.stats()).counts["dead"] == 1
