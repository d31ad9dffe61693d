"""One call handles several jobs of a task, each settled on its own."""

import asyncio
import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast import ConfigError, Context, Discard, Retry, Snooze, State, limit
from holdfast.app import parts_of
from support.eventually import eventually
from support.workers import work_off, working


@dataclass
class Doc:
    id: int
    text: str = ""


def noted(calls: list[list[Any]]):
    async def handle(items: list[int]) -> None:
        calls.append(list(items))

    return handle


# -- gathering


async def test_one_call_gets_what_each_job_was_enqueued_with(app):
    calls = []

    @app.task(batch=100)
    async def index(docs: list[Doc]) -> None:
        calls.append(docs)

    handles = await app.enqueue_many([(index, Doc(n, f"text {n}")) for n in range(5)])
    await work_off(app)
    assert calls == [[Doc(n, f"text {n}") for n in range(5)]]
    assert [(await handle.job()).state for handle in handles] == [State.SUCCEEDED] * 5
    assert (await handles[3].job()).payload == {"docs": {"id": 3, "text": "text 3"}}


async def test_a_batch_takes_no_more_than_it_was_reported(app):
    calls = []
    task = app.task(noted(calls), name="handle", batch=4)
    await app.enqueue_many([(task, n) for n in range(10)])
    await work_off(app, concurrency=1)
    assert calls == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


async def test_a_batch_takes_one_slot(app):
    running, most, calls = 0, 0, []

    @app.task(batch=5)
    async def handle(items: list[int]) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        calls.append(len(items))
        await eventually(lambda: running == 2 or sum(calls) == 20)
        running -= 1

    await app.enqueue_many([(handle, n) for n in range(20)])
    await work_off(app, concurrency=2)
    assert (most, sum(calls)) == (2, 20)
    assert max(calls) <= 5


async def test_the_first_waits_for_more(app):
    calls = []
    task = app.task(noted(calls), name="handle", batch=3, wait=60)
    async with working(app, concurrency=1):
        first = await task.enqueue(1)
        await eventually(lambda: _state(first, State.RUNNING))
        await task.enqueue(2)
        assert calls == []
        third = await task.enqueue(3)
        await third.wait(timeout=30)
    assert calls == [[1, 2, 3]]


async def test_it_does_not_wait_longer_than_it_was_reported(app):
    calls = []
    task = app.task(noted(calls), name="handle", batch=1000, wait=0.05)
    async with working(app):
        handle = await task.enqueue(1)
        await handle.wait(timeout=30)
    assert calls == [[1]]


async def test_each_queue_and_each_task_has_batches_of_its_own(app):
    calls = []

    @app.task(batch=10)
    async def one(items: list[int]) -> None:
        calls.append(("one", sorted(items)))

    @app.task(batch=10)
    async def two(items: list[int]) -> None:
        calls.append(("two", sorted(items)))

    for n in range(3):
        await one.enqueue(n)
        await two.enqueue(n)
        await one.using(queue="other").enqueue(10 + n)
    await work_off(app, queues=["default", "other"])
    assert sorted(calls) == [("one", [0, 1, 2]), ("one", [10, 11, 12]), ("two", [0, 1, 2])]


async def test_a_plain_function_handles_its_batch_in_a_thread(app):
    @app.task(batch=10)
    def handle(items: list[int]) -> list[str]:
        return [f"{item} in {threading.current_thread().name}" for item in items]

    handles = await app.enqueue_many([(handle, n) for n in range(3)])
    await work_off(app)
    results = [await handle.result() for handle in handles]
    assert [result.partition(" in holdfast-task")[0] for result in results] == ["0", "1", "2"]


async def test_a_limited_task_gathers_no_more_than_its_limit_key_lets_start(app):
    calls = []
    task = app.task(noted(calls), name="handle", batch=10, limit=limit(concurrency=2))
    await app.enqueue_many([(task, n) for n in range(5)])
    await work_off(app)
    assert [len(call) for call in calls] == [2, 2, 1]


# -- ends


async def test_each_job_has_a_result_of_its_own(app):
    @app.task(batch=10)
    async def double(docs: list[Doc]) -> list[Doc]:
        return [Doc(doc.id * 2) for doc in docs]

    handles = await app.enqueue_many([(double, Doc(n)) for n in range(3)])
    await work_off(app)
    assert [await handle.result() for handle in handles] == [Doc(0), Doc(2), Doc(4)]


