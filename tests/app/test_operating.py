"""Cancel, retry, fail, delete, annotate, pause, resume and purge."""

import asyncio
from datetime import timedelta

import pytest

from holdfast import HoldfastError, InvalidJob, InvalidState, JobNotFound, LeaseLost, State
from holdfast.app import parts_of
from holdfast.store.reference.memory import MemoryStore
from holdfast.testing import ManualClock
from support.ids import words
from support.inside import session_of
from support.workers import work_off


@pytest.fixture
def app(make_app):
    app = make_app()

    @app.task
    def good() -> str:
        return "fine"

    @app.task(max_attempts=1)
    def bad() -> None:
        raise RuntimeError("no")

    return app


@pytest.fixture
def task(app):
    return lambda name: parts_of(app).registry.tasks[name]


@pytest.fixture
async def ended(app, task):
    good, bad = await task("good").enqueue(), await task("bad").enqueue()
    await work_off(app)
    return {"succeeded": good, "dead": bad}


@pytest.fixture
async def running(app):
    """A claim by hand of a job named `job`."""
    await app.submit("work", b"", id="job", queue="hand")
    [claim] = await app.claim("hand")
    return claim


NO_SUCH_JOB = {
    "job": lambda app: app.job("none"),
    "cancel": lambda app: app.cancel("none"),
    "retry": lambda app: app.retry("none"),
    "delete": lambda app: app.delete("none"),
    "fail": lambda app: app.handle("none").mark_failed("lost"),
    "update_meta": lambda app: app.handle("none").update_meta(a=1),
    "wait": lambda app: app.handle("none").wait(90),
    "result": lambda app: app.handle("none").result(30),
}


@pytest.mark.parametrize("call", NO_SUCH_JOB.values(), ids=NO_SUCH_JOB)
async def test_a_job_that_there_is_not_is_not_found(app, call):
    with pytest.raises(JobNotFound, match="no job 'none' in this store") as refused:
        await call(app)
    assert refused.value.job_id == "none"


WRONG = {
    "output": lambda app: app.handle(["job"]).output(),
    "position": lambda app: app.handle("job").output(-1),
    "transitions": lambda app: app.timeseries.transitions(object()),
    "ids": lambda app: app.bulk.change("retry", ids=7),
    "an id": lambda app: app.bulk.change("retry", ids=[["job"]]),
}


@pytest.mark.parametrize("call", WRONG.values(), ids=WRONG)
async def test_what_makes_no_sense_is_refused(app, call):
    with pytest.raises(InvalidJob):
        await call(app)


# -- cancel


@pytest.mark.parametrize("options", [{}, {"delay": 60}], ids=["queued", "scheduled"])
async def test_cancelling_a_waiting_job_ends_it_at_once(app, task, options):
    handle = await task("good").using(**options).enqueue()
    assert await app.cancel(handle.id) is True
    job = await handle.job()
    assert (job.state, job.error) == (State.CANCELLED, "cancelled before it ran")
    assert job.finished_at is not None
    await work_off(app)
    assert (await handle.job()).attempt == 0


async def test_cancelling_a_job_between_attempts_ends_it(app, running):
    await running.fail("try again later")
    assert await app.cancel("job") is True
    job = await app.job("job")
    assert (job.state, job.error) == (State.CANCELLED, "cancelled while it waited")
    assert [line.outcome for line in job.history] == ["failed"]


async def test_cancelling_an_ended_job_changes_nothing_and_says_so(app, ended):
    for state, handle in ended.items():
        before = await handle.job()
        assert await handle.cancel() is False
        assert await handle.job() == before
        assert before.state == state


async def test_cancelling_a_running_job_twice_is_as_good_as_once(app, running):
    assert await app.cancel("job") is True
    assert await app.cancel("job") is True, "it has not ended"
    assert (await app.job("job")).cancel_requested


async def test_a_cancellation_reads_the_job_once(app, running, monkeypatch):
    """Each read before the request is written delays it."""
    store, reads = session_of(app).store, []
    get = store.get
    monkeypatch.setattr(store, "get", lambda ids: reads.append(ids) or get(ids))
    await app.cancel("job")
    assert reads == [["job"]]


