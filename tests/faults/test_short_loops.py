"""One app in a program whose event loops come and go: nothing leaks, every acknowledged job is stored."""

import asyncio
import gc
import threading
import weakref
from pathlib import Path

import pytest

from holdfast import ConfigError, Holdfast, HoldfastError, Worker
from holdfast.app import parts_of
from holdfast.client.loop_calls import LoopEnded
from holdfast.sync.blocking import runs_on
from support.eventually import eventually


@pytest.fixture
def app(store_url):
    app = Holdfast(store_url)
    yield app
    app.sync.close()


def descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


def queued(app):
    return app.sync.stats().counts["queued"]


def test_a_loop_per_call_shares_the_apps_connections(app):
    asyncio.run(app.enqueue("noop"))  # closes the app at its end: from now on, it has a loop of its own
    asyncio.run(app.enqueue("noop"))
    files, threads = descriptors(), set(threading.enumerate())
    for _ in range(30):
        asyncio.run(app.enqueue("noop"))
    assert descriptors() <= files
    assert set(threading.enumerate()) <= threads
    assert queued(app) == 32


def test_threads_with_a_loop_per_call_are_all_acknowledged(app):
    acknowledged, barrier = [], threading.Barrier(8)

    def program():
        barrier.wait()
        acknowledged.extend(asyncio.run(app.enqueue("noop")).id for _ in range(10))

    threads = [threading.Thread(target=program) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)
    assert len(set(acknowledged)) == queued(app) == 80


def test_a_loop_that_opened_the_app_and_ends_closes_it(app):
    before = set(threading.enumerate())  # some, of other tests, may still be ending

    async def main():
        await app.open()
        assert parts_of(app).runtime.live_loop() is asyncio.get_running_loop()
        await app.enqueue("noop")

    files = None
    for _ in range(3):
        asyncio.run(main())
        assert parts_of(app).runtime.live_loop() is None
        asyncio.run(eventually(lambda: set(threading.enumerate()) <= before))
        files = files or descriptors()
    assert descriptors() <= files
    assert queued(app) == 3


def test_a_loop_that_is_closed_under_the_app_leaves_nothing_open(app):
    before = set(threading.enumerate())  # some, of other tests, may still be ending
    app.sync.enqueue("noop")
    app.sync.close()
    files = descriptors()
    loop = asyncio.new_event_loop()
    loop.run_until_complete(app.open())
    loop.run_until_complete(app.enqueue("noop"))
    loop.close()
    app.sync.close()
    asyncio.run(eventually(lambda: set(threading.enumerate()) <= before))
    gc.collect()
    assert descriptors() <= files
    assert queued(app) == 2


def test_apps_that_are_dropped_are_closed(store_url):
    before, gone = set(threading.enumerate()), []
    Holdfast(store_url).sync.close()
    for _ in range(3):
        app = Holdfast(store_url)
        app.sync.enqueue("noop")
        gone.append(weakref.ref(app))
        del app
    gc.collect()
    assert [one() for one in gone] == [None] * 3
    asyncio.run(eventually(lambda: set(threading.enumerate()) <= before))


async def test_a_worker_takes_the_app_to_its_own_loop(app):
    await asyncio.to_thread(app.sync.stats)
    handle = await app.enqueue("noop")
    assert parts_of(app).runtime.live_loop() is not asyncio.get_running_loop()
    waiting = asyncio.create_task(asyncio.to_thread(handle.sync.result, 30))
    await asyncio.sleep(0)
    await Worker(app, until_idle=True).run()
    assert parts_of(app).runtime.live_loop() is asyncio.get_running_loop()
    assert await waiting is None, "a call that waited before is answered after the move"
    await app.close()


async def test_a_worker_cannot_take_the_app_from_a_loop_that_opened_it(app):
    ready, end = threading.Event(), threading.Event()

    async def elsewhere():
        async with app:
            ready.set()
            await asyncio.to_thread(end.wait)

    thread = threading.Thread(target=lambda: asyncio.run(elsewhere()))
    thread.start()
    try:
        await asyncio.to_thread(ready.wait)
        with pytest.raises(ConfigError, match="another event loop"):
            await Worker(app, until_idle=True).run()
        async with app:
            await app.enqueue("noop")
        assert parts_of(app).runtime.live_loop() is not None, "the end of this block does not close what another opened"
    finally:
        end.set()
        await asyncio.to_thread(thread.join)