async def test_an_exception_in_the_list_ends_that_job_alone(app):
    @app.task(batch=10)
    async def handle(items: list[int]) -> list[Doc | Exception]:
        ends = {1: ValueError("bad one"), 2: Discard("never"), 3: Snooze(600), 4: Retry("busy", after=600)}
        return [ends.get(item, Doc(item)) for item in items]

    handles = await app.enqueue_many([(handle, n) for n in range(6)])
    await work_off(app)
    jobs = [await handle.job() for handle in handles]
    assert [job.state for job in jobs] == ["succeeded", "failed", "dead", "scheduled", "failed", "succeeded"]
    assert [job.error for job in jobs[1:5]] == ["ValueError: bad one", "Discard: never", None, "Retry: busy"]
    assert (jobs[1].attempt, jobs[3].attempt) == (1, 0)
    assert await handles[5].result() == Doc(5)


async def test_an_exception_that_is_raised_fails_them_all(app):
    @app.task(batch=10, max_attempts=1)
    async def handle(items: list[int]) -> None:
        raise ValueError(f"none of {len(items)}")

    handles = await app.enqueue_many([(handle, n) for n in range(3)])
    await work_off(app)
    jobs = [await handle.job() for handle in handles]
    assert [(job.state, job.error) for job in jobs] == [(State.DEAD, "ValueError: none of 3")] * 3
    assert "worker/run" not in jobs[0].traceback


@pytest.mark.parametrize("returned", [[1], [1, 2, 3], "ab", {1: 2}], ids=repr)
async def test_a_list_of_the_wrong_length_fails_them_all(app, returned):
    @app.task(batch=10)
    async def handle(items: list[int]) -> Any:
        return returned

    handles = await app.enqueue_many([(handle, n) for n in range(2)])
    await work_off(app)
    for one in handles:
        job = await one.job()
        assert job.state == State.FAILED
        assert "TypeError: task 'handle'" in job.error


async def test_what_cannot_be_read_fails_alone(app):
    calls = []
    task = app.task(noted(calls), name="handle", batch=10)
    bad = await app.submit("handle", b'{"items": "x"}', json=True)
    good = await task.enqueue(1)
    await work_off(app)
    assert "parameter 'items'" in (await bad.job()).error
    assert (await good.job()).state == State.SUCCEEDED
    assert calls == [[1]]


async def test_what_is_too_late_is_left_out(app):
    calls = []
    task = app.task(noted(calls), name="handle", batch=10)
    late = await task.using(expires=0.01).enqueue(1)
    await task.enqueue(2)
    expires = (await late.job()).expires_at
    await eventually(lambda: datetime.now(UTC) > expires)
    await work_off(app)
    assert (await late.job()).state == State.CANCELLED
    assert calls == [[2]]


async def test_failed_jobs_are_gathered_again(app):
    calls = []

    @app.task(batch=10, retry=lambda error, attempt: 0.0)
    async def handle(items: list[int]) -> list[Exception | None]:
        calls.append(sorted(items))
        return [ValueError("unique") if len(calls) == 1 and item % 2 else None for item in items]

    await app.enqueue_many([(handle, n) for n in range(4)])
    await work_off(app)
    assert calls == [[0, 1, 2, 3], [1, 3]]


async def test_hooks_are_around_each_job(app):
    seen = []

    @app.around_run.append
    async def hook(ctx, call):
        value = await call()
        seen.append((ctx.job.payload["items"], value))
        return value

    @app.task(batch=10)
    async def handle(items: list[int]) -> list[int]:
        return [item * 10 for item in items]

    await app.enqueue_many([(handle, n) for n in range(3)])
    await work_off(app)
    assert sorted(seen) == [(0, 0), (1, 10), (2, 20)]


# -- stopping


async def test_a_cancelled_job_does_not_disturb_the_others(make_app):
    app, release = make_app(lease=0.9, poll=0.05), asyncio.Event()

    @app.task(batch=3, wait=60, retry=lambda error, attempt: 0.0)
    async def handle(items: list[int]) -> list[Any]:
        await release.wait()
        return [ValueError("no") if item == 0 else item for item in items]

    async with working(app) as worker:
        handles = await app.enqueue_many([(handle, n) for n in range(3)])
        await eventually(lambda: _state(handles[2], State.RUNNING))
        await handles[0].cancel()
        await handles[1].cancel()
        await eventually(lambda: sum(run.stopped for run in worker._slots.runs.values()) == 2)
        release.set()
        jobs = [await handle.wait(timeout=30) for handle in handles]
    # What failed is not tried again; what was done all the same is done.
    assert [job.state for job in jobs] == [State.CANCELLED, State.SUCCEEDED, State.SUCCEEDED]


