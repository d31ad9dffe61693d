"""A worker runs jobs: where, in what order, how many at once, and what they see."""

import asyncio
import contextvars
import threading
import time

import pytest

from holdfast import ConfigError, Context, State, Worker
from holdfast.app import parts_of
from holdfast.worker.run.shell import allow_shell
from support.eventually import eventually
from support.inside import session_of
from support.workers import work_off, working

current_user = contextvars.ContextVar("current_user", default="nobody")


# -- where


async def test_an_async_task_runs_on_the_workers_loop(app):
    @app.task
    async def where() -> bool:
        return asyncio.get_running_loop() is loop and threading.current_thread() is threading.main_thread()

    loop = asyncio.get_running_loop()
    handle = await where.enqueue()
    await work_off(app)
    assert await handle.result(timeout=30) is True


async def test_a_plain_function_runs_in_a_thread_and_blocks_nobody(app):
    released = threading.Event()

    @app.task
    def block() -> str:
        released.wait(90)
        return threading.current_thread().name

    @app.task
    async def release() -> None:
        released.set()

    async with working(app, concurrency=2):
        blocked = await block.enqueue()
        await release.enqueue()
        assert (await blocked.result(timeout=30)).startswith("holdfast-task")


async def test_an_async_task_that_blocks_the_loop_runs_once(make_app):
    app = make_app(lease=1.0, poll=0.05)
    runs = []

    @app.task
    async def block() -> None:
        runs.append(1)
        time.sleep(2.5)  # noqa: ASYNC251  # more than two leases

    other = make_app(
        None if parts_of(app).url.startswith("sqlite") else parts_of(app).runtime._store.sibling(), lease=1.0, poll=0.05
    )
    handle = await block.enqueue()
    sweeping = threading.Event()

    def sweep():
        # From another thread: code on this loop is blocked with it.
        while not sweeping.wait(0.05):
            other.sync.bulk.recover()

    thread = threading.Thread(target=sweep)
    thread.start()
    try:
        await work_off(app)
    finally:
        sweeping.set()
        await asyncio.to_thread(thread.join)
    assert (await handle.job()).state == State.SUCCEEDED
    assert runs == [1]


# -- order


async def test_jobs_run_by_priority_then_in_enqueue_order(app):
    ran = []

    @app.task
    async def work(name: str) -> None:
        ran.append(name)

    for name, priority in (("c", 0), ("d", 0), ("e", 5), ("a", -5), ("b", -4)):
        await work.using(priority=priority).enqueue(name)
    await work_off(app, concurrency=1)
    assert ran == ["a", "b", "c", "d", "e"]


async def test_a_worker_serves_every_queue_that_its_tasks_name(app):
    @app.task(queue="mail")
    def send() -> None: ...

    mail, plain = await send.enqueue(), await app.enqueue("noop")
    elsewhere = await app.submit("noop", b"{}", json=True, queue="elsewhere")
    await work_off(app)
    assert (await mail.job()).state == (await plain.job()).state == State.SUCCEEDED
    assert (await elsewhere.job()).state == State.QUEUED


async def test_a_worker_reported_its_queues_takes_nothing_else(app):
    wanted = await app.submit("noop", b"{}", json=True, queue="mail")
    other = await app.enqueue("noop")
    await work_off(app, queues=["mail"])
    assert (await wanted.job()).state == State.SUCCEEDED
    assert (await other.job()).state == State.QUEUED


async def test_no_queue_starves_behind_another_that_never_empties(app):
    ran = []

    @app.task(queue="busy")
    async def endless() -> None:
        ran.append("busy")
        await endless.enqueue()
        await endless.enqueue()

    @app.task(queue="rare")
    async def rare() -> None:
        ran.append("rare")

    for _ in range(20):
        await endless.enqueue()
    async with working(app, queues=["busy", "rare", "also"], concurrency=1):
        handle = await rare.enqueue()
        await handle.wait(timeout=30)
    assert ran.index("rare") < 50


# -- how many


async def test_no_more_jobs_are_claimed_than_there_are_slots(app):
    held, most = 0, 0
    gate = asyncio.Event()

    @app.task
    async def hold() -> None:
        nonlocal held, most
        held += 1
        most = max(most, held)
        await gate.wait()
        held -= 1

    for _ in range(20):
        await hold.enqueue()
    async with working(app, concurrency=3):
        await eventually(lambda: held == 3)
        assert (await app.stats()).counts["running"] == 3
        gate.set()

        async def all_done():
            stats = (await app.stats()).counts
            assert stats["running"] <= 3
            return stats["succeeded"] == 20

        await eventually(all_done)
    assert most == 3


