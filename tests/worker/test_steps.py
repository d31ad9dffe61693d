"""Durable steps: each is run once, and what it returned is there for every later attempt."""

import asyncio
import threading
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from holdfast import Backoff, Context, State
from support.eventually import eventually
from support.inside import session_of
from support.workers import work_off, working

AT_ONCE = Backoff(base=0, jitter=0)
KINDS = ["async", "thread"]


def failing_after(app, kind, steps, fail_at):
    """A task with these steps, as functions by name; its first attempt fails once `fail_at` of them are done."""
    if kind == "async":

        @app.task(retry=AT_ONCE)
        async def work(ctx: Context) -> list:
            done = []
            for number, (name, fn) in enumerate(steps.items()):
                if number == fail_at and ctx.attempt == 1:
                    raise RuntimeError("power cut")
                done.append(await ctx.step(name, fn))
            return done

    else:

        @app.task(retry=AT_ONCE)
        def work(ctx: Context) -> list:
            done = []
            for number, (name, fn) in enumerate(steps.items()):
                if number == fail_at and ctx.attempt == 1:
                    raise RuntimeError("power cut")
                done.append(ctx.step(name, fn))
            return done

    return work


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fail_at", [0, 1, 2, 3])
async def test_a_step_that_is_done_is_not_run_again(app, kind, fail_at):
    ran = []
    steps = {name: lambda name=name: ran.append(name) or {"name": name} for name in "abc"}
    work = failing_after(app, kind, steps, fail_at)
    handle = await work.enqueue()
    await work_off(app)
    job = await handle.job()
    assert job.state == State.SUCCEEDED, job.error
    assert job.result == [{"name": "a"}, {"name": "b"}, {"name": "c"}]
    assert ran == ["a", "b", "c"]
    assert [(step.kind, step.name, step.result) for step in job.steps] == [
        ("step", name, {"name": name}) for name in "abc"
    ]
    assert all(step.at >= job.created_at for step in job.steps)


async def test_steps_take_arguments_and_come_back_as_they_are_annotated(app):
    @dataclass
    class Receipt:
        amount: int
        at: datetime

    def charge(amount: int, *, at: datetime) -> Receipt:
        return Receipt(amount, at)

    async def pair(n: int) -> tuple[int, int]:
        return n, n

    moment = datetime(2026, 11, 15, tzinfo=UTC)
    seen = []

    @app.task(retry=AT_ONCE)
    async def work(ctx: Context) -> None:
        seen.append((await ctx.step("charge", charge, 7, at=moment), await ctx.step("pair", pair, 2)))
        if ctx.attempt == 1:
            raise RuntimeError("power cut")

    await work.enqueue()
    await work_off(app)
    assert seen == [(Receipt(7, moment), (2, 2))] * 2


async def test_what_has_no_annotation_is_the_same_json_the_first_time_as_later(app):
    seen = []

    @app.task(retry=AT_ONCE)
    async def work(ctx: Context) -> None:
        seen.append(await ctx.step("pair", lambda: (1, {2: "two"})))
        if ctx.attempt == 1:
            raise RuntimeError("power cut")

    await work.enqueue()
    await work_off(app)
    assert seen == [[1, {"2": "two"}]] * 2


async def test_a_plain_function_runs_in_a_thread_and_an_async_one_on_the_loop(app):
    async def on_the_loop() -> bool:
        return threading.current_thread() is threading.main_thread()

    def in_a_thread() -> bool:
        return threading.current_thread() is threading.main_thread()

    @app.task
    async def work(ctx: Context) -> list[bool]:
        return [await ctx.step("async", on_the_loop), await ctx.step("plain", in_a_thread)]

    handle = await work.enqueue()
    await work_off(app)
    assert await handle.result(30) == [True, False]


async def test_a_plain_task_runs_its_steps_right_where_it_is(app):
    @app.task
    def work(ctx: Context) -> bool:
        return ctx.step("here", threading.get_ident) == threading.get_ident()

    handle = await work.enqueue()
    await work_off(app)
    assert await handle.result(30) is True


async def test_an_async_step_of_a_plain_task_is_refused(app):
    async def nothing() -> None: ...

    @app.task(max_attempts=1)
    def work(ctx: Context) -> None:
        ctx.step("nothing", nothing)

    handle = await work.enqueue()
    await work_off(app)
    assert "step 'nothing' is an async function, but its task is a plain function" in (await handle.job()).error


@pytest.mark.parametrize("kind", KINDS)
async def test_a_step_that_raises_is_run_again(app, kind):
    ran = []

    def shaky() -> int:
        ran.append(1)
        if len(ran) < 3:
            raise OSError("no answer")
        return len(ran)

    work = failing_after(app, kind, {"first": ran.clear, "shaky": shaky}, 9)
    handle = await work.enqueue()
    await work_off(app)
    job = await handle.job()
    assert (job.result, job.attempt) == ([None, 3], 3)
    assert [line.error for line in job.history[:-1]] == ["OSError: no answer"] * 2


