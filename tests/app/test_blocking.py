"""Blocking code: `app.sync`, on both paths of a blocking enqueue."""

import asyncio
import logging
import threading
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from holdfast import (
    Backoff,
    Context,
    Flow,
    HoldfastError,
    InvalidJob,
    JobExists,
    JobFailed,
    JobNotFound,
    KeyConflict,
    LeaseLost,
    PayloadTooLarge,
    QueueFull,
    ScheduleNotFound,
    State,
    Worker,
)
from holdfast.app import parts_of
from holdfast.sync.blocking import runs_on
from support.blocking_paths import PATHS, SERVERS, server_url, take_path
from support.eventually import eventually
from support.inside import session_of
from support.workers import working


@pytest.fixture(params=PATHS)
def path(request):
    return request.param


@pytest.fixture
def direct(path, monkeypatch):
    """Whether each lone blocking enqueue was written without the app's loop."""
    return take_path(path, monkeypatch)


@pytest.fixture
def app(make_app, path, direct, tmp_path):
    urls = {"group": None, "sqlite": f"sqlite:///{tmp_path}/jobs.db?synchronous=normal"}
    app = make_app(server_url(path) if path in SERVERS else urls[path])

    @app.task
    def add(a: int, b: int) -> int:
        return a + b

    @app.task(max_attempts=1)
    def fail() -> None:
        raise RuntimeError("no")

    return app


@pytest.fixture
def add(app):
    return parts_of(app).registry.tasks["add"]


def work_off_blocking(app):
    runs_on(parts_of(app).runtime)(Worker(app, until_idle=True).run)


def test_the_readmes_one_line_works(app, add):
    handle = add.sync.enqueue(1, 2)
    work_off_blocking(app)
    assert handle.result(timeout=30) == 3


def test_only_a_lone_enqueue_is_written_without_the_loop(app, add, path, direct):
    add.sync.enqueue(1, 2)
    direct.clear()  # a new server does not know the script, and rejects the first request
    add.sync.enqueue(1, 2)
    app.sync.enqueue_many([(add, 1, 1), (add, 2, 2)])
    app.sync.submit("raw", b"abc")
    assert [used for used in direct if used] == ([] if path == "group" else [True, True])
    assert app.sync.stats().counts["queued"] == 5


def test_enqueue_and_look(app, add):
    sync = app.sync
    handle = sync.enqueue("add", 1, b=2)
    assert repr(handle) == f"SyncHandle('{handle.id}')"
    assert handle.job().payload == sync.job(handle.id).payload == {"a": 1, "b": 2}
    many = sync.enqueue_many([(add, 1, 1), app.call(add, 2, 2)])
    assert [job.id for job in sync.jobs(limit=2).jobs] == [many[1].id, many[0].id]
    assert sync.stats().counts["queued"] == 3
    assert sync.workers() == []
    work_off_blocking(app)
    assert [one.result(timeout=30) for one in (handle, *many)] == [3, 2, 4]
    assert handle.wait(timeout=30).state == State.SUCCEEDED


def test_options_of_a_call(app, add):
    job = add.sync.using(queue="other", key="k").using(priority=-3).enqueue(1, 2).job()
    assert (job.queue, job.key, job.priority) == ("other", "k", -3)
    assert add.using(queue="third").sync.enqueue(1, 2).job().queue == "third"


def test_all_options_are_stored(app, add):
    options = {"tags": ("a", "b"), "meta": {"n": [1, None]}, "max_attempts": 7, "timeout": 2.5, "delay": 60}
    for id in ("one", "two"):
        made = (
            add.sync.using(id=id, retry=Backoff(3), **({} if id == "one" else {"key": "k"}) | options)
            .enqueue(1, 2)
            .job()
        )
        assert (made.id, made.tags, made.meta, made.state) == (id, ("a", "b"), {"n": [1, None]}, State.SCHEDULED)
        assert (made.max_attempts, made.timeout, made.payload) == (7, 2.5, {"a": 1, "b": 2})