async def test_threads_fill_the_same_slots(app):
    lock, gate = threading.Lock(), threading.Event()
    running = []

    @app.task
    def block() -> None:
        with lock:
            running.append(1)
        gate.wait(90)

    for _ in range(6):
        await block.enqueue()
    async with working(app, concurrency=2):
        await eventually(lambda: len(running) == 2)
        assert (await app.stats()).counts["running"] == 2
        gate.set()

        async def all_done():
            return (await app.stats()).counts["succeeded"] == 6

        await eventually(all_done)


async def test_a_hundred_quick_jobs_are_soon_done(app):
    @app.task
    async def quick(n: int) -> int:
        return n

    handles = await app.enqueue_many([(quick, n) for n in range(100)])
    await work_off(app)
    assert [await handle.result(timeout=30) for handle in handles] == list(range(100))


# -- what a job sees


async def test_a_context_is_given_to_the_first_parameter(app):
    @app.task
    def plain(context: Context, a: int) -> list:
        return [context.job.id, a]

    @app.task
    async def only(me: "Context", /, a: int, b: int = 2) -> list:
        return [me.job.id, a, b]

    @app.task
    async def optional(ctx: Context | None = None, a: int = 1) -> list:
        return [ctx.job.id, a]

    @app.task
    def more(ctx: Context, a: int, *more: int, **rest: int) -> list:
        return [ctx.job.id, a, *more, rest]

    handles = [
        await plain.enqueue(1),
        await only.enqueue(1, 3),
        await optional.enqueue(1),
        await more.enqueue(1, 2, 3, x=4),
    ]
    await work_off(app)
    results = [await handle.result(timeout=30) for handle in handles]
    ids = [handle.id for handle in handles]
    assert results == [[ids[0], 1], [ids[1], 1, 3], [ids[2], 1], [ids[3], 1, 2, 3, {"x": 4}]]


class ReprCodec:
    def dumps(self, value):
        return repr(value).encode()

    def loads(self, data):
        return eval(data)


async def test_a_task_with_its_own_codec_gets_a_context_and_refuses_a_wrong_call_before_it_runs(app):
    ran = []

    @app.task(codec=ReprCodec(), max_attempts=1)
    async def work(ctx: Context, a: int, b: int) -> str:
        ran.append(a)
        return ctx.job.id

    right, wrong = await work.enqueue(1, 2), await work.enqueue(3)
    await work_off(app)
    assert await right.result(timeout=30) == right.id
    assert (await wrong.job()).last_error == "InvalidJob: work() missing 1 required argument: 'b'"
    assert ran == [1]


async def test_a_context_cannot_be_passed_from_outside(app):
    from holdfast import InvalidJob

    @app.task
    def work(ctx: Context) -> None: ...

    with pytest.raises(InvalidJob, match="gets 'ctx' from the worker"):
        await work.enqueue(ctx=5)


async def test_a_job_sees_itself(app):
    @app.task(queue="mail")
    def look(ctx: Context) -> dict:
        job = ctx.job
        assert ctx.cancelled is False
        return {"attempt": ctx.attempt, "fence": ctx.fence, "queue": job.queue, "meta": job.meta, "state": job.state}

    handle = await look.using(meta={"a": 1}).enqueue()
    await work_off(app)
    expected = {"attempt": 1, "fence": 1, "queue": "mail", "meta": {"a": 1}, "state": "running"}
    assert await handle.result(timeout=30) == expected


async def test_a_jobs_log_lines_say_whose_they_are(app, caplog):
    @app.task
    def speak(ctx: Context) -> None:
        ctx.log.warning("hello from %s", "inside")

    handle = await speak.enqueue()
    await work_off(app)
    [line] = [record for record in caplog.records if record.name == "holdfast.job"]
    assert line.getMessage() == "hello from inside"
    assert (line.job_id, line.job_type, line.attempt) == (handle.id, "speak", 1)


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_context_variables_of_one_job_do_not_reach_another(app, kind):
    seen = []

    if kind == "async":

        @app.task
        async def work(user: str) -> None:
            seen.append(current_user.get())
            current_user.set(user)
            await asyncio.sleep(0)
            assert current_user.get() == user

    else:

        @app.task
        def work(user: str) -> None:
            seen.append(current_user.get())
            current_user.set(user)

    for user in ("ann", "bob", "cid"):
        await work.enqueue(user)
    await work_off(app, concurrency=1)
    assert len(set(seen)) == 1, "each begins with what the worker began with"
    assert current_user.get() == "nobody"