async def test_a_claim_whose_caller_was_cancelled_is_given_back(app):
    await app.enqueue("noop")
    claiming = asyncio.create_task(app.claim(wait=30))
    [claim] = await claiming
    await claim.release()
    for _ in range(5):
        claiming = asyncio.create_task(app.claim(wait=30))

        async def is_claimed():
            return (await app.stats()).counts["running"] > 0

        await eventually(is_claimed)
        claiming.cancel()
        try:
            [claim] = await claiming
        except asyncio.CancelledError:
            pass
        else:
            await claim.release()

        async def is_back():
            return (await app.stats()).counts["running"] == 0

        await eventually(is_back)


async def test_context_variables_and_hooks_stay_with_the_caller(app):
    seen = []

    async def hook(job, insert):
        seen.append(asyncio.get_running_loop())
        return await insert(job)

    app.around_enqueue.append(hook)
    await app.enqueue("noop")
    assert seen == [asyncio.get_running_loop()]


def test_a_finalizer_on_a_thread_of_the_store_is_refused(tmp_path):
    app = Holdfast(f"sqlite:///{tmp_path}/jobs.db")
    app.sync.enqueue("noop")
    reported = []

    def finalize(_):
        for call in (lambda: app.sync.enqueue("noop"), lambda: asyncio.run(app.enqueue("noop"))):
            try:
                call()
            except HoldfastError as error:
                reported.append(str(error))

    async def on_the_writer():
        await parts_of(app).runtime.store._thread.run(finalize)

    runs_on(parts_of(app).runtime)(on_the_writer)
    assert len(reported) == 2
    assert all("finalizer" in one for one in reported)
    app.sync.close()


def test_an_opening_whose_loop_has_ended_harms_no_later_one(app):
    loop = asyncio.new_event_loop()
    opening = loop.create_task(app.open())
    while parts_of(app).runtime._opening is None:
        loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    gc.disable()
    try:
        app.sync.enqueue("noop")
        opening._log_destroy_pending = False
        del opening, loop
        gc.collect()  # ends the coroutine that was opening, with an exception of its own
        app.sync.enqueue("noop")
    finally:
        gc.enable()
    assert queued(app) == 2


def test_a_finalizer_on_the_thread_of_a_loop_that_begins_is_refused(app, monkeypatch):
    reported, begin = [], asyncio.set_event_loop

    def with_a_finalizer(loop):
        if threading.current_thread().name == "holdfast-loop":
            try:
                app.sync.enqueue("noop")
            except HoldfastError as error:
                reported.append(str(error))
        begin(loop)

    monkeypatch.setattr(asyncio, "set_event_loop", with_a_finalizer)
    app.sync.enqueue("noop")
    assert len(reported) == 1
    assert "finalizer" in reported[0]


async def test_calls_that_are_under_way_when_the_app_moves_are_answered(app):
    """A waiting claim is made again on the other loop; the others end on the one that they began on."""
    ids = [handle.id for handle in await asyncio.to_thread(app.sync.enqueue_many, [("noop",)] * 200)]
    over = threading.Event()
    answered = dict.fromkeys(("claim", "stats", "bulk"), 0)

    def again_and_again(name, call):
        while not over.is_set():
            call()
            answered[name] += 1

    calls = {
        "claim": lambda: app.sync.claim(["none"], wait=0.2),
        "stats": app.sync.stats,
        "bulk": lambda: [app.sync.bulk.change(action, ids=ids) for action in ("cancel", "retry")],
    }
    async with asyncio.TaskGroup() as group:
        for name, call in calls.items():
            group.create_task(asyncio.to_thread(again_and_again, name, call))
        await eventually(lambda: all(answered.values()))
        await app.open()
        before = dict(answered)
        await eventually(lambda: all(answered[name] > before[name] for name in answered))
        over.set()
    await app.close()


def test_a_call_that_a_loop_cut_off_by_its_end_is_not_called_safe_to_repeat():
    assert LoopEnded().retry_safe is False
