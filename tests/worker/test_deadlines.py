"""Deadlines over all attempts, and runs that stall: both end by the store's clock, with the stack of the task."""

import asyncio
import threading
import time
from datetime import UTC, datetime, timedelta

import pytest

from holdfast import Backoff, Context, Discard, InvalidJob, Snooze, State
from holdfast.store.reference.memory import MemoryStore
from holdfast.testing import ManualClock
from support.workers import work_off


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def timed(clock, make_app):
    """An app whose store's time passes only by `clock.advance`."""
    return make_app(MemoryStore(clock), clock=clock)


async def test_a_job_that_has_not_started_by_its_deadline_is_dead_without_a_run(timed, clock):
    ran = []

    @timed.task(deadline=60)
    async def work() -> None:
        ran.append(1)

    handle = await work.enqueue()
    clock.advance(60)
    await work_off(timed)
    job = await handle.job()
    assert (job.state, ran) == (State.DEAD, [])
    assert job.error == f"deadline exceeded: the job had not ended by {job.deadline_at.isoformat(' ', 'milliseconds')}"
    assert job.deadline_at == job.created_at + timedelta(seconds=60)
    assert any("dead if it has not ended" in line for line in (await timed.explain((await work.enqueue()).id)).details)


async def test_a_failure_is_not_retried_if_the_next_attempt_would_start_after_the_deadline(timed, clock):
    @timed.task(retry=Backoff(base=40, factor=1, jitter=0))
    async def fail() -> None:
        raise ValueError("no")

    handle = await fail.using(deadline=60).enqueue()
    await work_off(timed)
    assert (await handle.job()).state == State.FAILED
    clock.advance(40)
    await work_off(timed)
    job = await handle.job()
    assert (job.state, job.attempt) == (State.DEAD, 2)
    assert job.error == "ValueError: no (not retried: the next attempt would start after the deadline of the job)"


async def test_a_snooze_ends_at_the_deadline(timed, clock):
    @timed.task
    async def later() -> None:
        raise Snooze(3600)

    handle = await later.using(deadline=60).enqueue()
    await work_off(timed)
    assert (await handle.job()).run_at == (await handle.job()).created_at + timedelta(seconds=60)
    clock.advance(60)
    await work_off(timed)
    assert (await handle.job()).state == State.DEAD


async def test_a_wait_for_a_signal_ends_at_the_deadline(timed, clock):
    @timed.task
    async def wait(ctx: Context) -> str:
        return await ctx.wait_for("never")

    handle = await wait.using(deadline=600).enqueue()
    await work_off(timed)
    job = await handle.job()
    assert (job.state, job.run_at) == (State.SCHEDULED, job.deadline_at)
    clock.advance(600)
    await work_off(timed)
    assert (await handle.job()).state == State.DEAD


async def test_a_wall_clock_that_jumps_does_not_end_a_run(timed, clock):
    """The rest of the time is measured from the claim, by the clock of the store."""

    @timed.task(deadline=60)
    async def work() -> str:
        clock.jump_wall(3600)
        await asyncio.sleep(0.05)
        return "done"

    handle = await work.enqueue()
    await work_off(timed)
    assert await handle.result() == "done"


async def test_a_retry_by_an_operator_has_no_deadline(timed, clock):
    @timed.task
    async def work() -> str:
        return "done"

    handle = await work.using(deadline=60).enqueue()
    clock.advance(60)
    await work_off(timed)
    await timed.retry(handle.id)
    await work_off(timed)
    assert (await handle.result(), (await handle.job()).deadline_at) == ("done", None)


