"""One job that cannot be decoded, run or explained harms itself alone."""

import asyncio
import sys
import threading

import pytest

from holdfast import Backoff, InvalidJob, JobFailed, State
from holdfast.app import parts_of
from holdfast.core.job import NewJob
from holdfast.store.protocol import Batch
from support.inside import session_of
from support.workers import work_off, working


@pytest.fixture
def app(make_app):
    app = make_app(max_attempts=1, refusal_timeout=0)

    @app.task
    def add(a: int, b: int) -> int:
        return a + b

    return app


async def beside_good_ones(app, make_bad):
    """Run a bad job with good ones before and after it, two at a time; the bad one as it ended."""
    before = await app.enqueue("add", 1, 1)
    bad = await make_bad()
    after = await app.enqueue("add", 2, 2)
    await work_off(app, concurrency=2)
    assert await before.result(timeout=30) == 2
    assert await after.result(timeout=30) == 4
    return await bad.job()


async def stored(app, task="add", payload=b"{}", codec="json", **fields):
    await app.open()
    job = NewJob("bad", task, "default", payload, codec, max_attempts=1, **fields)
    await session_of(app).store.write(Batch(inserts=[job]))
    return app.handle("bad")


# -- payloads and names


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"not json",
        b"\xff\xfe\0",
        b"[1, 2]",
        b'{"a": 1}',
        b'{"a": 1, "b": "two"}',
        b'{"a": 1, "b": 2, "c": 3}',
        b'{"a": NaN, "b": 2}',
        b'{"*": 5}',
        b'{"a": ' + b"[" * 100_000,
        b'{"a": 1' + b"0" * 100_000 + b', "b": 1}',
    ],
    ids=["empty", "no json", "binary", "list", "missing", "wrong type", "extra", "nan", "star", "deep", "huge number"],
)
async def test_a_payload_that_does_not_fit(app, payload):
    job = await beside_good_ones(app, lambda: stored(app, payload=payload))
    assert job.state == State.DEAD
    assert job.error.startswith("InvalidJob: ")


async def test_a_payload_of_a_codec_from_the_future(app):
    job = await beside_good_ones(app, lambda: stored(app, payload=b"\1\2\3", codec="from the future"))
    assert job.state == State.DEAD


# -- results


class Unencodable:
    pass


@pytest.mark.parametrize(
    "make", [Unencodable, lambda: float("nan"), lambda: "\ud800", lambda: {1, (2, Unencodable())}, lambda: iter([])]
)
async def test_a_result_that_cannot_be_stored(app, make):
    @app.task
    def bad() -> object:
        return make()

    job = await beside_good_ones(app, bad.enqueue)
    assert (job.state, job.attempt) == (State.DEAD, 1)
    assert job.error.startswith("the result of task 'bad' cannot be stored: ")


async def test_a_result_over_the_limit(make_app):
    app = make_app(max_payload=1000, max_attempts=1)

    @app.task
    def bad() -> str:
        return "x" * 2000

    handle = await bad.enqueue()
    await work_off(app)
    assert (await handle.job()).error == (
        "the result of task 'bad' cannot be stored: it has 2002 bytes, over max_payload (1000); return less, or raise"
        " max_payload"
    )


async def test_an_async_task_that_returns_a_coroutine_by_mistake(app):
    async def inner() -> int:
        return 1

    made = []

    @app.task
    async def bad() -> object:
        made.append(inner())
        return made[0]

    job = await beside_good_ones(app, bad.enqueue)
    made[0].close()
    assert job.state == State.DEAD
    assert "cannot be stored" in job.error


# -- exceptions


class SilentError(Exception):
    def __str__(self):
        raise RuntimeError("a defect of the exception")

    __repr__ = __str__


class Endless(Exception):
    def __str__(self):
        return "x" * 10_000_000


class Unpicklable(Exception):
    def __init__(self):
        super().__init__("holds a lock")
        self.lock = threading.Lock()
        self.generator = (n for n in [1])


class Surrogate(Exception):
    def __str__(self):
        return "no file 'caf\udce9\0'"


class NotText(Exception):
    def __str__(self):
        return 5  # noqa: PLE0307


def circular():
    one, two = ValueError("one"), ValueError("two")
    one.__cause__, two.__cause__ = two, one
    return one


def deeply_chained():
    error = ValueError("root")
    for n in range(500):
        new = ValueError(str(n))
        new.__cause__ = error
        error = new
    return error


