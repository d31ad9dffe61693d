"""What can be enqueued, and what a name from the store may run."""

import asyncio
import functools
import os
import subprocess
import sys
import textwrap
from contextlib import closing

import msgspec
import pytest

from holdfast import ConfigError, Holdfast, InvalidJob, JobFailed, State
from holdfast.app import parts_of
from holdfast.core.job import NewJob
from holdfast.store.protocol import Batch
from support import functions
from support.inside import session_of
from support.workers import work_off

SECRET = "a long random text"


@pytest.fixture
def app(make_app):
    return make_app(imports=["support.functions"], refusal_timeout=0)


@pytest.fixture
def pickling(make_app):
    return make_app(cloudpickle=True, secret=SECRET, refusal_timeout=0)


async def forged(app, task, payload=b"{}", codec="json"):
    """A job as a process with write access to the store would make it."""
    await app.open()
    new = NewJob(f"forged {task}", task, "default", payload, codec, max_attempts=1)
    await session_of(app).store.write(Batch(inserts=[new]))
    return app.handle(new.id)


# -- by name


async def test_a_registered_task_is_enqueued_by_its_name(app):
    @app.task(name="mail.send", queue="mail")
    def send(to: str) -> str:
        return f"sent to {to}"

    handle = await app.enqueue("mail.send", to="ann")
    assert (await handle.job()).queue == "mail"
    await work_off(app)
    assert await handle.result(timeout=30) == "sent to ann"


async def test_a_name_that_is_only_known_elsewhere_is_enqueued_with_plain_json(app):
    handle = await app.enqueue("elsewhere.resize", 640, height=480)
    assert (await handle.job()).payload == {"*": [640], "height": 480}


async def test_a_positional_argument_sent_by_name_alone_reaches_its_parameter(app, make_app):
    await app.open()
    handle = await app.enqueue("resize", 640, height=480)
    worker = make_app(session_of(app).store.sibling())

    @worker.task
    def resize(width: int, height: int) -> int:
        return width * height

    await work_off(worker)
    assert await handle.result(timeout=30) == 640 * 480


async def test_an_argument_by_name_alone_that_json_would_change_is_refused(app):
    with pytest.raises(InvalidJob, match="argument 1 of"):
        await app.enqueue("elsewhere", {1, 2})


async def test_two_tasks_of_one_name_are_refused(app):
    app.task(functions.double, name="work")
    with pytest.raises(ConfigError, match="task 'work' is already registered"):
        app.task(functions.double_later, name="work")


async def test_a_task_may_be_registered_again_by_the_same_function(app):
    assert app.task(functions.double).name == app.task(functions.double).name


# -- importable callables


@pytest.mark.parametrize(
    ("fn", "args", "name", "result"),
    [
        (functions.double, (21,), "support.functions:double", 42),
        (functions.double_later, (21,), "support.functions:double_later", 42),
        (functions.Shelf.count, (1,), "support.functions:Shelf.count", 2),
        (functions.Shelf.name, (), "support.functions:Shelf.name", "Shelf"),
        (functools.partial(functions.double, n=4), (), "support.functions:double", 8),
        (functools.partial(functools.partial(functions.double), 5), (), "support.functions:double", 10),
    ],
    ids=["function", "async function", "static method", "class method", "partial", "partial of partial"],
)
async def test_any_importable_callable_runs_where_its_module_is_trusted(app, fn, args, name, result):
    handle = await app.enqueue(fn, *args)
    assert (await handle.job()).task == name
    await work_off(app)
    assert await handle.result(timeout=30) == result


async def test_an_importable_function_gets_its_context_too(app):
    handle = await app.enqueue(functions.who)
    await work_off(app)
    assert await handle.result(timeout=30) == handle.id


async def test_a_registered_function_is_recognised_when_it_is_enqueued_as_it_is(app):
    def plain(n: int) -> int:
        return n

    app.task(plain, name="plain.task", queue="other")
    job = await (await app.enqueue(plain, 1)).job()
    assert (job.task, job.queue) == ("plain.task", "other")


