"""Cancelling running jobs, and claims that another process ended."""

import asyncio
import threading
import time

import pytest

from holdfast import Backoff, Context, State
from holdfast.store.protocol import Batch
from holdfast.store.reference.memory import MemoryStore
from holdfast.testing.build import cancellation
from holdfast.worker.lease import Leases
from support.eventually import eventually
from support.inside import session_of
from support.workers import work_off, working

# -- cancelling what runs


async def has_renewed(app):
    """Whether the worker's heartbeat has beaten: before its first claim, nothing else makes it known."""
    return await app.workers()


@pytest.fixture
def brisk(make_app):
    """An app whose workers beat many times a second."""
    return make_app(lease=0.9, poll=0.05)


@pytest.fixture
def no_hints(monkeypatch):
    """Every notification about a cancellation is lost."""
    monkeypatch.setattr(Leases, "watch", lambda self, heartbeat_soon: None)


async def test_a_lost_notification_only_delays_a_cancellation(brisk, no_hints):
    entered = asyncio.Event()

    @brisk.task
    async def slow() -> None:
        entered.set()
        await asyncio.Event().wait()

    handle = await slow.enqueue()
    async with working(brisk):
        await asyncio.wait_for(entered.wait(), 90)
        await handle.cancel()
        assert (await handle.wait(timeout=30)).state == State.CANCELLED


async def test_a_notification_without_a_cancellation_stops_nothing(make_app):
    app, entered, gate = make_app(MemoryStore(), lease=3600), asyncio.Event(), asyncio.Event()

    @app.task
    async def work() -> str:
        entered.set()
        await gate.wait()
        return "undisturbed"

    handle = await work.enqueue()
    async with working(app):
        await asyncio.wait_for(entered.wait(), 90)
        store = session_of(app).store

        async def heartbeats():
            return (await store.holders())[0].heartbeat

        since = await heartbeats()

        async def renewed():
            store.notify_all()
            return await heartbeats() > since + 1

        await eventually(renewed)
        gate.set()
        assert await handle.result(timeout=30) == "undisturbed"


async def test_a_job_is_cancelled_whose_claim_has_not_arrived_yet(make_app):
    """The heartbeat after the notification reports a claim whose job has not begun here."""
    app, answered, gate, entered = make_app(lease=3600), asyncio.Event(), asyncio.Event(), []

    @app.task
    async def work() -> None:
        entered.append(1)
        await asyncio.Event().wait()

    async with working(app):
        await eventually(lambda: has_renewed(app))
        store = session_of(app).store
        write = store.write

        async def late(batch):
            answers = await write(batch)
            if any(claims.records for claims in answers.asks):
                answered.set()
                await gate.wait()
            return answers

        store.write = late
        enqueuing = asyncio.create_task(work.using(id="late").enqueue())  # it may share the write of the claim
        await asyncio.wait_for(answered.wait(), 90)
        store.write = write
        record = (await store.get(["late"]))[0]
        [before] = await store.holders()
        await write(Batch(changes=[cancellation(record)]))

        async def heartbeat_answered():
            return (await store.holders())[0].heartbeat > before.heartbeat

        await eventually(heartbeat_answered)
        gate.set()
        assert (await (await enqueuing).wait(timeout=30)).state == State.CANCELLED
    assert len(entered) <= 1


async def test_a_new_job_with_the_id_of_a_cancelled_one_runs(make_app):
    """Its claim may have the same fence as that of the job before it."""
    app, entered = make_app(lease=3600), asyncio.Event()

    @app.task
    async def work(wait: bool) -> str:
        entered.set()
        if wait:
            await asyncio.Event().wait()
        return "done"

    async with working(app):
        await eventually(lambda: has_renewed(app))
        handle = await work.using(id="x").enqueue(True)
        await asyncio.wait_for(entered.wait(), 90)
        await handle.cancel()
        assert (await handle.wait(timeout=30)).state == State.CANCELLED
        await app.delete("x")
        assert await (await work.using(id="x").enqueue(False)).result(timeout=30) == "done"