async def test_of_many_cancellations_at_once_none_fails(app, task):
    handle = await task("good").enqueue()
    answers = await asyncio.gather(*(handle.cancel() for _ in range(20)))
    assert answers.count(True) == 1
    assert (await handle.job()).state == State.CANCELLED


# -- retry


async def test_retrying_a_dead_job_raises_its_reset_count(app, ended):
    handle = ended["dead"]
    before = await handle.job()
    job = await app.retry(handle.id)
    assert (job.state, job.attempt, job.reset_count, job.error, job.traceback) == (State.QUEUED, 0, 1, None, None)
    assert job.history == before.history
    await work_off(app)
    again = await handle.job()
    assert (again.state, again.attempt, again.reset_count) == (State.DEAD, 1, 1)
    assert [(line.reset_count, line.outcome) for line in again.history] == [(0, "dead"), (1, "dead")]
    assert again.failures == 1, "since the reset"
    assert again.fence > before.fence


async def test_retrying_a_succeeded_job_runs_it_again(app, ended):
    handle = ended["succeeded"]
    assert (await app.retry(handle.id)).result is None
    await work_off(app)
    assert await handle.result(timeout=30) == "fine"
    assert (await handle.job()).reset_count == 1


async def test_retrying_a_cancelled_job_is_a_change_of_mind(app, task):
    handle = await task("good").enqueue()
    await handle.cancel()
    await app.retry(handle.id)
    await work_off(app)
    assert await handle.result(timeout=30) == "fine"


async def test_retrying_a_scheduled_job_makes_it_due(app, task):
    handle = await task("good").using(delay=600).enqueue()
    job = await app.retry(handle.id)
    assert (job.state, job.reset_count) == (State.QUEUED, 0)
    await work_off(app)
    assert await handle.result(timeout=30) == "fine"


async def test_a_running_job_cannot_be_retried(app, running):
    with pytest.raises(InvalidState, match="is running: cancel it or wait until it ends, then retry it") as refused:
        await app.retry("job")
    assert (refused.value.job_id, refused.value.state) == ("job", "running")


# -- fail


async def test_a_monitor_can_fail_a_running_job(app, running):
    await app.handle("job").mark_failed("the machine is gone")
    job = await app.job("job")
    assert (job.state, job.error) == (State.FAILED, "the machine is gone")
    with pytest.raises(LeaseLost):
        await running.complete()


async def test_only_a_running_job_can_be_failed(app, ended, task):
    for handle in (ended["succeeded"], await task("good").enqueue()):
        with pytest.raises(InvalidState, match="only a running job can be marked as failed"):
            await handle.mark_failed("gone")


# -- delete


@pytest.mark.parametrize("state", ["queued", "scheduled", "succeeded", "dead"])
async def test_a_job_that_does_not_run_can_be_deleted(app, task, ended, state):
    waiting = {"queued": await task("good").enqueue(), "scheduled": await task("good").using(delay=60).enqueue()}
    handle = (ended | waiting)[state]
    await app.delete(handle.id)
    with pytest.raises(JobNotFound):
        await handle.job()
    with pytest.raises(JobNotFound):
        await app.delete(handle.id)


async def test_a_running_job_is_not_deleted_under_its_worker(app, running):
    with pytest.raises(InvalidState, match="cancel it or wait until it ends, then delete it"):
        await app.delete("job")
    await running.complete()


# -- annotate


async def test_meta_can_be_added_until_a_job_has_ended(app, task):
    handle = await task("good").using(meta={"a": 1, "b": 1}).enqueue()
    await handle.update_meta(b=2, c={"deep": [None, "ü"]})
    assert (await handle.job()).meta == {"a": 1, "b": 2, "c": {"deep": [None, "ü"]}}


async def test_meta_can_be_added_while_it_runs_and_the_claim_stays_valid(app, running):
    await app.handle("job").update_meta(seen_by="ann")
    await running.complete()
    assert (await app.job("job")).meta == {"seen_by": "ann"}


async def test_meta_of_an_ended_job_is_closed(app, ended):
    with pytest.raises(InvalidState, match="meta can only be updated before it ends"):
        await app.handle(ended["dead"].id).update_meta(a=1)


@pytest.mark.parametrize("value", [object(), float("nan"), "\ud800", "a\0b", {1: 2}.keys()], ids=words)
async def test_meta_that_no_store_could_keep_is_refused(app, task, value):
    handle = await task("good").using(meta={"a": 1}).enqueue()
    with pytest.raises(InvalidJob, match="meta"):
        await handle.update_meta(b=value)
    assert (await handle.job()).meta == {"a": 1}