async def test_steps_side_by_side_are_all_remembered(app):
    ran = []

    async def one(n: int) -> int:
        await asyncio.sleep(0)
        ran.append(n)
        return n

    @app.task(retry=AT_ONCE)
    async def work(ctx: Context) -> list[int]:
        found = await asyncio.gather(*(ctx.step(f"one-{n}", one, n) for n in range(20)))
        if ctx.attempt == 1:
            raise RuntimeError("power cut")
        return found

    handle = await work.enqueue()
    await work_off(app)
    assert await handle.result(30) == list(range(20))
    assert sorted(ran) == list(range(20))


@pytest.mark.parametrize("kind", KINDS)
async def test_the_same_name_twice_in_one_run_is_refused_before_it_runs(app, kind):
    ran = []

    if kind == "async":

        @app.task(max_attempts=1)
        async def work(ctx: Context) -> None:
            for n in range(2):
                await ctx.step("send", ran.append, n)

    else:

        @app.task(max_attempts=1)
        def work(ctx: Context) -> None:
            for n in range(2):
                ctx.step("send", ran.append, n)

    handle = await work.enqueue()
    await work_off(app)
    error = (await handle.job()).error
    assert f"step 'send' was already used in this run of job {handle.id!r}: give each step a different name" in error
    assert ran == [0]


@pytest.mark.parametrize("name", ["", "x" * 129, "a\nb", 7, None])
async def test_a_name_that_is_none_is_refused_before_it_runs(app, name):
    ran = []

    @app.task(max_attempts=1)
    async def work(ctx: Context) -> None:
        await ctx.step(name, ran.append, 1)

    handle = await work.enqueue()
    await work_off(app)
    assert "a step's name must be 1 to 128 printable characters" in (await handle.job()).error
    assert not ran


@pytest.mark.parametrize(
    ("result", "why"),
    [(object(), "cannot be encoded"), (float("nan"), "NaN"), ("x" * 2000, "over max_payload (1000)")],
    ids=["object", "nan", "too large"],
)
async def test_a_step_whose_result_cannot_be_kept_ends_the_job_since_it_would_run_again(make_app, result, why):
    app = make_app(max_payload=1000)
    ran = []

    @app.task(retry=AT_ONCE)
    async def work(ctx: Context) -> None:
        await ctx.step("small", lambda: "y" * 100)
        await ctx.step("charge", lambda: ran.append(1) or result)

    handle = await work.enqueue()
    await work_off(app)
    job = await handle.job()
    assert job.state == State.DEAD
    assert job.error.startswith("step 'charge' has run, but its result cannot be stored: ")
    assert why in job.error
    assert ran == [1]
    assert [step.name for step in job.steps] == ["small"]


async def test_all_results_together_are_bounded(make_app):
    app = make_app(max_payload=1000)

    @app.task
    async def work(ctx: Context) -> None:
        for n in range(20):
            await ctx.step(f"part-{n}", lambda: "y" * 100)

    handle = await work.enqueue()
    await work_off(app)
    job = await handle.job()
    assert job.state == State.DEAD
    assert 3 <= len(job.steps) <= 9
    assert f"step 'part-{len(job.steps)}' has run" in job.error


@pytest.mark.parametrize("kind", KINDS)
async def test_a_step_for_which_there_is_no_room_left_is_not_run(make_app, kind):
    app, ran = make_app(max_payload=1000), []

    if kind == "async":

        @app.task(retry=AT_ONCE, max_attempts=2)
        async def work(ctx: Context) -> None:
            await ctx.step("prepare", lambda: "x" * 600)
            await ctx.wait_for("go")
            await ctx.step("charge", ran.append, 42)

    else:

        @app.task(retry=AT_ONCE, max_attempts=2)
        def work(ctx: Context) -> None:
            ctx.step("prepare", lambda: "x" * 600)
            ctx.wait_for("go")
            ctx.step("charge", ran.append, 42)

    await app.signal("go", "y" * 600)
    handle = await work.enqueue()
    await work_off(app)
    job = await handle.job()
    assert (job.state, ran) == (State.DEAD, [])
    assert job.error.startswith(
        f"PayloadTooLarge: step 'charge' was not run: its entry brings the stored steps of job {handle.id!r} to 1"
    )
    assert "bytes, over max_payload (1000), and was not stored: store less" in job.error