def test_keys_and_ids_are_recognised(app, add):
    first = add.sync.using(key="k", id="first").enqueue(1, 2)
    assert add.sync.using(key="k").enqueue(1, 2).id == first.id
    with pytest.raises(KeyConflict, match="'k'"):
        add.sync.using(key="k").enqueue(3, 4)
    for key in (None, "other"):
        with pytest.raises(JobExists, match="'first'"):
            add.sync.using(key=key, id="first").enqueue(1, 2)
    again = add.sync.using(unique="until_start").enqueue(5, 6)
    assert add.sync.using(unique="until_start").enqueue(5, 6).id == again.id
    assert app.sync.stats().counts["queued"] == 2


def test_what_is_too_much_is_refused(app, add):
    app.sync.config.set("max-depth", 1)
    add.sync.enqueue(1, 2)
    with pytest.raises(QueueFull):
        add.sync.enqueue(1, 2)
    with pytest.raises(PayloadTooLarge):
        app.sync.submit("raw", b"x" * (1 << 20 | 1))


def test_hooks_may_await(app, add):
    async def tag(job, store):
        await asyncio.sleep(0)
        return await store(msgspec.structs.replace(job, tags=("seen",)))

    app.around_enqueue.append(tag)
    assert add.sync.enqueue(1, 2).job().tags == ("seen",)


def test_a_large_payload_arrives(app):
    payload = bytes(range(256)) * 4000
    app.sync.submit("raw", payload, id="large")
    [claim] = app.sync.claim()
    assert claim.payload == payload


def test_each_enqueue_is_one_log_line(app, add, caplog):
    caplog.set_level(logging.DEBUG, "holdfast")
    first = add.sync.using(key="k").enqueue(1, 2)
    add.sync.using(key="k").enqueue(1, 2)
    second = add.sync.enqueue(1, 2)
    lines = [(line.event, line.fields["job_id"]) for line in caplog.records if hasattr(line, "event")]
    assert lines == [("job_created", first.id), ("idempotent_submission", first.id), ("job_created", second.id)]


def test_each_enqueue_is_one_event_on_the_loop(app, add):
    events = []

    @app.on("*")
    def handle(event):
        assert asyncio.get_running_loop()
        events.append((event.name, event.fields["job_id"]))

    first = add.sync.using(key="k").enqueue(1, 2)
    add.sync.using(key="k").enqueue(1, 2)
    second = add.sync.enqueue(1, 2)
    assert events == [("job_created", first.id), ("idempotent_submission", first.id), ("job_created", second.id)]


def test_operate(app):
    sync = app.sync
    bad = sync.enqueue("fail")
    work_off_blocking(app)
    with pytest.raises(JobFailed, match="RuntimeError: no"):
        bad.result(timeout=30)
    assert sync.retry(bad.id).state == State.QUEUED
    sync.handle(bad.id).update_meta(seen_by="ann")
    assert sync.job(bad.id).meta == {"seen_by": "ann"}
    assert bad.cancel() is True
    assert sync.cancel(bad.id) is False
    assert sync.bulk.purge(state="cancelled") == 1
    with pytest.raises(JobNotFound):
        sync.delete(bad.id)
    sync.pause("default")
    assert sync.claim() == []
    sync.resume("default")
    sync.config.set("max-retries", 2)
    assert sync.config.get("max_retries") == 2
    assert sync.config.list() == {"max_retries": 2}
    sync.config.unset("max_retries")
    assert sync.bulk.recover() == 0


def test_a_flow_from_its_start_to_its_end(app, add):
    sync = app.sync
    flow = Flow("sum")
    last = flow.add(add, flow.add(add, 1, 2), 3)
    handle = sync.enqueue_flow(flow)
    [seen] = sync.flows.list(state="blocked").flows
    assert (seen.id, seen.name, seen.jobs) == (handle.id, "sum", 2)
    work_off_blocking(app)
    assert handle.wait(timeout=30).counts == {"succeeded": 2}
    assert handle.handle(last).result(timeout=30) == 6
    assert [job.id for job in handle.jobs()] == [f"{handle.id}.0", f"{handle.id}.1"]
    assert sync.flows.list(state="blocked").flows == []


