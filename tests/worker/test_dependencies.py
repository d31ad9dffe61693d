"""Dependencies of tasks: what is made for a call, where, and how it is cleaned up."""

import asyncio
import threading
from contextlib import contextmanager
from contextvars import ContextVar

import pytest

from holdfast import Context, Depends, Discard, Flow, Holdfast
from holdfast.testing import inline, on_memory, override
from support.dependencies import Seen, task_of
from support.workers import work_off, working


@pytest.fixture
async def app():
    async with Holdfast("memory://", imports=[__name__]) as app:
        yield app


@pytest.fixture
def seen():
    return Seen()


KINDS = ["async generator", "generator", "plain", "async"]


@pytest.mark.parametrize("scope", ["job", "worker"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["plain", "async"])
async def test_a_task_gets_what_any_kind_of_function_makes(app, seen, how, kind, scope):
    task = task_of(app, how, Depends(seen.made("db", kind), scope=scope), lambda it: seen.append("call") or it)
    handles = [await task.enqueue(), await task.enqueue()]
    await work_off(app, concurrency=1)
    assert [await handle.result() for handle in handles] == ["db", "db"]
    cleanup = ["-db"] if "generator" in kind else []
    once = ["+db", "call", "call", *cleanup]
    assert seen == (once if scope == "worker" else ["+db", "call", *cleanup] * 2)


@pytest.mark.parametrize("kind", ["async generator", "generator"])
@pytest.mark.parametrize("how", ["plain", "async"])
async def test_the_cleanup_gets_the_error_and_cannot_suppress_it(app, seen, how, kind):
    async def swallowing():
        try:
            yield 1
        except ValueError:
            seen.append("swallowed")

    def swallowing_plain():
        try:
            yield 1
        except ValueError:
            seen.append("swallowed")

    def fail(value):
        raise ValueError("broken")

    task = task_of(app, how, Depends(swallowing if kind == "async generator" else swallowing_plain), fail)
    handle = await task.enqueue()
    await work_off(app)
    job = await handle.job()
    assert (job.state, job.error, seen) == ("dead", "ValueError: broken", ["swallowed"])
    assert job.traceback.splitlines()[1].startswith(f'  File "{task_of.__code__.co_filename}"')


async def test_nested_dependencies_are_made_once_each_and_cleaned_up_in_reverse_order(app, seen):
    pool = seen.made("pool", "async generator")

    def session(*, pool: str = Depends(pool)):
        seen.append(f"+session of {pool}")
        yield f"{pool}/session"
        seen.append("-session")

    async def users(session: str = Depends(session)):
        seen.append("+users")
        yield f"{session}/users"
        seen.append("-users")

    class Mailer:
        def __init__(self, session: str = Depends(session), pool: str = Depends(pool)) -> None:
            self.text = f"{session}/{pool}"

    @app.task
    def plain(n: int, *, users: str = Depends(users), mailer: Mailer = Depends(Mailer)) -> list[str]:  # noqa: B008
        seen.append("call")
        return [users, mailer.text]

    @app.task
    async def on_loop(n: int, *, users: str = Depends(users), mailer: Mailer = Depends(Mailer)) -> list[str]:  # noqa: B008
        seen.append("call")
        return [users, mailer.text]

    for task in (plain, on_loop):
        seen.clear()
        handle = await task.enqueue(1)
        await work_off(app)
        assert await handle.result() == ["pool/session/users", "pool/session/pool"]
        assert seen == ["+pool", "+session of pool", "+users", "call", "-users", "-session", "-pool"]


async def test_plain_dependencies_run_in_the_tasks_thread_and_async_ones_on_the_loop(app):
    here, threads, variable = threading.get_ident(), {}, ContextVar("variable", default=0)

    def plain():
        variable.set(1)
        threads["made"] = threading.get_ident()
        yield
        threads["cleaned"] = threading.get_ident()

    async def on_loop():
        threads["async"] = threading.get_ident(), asyncio.current_task()
        yield
        threads["async cleaned"] = threading.get_ident(), asyncio.current_task()

    @app.task
    def task(*, a: None = Depends(plain), b: None = Depends(on_loop)) -> int:
        threads["task"] = threading.get_ident()
        return variable.get()

    handle = await task.enqueue()
    await work_off(app)
    assert await handle.result() == 1, "it sees the context variables of a plain dependency"
    assert threads["made"] == threads["task"] == threads["cleaned"] != here
    assert threads["async"] == threads["async cleaned"]
    assert threads["async"][0] == here


async def test_hooks_around_the_call_are_around_its_dependencies(app, seen):
    @contextmanager
    def around(task):
        seen.append("hook")
        yield
        seen.append("unhook")

    app.around_call.append(around)

    @app.task
    def plain(task: int, fn: int, stack: int, *, it: str = Depends(seen.made("it", "generator"))) -> int:
        return task + fn + stack

    handle = await plain.enqueue(1, 2, 3)
    await work_off(app)
    assert await handle.result() == 6
    assert seen == ["hook", "+it", "-it", "unhook"]


async def test_a_run_hook_that_calls_twice_gets_dependencies_twice(app, seen):
    async def twice(ctx, proceed):
        await proceed()
        return await proceed()

    app.around_run.append(twice)
    task = task_of(app, "async", Depends(seen.made("it")))
    await task.enqueue()
    await work_off(app)
    assert seen == ["+it", "-it"] * 2


async def test_a_dependency_takes_the_context(app, seen):
    @app.lifespan
    async def life():
        yield {"pool": "p"}

    def name(ctx: Context) -> str:
        return f"{ctx.state['pool']} {ctx.job.task}"

    task = task_of(app, "plain", Depends(name))
    handle = await task.enqueue()
    await work_off(app)
    assert await handle.result() == "p task"


@pytest.mark.parametrize("scope", ["job", "worker"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["plain", "async"])
async def test_a_failed_set_up_fails_the_attempt_and_names_the_dependency(app, seen, how, kind, scope):
    outer = seen.made("outer")

    def get_db(outer: str = Depends(outer, scope=scope)):
        raise OSError("no route")

    def generator(outer: str = Depends(outer, scope=scope)):
        raise OSError("no route")
        yield

    async def coroutine(outer: str = Depends(outer, scope=scope)):
        raise OSError("no route")

    async def async_generator(outer: str = Depends(outer, scope=scope)):
        raise OSError("no route")
        yield

    fn = {"plain": get_db, "generator": generator, "async": coroutine, "async generator": async_generator}[kind]
    errors = []
    app.on_error.append(lambda error, job: errors.append(error))
    task = task_of(app, how, Depends(fn, scope=scope))
    handle = await task.enqueue()
    await work_off(app)
    job = await handle.job()
    assert (job.state, job.attempt) == ("dead", 1)
    assert job.error == f"OSError: no route (in dependency {fn.__name__}())"
    assert [type(error) for error in errors] == [OSError]
    assert seen[0] == "+outer"
    assert seen[-1] == "-outer"


async def test_a_failed_cleanup_fails_the_attempt_and_the_others_are_cleaned_up(app, seen):
    def committing(outer: str = Depends(seen.made("outer"))):
        yield 1
        raise OSError("no commit")

    task = task_of(app, "plain", Depends(committing))
    handle = await task.enqueue()
    await work_off(app)
    assert (await handle.job()).error == "OSError: no commit (in the cleanup of dependency committing())"
    assert seen == ["+outer", "outer got OSError", "-outer"]


async def test_a_dependency_may_end_the_job(app):
    def discarding():
        raise Discard("not wanted")

    handle = await task_of(app, "plain", Depends(discarding)).using(max_attempts=5).enqueue()
    await work_off(app)
    job = await handle.job()
    assert (job.state, job.error, job.attempt) == ("dead", "Discard: not wanted", 1)


@pytest.mark.parametrize("ending", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError(), StopIteration()])
@pytest.mark.parametrize("where", ["plain", "async", "set-up", "worker set-up"])
async def test_any_exception_ends_that_one_job(app, seen, where, ending):
    def fail(value):
        raise ending

    async def failing():
        fail(1)

    async def fine():
        return 1

    it = seen.made("it") if where in ("plain", "async") else failing
    scope = "worker" if where == "worker set-up" else "job"
    task = task_of(app, "async" if where == "async" else "plain", Depends(it, scope=scope), fail)
    other = app.task(fine)
    handle, after = await task.enqueue(), await other.enqueue()
    await work_off(app, concurrency=1)
    assert (await handle.job()).state == "dead"
    assert await after.result() == 1


@pytest.mark.parametrize("stop", ["cancel", "timeout"])
async def test_an_async_job_that_is_stopped_is_cleaned_up(app, seen, stop):
    begun = asyncio.Event()

    @app.task(max_attempts=1, timeout=0.05 if stop == "timeout" else None)
    async def hang(*, it: str = Depends(seen.made("it", "async generator"))) -> None:
        begun.set()
        await asyncio.Event().wait()

    async with working(app, lease=1):
        handle = await hang.enqueue()
        await begun.wait()
        if stop == "cancel":
            await handle.cancel()
        job = await handle.wait(90)
    assert job.state == ("cancelled" if stop == "cancel" else "dead")
    assert seen == ["+it", "it got CancelledError", "-it"]


async def test_a_job_that_is_stopped_in_its_set_up_is_cleaned_up(app, seen):
    begun = asyncio.Event()

    async def slow(outer: str = Depends(seen.made("outer"))):
        begun.set()
        await asyncio.Event().wait()

    task = task_of(app, "async", Depends(slow))
    async with working(app, lease=1):
        handle = await task.enqueue()
        await begun.wait()
        await handle.cancel()
        assert (await handle.wait(90)).state == "cancelled"
    assert seen == ["+outer", "outer got CancelledError", "-outer"]


async def test_steps_in_progress_end_before_the_cleanup(app, seen):
    async def slow():
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        seen.append("step")

    async def broken():
        raise ValueError

    @app.task(max_attempts=1)
    async def both(ctx: Context, *, it: str = Depends(seen.made("it"))) -> None:
        await asyncio.gather(ctx.step("slow", slow), ctx.step("broken", broken))

    await both.enqueue()
    await work_off(app)
    assert seen == ["+it", "step", "it got ValueError", "-it"]


# -- other ways to run


@pytest.mark.parametrize("how", ["plain", "async"])
async def test_a_batch_gets_its_dependencies_once(app, seen, how):
    it = seen.made("it")
    if how == "plain":

        @app.task(batch=5, wait=0)
        def together(items: list[int], *, it: str = Depends(it)) -> list[str]:
            return [f"{it}{item}" for item in items]
    else:

        @app.task(batch=5, wait=0)
        async def together(items: list[int], *, it: str = Depends(it)) -> list[str]:
            return [f"{it}{item}" for item in items]

    handles = await app.enqueue_many([together.call(1), together.call(2)])
    await work_off(app)
    assert [await handle.result() for handle in handles] == ["it1", "it2"]
    assert seen == ["+it", "-it"]


async def test_a_flow_passes_results_beside_dependencies(app, seen):
    @app.task
    def first(*, it: str = Depends(seen.made("it", "plain"))) -> str:
        return it

    @app.task
    def second(text: str, *, it: str = Depends(seen.made("also"))) -> str:
        return f"{text} {it}"

    flow = Flow()
    node = flow.add(second, flow.add(first))
    handle = await app.enqueue_flow(flow)
    await work_off(app)
    assert await handle.handle(node).result() == "it also"


def get_word() -> str:
    return "word"


def function(*, word: str = Depends(get_word)) -> str:
    return word


async def test_an_unregistered_function_gets_dependencies_too(app):
    handle = await app.enqueue(function)
    await work_off(app)
    assert await handle.result() == "word"


# -- in tests of programs


def test_overrides(seen):
    app = Holdfast("memory://")

    def get_name() -> str:
        return "real"

    def get_greeting(name: str = Depends(get_name)) -> str:
        return f"hello {name}"

    async def get_fake(ctx: Context, other: str = Depends(seen.made("other"))):
        yield f"fake {ctx.attempt} {other}"

    @app.task
    def greet(*, greeting: str = Depends(get_greeting)) -> str:
        return greeting

    with on_memory(app) as bench:

        def greeting():
            handle = greet.sync.enqueue()
            bench.work()
            return handle.result()

        with override(app, get_name, get_fake):
            assert greeting() == "hello fake 1 other"
            assert seen == ["+other", "-other"]
            with override(app, get_greeting, lambda: "bye"):
                assert greeting() == "bye"
            assert greeting() == "hello fake 1 other"
        assert greeting() == "hello real"
        with inline(app), override(app, get_name, lambda: "inline"):
            assert greet.sync.enqueue().result() == "hello inline"
