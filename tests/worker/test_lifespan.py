"""Hooks around a worker's life, and around each call on the thread that makes it."""

import asyncio
import threading
from contextlib import asynccontextmanager, contextmanager

import pytest

from holdfast import ConfigError, Context, Worker
from support.workers import work_off


@pytest.mark.parametrize("kind", ["async", "plain", "context manager"])
async def test_a_lifespan_is_entered_once_around_a_worker_and_its_value_is_given_to_tasks(app, kind):
    seen = []

    async def life():
        seen.append("enter")
        yield {"pool": 1}
        seen.append("leave")

    def plain():
        seen.append("enter")
        yield {"pool": 1}
        seen.append("leave")

    assert app.lifespan({"async": life, "plain": plain, "context manager": asynccontextmanager(life)}[kind])

    @app.task
    async def on_loop(ctx: Context) -> None:
        seen.append(ctx.state["pool"])

    @app.task
    def in_thread(ctx: Context) -> None:
        seen.append(ctx.state["pool"])

    await on_loop.enqueue()
    await in_thread.enqueue()
    await work_off(app)
    assert seen == ["enter", 1, 1, "leave"]


async def test_without_a_lifespan_the_state_is_none(app):
    seen = []

    @app.task
    async def look(ctx: Context) -> None:
        seen.append(ctx.state)

    await look.enqueue()
    await work_off(app)
    assert seen == [None]


async def test_a_lifespan_that_fails_ends_the_worker_before_it_claims(app):
    @app.lifespan
    async def life():
        raise OSError("no database")
        yield

    handle = await app.enqueue("noop")
    with pytest.raises(OSError, match="no database"):
        await Worker(app).run()
    assert (await handle.job()).attempt == 0
    with pytest.raises(ConfigError, match="has a lifespan already"):
        app.lifespan(life)


async def test_a_lifespan_must_be_a_context_manager(app):
    app.lifespan(lambda: 5)
    with pytest.raises(ConfigError, match="returned 5, not a context manager"):
        await Worker(app).run()


async def test_a_hook_around_the_call_runs_on_the_thread_of_the_function(app):
    seen = []

    def hook(name):
        @contextmanager
        def around(task):
            seen.append((name, task.name, threading.get_ident()))
            try:
                yield
            finally:
                seen.append((name, "left", threading.get_ident()))

        return around

    app.around_call.append(hook("inner"))
    app.around_call.append(hook("outer"))

    @app.task
    def plain(n: int) -> int:
        seen.append(("call", n, threading.get_ident()))
        return n

    @app.task
    async def on_loop() -> None:
        seen.append(("call", 0, threading.get_ident()))
        await asyncio.sleep(0)

    @app.task(batch=5, wait=0)
    def together(items: list[int]) -> list[int]:
        seen.append(("call", items, threading.get_ident()))
        return items

    here = threading.get_ident()
    for work, call, elsewhere in ((plain.call(7), 7, True), (on_loop.call(), 0, False), (together.call(1), [1], True)):
        seen.clear()
        [handle] = await app.enqueue_many([work])
        await work_off(app)
        await handle.result(30)
        [thread] = {one for _, _, one in seen}
        assert (thread != here) is elsewhere
        name = work.task.name
        assert [entry[:2] for entry in seen] == [
            ("outer", name), ("inner", name), ("call", call), ("inner", "left"), ("outer", "left"),
        ]  # fmt: skip


async def test_a_hook_around_the_call_that_fails_fails_the_attempt(app):
    @contextmanager
    def around(task):
        raise OSError("no connection")
        yield

    app.around_call = [around]

    @app.task(max_attempts=1)
    def plain() -> None: ...

    handle = await plain.enqueue()
    await work_off(app)
    assert (await handle.job()).error == "OSError: no connection"