async def test_the_apps_own_module_is_trusted(app_url):
    async with Holdfast(app_url) as app:
        handle = await app.enqueue(here, 1)
        assert (await handle.job()).task == f"{__name__}:here"
        await work_off(app)
        assert await handle.result(timeout=30) == 1


def here(n: int) -> int:
    return n


async def test_a_callable_object_with_an_async_call_runs_on_the_loop(app):
    class Greeter:
        async def __call__(self, name: str) -> str:
            await asyncio.sleep(0)
            return f"hello {name}"

    greet = app.task(Greeter(), name="greet")
    handle = await greet.enqueue("ann")
    await work_off(app)
    assert await handle.result(timeout=30) == "hello ann"


async def test_a_partial_of_an_async_function_is_a_task_as_well(app):
    async def greet(greeting: str, name: str) -> str:
        await asyncio.sleep(0)
        return f"{greeting} {name}"

    hello = app.task(functools.partial(greet, "hello"), name="hello")
    handle = await hello.enqueue("ann")
    await work_off(app)
    assert await handle.result(timeout=30) == "hello ann"


@pytest.mark.parametrize("thing", [5, None, ["add"], b"add"])
async def test_what_cannot_be_called_is_refused(app, thing):
    with pytest.raises(InvalidJob, match="a task, a task's name or a callable"):
        await app.enqueue(thing)


async def test_a_bound_method_is_refused_since_its_object_would_not_travel(app):
    with pytest.raises(InvalidJob, match="cannot be found again by a worker"):
        await app.enqueue(functions.shelf.put)


async def test_a_lambda_needs_a_name_to_be_a_task(app):
    with pytest.raises(ConfigError, match="has no name that a task can use"):
        app.task(lambda: 1)


# -- what a name may not run


@pytest.fixture
def nothing_runs(monkeypatch, tmp_path):
    """Fails the test if a command was run by it."""
    mark = tmp_path / "ran"
    yield f"touch {mark}"
    assert not mark.exists()


@pytest.mark.parametrize(
    "name",
    [
        "os:system",
        "posix:system",
        "subprocess:getoutput",
        "support.functions:imported_name",
        "support.functions:system",
        "support.functions:os.system",
        "support.functions:prefilled",
        "support.functions:partial",
        "support.functions:double.__globals__",
        "support.functions:double.__class__",
        "support.functions:double.__call__",
        "support.functions:double.__reduce_ex__",
        "support.functions:double.__init__.__objclass__",
        "support.functions:shelf.__class__.__mro__",
        "support.functions:not_callable",
        "support.functions:no_such",
        "support.functions:",
        "support.functions:.",
        "support.functions:double..x",
        "support.functions.double",
        "support:functions.double",
        "builtins:eval",
        "builtins:exec",
        ":system",
        "__main__:system",
        "no.such.module:f",
    ],
)
async def test_a_name_outside_the_trusted_modules_never_runs(app, nothing_runs, name):
    payload = msgspec.json.encode({"*": [nothing_runs]})
    for handle in (await forged(app, name, payload), await app.enqueue(name, nothing_runs)):
        await work_off(app)
        job = await handle.job()
        assert job.state == State.DEAD
        assert job.error.startswith("UnknownTask: unknown task")