async def test_meta_may_have_any_name(app, task):
    handle = await task("good").enqueue()
    await handle.update_meta(**{"self": 1, "id": 2, "not an identifier": 3})
    assert (await handle.job()).meta == {"self": 1, "id": 2, "not an identifier": 3}


# -- pause and resume


async def test_a_paused_queue_gives_nothing_and_takes_everything(app, task):
    await app.pause("default")
    handle = await task("good").enqueue()
    await work_off(app)
    assert (await handle.job()).state == State.QUEUED
    assert await app.claim() == []
    [queue] = (await app.stats()).queues
    assert queue.paused
    await app.resume("default")
    await work_off(app)
    assert await handle.result(timeout=30) == "fine"
    [queue] = (await app.stats()).queues
    assert not queue.paused


async def test_other_queues_go_on_while_one_is_paused(app):
    await app.pause("slow")
    await app.submit("a", b"", queue="slow")
    await app.submit("a", b"", queue="fast", id="fast")
    assert [claim.job.id for claim in await app.claim(["slow", "fast"], limit=5)] == ["fast"]


async def test_what_runs_in_a_paused_queue_ends_as_usual(app, running):
    await app.pause("hand")
    await running.complete("done")
    assert (await app.job("job")).state == State.SUCCEEDED


async def test_pausing_and_resuming_twice_is_as_good_as_once(app):
    await app.pause("a")
    await app.pause("a")
    await app.resume("a")
    await app.resume("a")
    await app.resume("never paused")
    assert (await app.stats()).queues == []


# -- purge


async def test_purge_removes_the_dead_and_says_how_many(app, ended, task):
    waiting = await task("good").enqueue()
    assert await app.bulk.purge() == 1
    assert {job.id for job in (await app.jobs()).jobs} == {ended["succeeded"].id, waiting.id}
    assert await app.bulk.purge() == 0


async def test_purge_can_be_reported_what_to_remove(app, task, ended):
    keep = await task("good").using(tags=["keep"]).enqueue()
    await task("good").using(tags=["drop"], queue="other").enqueue()
    assert await app.bulk.purge(state="queued", tag="drop", queue="other", task="good") == 1
    assert await app.bulk.purge(state=["succeeded", "dead"]) == 2
    assert [job.id for job in (await app.jobs()).jobs] == [keep.id]


async def test_purge_of_thousands_removes_them_all(app, task):
    await app.enqueue_many((task("good"),) for _ in range(2_300))
    assert await app.bulk.purge(state="queued") == 2_300
    assert (await app.jobs()).jobs == []


async def test_purge_can_spare_what_is_recent(make_app):
    clock = ManualClock()
    app = make_app(MemoryStore(clock), clock=clock)
    for id, age in (("old", 100), ("young", 0)):
        await app.submit("a", b"", id=id)
        [claim] = await app.claim()
        await claim.fail("no", dead=True)
        clock.advance(age)
    assert await app.bulk.purge(older_than=timedelta(seconds=50)) == 1
    assert [job.id for job in (await app.jobs()).jobs] == ["young"]


async def test_running_jobs_are_never_purged(app, running):
    with pytest.raises(InvalidJob, match="running jobs cannot be purged"):
        await app.bulk.purge(state=["dead", "running"])


@pytest.mark.parametrize("state", [None, [], ()])
async def test_no_state_is_not_taken_for_every_state(app, task, running, state):
    await task("good").enqueue()
    with pytest.raises(HoldfastError, match="state"):
        await app.bulk.purge(state=state)
    assert len((await app.jobs()).jobs) == 2


@pytest.mark.parametrize("age", [float("nan"), float("inf"), "yesterday", [5], True])
async def test_an_age_that_is_none_is_refused(app, ended, age):
    with pytest.raises(InvalidJob, match="older_than"):
        await app.bulk.purge(older_than=age)
    assert len((await app.jobs(state="dead")).jobs) == 1


async def test_a_job_that_was_retried_during_a_purge_stays(app, ended):
    await app.retry(ended["dead"].id)
    assert await app.bulk.purge() == 0
    assert (await ended["dead"].job()).state == State.QUEUED