def test_a_flow_that_fails_is_retried_and_cancelled(app):
    flow = Flow("bad")
    flow.add(parts_of(app).registry.tasks["fail"])
    handle = app.sync.enqueue_flow(flow)
    work_off_blocking(app)
    assert handle.wait(timeout=30).state == State.DEAD
    assert app.sync.flows.handle(handle.id).retry() == 1
    assert handle.cancel() is True
    assert handle.status().state == State.CANCELLED


async def test_a_flow_that_was_awaited_is_handed_to_a_thread(app, add):
    flow = Flow("sum")
    node = flow.add(add, 1, 2)
    handle = (await app.enqueue_flow(flow)).sync
    with pytest.raises(InvalidJob, match="another flow"):
        handle.handle(Flow("other").add(add, 1, 2))
    assert repr(handle) == f"SyncFlowHandle('{handle.id}')"
    async with working(app):
        assert (await asyncio.to_thread(handle.wait, 30)).state == State.SUCCEEDED
    assert await asyncio.to_thread(handle.handle(node).result, 1) == 3


def test_a_signal_wakes_a_job(app):
    @app.task
    def ask(ctx: Context) -> str:
        return ctx.wait_for("answer")

    handle = ask.sync.enqueue()
    work_off_blocking(app)
    assert app.sync.signal("answer", "yes") == 1
    work_off_blocking(app)
    assert handle.result(timeout=30) == "yes"


def test_schedules(app, add):
    schedules = app.sync.schedules
    schedules.put("sums", add.using(queue="slow").call(1, 2), cron="0 6 * * MON", tz="Europe/Oslo", overlap="skip")
    assert [one.name for one in schedules.list()] == ["sums"]
    assert schedules.get("sums").words == "At 06:00 on Monday (Europe/Oslo)"
    assert schedules.pause("sums").next_run is None
    assert schedules.resume("sums").next_run is not None
    job = schedules.run_now("sums").job()
    assert (job.queue, job.payload) == ("slow", {"a": 1, "b": 2})
    schedules.delete("sums")
    with pytest.raises(ScheduleNotFound, match="'sums'"):
        schedules.get("sums")


def test_claim_by_hand(app):
    sync = app.sync
    sync.submit("raw", b"abc", id="job")
    [claim] = sync.claim(lease=0.9)

    async def renewed_often():
        [seen] = await session_of(app).store.holders()
        return seen.heartbeat > 5

    assert (claim.payload, claim.fence, claim.job.id) == (b"abc", 1, "job")
    run = runs_on(parts_of(app).runtime)
    claim.started(77)
    claim.extend()
    with claim.kept_alive() as same:
        assert same is claim
        run(eventually, renewed_often)  # longer than the lease, while nothing but the heartbeat extends it
        assert sync.bulk.recover() == 0
    claim.fail("again", retry_in=0)
    with pytest.raises(LeaseLost):
        claim.complete()
    [claim] = sync.claim()
    claim.release()
    [claim] = sync.claim()
    claim.complete({"n": 1})
    assert sync.handle("job").result(timeout=30) == {"n": 1}


def test_a_monitors_word(app):
    app.sync.submit("raw", b"", id="job")
    [claim] = app.sync.claim()
    app.sync.handle("job").mark_failed("gone")
    with pytest.raises(LeaseLost):
        claim.cancel()


def test_errors_come_out_where_the_call_was_made(app, add):
    with pytest.raises(InvalidJob, match="'b'"):
        add.sync.enqueue(1, object())
    with pytest.raises(JobNotFound):
        app.sync.job("none")
    with pytest.raises(TimeoutError):
        add.sync.enqueue(1, 2).result(timeout=0.05)


# -- threads and loops


def test_many_threads_share_one_app(app, add):
    def enqueue(n):
        return add.sync.enqueue(n, 0).id

    with ThreadPoolExecutor(16) as pool:
        ids = list(pool.map(enqueue, range(200)))
    assert len(set(ids)) == 200
    assert app.sync.stats().counts["queued"] == 200
    assert sum(thread.name == "holdfast-loop" for thread in threading.enumerate()) == 1


