"""Dependencies of a worker: made once for all its jobs, and cleaned up when it stops."""

import asyncio
import threading

import pytest

from holdfast import Depends, Holdfast, Worker
from holdfast.tasks.depends import Dependencies
from holdfast.worker import worker
from holdfast.worker.run import injection
from support.dependencies import Seen, task_of
from support.eventually import eventually
from support.workers import work_off, working


@pytest.fixture
async def app():
    async with Holdfast("memory://") as app:
        yield app


@pytest.fixture
def seen():
    return Seen()


async def test_concurrent_jobs_share_one_dependency_of_the_worker(app, seen):
    ready = asyncio.Event()

    async def pool(*, config: str = Depends(seen.made("config", "generator"), scope="worker")):
        seen.append("+pool")
        await ready.wait()
        yield object()
        seen.append("-pool")

    used = []

    @app.task
    async def on_loop(*, pool: object = Depends(pool, scope="worker")) -> None:
        used.append(pool)

    @app.task
    def plain(*, pool: object = Depends(pool, scope="worker")) -> None:
        used.append(pool)

    handles = await app.enqueue_many([(on_loop,), (plain,), (on_loop,), (plain,), (on_loop,)])
    async with working(app, concurrency=5, lease=1):
        await eventually(lambda: seen == ["+config", "+pool"])
        await handles[0].cancel()  # the job that has begun to make it, perhaps: the others still get it
        assert (await handles[0].wait(90)).state == "cancelled"
        ready.set()
        for handle in handles[1:]:
            await handle.result(30)
    assert len(used) == 4
    assert len(set(map(id, used))) == 1
    assert seen == ["+config", "+pool", "-pool", "-config"]


async def test_it_is_made_again_after_a_failure_and_cleaned_up_after_running_jobs(app, seen):
    fails = [False, True]

    def model():
        if fails.pop():
            raise OSError("no file")
        yield "model"
        seen.append("-model")

    begun = asyncio.Event()

    @app.task(max_attempts=2, retry=lambda error, attempt: 0.0)
    async def use(*, model: str = Depends(model, scope="worker")) -> str:
        begun.set()
        await asyncio.sleep(0.02)
        seen.append("job ended")
        return model

    handle = await use.enqueue()
    async with working(app):
        await begun.wait()
    assert seen == ["job ended", "-model"]
    assert (await handle.job()).attempt == 2


async def test_a_worker_that_stops_does_not_wait_for_a_set_up(app, seen):
    async def stuck(outer: str = Depends(seen.made("outer"), scope="worker")):
        seen.append("stuck")
        await asyncio.Event().wait()

    task = task_of(app, "async", Depends(stuck, scope="worker"))
    handle = await task.enqueue()
    async with working(app, grace=0):
        await eventually(lambda: "stuck" in seen)
    assert (await handle.job()).state == "queued"
    assert seen == ["+outer", "stuck", "-outer"]


@pytest.mark.parametrize("kind", ["async", "plain", "deaf"])
async def test_a_cleanup_that_hangs_is_cancelled_and_the_others_follow(app, seen, kind, caplog, monkeypatch):
    monkeypatch.setattr(worker, "CANCEL_GRACE", 0.02)
    over, heard = threading.Event(), asyncio.Event()

    async def pool(outer: str = Depends(seen.made("outer"), scope="worker")):
        yield "it"
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if kind != "deaf":
                raise
            await heard.wait()

    def plain_pool(outer: str = Depends(seen.made("outer"), scope="worker")):
        yield "it"
        over.wait()

    task = task_of(app, "async", Depends(plain_pool if kind == "plain" else pool, scope="worker"))
    handle = await task.enqueue()
    async with working(app, grace=0):
        await handle.result(30)
    assert "pool() took longer than the grace period and was cancelled" in caplog.text
    assert seen == (["+outer"] if kind == "deaf" else ["+outer", "outer got CancelledError", "-outer"])
    over.set()
    heard.set()


