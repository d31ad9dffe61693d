"""How a run ends: as it says itself, by its retry rule, by its timeout, or by being cancelled."""

import asyncio
import contextlib
import threading
import time
from datetime import UTC, datetime, timedelta

import pytest

from holdfast import Backoff, Context, Discard, Holdfast, Retry, Snooze, State
from holdfast.store.memory import MemoryStore
from holdfast.testing import ManualClock
from support.eventually import eventually
from support.workers import work_off, working


def waited(job):
    """Seconds from the end of the last attempt to the next."""
    return (job.run_at - job.history[-1].ended_at).total_seconds()


# -- Retry, Snooze, Discard


async def test_retry_asks_for_another_attempt_after_a_time(app):
    @app.task
    async def work() -> None:
        raise Retry("the printer is warming up", after=30)

    handle = await work.enqueue()
    await work_off(app)
    job = await handle.job()
    assert (job.state, job.attempt, job.error) == (State.FAILED, 1, "Retry: the printer is warming up")
    assert waited(job) == pytest.approx(30, abs=0.1)


@pytest.mark.parametrize(("after", "seconds"), [(timedelta(minutes=2), 120), (None, 10), (0.5, 0.5)])
async def test_retry_takes_seconds_a_timedelta_or_the_usual_backoff(make_app, after, seconds):
    app = make_app(retry_jitter=0)

    @app.task
    def work() -> None:
        raise Retry(after=after)

    handle = await work.enqueue()
    await work_off(app)
    assert waited(await handle.job()) == pytest.approx(seconds, abs=0.1)


async def test_retry_is_charged_and_ends_dead(app):
    runs = []

    @app.task(max_attempts=3)
    async def work() -> None:
        runs.append(1)
        raise Retry(after=0)

    handle = await work.enqueue()
    await work_off(app)
    job = await handle.job()
    assert (job.state, len(runs)) == (State.DEAD, 3)
    assert [line.outcome for line in job.history] == ["failed", "failed", "dead"]


@pytest.mark.parametrize(
    "until", [60, timedelta(minutes=1), "an aware datetime"], ids=["seconds", "timedelta", "aware datetime"]
)
async def test_snooze_comes_back_later_uncharged(app, until):
    @app.task
    def work() -> None:
        raise Snooze(until=datetime.now(UTC) + timedelta(minutes=1) if isinstance(until, str) else until)

    handle = await work.enqueue()
    await work_off(app)
    job = await handle.job()
    assert (job.state, job.attempt, job.error) == (State.SCHEDULED, 0, None)
    assert waited(job) == pytest.approx(60, abs=0.5)


async def test_snoozing_again_and_again_never_spends_the_attempts(app):
    runs = []

    @app.task(max_attempts=1)
    async def work() -> str:
        runs.append(1)
        if len(runs) < 10:
            raise Snooze(until=0)
        return "at last"

    handle = await work.enqueue()
    await work_off(app)
    assert await handle.result(timeout=1) == "at last"
    assert len(runs) == 10


async def test_snooze_refuses_a_naive_time(app):
    @app.task(max_attempts=1)
    async def work() -> None:
        raise Snooze(until=datetime(2090, 1, 1))  # noqa: DTZ001

    handle = await work.enqueue()
    await work_off(app)
    assert "needs an aware datetime" in (await handle.job()).error


async def test_discard_ends_dead_at_once(app):
    @app.task
    async def work() -> None:
        raise Discard("the customer is gone")

    handle = await work.enqueue()
    await work_off(app)
    job = await handle.job()
    assert (job.state, job.attempt, job.error) == (State.DEAD, 1, "Discard: the customer is gone")


class NotYet(Retry):
    """A user's own word for it."""


async def test_these_words_can_be_subclassed(app):
    @app.task
    async def work() -> None:
        raise NotYet("soon", after=5)

    handle = await work.enqueue()
    await work_off(app)
    assert waited(await handle.job()) == pytest.approx(5, abs=0.1)


