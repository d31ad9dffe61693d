"""Jobs whose task or arguments a worker does not know: refused uncharged, with a growing delay, dead after a time."""

import pytest

from holdfast import ConfigError, Flow, Holdfast, Snooze, State, UnknownTask
from holdfast.client.errors import RefusedJobs
from holdfast.core.waiting import COMPATIBLE
from holdfast.store.reference.memory import MemoryStore
from holdfast.testing import ManualClock
from holdfast.worker.run.refusals import WARN_EVERY, WARNED_TASKS, Refusals
from support.inside import session_of
from support.workers import work_off

UNKNOWN = "UnknownTask: unknown task 'later': it is not registered in this app; import the module that defines it"


@pytest.fixture
async def two():
    """Two apps on one store, whose time the test sets: two versions of the code; and the clock."""
    clock = ManualClock()
    store = MemoryStore(clock)
    async with Holdfast(store, clock=clock) as old, Holdfast(store.sibling(), clock=clock) as new:
        yield old, new, clock


async def due_in(app, handle):
    record = await session_of(app).record(handle.id)
    return (record.run_at - await session_of(app).store.now()) / 1_000_000


async def offered(app, clock, handle):
    """Offer a refused job to a worker at its next due time; returns the seconds until then."""
    seconds = await due_in(app, handle)
    clock.advance(seconds)
    await work_off(app)
    return seconds


async def test_a_job_of_an_unknown_task_is_delayed_uncharged(two):
    old, _, clock = two
    handle = await old.enqueue("later", 1)
    await work_off(old)
    job = await handle.job()
    assert (job.state, job.attempt, job.error, job.waiting_for) == (State.SCHEDULED, 0, UNKNOWN, COMPATIBLE)
    assert [(line.number, line.outcome, line.error) for line in job.history] == [(1, "refused", UNKNOWN)]
    assert [await offered(old, clock, handle) for _ in range(9)] == [1, 1, 2, 4, 8, 16, 32, 60, 60]
    assert (await handle.job()).attempt == 0


async def test_it_is_dead_once_it_was_refused_for_the_timeout_by_the_clock_of_the_store(two):
    old, _, clock = two
    handle = await old.enqueue("later", 1)
    await work_off(old)
    waited = 0
    for _ in range(80):
        if (job := await handle.job()).state != State.SCHEDULED:
            break
        waited += await offered(old, clock, handle)
    assert 3600 <= waited < 3660
    assert (job.state, job.error) == (State.DEAD, f"{UNKNOWN} (workers refused it for {waited:.0f} s)")


async def test_the_wall_clock_of_a_worker_decides_nothing():
    clock, own = ManualClock(), ManualClock()
    async with Holdfast(MemoryStore(clock), clock=own) as app:
        handle = await app.enqueue("later", 1)
        await work_off(app)
        own.jump_wall(86400)
        await offered(app, clock, handle)
        assert (await handle.job()).state == State.SCHEDULED


async def test_a_step_of_the_clock_does_not_end_a_refused_job(two):
    old, _, clock = two
    handle = await old.enqueue("later", 1)
    await work_off(old)
    clock.advance(86400)
    await work_off(old)
    refused = 2
    while (await handle.job()).state == State.SCHEDULED:
        assert await offered(old, clock, handle) == 60
        refused += 1
    assert refused == 1 + 3600 / 60 / 2


async def test_refusals_before_a_move_or_replace_are_not_counted_after_it(two):
    old, _, clock = two
    unique = old.using(key="k", replace=True)
    moved, replaced = await old.enqueue("later", 1), await unique.enqueue("later", 1)
    await work_off(old)
    for _ in range(4):
        clock.advance(60)
        await work_off(old)
    assert [await due_in(old, handle) for handle in (moved, replaced)] == [60, 60]
    await old.bulk.change("move", ids=[moved.id], to="never")
    await unique.enqueue("later", 2)
    await work_off(old)
    assert [await due_in(old, handle) for handle in (moved, replaced)] == [1, 1]


async def test_at_most_100_refused_jobs_are_read_to_count_them(two):
    old, _, _ = two
    await old.enqueue_many([old.call("later", n) for n in range(101)])
    await work_off(old)
    assert [(one.count, one.exact) for one in await old.errors.refused()] == [(100, False)]


async def test_a_worker_that_knows_the_task_runs_it(two):
    old, new, clock = two
    new.task(lambda n: n, name="later")
    handle = await new.enqueue("later", 1)
    await work_off(old)
    await offered(new, clock, handle)
    job = await handle.job()
    assert (job.state, job.attempt, job.error, job.result) == (State.SUCCEEDED, 1, None, 1)


async def test_refusals_after_a_run_are_counted_anew(two):
    old, new, clock = two

    @new.task
    async def later(n: int) -> None:
        raise Snooze(7200)

    handle = await later.enqueue(1)
    await work_off(old)
    await offered(new, clock, handle)
    for seconds in (7200, 1, 1, 2):
        assert await offered(old, clock, handle) == seconds
    assert (await handle.job()).state == State.SCHEDULED


async def test_refusals_after_a_retry_of_the_dead_job_are_counted_anew(two):
    old, _, clock = two
    handle = await old.enqueue("later", 1)
    await work_off(old)
    while (await handle.job()).state == State.SCHEDULED:
        await offered(old, clock, handle)
    assert (await handle.job()).state == State.DEAD
    await old.retry(handle.id)
    await work_off(old)
    assert ((await handle.job()).state, await due_in(old, handle)) == (State.SCHEDULED, 1)