async def test_a_second_stop_cancels_a_cleanup_in_the_grace_period(app, seen, monkeypatch):
    monkeypatch.setattr(worker, "CANCEL_GRACE", 0.02)

    async def pool():
        yield "it"
        seen.append("closing")
        await asyncio.Event().wait()

    handle = await task_of(app, "async", Depends(pool, scope="worker")).enqueue()
    async with working(app, grace=3600) as running:
        await handle.result(30)
        running.stop()
        await eventually(lambda: seen == ["closing"])


async def test_a_plain_set_up_that_outlasts_the_worker_is_cleaned_up_and_keeps_no_process(app, seen):
    go, threads = threading.Event(), []

    def slow():
        threads.append(threading.current_thread())
        go.wait()
        yield "it"
        seen.append("-slow")

    await task_of(app, "async", Depends(slow, scope="worker")).enqueue()
    async with working(app, grace=0):
        await eventually(lambda: threads)
    assert seen == []
    assert threads[0].daemon
    go.set()
    await eventually(lambda: seen == ["-slow"])


def test_a_thread_does_not_wait_for_a_loop_that_has_stopped(seen, monkeypatch):
    monkeypatch.setattr(injection, "LOOP_EVERY", 0.01)
    loop, stuck = asyncio.new_event_loop(), threading.Event()

    async def hanging(outer: str = Depends(seen.made("outer", "generator"))):
        yield "it"
        stuck.set()
        await asyncio.Event().wait()

    needed = Dependencies({"it": Depends(hanging)})
    call = injection.injected(needed, lambda it: it, on_loop=False, context=None, loop=loop)
    errors = []

    def run():
        try:
            call()
        except RuntimeError as error:
            errors.append(str(error))

    thread = threading.Thread(target=run, daemon=True)

    async def until_stuck():
        thread.start()  # only now: a loop that does not run yet would end the call too
        await asyncio.to_thread(stuck.wait)

    loop.run_until_complete(until_stuck())
    thread.join(90)
    assert not thread.is_alive()
    assert errors == ["the worker's event loop ended, so an async dependency was not made or cleaned up"]
    assert seen == ["+outer", "outer got RuntimeError", "-outer"]
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(asyncio.sleep(0))
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


async def test_an_exception_that_is_raised_again_is_noted_once(app):
    broken = OSError("no route")

    def failing():
        raise broken

    task = task_of(app, "plain", Depends(failing))
    await task.enqueue()
    handle = await task.enqueue()
    await work_off(app)
    assert (await handle.job()).error == "OSError: no route (in dependency failing())"


async def test_an_error_of_its_cleanup_is_logged(app, seen, caplog):
    def broken(outer: str = Depends(seen.made("outer"), scope="worker")):
        yield 1
        raise OSError("no answer")

    handle = await task_of(app, "plain", Depends(broken, scope="worker")).enqueue()
    await work_off(app)
    assert (await handle.job()).state == "succeeded"
    assert "the cleanup of a worker's dependency failed" in caplog.text
    assert "no answer" in caplog.text
    assert seen[-1] == "-outer"


async def test_a_worker_that_is_cancelled_with_all_tasks_of_its_loop_cleans_up(seen):
    app = Holdfast("memory://")
    task = task_of(app, "plain", Depends(seen.made("it"), scope="worker"))

    async def main():
        handle = await task.enqueue()
        running = asyncio.create_task(Worker(app).run())
        await handle.result(30)
        assert not running.done()

    await asyncio.to_thread(asyncio.run, main())
    assert seen == ["+it", "-it"]


async def test_each_worker_has_its_own(app, seen):
    task = task_of(app, "plain", Depends(seen.made("it"), scope="worker"))
    for _ in range(2):
        await task.enqueue()
        await work_off(app)
    assert seen == ["+it", "-it"] * 2
