"""What a worker says when it starts, and what it warns of."""

import asyncio
import logging
import sys
import threading
import time

import pytest

from holdfast import ConfigError, Holdfast, Worker
from holdfast.app import parts_of
from holdfast.worker import loop_guard
from holdfast.worker.unserved_queues import UnservedQueues
from support.eventually import eventually
from support.inside import session_of
from support.workers import work_off, working


def warnings(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


async def test_a_worker_without_tasks_says_so(app, caplog):
    await work_off(app)
    [warning] = warnings(caplog)
    assert warning.startswith(f"{app!r} has no tasks")
    caplog.clear()

    @app.task
    def some() -> None: ...

    await work_off(app)
    assert warnings(caplog) == []


async def test_a_worker_imports_the_modules_that_its_app_names(tmp_path, monkeypatch):
    (tmp_path / "tasks_of_it.py").write_text("imported = True\n")
    monkeypatch.syspath_prepend(tmp_path)
    async with Holdfast("memory://", imports=["tasks_of_it"]) as app:
        assert "tasks_of_it" not in sys.modules
        await work_off(app)
        assert sys.modules.pop("tasks_of_it").imported
    async with Holdfast("memory://", imports=["tasks_of_none"]) as app:
        with pytest.raises(ConfigError, match="there is no module 'tasks_of_none'"):
            await Worker(app).run()


async def test_a_queue_with_jobs_that_no_worker_serves_is_named_once(app, caplog):
    @app.task(queue="mail")
    def send() -> None: ...

    async def check(unserved):
        caplog.clear()
        await unserved.check()
        return warnings(caplog)

    await app.open()
    unserved = UnservedQueues(parts_of(app).inspection, session_of(app))
    unserved.stop()
    assert await check(unserved) == []
    await send.enqueue()
    [warning] = await check(unserved)
    assert warning.startswith("no live worker serves queue mail, in which jobs wait (queued: 1); start one with")
    assert await check(unserved) == [], "it was named"
    async with working(app):
        await eventually(lambda: empty(app))
        assert await check(unserved) == []
    await send.enqueue()
    assert len(await check(unserved)) == 1
    await app.pause("mail")
    assert await check(unserved) == []


async def empty(app):
    return not (await app.stats()).counts.get("queued")


async def test_a_task_that_blocks_the_loop_is_shown_with_its_stack(app, caplog, monkeypatch):
    monkeypatch.setattr(loop_guard, "BLOCKED", 0.05)

    @app.task
    async def hog() -> None:
        until = time.monotonic() + 60
        while time.monotonic() < until and not any("blocks the event loop" in text for text in warnings(caplog)):
            time.sleep(0.01)  # noqa: ASYNC251

    handle = await hog.enqueue()
    async with working(app):
        await handle.result(60)
    [warning] = [text for text in warnings(caplog) if "blocks the event loop" in text]
    assert "use await, or a plain function" in warning
    assert "in hog" in warning


async def test_a_worker_that_runs_nothing_on_its_loop_asks_it_for_nothing(app):
    @app.task
    def plain() -> None: ...

    handle, before = await plain.enqueue(), set(threading.enumerate())
    async with working(app):
        await handle.result(60)
        assert not [one for one in threading.enumerate() if one.name == "holdfast-loop-guard" and one not in before]


def test_a_blocking_program_runs_a_worker(tmp_path):
    app, ran = Holdfast(f"sqlite:///{tmp_path}/q.db"), []

    @app.task
    def note(n: int) -> None:
        ran.append(n)

    note.sync.enqueue(1)
    Worker(app, until_idle=True).run_sync()
    assert ran == [1]


def test_generator_functions_and_methods_without_an_object_are_refused():
    app = Holdfast("memory://")

    class Shop:
        def clean(self) -> None: ...

        @staticmethod
        def sweep() -> None: ...

    def numbers():
        yield 1

    async def letters():
        yield "a"

    for fn in (numbers, letters):
        with pytest.raises(ConfigError, match="is a generator function, whose body would never run"):
            app.task(fn)
    app.task(Shop().clean)
    app.task(Shop.sweep)
    Outer.method_of(app)


class Outer:
    def method(self) -> None: ...

    @staticmethod
    def method_of(app):
        with pytest.raises(ConfigError, match=r"Outer.method is a method, and a worker has no object"):
            app.task(Outer.method)


async def test_a_task_may_be_defined_again_in_an_interactive_session(monkeypatch):
    app, main = Holdfast("memory://"), type(sys)("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)
    main.__file__ = "program.py"

    def define(text, path):
        found = {"__name__": "__main__"}
        exec(compile(f"def again():\n    return {text!r}\n", path, "exec"), found)
        return found["again"]

    app.task(define("first", "cell 1"))
    with pytest.raises(ConfigError, match="already registered"):
        app.task(define("second", "cell 2"))
    del main.__file__
    app.task(define("second", "cell 2"))
    handle = await app.enqueue("again")
    await work_off(app)
    assert await handle.result(30) == "second"
    await asyncio.sleep(0)
    await app.close()