async def test_a_replaced_job_has_its_deadline_from_the_last_call_on(timed, clock):
    @timed.task
    async def save() -> None: ...

    draft = save.using(key="k", debounce=10, deadline=60)
    first = await draft.enqueue()
    created = (await first.job()).created_at
    clock.advance(5)
    await draft.enqueue()
    assert (await first.job()).deadline_at == created + timedelta(seconds=65)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"deadline": 0}, "deadline must be a number of seconds above 0"),
        ({"deadline": "soon"}, "deadline must be a number of seconds above 0"),
        ({"deadline": datetime(2030, 1, 1)}, "deadline= needs an aware datetime"),  # noqa: DTZ001  # the point
        ({"deadline": datetime(2020, 1, 1, tzinfo=UTC)}, "deadline=.* is in the past"),
        ({"deadline": 5, "delay": 10}, "deadline= must be later than delay= or at="),
        ({"stall_timeout": 0}, "stall_timeout must be a number of seconds above 0"),
        ({"stall_timeout": 10**400}, "stall_timeout must be a number of seconds above 0"),
    ],
)
async def test_a_deadline_that_cannot_be_is_refused_before_anything_is_stored(app, options, said):
    @app.task
    async def work() -> None: ...

    with pytest.raises(InvalidJob, match=said):
        await work.using(**options).enqueue()
    assert (await app.jobs()).jobs == []


async def test_a_running_attempt_is_interrupted_at_the_deadline_and_not_retried(app):
    cleaned = []

    @app.task(deadline=0.3)
    async def slow() -> None:
        try:
            await asyncio.sleep(60)  # here
        finally:
            cleaned.append(1)

    handle = await slow.enqueue()
    await work_off(app)
    job = await handle.job()
    assert (job.state, job.attempt, cleaned) == (State.DEAD, 1, [1])
    ended_by = job.deadline_at.isoformat(" ", "milliseconds")
    assert job.error == f"TimeoutError: deadline exceeded: the job had not ended by {ended_by}"
    assert "await asyncio.sleep(60)  # here" in job.traceback


async def test_a_thread_past_the_deadline_is_told_and_its_result_is_not_kept(app):
    @app.task(deadline=0.3)
    def slow(ctx: Context) -> str:
        while not ctx.cancelled:
            time.sleep(0.01)  # in a thread
        return "late"

    handle = await slow.enqueue()
    await work_off(app)
    job = await handle.job()
    assert (job.state, job.attempt) == (State.DEAD, 1)
    assert "in slow" in job.traceback
    assert job.traceback.startswith("Stack of the task at that time (most recent call last):")


async def test_a_timeout_ends_a_task_whose_source_cannot_be_read(app):
    class Loader:
        def get_source(self, name: str) -> str:
            raise ValueError(f"no source of {name}")

    code = compile("async def slow(event):\n    await event.wait()\n", "/nowhere/slow.py", "exec")
    exec(code, names := {"__name__": "slow", "__loader__": Loader()})

    @app.task(timeout=0.1, max_attempts=1)
    async def call() -> None:
        await names["slow"](asyncio.Event())

    handle = await call.enqueue()
    async with asyncio.timeout(10):
        await work_off(app)
    job = await handle.job()
    assert job.error == "TimeoutError: ran longer than its timeout of 0.1 s"
    assert '  File "/nowhere/slow.py", line 2, in slow\n' in job.traceback


async def test_the_stack_of_a_thread_that_timed_out_has_no_values(app):
    ended = threading.Event()

    def inner(password: str) -> None:
        while not ended.wait(0.01):
            pass

    @app.task(timeout=0.1, max_attempts=1)
    def slow(ctx: Context, password: str) -> None:
        threading.Timer(0.5, ended.set).start()
        inner(password)

    handle = await slow.enqueue("hunter2")
    await work_off(app)
    job = await handle.job()
    assert job.error == "TimeoutError: ran longer than its timeout of 0.1 s"
    assert "in inner" in job.traceback
    assert "hunter2" not in job.traceback


async def test_the_stack_of_a_batch_in_a_thread(app):
    @app.task(batch=2, wait=0.05, timeout=0.2, max_attempts=1)
    def slow(items: list[int]) -> None:
        time.sleep(1.0)  # the call of all

    handles = [await slow.enqueue(number) for number in range(2)]
    await work_off(app)
    for handle in handles:
        job = await handle.job()
        assert job.error == "TimeoutError: ran longer than its timeout of 0.2 s"
        assert "# the call of all" in job.traceback
        assert "holdfast/worker" not in job.traceback


async def test_the_stack_of_a_coroutine_follows_what_it_waits_for(app):
    async def part() -> None:
        await asyncio.Event().wait()  # the part

    @app.task(timeout=0.1, max_attempts=1)
    async def whole() -> None:
        await asyncio.gather(part(), part())

    handle = await whole.enqueue()
    await work_off(app)
    assert (await handle.job()).traceback.count("# the part") == 2