async def test_a_job_that_waits_for_a_signal_is_cancelled_at_once(make_app):
    app = make_app(lease=3600)

    @app.task
    async def ask(ctx: Context) -> str:
        return await ctx.wait_for("answer")

    handle = await ask.enqueue()
    async with working(app):

        async def waits():
            return (await handle.job()).waiting_for is not None

        await eventually(waits)
        assert await handle.cancel() is True
        job = await handle.job()
        assert (job.state, job.error) == (State.CANCELLED, "cancelled while it waited")
        assert await app.signal("answer", "late") == 0


async def test_a_thread_hears_of_a_cancellation_long_before_the_next_heartbeat(make_app):
    app, entered = make_app(lease=3600), threading.Event()

    @app.task
    def slow(ctx: Context) -> None:
        entered.set()
        while not ctx.cancelled:
            time.sleep(0.01)

    async with working(app):
        await eventually(lambda: has_renewed(app))
        handle = await slow.enqueue()
        await eventually(entered.is_set)
        await handle.cancel()
        assert (await handle.wait(timeout=30)).state == State.CANCELLED


async def test_a_stopping_worker_still_cancels_what_runs(make_app):
    app, entered = make_app(lease=3600), asyncio.Event()

    @app.task
    async def slow() -> None:
        entered.set()
        await asyncio.Event().wait()

    handle = await slow.enqueue()
    async with working(app, grace=60) as worker:
        await asyncio.wait_for(entered.wait(), 90)
        worker.stop()
        await handle.cancel()
        assert (await handle.wait(timeout=30)).state == State.CANCELLED


async def test_cancelling_interrupts_an_async_task(brisk):
    entered, cleaned = asyncio.Event(), []

    @brisk.task
    async def slow() -> None:
        entered.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cleaned.append(1)
            raise

    handle = await slow.enqueue()
    async with working(brisk):
        await asyncio.wait_for(entered.wait(), 90)
        assert await handle.cancel() is True
        job = await handle.wait(timeout=30)
    assert (job.state, job.error, cleaned) == (State.CANCELLED, "cancelled while running", [1])
    assert job.history[-1].outcome == "cancelled"


async def test_a_cancelled_task_may_take_its_time_to_clean_up(brisk):
    entered, cleaned = asyncio.Event(), []

    @brisk.task
    async def slow() -> None:
        entered.set()
        try:
            await asyncio.sleep(60)
        finally:
            for step in range(5):
                await asyncio.sleep(0.1)  # several heartbeats pass
                cleaned.append(step)

    handle = await slow.enqueue()
    async with working(brisk):
        await asyncio.wait_for(entered.wait(), 90)
        await handle.cancel()
        assert (await handle.wait(timeout=30)).state == State.CANCELLED
    assert cleaned == [0, 1, 2, 3, 4], "it is interrupted once, not at every heartbeat"


async def test_cancelling_reaches_a_thread_that_looks(brisk):
    entered = threading.Event()

    @brisk.task
    def slow(ctx: Context) -> str:
        entered.set()
        while not ctx.cancelled:
            time.sleep(0.01)
        return "stopped by itself"

    handle = await slow.enqueue()
    async with working(brisk):
        await eventually(entered.is_set)
        await handle.cancel()
        assert (await handle.wait(timeout=30)).state == State.CANCELLED


async def test_a_thread_that_does_not_look_finishes_and_has_succeeded(brisk):
    entered, gate = threading.Event(), threading.Event()

    @brisk.task
    def slow() -> str:
        entered.set()
        gate.wait(90)
        return "done"

    handle = await slow.enqueue()
    async with working(brisk):
        await eventually(entered.is_set)
        await handle.cancel()

        async def received():
            [seen] = await session_of(brisk).store.holders()
            return seen.heartbeat

        since = await received()

        async def two_heartbeats_later():
            return await received() >= since + 2

        await eventually(two_heartbeats_later)
        gate.set()
        assert await handle.result(timeout=30) == "done"


async def test_a_thread_that_stops_with_an_exception_is_cancelled(brisk):
    entered = threading.Event()

    @brisk.task
    def slow(ctx: Context) -> None:
        entered.set()
        while not ctx.cancelled:
            time.sleep(0.01)
        raise RuntimeError("stopped")

    handle = await slow.enqueue()
    async with working(brisk):
        await eventually(entered.is_set)
        await handle.cancel()
        assert (await handle.wait(timeout=30)).state == State.CANCELLED


