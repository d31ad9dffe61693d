"""Expiry: what is not started in time is not started any more, and everybody can see it."""

from datetime import UTC, datetime, timedelta

import pytest

from holdfast import Context, InvalidJob, JobCancelled, State
from holdfast.app import parts_of
from holdfast.store.reference.memory import MemoryStore
from holdfast.testing import ManualClock
from support.workers import work_off


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def app(clock, make_app):
    app = make_app(MemoryStore(clock), clock=clock)
    ran = app.ran = []

    @app.task
    async def send(to: str) -> str:
        ran.append(to)
        return to

    return app


@pytest.fixture
def send(app):
    return parts_of(app).registry.tasks["send"]


async def test_in_time_it_runs(app, send, clock):
    handle = await send.using(expires=60).enqueue("ann")
    clock.advance(59)
    await work_off(app)
    assert await handle.result() == "ann"


@pytest.mark.parametrize("seconds", [60, timedelta(minutes=1)])
async def test_too_late_it_is_cancelled_without_a_run(app, send, clock, seconds):
    reported = []
    app.on("job_expired", reported.append)
    handle = await send.using(expires=seconds).enqueue("ann")
    clock.advance(60)
    await work_off(app)
    job = await handle.job()
    assert (job.state, job.attempt, app.ran) == (State.CANCELLED, 0, [])
    assert job.error == f"expired: the job did not start before {job.expires_at.isoformat(' ', 'milliseconds')}"
    assert [line.outcome for line in job.history] == ["cancelled"]
    assert [event.job_id for event in reported] == [handle.id]
    assert [(one.outcome, one.count) for one in await app.timeseries.stats_by_minute(3600)] == [("expired", 1)]
    with pytest.raises(JobCancelled, match="expired: the job did not start before"):
        await handle.result()


async def test_an_aware_time_may_be_given_instead(app, send, clock):
    at = datetime.fromtimestamp(clock.now() / 1_000_000, UTC) + timedelta(minutes=5)
    kept, late = await send.using(expires=at).enqueue("ann"), await send.using(expires=at, delay=400).enqueue("bob")
    assert (await kept.job()).expires_at == at
    await work_off(app)
    clock.advance(400)
    await work_off(app)
    assert app.ran == ["ann"]
    assert (await late.job()).state == State.CANCELLED


@pytest.mark.parametrize("ago", [timedelta(0), timedelta(days=9999)])
async def test_a_time_that_is_past_is_refused(app, send, clock, ago):
    at = datetime.fromtimestamp(clock.now() / 1_000_000, UTC) - ago
    for enqueue in (
        lambda: send.using(expires=at).enqueue("ann"),
        lambda: app.submit("send", b"{}", expires=at),
        lambda: app.enqueue_many([send.using(expires=at).call("ann")]),
    ):
        with pytest.raises(InvalidJob, match=r"task 'send': expires=.* is in the past"):
            await enqueue()
    assert (await app.jobs()).jobs == []


async def test_a_task_may_say_it_for_all_its_jobs(app, clock):
    @app.task(expires=60)
    async def poll() -> None:
        app.ran.append("poll")

    first = await poll.enqueue()
    clock.advance(61)
    await work_off(app)
    assert (await first.job()).state == State.CANCELLED
    assert app.ran == []


async def test_a_retry_that_comes_too_late_is_not_made(app, send, clock):
    handle = await send.using(expires=60).enqueue("ann")
    [claim] = await app.claim()
    await claim.fail("not today", retry_in=120)
    clock.advance(120)
    await work_off(app)
    job = await handle.job()
    assert (job.state, job.attempt) == (State.CANCELLED, 1)
    assert [line.outcome for line in job.history] == ["failed", "cancelled"]


async def test_what_has_saved_a_checkpoint_began_in_time_and_goes_on(app, clock):
    @app.task
    async def crawl(ctx: Context) -> str:
        if ctx.last_checkpoint is None:
            await ctx.checkpoint("page 1")
            raise ConnectionError("the site is down")
        return "all pages"

    handle = await app.enqueue(crawl.using(expires=60))
    await work_off(app)
    assert (await handle.job()).state == State.FAILED
    clock.advance(3600)
    await work_off(app)
    assert await handle.result() == "all pages"


async def test_claims_by_hand_do_not_get_it(app, send, clock):
    late = await send.using(expires=60).enqueue("ann")
    clock.advance(61)
    assert await app.claim() == []
    assert (await late.job()).error.startswith("expired:")
    await send.using(expires=60).enqueue("late")
    clock.advance(61)
    fine = await send.enqueue("bob")
    [claim] = await app.claim()
    assert claim.job.id == fine.id


async def test_a_retry_removes_the_expiry(app, send, clock):
    handle = await send.using(expires=60).enqueue("ann")
    clock.advance(61)
    await work_off(app)
    await app.retry(handle.id)
    await work_off(app)
    assert await handle.result() == "ann"
    assert (await handle.job()).expires_at is None


async def test_a_replaced_job_expires_from_the_last_call_on(app, send, clock):
    save = send.using(key="k", debounce=10, expires=60)
    first = await save.enqueue("ann")
    created = (await first.job()).created_at
    clock.advance(50)
    await save.enqueue("bob")
    assert (await first.job()).expires_at == created + timedelta(seconds=110)


async def test_the_runs_of_a_schedule_expire_as_its_task_says(app, clock):
    @app.cron(every=3600)
    @app.task(expires=60)
    async def tick() -> None:
        app.ran.append("tick")

    with pytest.raises(InvalidJob, match="or a run can expire before it is due"):
        await app.schedules.put("slow", tick, every=3600, jitter=90)
    await app.schedules.declare()
    clock.advance(3600)
    await app.schedules.make_due_runs()
    clock.advance(61)
    await work_off(app)
    assert app.ran == []
    assert [job.error[:8] for job in (await app.jobs(state="cancelled")).jobs] == ["expired:"]


async def test_explain_says_when(app, send, clock):
    handle = await send.using(expires=60).enqueue("ann")
    said = await app.explain(handle.id)
    assert any("it expires if it has not started before" in line for line in said.details)
    clock.advance(61)
    late = (await app.explain(handle.id)).details
    assert any("cancelled when it is next claimed" in line for line in late)
    assert not any("it expires if" in line for line in late)
    await work_off(app)
    assert any(line.startswith("expired:") for line in (await app.explain(handle.id)).details)