async def test_arguments_that_do_not_fit_are_refused_too(two):
    old, new, clock = two
    old.task(lambda n: n, name="add")
    new.task(lambda n, m: n + m, name="add")
    handle = await new.enqueue("add", 1, 2)
    await work_off(old)
    job = await handle.job()
    assert (job.state, job.attempt) == (State.SCHEDULED, 0)
    assert job.error.startswith("InvalidJob: ")
    await offered(new, clock, handle)
    assert await handle.result(timeout=30) == 3


async def test_a_task_that_itself_raises_such_an_error_fails(two):
    old, _, _ = two

    @old.task
    async def work() -> None:
        raise UnknownTask("something else")

    handle = await work.enqueue()
    await work_off(old)
    job = await handle.job()
    assert (job.state, job.attempt) == (State.FAILED, 1)
    assert job.traceback is not None


async def test_a_cancelled_job_is_cancelled_and_not_refused_for_ever(two):
    old, _, _ = two
    handle = await old.enqueue("later", 1)
    await work_off(old)
    await old.cancel(handle.id)
    assert (await handle.job()).state == State.CANCELLED


# -- what people see


async def test_status_and_explain_name_the_cause(two):
    old, new, clock = two
    new.task(lambda n: n, name="later")
    handles = [await new.enqueue("later", n) for n in range(3)]
    await work_off(old)
    [seen] = await old.errors.refused()
    assert seen == RefusedJobs("default", "later", 3, True, UNKNOWN)
    assert str(seen) == f"workers refused 3 jobs of task 'later' in queue 'default': {UNKNOWN}"
    explained = await old.explain(handles[0].id)
    assert explained.reason.startswith("workers refuse it since ")
    assert explained.reason.endswith(f"they do not know its task or arguments: {UNKNOWN}")
    assert explained.details[0].startswith(
        "it is offered to all workers again in 1 s, and dead if it is still refused at"
    )
    clock.advance(1)
    await work_off(new)
    assert await old.errors.refused() == []


async def test_a_task_is_warned_of_once_a_minute_with_the_number_since(two, caplog):
    old, _, clock = two
    await old.enqueue("later", 1)
    [claim] = await old.claim()
    refusals = Refusals(clock)
    assert [refusals.add(claim.record, UNKNOWN, 3600) for _ in range(3)] == [True, False, False]
    clock.advance(WARN_EVERY)
    assert refusals.add(claim.record, UNKNOWN, 3600)
    first, second = [line.getMessage() for line in caplog.records]
    assert UNKNOWN in first
    assert ("since the last warning: 0)" in first, "since the last warning: 2)" in second) == (True, True)
    for number in range(2 * WARNED_TASKS):
        claim.record.task = f"task {number}"
        assert refusals.add(claim.record, UNKNOWN, 3600)
    assert len(refusals._warned) <= WARNED_TASKS
    await claim.release()


# -- aliases


async def test_jobs_with_a_former_name_run_the_task(two):
    old, new, _ = two

    @new.task(name="mail.send", aliases=["send_mail"])
    async def send(to: str) -> str:
        return to

    handle = await old.enqueue("send_mail", "ada")
    await work_off(new)
    assert await handle.result(timeout=30) == "ada"
    assert (await new.enqueue("send_mail", "bob")).id
    assert {job.task for job in (await new.jobs(state="queued")).jobs} == {"mail.send"}


@pytest.mark.parametrize(("aliases", "message"), [(["other"], "already registered"), ("other", "list of names")])
def test_an_alias_is_refused_if_it_is_the_name_of_another_task(aliases, message):
    app = Holdfast("memory://")
    app.task(print, name="other")
    with pytest.raises(ConfigError, match=message):
        app.task(lambda n: None, name="send", aliases=aliases)


# -- two versions of the code on one SQLite file


async def test_in_a_rolling_deploy_no_attempt_is_charged_and_no_job_is_lost(make_app, tmp_path):
    old, new = (make_app(f"sqlite:///{tmp_path}/both.db") for _ in range(2))
    old.task(lambda n: n, name="add")
    new.task(lambda n, m=0: n + m, name="add")
    new.task(lambda n: n, name="later")
    handles = [await new.enqueue("add", n, 1) for n in range(5)] + [await new.enqueue("later", n) for n in range(5)]
    await work_off(old)
    assert {(job.state, job.attempt) for job in (await old.jobs()).jobs} == {(State.SCHEDULED, 0)}
    assert [(one.task, one.count) for one in await new.errors.refused()] == [("add", 5), ("later", 5)]
    for handle in handles:
        await new.retry(handle.id)
    await work_off(new)
    assert [await handle.result(timeout=30) for handle in handles] == [1, 2, 3, 4, 5, 0, 1, 2, 3, 4]
    assert {job.attempt for job in (await old.jobs()).jobs} == {1}


async def test_explain_of_a_flow_names_its_refused_job(two):
    old, new, _ = two

    @new.task
    async def later(n: int) -> int:
        return n

    flow = Flow()
    first = flow.add(later, 1)
    flow.add(later, first.result)
    handle = await new.enqueue_flow(flow)
    await work_off(old)
    named = f"workers refuse job {handle.id}.0 of task 'later': {UNKNOWN}"
    assert named in (await old.explain(handle.id)).details
    assert named in (await old.explain(f"{handle.id}.1")).details
    await old.enqueue("later", 1)
    assert len((await old.explain(handle.id)).details) == 1