async def test_work_that_finished_first_stays_succeeded(make_app, no_hints):
    app = make_app(lease=60)  # after its first, no heartbeat will carry the request in time
    entered, gate = asyncio.Event(), asyncio.Event()

    @app.task
    async def work() -> str:
        entered.set()
        await gate.wait()
        return "done"

    async with working(app):
        await eventually(lambda: has_renewed(app))
        handle = await work.enqueue()
        await asyncio.wait_for(entered.wait(), 90)
        assert await handle.cancel() is True
        gate.set()
        job = await handle.wait(timeout=30)
    assert (job.state, job.result) == (State.SUCCEEDED, "done")


async def test_a_failure_after_a_request_to_cancel_is_not_retried(make_app, no_hints):
    app = make_app(lease=60)
    entered, gate = asyncio.Event(), asyncio.Event()

    @app.task(retry=Backoff(base=0, jitter=0))
    async def work() -> None:
        entered.set()
        await gate.wait()
        raise RuntimeError("no")

    async with working(app):
        await eventually(lambda: has_renewed(app))
        handle = await work.enqueue()
        await asyncio.wait_for(entered.wait(), 90)
        await handle.cancel()
        gate.set()
        job = await handle.wait(timeout=30)
    assert (job.state, job.attempt) == (State.CANCELLED, 1)


async def test_other_jobs_of_the_worker_do_not_notice(brisk):
    entered = asyncio.Event()
    gate = asyncio.Event()

    @brisk.task
    async def slow() -> None:
        entered.set()
        await asyncio.sleep(60)

    @brisk.task
    async def other() -> str:
        await gate.wait()
        return "undisturbed"

    victim, neighbour = await slow.enqueue(), await other.enqueue()
    async with working(brisk):
        await asyncio.wait_for(entered.wait(), 90)
        await victim.cancel()
        assert (await victim.wait(timeout=30)).state == State.CANCELLED
        gate.set()
        assert await neighbour.result(timeout=30) == "undisturbed"


async def test_a_task_that_cancels_itself_has_failed(app):
    @app.task(max_attempts=1)
    async def odd() -> None:
        asyncio.current_task().cancel()
        await asyncio.sleep(1)

    handle, other = await odd.enqueue(), await app.enqueue("noop")
    await work_off(app)
    assert (await handle.job()).error.startswith("CancelledError")
    assert (await other.job()).state == State.SUCCEEDED


# -- claims that another process ended


async def test_a_task_whose_claim_was_ended_is_interrupted_and_does_not_count(brisk):
    entered, interrupted, reported = asyncio.Event(), [], []
    brisk.on_error.append(lambda error, job: reported.append(error))

    @brisk.task
    async def slow() -> str:
        entered.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            interrupted.append(1)
        return "too late"

    handle = await slow.enqueue()
    async with working(brisk):
        await asyncio.wait_for(entered.wait(), 90)
        await handle.mark_failed("a monitor's word")
        await eventually(lambda: interrupted)
        other = await brisk.enqueue("noop")
        assert await other.result(timeout=30) is None, "its slot is free again"
    job = await handle.job()
    assert (job.state, job.error, job.result) == (State.FAILED, "a monitor's word", None)
    assert reported == [], "to be stopped is no error of the task"


async def test_a_thread_whose_claim_was_ended_sees_it(brisk):
    entered, seen, reported = threading.Event(), threading.Event(), []
    brisk.on_error.append(lambda error, job: reported.append(error))

    @brisk.task
    def slow(ctx: Context) -> None:
        entered.set()
        while not ctx.cancelled:
            time.sleep(0.01)
        seen.set()
        raise RuntimeError("stopped")

    handle = await slow.enqueue()
    async with working(brisk):
        await eventually(entered.is_set)
        await handle.mark_failed("a monitor's word")
        await eventually(seen.is_set)
    assert (await handle.job()).error == "a monitor's word"
    assert reported == []