STRANGE = [
    lambda: Retry(after="soon"),
    lambda: Retry(after=float("nan")),
    lambda: Retry(after=float("inf")),
    lambda: Retry(after=-5),
    lambda: Retry(after=1e300),
    lambda: Snooze(until="tomorrow"),
    lambda: Snooze(until=float("nan")),
    lambda: Snooze(until=1e300),
    lambda: Snooze(until=None),
    lambda: Snooze(until=datetime.max.replace(tzinfo=UTC)),
]


@pytest.mark.parametrize("strange", STRANGE)
async def test_a_time_that_is_none_harms_nobody_else(app, strange):
    @app.task(max_attempts=1)
    async def work() -> None:
        raise strange()

    handle, other = await work.enqueue(), await app.enqueue("noop")
    async with working(app, concurrency=1):
        assert await other.result(timeout=4) is None

        async def settled():
            return (await handle.job()).state != State.RUNNING

        await eventually(settled)
    assert (await handle.job()).state in (State.DEAD, State.SCHEDULED)


# -- retry rules


async def test_a_failure_waits_for_the_tasks_own_backoff(app):
    @app.task(retry=Backoff(base=7, factor=1, jitter=0))
    def work() -> None:
        raise RuntimeError("no")

    handle = await work.enqueue()
    await work_off(app)
    job = await handle.job()
    assert (job.state, job.error) == (State.FAILED, "RuntimeError: no")
    assert waited(job) == pytest.approx(7, abs=0.1)


async def test_a_rule_decides_per_exception_and_attempt(app):
    asked = []

    def rule(error, attempt):
        asked.append((type(error).__name__, attempt))
        return None if isinstance(error, KeyError) else 0

    @app.task(retry=rule)
    async def work(ctx: Context) -> None:
        raise ValueError("try again") if ctx.attempt < 3 else KeyError("give up")

    handle = await work.enqueue()
    await work_off(app)
    assert (await handle.job()).state == State.DEAD
    assert asked == [("ValueError", 1), ("ValueError", 2), ("KeyError", 3)]


async def test_a_rule_cannot_go_beyond_max_attempts(app):
    @app.task(retry=lambda error, attempt: 0, max_attempts=2)
    async def work() -> None:
        raise ValueError("no")

    handle = await work.enqueue()
    await work_off(app)
    job = await handle.job()
    assert (job.state, job.attempt) == (State.DEAD, 2)


@pytest.mark.parametrize("answer", ["soon", float("nan"), float("inf"), -1, 1e300, [1]])
async def test_a_rule_that_answers_nonsense_harms_nobody_else(app, answer):
    @app.task(retry=lambda error, attempt: answer)
    async def work() -> None:
        raise ValueError("no")

    handle, other = await work.enqueue(), await app.enqueue("noop")
    async with working(app, concurrency=1):
        assert await other.result(timeout=4) is None

        async def settled():
            return (await handle.job()).error is not None

        await eventually(settled)


async def test_a_rule_that_raises_falls_back_to_the_backoff(app):
    def rule(error, attempt):
        raise TypeError("a defect of the rule")

    @app.task(retry=rule)
    async def work() -> None:
        raise ValueError("no")

    handle = await work.enqueue()
    await work_off(app)
    job = await handle.job()
    assert (job.state, job.error) == (State.FAILED, "ValueError: no (and its retry rule raised TypeError)")


async def test_a_backoff_of_the_call_comes_before_the_tasks_rule(app):
    @app.task(retry=lambda error, attempt: 1000)
    async def work() -> None:
        raise ValueError("no")

    handle = await work.using(retry=Backoff(base=3, factor=1, jitter=0)).enqueue()
    await work_off(app)
    assert waited(await handle.job()) == pytest.approx(3, abs=0.1)


async def test_attempts_are_counted_and_every_one_is_remembered(app):
    @app.task(retry=Backoff(base=0, jitter=0), max_attempts=4)
    async def work(ctx: Context) -> int:
        if ctx.attempt < 4:
            raise ValueError(f"attempt {ctx.attempt}")
        return ctx.fence

    handle = await work.enqueue()
    await work_off(app)
    assert await handle.result(timeout=1) == 4
    job = await handle.job()
    assert [(line.number, line.outcome, line.error) for line in job.history] == [
        (1, "failed", "ValueError: attempt 1"),
        (2, "failed", "ValueError: attempt 2"),
        (3, "failed", "ValueError: attempt 3"),
        (4, "succeeded", None),
    ]
    assert (job.error, job.failures) == (None, 3)