def test_the_first_use_may_come_from_many_threads_at_once(app):
    start = threading.Barrier(16)

    def first(_):
        start.wait()
        return app.sync.enqueue("noop").id

    with ThreadPoolExecutor(16) as pool:
        assert len(set(pool.map(first, range(16)))) == 16
    assert app.sync.stats().counts["queued"] == 16


async def test_inside_a_running_loop_there_is_a_clear_error(app, add):
    message = "this thread runs an event loop, which app.sync would block; use `await`"
    for call in (
        lambda: add.sync.enqueue(1, 2),
        lambda: app.sync.job("x"),
        lambda: app.sync.handle("x").result(),
        app.sync.close,
        app.sync.__enter__,
        app.sync.config.list,
        app.sync.flows.list,
        app.sync.schedules.list,
    ):
        with pytest.raises(HoldfastError, match=message):
            call()


async def test_a_thread_beside_the_loop_shares_the_loops_app(app, add):
    await app.open()
    handle = await add.enqueue(1, 1)
    other = await asyncio.to_thread(add.sync.enqueue, 2, 2)
    assert parts_of(app).runtime.live_loop() is asyncio.get_running_loop()
    assert {job.id for job in (await app.jobs()).jobs} == {handle.id, other.id}
    async with working(app):
        assert await asyncio.to_thread(other.result, 3) == 4
        assert await handle.result(timeout=30) == 2


def test_async_code_beside_blocking_code_shares_its_app(app, add):
    first = add.sync.enqueue(1, 1)

    async def main():
        second = await add.enqueue(2, 2)
        return [job.id for job in (await app.jobs()).jobs], second.id

    ids, second = asyncio.run(main())
    assert ids == [second, first.id]
    assert first.job().state == State.QUEUED


async def test_blocking_and_async_callers_may_both_be_the_first(app):
    ids = await asyncio.gather(
        *(asyncio.to_thread(lambda: app.sync.enqueue("noop").id) for _ in range(8)),
        *(app.enqueue("noop") for _ in range(8)),
    )
    assert len(ids) == 16
    assert (await app.stats()).counts["queued"] == 16


async def test_a_task_in_a_thread_may_enqueue_another(app, add):
    @app.task
    def parent() -> int:
        return add.sync.enqueue(20, 1).result(timeout=30) * 2

    async with working(app, concurrency=4):
        assert await (await parent.enqueue()).result(timeout=30) == 42


# -- opening and closing


def test_a_with_block_opens_and_closes(app):
    with app.sync as sync:
        assert sync is app.sync
        sync.enqueue("noop")
    assert not any(thread.name == "holdfast-loop" for thread in threading.enumerate())


def test_after_closing_the_app_opens_again_at_the_next_use(app, add):
    first = add.sync.enqueue(1, 2)
    app.sync.close()
    app.sync.close()
    second = add.sync.enqueue(3, 4)
    assert {job.id for job in app.sync.jobs().jobs} == {first.id, second.id}


def test_closing_while_another_thread_waits_leaves_nobody_hanging(app):
    handle = app.sync.enqueue("noop")
    ended = []

    def wait():
        try:
            handle.result(timeout=30)
        except BaseException as error:  # noqa: BLE001
            ended.append(error)

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    app.sync.stats()
    app.sync.close()
    waiting.join(3)
    assert not waiting.is_alive()
    assert isinstance(ended[0], HoldfastError)


def test_closing_from_a_thread_closes_the_loops_app(app):
    async def main():
        await app.enqueue("noop")
        await asyncio.to_thread(app.sync.close)
        assert parts_of(app).runtime.live_loop() is None
        return (await app.stats()).counts["queued"]

    assert asyncio.run(main()) == 1


def test_a_thread_that_outlives_its_app_does_not_keep_the_program_alive(app):
    app.sync.enqueue("noop")
    [serving] = [thread for thread in threading.enumerate() if thread.name == "holdfast-loop"]
    assert serving.daemon
