"""One app in many loops, programs and processes: opening, closing, loops that end, forks."""

import asyncio
import gc
import subprocess
import sys
import textwrap
import threading

import pytest

from holdfast import Holdfast, HoldfastError, State
from holdfast.app import parts_of
from support.eventually import eventually
from support.inside import session_of
from support.workers import work_off


def counts(app):
    return app.sync.stats().counts["queued"]


async def test_an_app_opens_at_its_first_use(app):
    assert parts_of(app).runtime.live_loop() is None
    await app.enqueue("noop")
    assert parts_of(app).runtime.live_loop() is asyncio.get_running_loop()


async def test_a_block_closes_the_app_and_a_later_use_opens_it_again(app):
    async with app as same:
        assert same is app
        await app.enqueue("noop")
    assert parts_of(app).runtime.live_loop() is None
    assert (await app.stats()).counts["queued"] == 1


async def test_closing_an_app_that_was_never_opened_does_nothing(app):
    await app.close()
    await app.close()


async def test_closing_waits_for_what_was_handed_in(app, make_app):
    enqueues = [asyncio.create_task(app.enqueue("noop")) for _ in range(50)]
    await asyncio.sleep(0)
    await app.open()
    store = session_of(app).store.sibling()
    await app.close()
    await asyncio.gather(*enqueues)
    other = make_app(store)
    assert (await other.stats()).counts["queued"] == 50


async def test_many_first_uses_at_once_open_it_once(app):
    await asyncio.gather(*(app.enqueue("noop") for _ in range(20)))
    assert (await app.stats()).counts["queued"] == 20


def test_an_app_outlives_the_loop_it_was_opened_on(app):
    for _ in range(3):
        asyncio.run(app.enqueue("noop"))
    assert counts(app) == 3


def test_an_app_that_was_left_open_can_be_closed_later(app):
    asyncio.run(app.enqueue("noop"))
    app.sync.close()
    before = threading.active_count()
    gc.collect()
    assert threading.active_count() <= before
    assert counts(app) == 1


def test_one_loop_that_runs_again_and_again_keeps_its_app_open(app):
    loop = asyncio.new_event_loop()
    try:
        for _ in range(3):
            loop.run_until_complete(app.enqueue("noop"))
        assert loop.run_until_complete(app.stats()).counts["queued"] == 3
        loop.run_until_complete(app.close())
    finally:
        loop.close()


def test_two_loops_in_two_threads_share_one_app(app):
    async def here():
        await app.enqueue("noop")

        def elsewhere():
            async def main():
                handles = await asyncio.gather(*(app.enqueue("noop") for _ in range(10)))
                return [(await handle.job()).state for handle in handles]

            return asyncio.run(main())

        assert await asyncio.to_thread(elsewhere) == [State.QUEUED] * 10
        assert (await app.stats()).counts["queued"] == 11
        await app.close()

    asyncio.run(here())


def test_a_waiter_in_another_loop_is_notified_of_the_end(app):
    async def here():
        handle = await app.enqueue("noop")
        waiting = asyncio.create_task(asyncio.to_thread(lambda: asyncio.run(handle.result(timeout=30))))
        await work_off(app)
        assert await waiting is None
        await app.close()

    asyncio.run(here())


def test_two_loops_may_both_be_the_first(app):
    start, end = threading.Barrier(4), threading.Barrier(4)
    done = []

    def program():
        async def main():
            start.wait()
            for _ in range(5):
                await app.enqueue("noop")
            done.append(await app.stats())
            await asyncio.to_thread(end.wait)

        asyncio.run(main())

    threads = [threading.Thread(target=program) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)
    assert len(done) == 4
    assert counts(app) == 20


@pytest.mark.parametrize("surface", ["async", "blocking"])
def test_when_the_apps_loop_ends_nobody_elsewhere_waits_for_ever(app, surface):
    reported = []

    def wait(handle):
        try:
            if surface == "async":
                asyncio.run(handle.result(timeout=30))
            else:
                handle.sync.result(timeout=30)
        except HoldfastError as error:
            reported.append(str(error))

    async def main():
        await app.open()
        waiting = threading.Thread(target=wait, args=(await app.enqueue("noop"),), daemon=True)
        waiting.start()
        await eventually(lambda: len(asyncio.all_tasks()) > 1)
        return waiting

    waiting = asyncio.run(main())
    waiting.join(4)
    assert len(reported) == 1
    assert "loop" in reported[0]
    assert counts(app) == 1, "the next call finds another loop"


async def test_a_store_that_cannot_be_opened_says_so_each_time_and_opens_later(tmp_path):
    app = Holdfast(f"sqlite:///{tmp_path}/missing/jobs.db")
    for _ in range(2):
        with pytest.raises(Exception, match="missing") as refused:
            await app.enqueue("noop")
        assert type(refused.value).__module__.startswith("holdfast")
    (tmp_path / "missing").mkdir()
    async with app:
        await app.enqueue("noop")
        assert (await app.stats()).counts["queued"] == 1