async def test_a_run_without_progress_output_or_checkpoint_stalls(app):
    @app.task(stall_timeout=0.2, max_attempts=2, retry=Backoff(base=0, jitter=0))
    async def silent() -> None:
        await asyncio.sleep(60)

    handle = await silent.enqueue()
    await work_off(app)
    job = await handle.job()
    assert (job.state, job.attempt) == (State.DEAD, 2), "it is a failure like any other"
    assert job.error == "TimeoutError: no progress, output or checkpoint for 0.2 s (stall_timeout)"
    assert "await asyncio.sleep(60)" in job.traceback


async def test_what_a_run_writes_shows_that_it_has_not_stalled(app):
    @app.task(stall_timeout=2.0, max_attempts=1)
    async def busy(ctx: Context, way: str) -> str:
        for n in range(5):
            await asyncio.sleep(0.5)
            if way == "progress":
                ctx.progress(n, 6)
            elif way == "checkpoint":
                await ctx.checkpoint(n)
            elif way == "meta":
                await ctx.update_meta(n=n)
            else:
                print(n)
        return "done"

    handles = {way: await busy.enqueue(way) for way in ("progress", "checkpoint", "output", "meta")}
    await work_off(app)
    assert {way: await handle.result() for way, handle in handles.items()} == dict.fromkeys(handles, "done")


@pytest.mark.parametrize("how", ["checkpoint", "output"])
async def test_a_run_that_waits_for_the_store_has_not_stalled(make_app, how):
    class Slow(MemoryStore):
        async def write(self, batch):
            if batch.notes:
                await asyncio.sleep(1.5)
            return await super().write(batch)

    app = make_app(Slow())

    @app.task(stall_timeout=0.6, max_attempts=1)
    async def save(ctx: Context) -> str:
        if how == "checkpoint":
            await ctx.checkpoint(1)
        else:
            for n in range(6):
                print(n)
                await asyncio.sleep(0.25)
        return "done"

    handle = await save.enqueue()
    await work_off(app)
    assert await handle.result() == "done"


async def test_the_calls_stall_timeout_comes_before_the_tasks(app):
    @app.task(stall_timeout=60, max_attempts=1)
    async def silent() -> None:
        await asyncio.sleep(60)

    handle = await silent.using(stall_timeout=0.1).enqueue()
    await work_off(app)
    assert "for 0.1 s (stall_timeout)" in (await handle.job()).error
    assert (await handle.job()).stall_timeout == 0.1


async def test_a_job_that_was_enqueued_by_name_has_the_tasks_stall_timeout(app):
    @app.task(stall_timeout=0.1, max_attempts=1)
    async def silent() -> None:
        await asyncio.sleep(60)

    handle = await app.submit("silent", b"{}", json=True, max_attempts=1)
    await work_off(app)
    assert "for 0.1 s (stall_timeout)" in (await handle.job()).error


async def test_a_discarded_job_keeps_its_own_error(app):
    @app.task(deadline=60)
    async def work() -> None:
        raise Discard("enough")

    handle = await work.enqueue()
    await work_off(app)
    assert (await handle.job()).error == "Discard: enough"


async def test_schedules_and_follow_ups_keep_both(app):
    @app.task
    async def work() -> None: ...

    @app.task
    async def after(id: str) -> None: ...

    kept = await app.schedules.put("s", work.using(deadline=90, stall_timeout=5).call(), every=60)
    assert (kept.deadline, kept.stall_timeout) == (90, 5)
    job = await (await app.schedules.run_now("s")).job()
    assert (job.deadline_at - job.created_at, job.stall_timeout) == (timedelta(seconds=90), 5)
    await work.using(on_success=after.using(deadline=70, stall_timeout=7)).enqueue()
    await work_off(app)
    [follow] = (await app.jobs(task="after")).jobs
    assert (follow.deadline_at - follow.created_at, follow.stall_timeout) == (timedelta(seconds=70), 7)
    with pytest.raises(InvalidJob, match="deadline= must be longer than jitter="):
        await app.schedules.put("t", work.using(deadline=5).call(), every=60, jitter=10)
