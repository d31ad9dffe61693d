"""How a run ends: as it says itself with Retry, Snooze and Discard, and by its retry rule."""

from datetime import UTC, datetime, timedelta

import pytest

from holdfast import Backoff, Context, Discard, Retry, Snooze, State
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
    assert await handle.result(timeout=30) == "at last"
    assert len(runs) == 10


async def test_snooze_refuses_a_naive_time(app):
    @app.task(max_attempts=1)
    async def work() -> None:
        raise Snooze(until=datetime(2090, 1, 1))  # noqa: DTZ001

    handle = await work.enqueue()
    await work_off(app)
    assert "needs a datetime with a time zone" in (await handle.job()).error


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
        assert await other.result(timeout=30) is None

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
        assert await other.result(timeout=30) is None

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
    assert (job.state, job.error) == (State.FAILED, "ValueError: no (and the retry rule of its task raised TypeError)")


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
    assert await handle.result(timeout=30) == 4
    job = await handle.job()
    assert [(line.number, line.outcome, line.error) for line in job.history] == [
        (1, "failed", "ValueError: attempt 1"),
        (2, "failed", "ValueError: attempt 2"),
        (3, "failed", "ValueError: attempt 3"),
        (4, "succeeded", None),
    ]
    assert (job.error, job.failures) == (None, 3)