# -- fork


def run_program(code, *args):
    """Run a program of its own; what it prints."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code), *args],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


FORKING = """
    import os, sys
    from holdfast import Holdfast

    app = Holdfast(sys.argv[1])

    @app.task
    def add(a: int, b: int) -> int:
        return a + b

    mine = add.sync.enqueue(1, 2)
    children = []
    for n in range(3):
        pid = os.fork()
        if pid == 0:
            try:
                theirs = add.sync.enqueue(n, n)
                assert theirs.id != mine.id
                assert mine.job().payload == {"a": 1, "b": 2}
                code = 0
            except BaseException:
                import traceback
                traceback.print_exc()
                code = 1
            os._exit(code)
        children.append(pid)
    for pid in children:
        assert os.waitpid(pid, 0)[1] == 0
    add.sync.enqueue(9, 9)
    print(app.sync.stats().counts["queued"])
    app.sync.close()
"""


def test_a_forked_child_works_on_beside_its_parent(tmp_path):
    assert run_program(FORKING, f"sqlite:///{tmp_path}/jobs.db") == "5\n"


FORKING_UNDER_A_LOOP = """
    import asyncio, os, sys
    from holdfast import Holdfast, Worker

    app = Holdfast(sys.argv[1])

    async def main():
        async with app:
            handle = await app.enqueue("noop")
            pid = os.fork()
            if pid == 0:
                code = 1
                try:
                    app.sync.enqueue("noop")
                    code = 0
                finally:
                    os._exit(code)
            assert os.waitpid(pid, 0)[1] == 0
            await Worker(app, until_idle=True).run()
            print((await app.stats()).counts["succeeded"], await handle.result(timeout=30))

    asyncio.run(main())
"""


def test_a_child_forked_under_a_running_loop_uses_the_blocking_surface(tmp_path):
    assert run_program(FORKING_UNDER_A_LOOP, f"sqlite:///{tmp_path}/jobs.db") == "2 None\n"


FORKING_WITH_MULTIPROCESSING = """
    import multiprocessing, sys
    from holdfast import Holdfast

    app = Holdfast(sys.argv[1])

    def enqueue(n):
        return app.sync.enqueue("noop").id

    app.sync.enqueue("noop")
    with multiprocessing.get_context("fork").Pool(4) as pool:
        ids = pool.map(enqueue, range(40))
    assert len(set(ids)) == 40
    print(app.sync.stats().counts["queued"])
"""


def test_a_pool_of_forked_processes_enqueues(tmp_path):
    assert run_program(FORKING_WITH_MULTIPROCESSING, f"sqlite:///{tmp_path}/jobs.db") == "41\n"


IDS_AFTER_FORK = """
    import os
    from holdfast import Holdfast
    app = Holdfast("memory://")
    first = app.sync.enqueue("noop")
    ids = set()
    for n in range(3):
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.write(write, app.sync.enqueue("noop").id.encode())
            os._exit(0)
        os.waitpid(pid, 0)
        ids.add(os.read(read, 100))
    print(len(ids))
"""


def test_children_do_not_inherit_their_parents_chance():
    assert run_program(IDS_AFTER_FORK) == "3\n"


def test_a_program_that_forgets_to_close_ends_all_the_same(tmp_path):
    code = """
        import asyncio, sys
        from holdfast import Holdfast
        app = Holdfast(sys.argv[1])
        app.sync.enqueue("noop")
        other = Holdfast(sys.argv[1])
        asyncio.run(other.enqueue("noop"))
        print("end")
    """
    assert run_program(code, f"sqlite:///{tmp_path}/jobs.db") == "end\n"


def test_a_signal_ends_a_blocking_wait(tmp_path):
    code = """
        import os, signal, sys, threading
        from holdfast import Holdfast
        app = Holdfast(sys.argv[1])
        handle = app.sync.enqueue("noop")
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            handle.result(timeout=3600)
        except KeyboardInterrupt:
            print("interrupted")
    """
    assert run_program(code, f"sqlite:///{tmp_path}/jobs.db") == "interrupted\n"


async def test_calls_that_begin_on_a_loop_while_the_app_leaves_it_are_answered(app):
    handle = await asyncio.to_thread(app.sync.enqueue, "noop")
    background, calls = parts_of(app).runtime.live_loop(), []
    assert background is not asyncio.get_running_loop()

    def call_again_and_again(left=60):
        calls.append(background.create_task(app.job(handle.id)))
        if left:
            background.call_soon(call_again_and_again, left - 1)

    background.call_soon_threadsafe(call_again_and_again)
    await app.open()  # leaves the background for this loop
    await eventually(background.is_closed)
    assert {call.result().id for call in calls} == {handle.id}