async def test_a_call_whose_jobs_are_all_cancelled_is_interrupted(make_app):
    app, interrupted = make_app(lease=0.9, poll=0.05), asyncio.Event()

    @app.task(batch=2, wait=60)
    async def handle(items: list[int]) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            interrupted.set()

    async with working(app):
        handles = await app.enqueue_many([(handle, n) for n in range(2)])
        await eventually(lambda: _state(handles[1], State.RUNNING))
        for one in handles:
            await one.cancel()
        jobs = [await handle.wait(timeout=30) for handle in handles]
    assert interrupted.is_set()
    assert [job.state for job in jobs] == [State.CANCELLED] * 2


async def test_a_job_cancelled_while_the_batch_gathers_leaves_it(make_app):
    app, calls = make_app(lease=0.9, poll=0.05), []
    task = app.task(noted(calls), name="handle", batch=2, wait=60)
    async with working(app, concurrency=1):
        first = await task.enqueue(1)
        await eventually(lambda: _state(first, State.RUNNING))
        await first.cancel()
        assert (await first.wait(timeout=30)).state == State.CANCELLED
        handles = [await task.enqueue(2), await task.enqueue(3)]
        for one in handles:
            await one.wait(timeout=30)
    assert calls == [[2, 3]]


async def test_the_timeout_is_that_of_the_call(app):
    @app.task(batch=2, wait=60, timeout=0.05, max_attempts=1)
    async def handle(items: list[int]) -> None:
        await asyncio.sleep(60)

    async with working(app):
        handles = await app.enqueue_many([(handle, n) for n in range(2)])
        jobs = [await handle.wait(timeout=30) for handle in handles]
    assert [job.error for job in jobs] == ["TimeoutError: ran longer than its timeout of 0.05 s"] * 2


async def test_a_worker_that_stops_gives_back_what_it_has_gathered(app):
    calls = []
    task = app.task(noted(calls), name="handle", batch=100, wait=60)
    async with working(app, grace=60.0):
        handles = await app.enqueue_many([(task, n) for n in range(3)])
        for one in handles:
            await eventually(lambda one=one: _state(one, State.RUNNING))
    jobs = [await handle.job() for handle in handles]
    assert [(job.state, job.attempt) for job in jobs] == [(State.QUEUED, 0)] * 3
    assert calls == []


async def test_a_worker_that_stops_lets_a_call_end(app):
    begun, release = asyncio.Event(), asyncio.Event()

    @app.task(batch=2)
    async def handle(items: list[int]) -> None:
        begun.set()
        await release.wait()

    async with working(app, grace=60.0) as worker:
        handles = await app.enqueue_many([(handle, n) for n in range(2)])
        await begun.wait()
        worker.stop()
        release.set()
    assert [(await handle.job()).state for handle in handles] == [State.SUCCEEDED] * 2


async def test_a_quarantined_is_a_batch_of_its_own(app):
    calls = []
    task = app.task(noted(calls), name="handle", batch=10)
    quarantined = await task.enqueue(0)
    [claim] = await app.claim(lease=60)
    await parts_of(app).claims.recover(holder=claim.holder.id)
    assert (await quarantined.job()).quarantined
    await app.enqueue_many([(task, n) for n in range(1, 4)])
    await work_off(app)
    assert sorted(calls) == [[0], [1, 2, 3]]


# -- what it takes


def test_a_batch_function_takes_one_list(app):
    def two(a: list[int], b: int) -> None: ...
    def none() -> None: ...
    def number(items: int) -> None: ...
    def optional(items: list[int] = []) -> None: ...  # noqa: B006
    def with_context(ctx: Context, items: list[int]) -> None: ...

    for fn, reason in (
        (two, "one parameter, the list"),
        (none, "one parameter, the list"),
        (optional, "one parameter, the list"),
        (number, "its parameter must be a list"),
        (with_context, "share no context: remove parameter 'ctx'"),
    ):
        with pytest.raises(ConfigError, match=reason):
            app.task(fn, batch=10)


def test_options_of_a_batch_are_checked(app):
    def fn(items: list[int]) -> None: ...

    for options, reason in (
        ({"batch": 0}, "from 1 to 1000"),
        ({"batch": "many"}, "from 1 to 1000"),
        ({"batch": 5, "wait": "long"}, "wait must be"),
        ({"batch": 5, "wait": 9999}, "at most 3600"),
        ({"wait": 1}, "requires batch="),
        ({"batch": 5, "run_in": "process"}, "on the loop or in a thread"),
        ({"batch": 5, "run_in": "isolated"}, "on the loop or in a thread"),
    ):
        with pytest.raises(ConfigError, match=reason):
            app.task(fn, **options)


async def test_an_item_of_the_wrong_type_is_refused_when_it_is_enqueued(app):
    @app.task(batch=10)
    async def handle(items: list[int]) -> None: ...

    with pytest.raises(Exception, match="parameter 'items' of handle"):
        await handle.enqueue("x")


async def _state(handle, state):
    return (await handle.job()).state == state