@pytest.mark.parametrize("kind", KINDS)
async def test_a_checkpoint_of_the_task_is_kept_beside_its_steps(app, kind):
    seen = []

    if kind == "async":

        @app.task(retry=AT_ONCE)
        async def work(ctx: Context) -> None:
            seen.append(ctx.last_checkpoint)
            await ctx.step("a", int)
            await ctx.checkpoint({"$steps": ctx.attempt})
            await ctx.step("b", int)
            seen.append(ctx.last_checkpoint)
            if ctx.attempt == 1:
                raise RuntimeError("power cut")

    else:

        @app.task(retry=AT_ONCE)
        def work(ctx: Context) -> None:
            seen.append(ctx.last_checkpoint)
            ctx.step("a", int)
            ctx.checkpoint({"$steps": ctx.attempt})
            ctx.step("b", int)
            seen.append(ctx.last_checkpoint)
            if ctx.attempt == 1:
                raise RuntimeError("power cut")

    handle = await work.enqueue()
    await work_off(app)
    job = await handle.job()
    assert seen == [None, {"$steps": 1}, {"$steps": 1}, {"$steps": 2}]
    assert job.checkpoint == {"$steps": 2}
    assert [step.name for step in job.steps] == ["a", "b"]


async def test_a_checkpoint_that_looks_like_steps_is_the_users_own(app):
    @app.task
    async def work(ctx: Context) -> None:
        await ctx.checkpoint({"$steps": [{"kind": "step", "name": "a"}]})

    handle = await work.enqueue()
    await work_off(app)
    job = await handle.job()
    assert (job.checkpoint, job.steps) == ({"$steps": [{"kind": "step", "name": "a"}]}, ())


async def test_a_dead_job_that_is_retried_goes_on_behind_its_steps_and_a_succeeded_one_does_it_all_again(app):
    ran, fail = [], [True]

    @app.task(max_attempts=1)
    async def work(ctx: Context) -> None:
        await ctx.step("a", ran.append, "a")
        if fail:
            raise RuntimeError("not yet")
        await ctx.step("b", ran.append, "b")

    handle = await work.enqueue()
    await work_off(app)
    assert (await handle.job()).state == State.DEAD
    fail.clear()
    await app.retry(handle.id)
    await work_off(app)
    assert ((await handle.job()).state, ran) == (State.SUCCEEDED, ["a", "b"])
    await app.retry(handle.id)
    assert (await handle.job()).steps == ()
    await work_off(app)
    assert ran == ["a", "b", "a", "b"]


@pytest.mark.parametrize("wrong", [None, 7, "charge"])
async def test_what_is_no_function_is_refused(app, wrong):
    @app.task(max_attempts=1)
    async def work(ctx: Context) -> None:
        await ctx.step("charge", wrong)

    handle = await work.enqueue()
    await work_off(app)
    assert "step 'charge' takes a function and its arguments" in (await handle.job()).error


async def test_a_step_that_is_done_as_its_worker_stops_is_remembered(app, monkeypatch):
    ran, writing, written = [], asyncio.Event(), asyncio.Event()

    @app.task
    async def work(ctx: Context) -> int:
        adding = ctx.update_meta(a=1)  # under way while the step ends: what that writes has to wait
        await writing.wait()
        value = await ctx.step("charge", lambda: ran.append(1) or len(ran))
        await adding
        return value

    handle = await work.enqueue()
    await app.open()
    write = session_of(app).store.write

    async def slow(batch):
        if batch.notes and not writing.is_set():
            writing.set()
            await written.wait()
        return await write(batch)

    monkeypatch.setattr(session_of(app).store, "write", slow)
    async with working(app) as worker:
        await eventually(lambda: ran and session_of(app).commit._notes)
        worker.stop()
        worker.stop()  # twice: give everything back now
        await eventually(lambda: not worker.active)
        written.set()
    job = await handle.job()
    assert (job.state, job.attempt, [step.name for step in job.steps]) == (State.QUEUED, 0, ["charge"])
    await work_off(app)
    assert (await handle.result(30), ran) == (1, [1])


async def test_a_store_that_does_not_answer_for_a_while_costs_no_step(app, monkeypatch):
    from holdfast.core.errors import StoreUnavailable

    ran, refused = [], []
    monkeypatch.setattr("holdfast.tasks.durable_steps.RESEND_PAUSE", 0.001)

    @app.task
    async def work(ctx: Context) -> int:
        return await ctx.step("charge", lambda: ran.append(1) or len(ran))

    handle = await work.enqueue()
    await app.open()
    write = session_of(app).store.write

    async def sometimes(batch):
        if batch.notes and len(refused) < 3:
            refused.append(batch)
            raise StoreUnavailable("not now")
        return await write(batch)

    monkeypatch.setattr(session_of(app).store, "write", sometimes)
    await work_off(app)
    assert (await handle.result(30), len(ran), len(refused)) == (1, 1, 3)