RAISED = {
    "str raises": SilentError,
    "endless text": Endless,
    "unpicklable": Unpicklable,
    "surrogates and NUL": Surrogate,
    "str is no text": NotText,
    "circular cause": circular,
    "long chain": deeply_chained,
    "group": lambda: ExceptionGroup("several", [ValueError("a"), SilentError()]),
    "no message": ValueError,
    "SystemExit": lambda: SystemExit(3),
    "KeyboardInterrupt": KeyboardInterrupt,
    "GeneratorExit": GeneratorExit,
    "CancelledError": asyncio.CancelledError,
    "BaseException": lambda: BaseException("bare"),
    "StopIteration": lambda: StopIteration(5),
    "StopAsyncIteration": StopAsyncIteration,
    "MemoryError": MemoryError,
    "RecursionError": RecursionError,
    "InvalidJob": lambda: InvalidJob("raised by the task itself"),
}


@pytest.mark.parametrize("kind", ["async", "thread"])
@pytest.mark.parametrize("make", RAISED.values(), ids=RAISED)
async def test_an_exception_of_any_kind(app, make, kind):
    if kind == "async":

        @app.task
        async def bad() -> None:
            await asyncio.sleep(0)
            raise make()

    else:

        @app.task
        def bad() -> None:
            raise make()

    job = await beside_good_ones(app, bad.enqueue)
    assert job.state == State.DEAD
    assert 0 < len(job.error) <= 4096
    assert job.traceback, "where it was raised is worth knowing"
    with pytest.raises(JobFailed):
        await app.handle(job.id).result(timeout=30)


async def test_an_exception_beyond_recursion(app):
    @app.task
    def bad() -> None:
        def deeper(n):
            return deeper(n + 1) + 1

        deeper(0)

    job = await beside_good_ones(app, bad.enqueue)
    assert job.error.startswith("RecursionError")
    assert sys.getrecursionlimit() > 100


async def test_sys_exit_in_a_task_does_not_end_the_worker(app):
    @app.task
    async def bad() -> None:
        sys.exit("enough")

    async with working(app, concurrency=1):
        handle = await bad.enqueue()
        assert (await handle.wait(timeout=30)).error == "SystemExit: enough"
        assert await (await app.enqueue("add", 1, 2)).result(timeout=30) == 3


async def test_every_slot_survives_many_bad_jobs(app):
    @app.task
    async def bad(n: int) -> None:
        raise [SilentError(), SystemExit(1), asyncio.CancelledError(), KeyboardInterrupt()][n % 4]

    bads = await app.enqueue_many([(bad, n) for n in range(40)])
    good = await app.enqueue("add", 1, 2)
    await work_off(app, concurrency=2)
    assert await good.result(timeout=30) == 3
    assert {(await handle.job()).state for handle in bads} == {State.DEAD}


async def test_a_subclass_of_ours_that_forgot_its_parts_fails_that_job(app):
    from holdfast import Retry, Snooze

    class Forgetful(Retry):
        def __init__(self):
            Exception.__init__(self, "forgot")

    class ForgetfulSnooze(Snooze):
        def __init__(self):
            Exception.__init__(self, "forgot")

    @app.task
    async def bad(n: int) -> None:
        raise Forgetful() if n else ForgetfulSnooze()

    for n in (0, 1):
        job = await beside_good_ones(app, lambda n=n: bad.enqueue(n))
        assert job.state == State.DEAD
        assert "forgot" in job.error


async def test_a_function_whose_call_itself_fails(app):
    @app.task(name="bad")
    async def bad(n: int) -> int:
        return n

    parts_of(app).registry.tasks["bad"].fn = lambda n: 5  # says it is async, but is not
    job = await beside_good_ones(app, lambda: bad.enqueue(1))
    assert "TypeError" in job.error


async def test_a_task_that_was_renamed_between_deploys_recovers(app, make_app):
    handle = await app.submit(
        "new_name", b'{"a": 1, "b": 2}', json=True, max_attempts=2, retry=Backoff(base=0, jitter=0)
    )
    await asyncio.wait_for(_fail_once(app), 90)
    new = make_app(session_of(app).store.sibling())

    @new.task(name="new_name")
    def add(a: int, b: int) -> int:
        return a + b

    await work_off(new)
    assert await handle.result(timeout=30) == 3


async def _fail_once(app):
    [claim] = await app.claim()
    await claim.fail("UnknownTask", retry_in=0)


async def test_a_name_that_json_has_twice_is_the_last_one(app):
    @app.task(payload=True)
    def take(everything: dict) -> int:
        return len(everything)

    handle = await app.submit("take", b'{"a": 1, "a": 2}', json=True)
    await work_off(app)
    assert await handle.result(timeout=30) == 1