# -- timeouts


async def test_an_async_task_is_interrupted_at_its_timeout(app):
    cleaned = []

    @app.task(timeout=0.1, max_attempts=1)
    async def slow() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            cleaned.append(1)

    handle = await slow.enqueue()
    await work_off(app)
    job = await handle.job()
    assert (job.state, job.error) == (State.DEAD, "TimeoutError: ran longer than its timeout of 0.1 s")
    assert "await asyncio.sleep(60)" in job.traceback, "where it was is worth knowing"
    assert cleaned == [1]


async def test_a_timeout_is_a_failure_like_any_other(app):
    runs = []

    @app.task(timeout=0.05, retry=Backoff(base=0, jitter=0))
    async def slow() -> str:
        runs.append(1)
        if len(runs) < 3:
            await asyncio.sleep(60)
        return "in time"

    handle = await slow.enqueue()
    await work_off(app)
    assert await handle.result(timeout=1) == "in time"


async def test_the_calls_timeout_comes_before_the_tasks(app):
    @app.task(timeout=60, max_attempts=1)
    async def slow() -> None:
        await asyncio.sleep(60)

    handle = await slow.using(timeout=0.05).enqueue()
    await work_off(app)
    assert "timeout of 0.05 s" in (await handle.job()).error


async def test_a_task_that_swallows_its_interruption_has_timed_out_all_the_same(app):
    @app.task(timeout=0.05, max_attempts=1)
    async def stubborn() -> str:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        return "as if nothing had happened"

    handle = await stubborn.enqueue()
    await work_off(app)
    assert (await handle.job()).state == State.DEAD


async def test_a_thread_keeps_its_slot_and_lease_until_it_really_ends(make_app):
    app = make_app(lease=0.3, poll=0.05)
    entered, gate = threading.Event(), threading.Event()

    @app.task(timeout=0.1, max_attempts=1)
    def block(ctx: Context) -> str:
        entered.set()
        while not ctx.cancelled:
            time.sleep(0.01)
        gate.wait(4)
        return "late"

    handle, waiting = await block.enqueue(), await app.enqueue("noop")
    async with working(app, concurrency=1):
        await eventually(entered.is_set)

        async def past_its_lease():
            seen = await app.session.store.holders()
            return bool(seen) and seen[0].beat >= 6

        await eventually(past_its_lease)
        assert (await handle.job()).state == State.RUNNING
        assert (await waiting.job()).state == State.QUEUED, "its slot is not free"
        gate.set()
        assert await waiting.result(timeout=4) is None
    job = await handle.job()
    assert (job.state, job.error) == (State.DEAD, "TimeoutError: ran longer than its timeout of 0.1 s")


async def test_a_job_that_ends_in_time_knows_nothing_of_its_timeout(app):
    @app.task(timeout=5)
    async def quick(ctx: Context) -> bool:
        return ctx.cancelled

    handle = await quick.enqueue()
    await work_off(app)
    assert await handle.result(timeout=1) is False


# -- cancelling what runs


@pytest.fixture
def brisk(make_app):
    """An app whose workers beat many times a second."""
    return make_app(lease=0.3, poll=0.05)


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
        await asyncio.wait_for(entered.wait(), 4)
        assert await handle.cancel() is True
        job = await handle.wait(timeout=4)
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
        await asyncio.wait_for(entered.wait(), 4)
        await handle.cancel()
        assert (await handle.wait(timeout=4)).state == State.CANCELLED
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
        assert (await handle.wait(timeout=4)).state == State.CANCELLED


async def test_a_thread_that_does_not_look_finishes_and_has_succeeded(brisk):
    entered, gate = threading.Event(), threading.Event()

    @brisk.task
    def slow() -> str:
        entered.set()
        gate.wait(4)
        return "done"

    handle = await slow.enqueue()
    async with working(brisk):
        await eventually(entered.is_set)
        await handle.cancel()

        async def heard():
            [seen] = await brisk.session.store.holders()
            return seen.beat

        since = await heard()

        async def two_beats_later():
            return await heard() >= since + 2

        await eventually(two_beats_later)
        gate.set()
        assert await handle.result(timeout=4) == "done"


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
        assert (await handle.wait(timeout=4)).state == State.CANCELLED