async def test_an_untrusted_module_is_not_even_imported(app, tmp_path, monkeypatch):
    (tmp_path / "bait_for_import.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    handle = await forged(app, "bait_for_import:run")
    await work_off(app)
    assert "is not trusted by this app; add it to Holdfast(imports=[…])" in (await handle.job()).error
    assert "bait_for_import" not in sys.modules


async def test_a_module_that_cannot_be_imported_is_named_when_a_worker_starts(make_app):
    app = make_app(imports=["no_such_module"])
    handle = await app.enqueue("noop")
    with pytest.raises(ConfigError, match="imports= or -I: there is no module 'no_such_module'"):
        await work_off(app)
    assert (await handle.job()).attempt == 0


async def test_a_function_that_the_worker_does_not_trust_is_dead_in_the_end(make_app):
    app = make_app(refusal_timeout=0)
    handle = await app.enqueue(functions.double, 2)
    await work_off(app)
    with pytest.raises(JobFailed, match=r"module 'support\.functions' is not trusted by this app"):
        await handle.result(timeout=30)


# -- lambdas and closures


def closure():
    factor = 3
    return lambda n: n * factor


@pytest.mark.parametrize("fn", [lambda n: n * 3, closure()], ids=["lambda", "closure"])
async def test_a_lambda_is_refused_with_what_to_do(app, fn):
    with pytest.raises(InvalidJob, match=r"make it a task .* or switch on the signed cloudpickle codec"):
        await app.enqueue(fn, 2)
    assert (await app.jobs()).jobs == []


@pytest.mark.parametrize("fn", [lambda n: n * 3, closure()], ids=["lambda", "closure"])
async def test_a_lambda_travels_pickled_where_that_is_switched_on(pickling, fn):
    handle = await pickling.enqueue(fn, 2)
    job = await handle.job()
    assert job.task == "holdfast.call"
    assert "$cloudpickle" in job.payload, "a pickle is never opened to be shown"
    await work_off(pickling)
    assert await handle.result(timeout=30) == 6


async def test_an_async_closure_travels_too(pickling):
    word = "hello"

    async def greet(name):
        await asyncio.sleep(0)
        return {word, name}

    handle = await pickling.enqueue(greet, name="ann")
    await work_off(pickling)
    assert await handle.result(timeout=30) == {"hello", "ann"}


async def test_a_partial_of_a_lambda_travels_too(pickling):
    handle = await pickling.enqueue(functools.partial(lambda a, b: a - b, 10), b=3)
    await work_off(pickling)
    assert await handle.result(timeout=30) == 7


async def test_another_process_with_the_secret_runs_what_was_pickled(tmp_path):
    url = f"sqlite:///{tmp_path}/jobs.db"
    program = """
        import asyncio
        from holdfast import Holdfast, Worker
        app = Holdfast(URL, cloudpickle=True)
        asyncio.run(Worker(app, until_idle=True).run())
    """
    async with Holdfast(url, cloudpickle=True, secret=SECRET) as app:
        handle = await app.enqueue(lambda: (os.getpid(), os.getppid()))
        code = textwrap.dedent(program).replace("URL", repr(url))
        environ = {**os.environ, "HOLDFAST_SECRET": SECRET, "PYTHONWARNINGS": "ignore"}
        worker = await asyncio.create_subprocess_exec(sys.executable, "-c", code, env=environ, stderr=subprocess.PIPE)
        _, errors = await worker.communicate()
        assert worker.returncode == 0, errors
        assert await handle.result(timeout=30) == (worker.pid, os.getpid())


async def test_a_worker_without_the_codec_does_not_open_a_pickle(pickling, make_app):
    handle = await pickling.enqueue(lambda: 1)
    plain = make_app(session_of(pickling).store.sibling(), max_attempts=1)
    await work_off(plain)
    assert "the signed cloudpickle codec is not enabled in this app" in (await handle.job()).error


async def test_a_worker_with_another_secret_does_not_open_a_pickle(pickling, make_app):
    handle = await pickling.enqueue(lambda: 1)
    other = make_app(session_of(pickling).store.sibling(), cloudpickle=True, secret="another")
    await work_off(other)
    assert "the signature of the pickled call does not match" in (await handle.job()).error


class Bomb:
    def __init__(self, command):
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


@pytest.mark.parametrize("tamper", ["unsigned", "zero signature", "cut", "flipped", "empty"])
async def test_a_forged_or_changed_pickle_is_never_opened(pickling, nothing_runs, tamper):
    import pickle

    bomb = pickle.dumps(Bomb(nothing_runs))
    await pickling.open()
    signed = parts_of(pickling).registry.call(lambda: 1, (), {}).task.encode((), {})
    payload = {
        "unsigned": bomb,
        "zero signature": bytes(32) + bomb,
        "cut": signed[:-1],
        "flipped": signed[:40] + bytes([signed[40] ^ 1]) + signed[41:],
        "empty": b"",
    }[tamper]
    handle = await forged(pickling, "holdfast.call", payload, "cloudpickle")
    await work_off(pickling)
    job = await handle.job()
    assert job.state == State.DEAD
    assert job.error.startswith("InvalidJob: the signature of the pickled call does not match")


async def copied(source, handle, app, *, part="payload"):
    """A job in another app's store with the payload or the result of this one, forged with write access."""
    record = await parts_of(source).handles.record(handle.id)
    return await forged(app, record.task, getattr(record, part), record.codec)


async def test_a_pickle_that_was_copied_from_another_store_with_the_same_secret_is_not_opened(pickling, tmp_path):
    async with Holdfast(f"sqlite:///{tmp_path}/other.db", cloudpickle=True, secret=SECRET) as other:
        copy = await copied(other, await other.enqueue(lambda: 1), pickling)
        await work_off(pickling)
        assert "for another task or store" in (await copy.job()).error


async def test_a_pickled_result_is_not_taken_for_a_call(pickling, nothing_runs):
    handle = await pickling.enqueue(lambda command: ((os.system, command), {}), nothing_runs)
    await work_off(pickling)
    assert await handle.result(timeout=30) == ((os.system, nothing_runs), {})
    copy = await copied(pickling, handle, pickling, part="result")
    await work_off(pickling)
    assert "the signature of the pickled call does not match" in (await copy.job()).error


async def test_secrets_are_rotated_without_losing_what_was_pickled_before(make_app):
    old = make_app(cloudpickle=True, secret="old")
    before = await old.enqueue(lambda: "before")
    new = make_app(session_of(old).store.sibling(), cloudpickle=True, secret=["new", "old"])
    during = await new.enqueue(lambda: "during")
    await work_off(new)
    assert (await new.job(before.id)).state == (await new.job(during.id)).state == State.SUCCEEDED
    assert await during.result(timeout=30) == "during"
    with pytest.raises(InvalidJob, match="the signature of the pickled result does not match"):
        await before.result(timeout=30)  # the old app does not know the new secret yet


async def test_a_store_keeps_its_id_when_it_is_opened_anew_and_a_copy_of_its_file_has_it(tmp_path):
    import sqlite3

    url = f"sqlite:///{tmp_path}/jobs.db"
    async with Holdfast(url, cloudpickle=True, secret=SECRET) as app:
        handle = await app.enqueue(lambda: 1)
    with (
        closing(sqlite3.connect(tmp_path / "jobs.db")) as source,
        closing(sqlite3.connect(tmp_path / "restored.db")) as backup,
    ):
        source.backup(backup)
    for name in ("jobs.db", "restored.db"):
        async with Holdfast(f"sqlite:///{tmp_path}/{name}", cloudpickle=True, secret=SECRET) as app:
            await work_off(app)
            assert (await app.job(handle.id)).state == State.SUCCEEDED


async def test_a_forged_result_is_never_opened_either(pickling, nothing_runs):
    import pickle

    handle = await pickling.enqueue(lambda: 1)
    [claim] = await pickling.claim()
    from holdfast.testing import build, verbs

    bomb = pickle.dumps(Bomb(nothing_runs))
    await verbs.settle(session_of(pickling).store, build.succeeded(claim._record, result=bytes(32) + bomb))
    assert (await handle.job()).state == State.SUCCEEDED
    with pytest.raises(InvalidJob, match="the signature of the pickled result does not match"):
        await handle.result(timeout=30)


# -- options of one call, and an app-wide codec


async def test_any_callable_takes_options(app, pickling):
    handle = await app.using(key="k", queue="slow", tags=["t"]).enqueue(functions.double, 4)
    assert (await app.using(key="k").enqueue(functions.double, 4)).id == handle.id
    job = await handle.job()
    assert (job.task, job.queue, job.tags, job.key) == ("support.functions:double", "slow", ("t",), "k")
    assert (await (await app.using(at=4_000_000_000).enqueue("elsewhere", 1)).job()).state == State.SCHEDULED
    await work_off(app, queues=["slow"])
    assert await app.handle(handle.id).result() == 8
    secret = 5
    pickled = await pickling.using(priority=-3, max_attempts=1).enqueue(lambda n: n + secret, 1)
    assert ((await pickled.job()).priority, (await pickled.job()).max_attempts) == (-3, 1)
    await work_off(pickling)
    assert await pickling.handle(pickled.id).result() == 6


async def test_options_of_any_callable_are_added_to_those_of_its_task(app):
    @app.task(queue="mail", max_attempts=2)
    async def send(to: str) -> None: ...

    job = await (await app.using(priority=4).enqueue(send.using(tags=["a"]), "x")).job()
    assert (job.queue, job.max_attempts, job.priority, job.tags) == ("mail", 2, 4, ("a",))
    [handle] = await app.enqueue_many([app.using(priority=5).call(send, "y")])
    assert (await handle.job()).priority == 5
    with pytest.raises(InvalidJob, match="delay must be"):
        app.using(delay="soon")
    with pytest.raises(TypeError, match="did you mean 'delay'"):
        app.using(dellay=3)


def test_blocking_code_gives_options_to_any_callable(app_url):
    app = Holdfast(app_url, imports=["support.functions"])
    try:
        handles = [
            app.sync.using(queue="slow").enqueue(functions.double, 4),
            app.using(queue="slow").sync.enqueue(functions.double, 4),
        ]
        assert {handle.job().queue for handle in handles} == {"slow"}
    finally:
        app.sync.close()


class Reversed:
    """Stores JSON backwards."""

    name = "reversed"

    def dumps(self, value):
        return msgspec.json.encode(value)[::-1]

    def loads(self, data):
        return msgspec.json.decode(data[::-1])


async def test_an_app_has_a_codec_for_all_of_its_tasks(make_app, tmp_path):
    url = f"sqlite:///{tmp_path}/all.db"
    app = make_app(url, codec=Reversed(), imports=["support.functions"])

    @app.task
    async def add(one: int, other: int) -> int:
        return one + other

    @app.task(payload=True)
    async def whole(payload: dict) -> dict:
        return payload

    by_task, by_name = await add.enqueue(1, 2), await app.enqueue("add", 3, other=4)
    by_function, plain = await app.enqueue(functions.double, 5), await whole.enqueue({"a": 1})
    stored = [await parts_of(app).handles.record(each.id) for each in (by_task, by_name, by_function, plain)]
    assert [record.codec for record in stored] == ["reversed", "reversed", "reversed", "json"]
    assert stored[0].payload == b"]}{,]2,1[["
    await work_off(app)
    assert [await app.handle(record.id).result() for record in stored] == [3, 7, 10, {"a": 1}]
    reader = make_app(url, codec=Reversed())  # which has none of the tasks
    assert await reader.handle(by_task.id).result() == 3
    with pytest.raises(InvalidJob, match="codec 'reversed'"):
        await make_app(url).handle(by_function.id).result()
    assert await (await app.enqueue("shell", command="true")).job() is not None


def test_a_codec_of_the_app_must_be_one():
    app = Holdfast("memory://", codec=7)
    with pytest.raises(ConfigError, match="a codec must have the methods dumps and loads"):
        app.task(functions.double)