async def test_tasks_may_enqueue_more_tasks(app):
    @app.task
    async def count(n: int) -> int:
        if n:
            handle = await count.enqueue(n - 1)
            return 1 + await handle.result(timeout=30)
        return 0

    async with working(app, concurrency=5):
        assert await (await count.enqueue(3)).result(timeout=30) == 3


# -- in the user's own program


async def test_a_worker_runs_in_a_task_group_of_the_user(app):
    @app.task
    async def add(a: int, b: int) -> int:
        return a + b

    worker = Worker(app, poll=0.1)
    async with asyncio.TaskGroup() as group:
        group.create_task(worker.run())
        assert await (await add.enqueue(1, 2)).result(timeout=30) == 3
        worker.stop()


async def test_two_workers_share_an_app(app):
    ran = []

    @app.task
    async def work(n: int) -> None:
        ran.append(n)
        await asyncio.sleep(0)

    async with working(app, concurrency=2), working(app, concurrency=2):
        handles = await app.enqueue_many([(work, n) for n in range(40)])
        for handle in handles:
            await handle.wait(timeout=30)
        assert (await app.stats()).workers == 2
    assert sorted(ran) == list(range(40))


async def test_two_apps_on_one_store_share_the_work(app, make_app):
    await app.open()
    other = make_app(session_of(app).store.sibling())
    ran = []

    for one in (app, other):

        @one.task(name="work")
        async def work(n: int) -> None:
            ran.append(n)

    handles = await app.enqueue_many([("work", n) for n in range(40)])
    async with working(app, concurrency=2), working(other, concurrency=2):
        for handle in handles:
            await handle.wait(timeout=30)
    assert sorted(ran) == list(range(40))


async def test_until_idle_ends_when_nothing_is_ready(app):
    @app.task
    async def parent() -> None:
        await app.enqueue("noop")

    await parent.enqueue()
    later = await parts_of(app).registry.tasks["noop"].using(delay=60).enqueue()
    await work_off(app)
    counts = (await app.stats()).counts
    assert (counts["succeeded"], counts["scheduled"], counts["running"]) == (2, 1, 0)
    assert (await later.job()).state == State.SCHEDULED


async def test_until_idle_on_an_empty_store_ends_at_once(make_app):
    await work_off(make_app(poll=3600))


async def test_a_worker_needs_an_app_of_its_own_loop(app):
    opened, over = threading.Event(), threading.Event()

    async def elsewhere():
        async with app:
            opened.set()
            await asyncio.to_thread(over.wait)

    other = threading.Thread(target=asyncio.run, args=(elsewhere(),))
    other.start()
    await asyncio.to_thread(opened.wait)
    with pytest.raises(ConfigError, match="the app is open on another event loop"):
        await Worker(app).run()
    over.set()
    await asyncio.to_thread(other.join)


async def test_an_app_in_the_background_moves_to_its_worker(app):
    job = await asyncio.to_thread(app.sync.enqueue, "noop")
    await work_off(app)
    assert await asyncio.to_thread(lambda: job.job().state) == "succeeded"


async def test_a_worker_leaves_nothing_behind_on_the_loop(app, caplog):
    import gc

    before = asyncio.all_tasks()
    await app.enqueue("noop")
    await work_off(app)
    await eventually(lambda: asyncio.all_tasks() <= before)
    gc.collect()
    assert "Task was destroyed" not in caplog.text
    assert not [thread for thread in threading.enumerate() if thread.name == "holdfast-heartbeat"]


@pytest.mark.parametrize(
    ("tasks", "slots"), [("async", 100), ("plain", 10), ("both", 10), ("none", 10), ("async and shell", 10)]
)
async def test_a_worker_has_more_slots_if_all_tasks_are_async(app, tasks, slots):
    async def waits() -> None: ...

    def computes() -> None: ...

    if tasks in ("async", "both", "async and shell"):
        app.task(waits)
    if tasks in ("plain", "both"):
        app.task(computes)
    if tasks == "async and shell":
        allow_shell(parts_of(app))
    async with app, working(app) as worker:
        await eventually(lambda: worker.holder)
        assert worker.holder.slots == slots