async def test_work_that_finished_first_stays_succeeded(make_app):
    app = make_app(lease=60)  # no heartbeat will carry the request in time

    entered, gate = asyncio.Event(), asyncio.Event()

    @app.task
    async def work() -> str:
        entered.set()
        await gate.wait()
        return "done"

    handle = await work.enqueue()
    async with working(app):
        await asyncio.wait_for(entered.wait(), 4)
        assert await handle.cancel() is True
        gate.set()
        job = await handle.wait(timeout=4)
    assert (job.state, job.result) == (State.SUCCEEDED, "done")


async def test_a_failure_after_a_request_to_cancel_is_not_retried(make_app):
    app = make_app(lease=60)
    entered, gate = asyncio.Event(), asyncio.Event()

    @app.task(retry=Backoff(base=0, jitter=0))
    async def work() -> None:
        entered.set()
        await gate.wait()
        raise RuntimeError("no")

    handle = await work.enqueue()
    async with working(app):
        await asyncio.wait_for(entered.wait(), 4)
        await handle.cancel()
        gate.set()
        job = await handle.wait(timeout=4)
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
        await asyncio.wait_for(entered.wait(), 4)
        await victim.cancel()
        assert (await victim.wait(timeout=4)).state == State.CANCELLED
        gate.set()
        assert await neighbour.result(timeout=4) == "undisturbed"


async def test_a_task_that_cancels_itself_has_failed(app):
    @app.task(max_attempts=1)
    async def odd() -> None:
        asyncio.current_task().cancel()
        await asyncio.sleep(1)

    handle, other = await odd.enqueue(), await app.enqueue("noop")
    await work_off(app)
    assert (await handle.job()).error.startswith("CancelledError")
    assert (await other.job()).state == State.SUCCEEDED


# -- claims that somebody else ended


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
        await asyncio.wait_for(entered.wait(), 4)
        await brisk.fail(handle.id, "a monitor's word")
        await eventually(lambda: interrupted)
        other = await brisk.enqueue("noop")
        assert await other.result(timeout=4) is None, "its slot is free again"
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
        await brisk.fail(handle.id, "a monitor's word")
        await eventually(seen.is_set)
    assert (await handle.job()).error == "a monitor's word"
    assert reported == []


# -- progress, checkpoints, meta


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
        await handle.wait(timeout=4)


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
    write = app.session.store.write

    async def counted(batch):
        written.extend(batch.notes)
        return await write(batch)

    app.session.store.write = counted
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
    assert await handle.result(timeout=1) == {"page": 2}
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
    assert await handle.result(timeout=1) in ("InvalidJob", "PayloadTooLarge")


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_a_job_can_add_to_its_meta(app, kind):
    if kind == "async":

        @app.task
        async def work(ctx: Context) -> None:
            await ctx.add_meta(b=2, id=3)

    else:

        @app.task
        def work(ctx: Context) -> None:
            ctx.add_meta(b=2, id=3)

    handle = await work.using(meta={"a": 1, "b": 1}).enqueue()
    await work_off(app)
    assert (await handle.job()).meta == {"a": 1, "b": 2, "id": 3}


async def test_a_job_that_lost_its_claim_is_told_when_it_says_something():
    clock = ManualClock()
    app = Holdfast(MemoryStore(clock), clock=clock)
    told, entered, gate = [], asyncio.Event(), asyncio.Event()

    @app.task(max_attempts=1)
    async def work(ctx: Context) -> None:
        entered.set()
        await gate.wait()
        try:
            await ctx.checkpoint(1)
        except Exception as error:
            told.append(type(error).__name__)
            raise

    async with app:
        handle = await work.enqueue()
        async with working(app):
            await asyncio.wait_for(entered.wait(), 4)
            await app.fail(handle.id, "a monitor's word")
            gate.set()
            await eventually(lambda: told)
    assert told == ["LeaseLost"]
