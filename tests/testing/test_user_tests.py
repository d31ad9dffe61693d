"""Tests of user code: plain functions run in the test's thread, failures are shown, enqueued jobs are found."""

import asyncio
import logging
import sqlite3
import threading

import pytest
import sqlalchemy
from sqlalchemy.orm import Session

from holdfast import Context, Holdfast, InvalidJob, JobFailed, KeyConflict, QueueFull, State
from holdfast.core.errors import ConfigError
from holdfast.testing import assert_enqueued, assert_not_enqueued, inline, on_memory

pytest_plugins = ["pytester"]


class Shop:
    """An app with tasks that record the threads that run them."""

    def __init__(self, url: str) -> None:
        app = self.app = Holdfast(url, max_attempts=2)
        self.threads: list[threading.Thread] = []

        @app.task
        def send(order_id: int, to: str = "ann") -> str:
            self.threads.append(threading.current_thread())
            return f"{to}:{order_id}"

        @app.task
        async def send_async(order_id: int) -> None:
            await send.enqueue(order_id)

        @app.task
        def send_twice(order_id: int) -> None:
            self.threads.append(threading.current_thread())
            send.sync.enqueue(order_id)
            asyncio.run(_await(send.enqueue(order_id)))

        @app.task(max_attempts=1)
        def broken(order_id: int) -> None:
            raise ValueError(f"no order {order_id}")

        self.send, self.send_async, self.send_twice, self.broken = send, send_async, send_twice, broken


async def _await(coroutine):
    return await coroutine


@pytest.fixture
def shop(tmp_path):
    shop = Shop(f"sqlite:///{tmp_path}/jobs.db")
    yield shop
    shop.app.sync.close()


@pytest.fixture
def bench(shop):
    with on_memory(shop.app) as bench:
        yield bench


# -- the calling thread


def test_plain_functions_run_in_the_thread_that_calls_work(shop, bench):
    for number in range(3):
        shop.send.sync.enqueue(number)
    bench.work()
    assert shop.threads == [threading.current_thread()] * 3


def test_plain_functions_run_inline_in_the_calling_thread_on_the_apps_own_store(shop):
    with inline(shop.app):
        handle = shop.send.sync.enqueue(1)
        assert shop.threads == [threading.current_thread()]
        assert handle.result(timeout=30) == "ann:1"
    assert "new_answer" not in vars(shop.send.client)["_runtime"].__dict__


def test_a_plain_function_that_an_async_task_enqueues_runs_in_the_calling_thread(shop, bench):
    with bench.inline():
        shop.send_async.sync.enqueue(1)
    assert shop.threads == [threading.current_thread()]


def test_a_function_may_enqueue_inline_from_blocking_code_and_from_a_loop_of_its_own(shop, bench):
    with bench.inline():
        shop.send_twice.sync.enqueue(1)
    here = threading.current_thread()
    assert shop.threads[:2] == [here, here]
    assert len(shop.threads) == 3, "the second job runs in another thread: this one is busy with the loop"


def test_functions_of_a_test_in_another_thread_run_there(shop, bench):
    def test() -> None:
        shop.send.sync.enqueue(1)
        bench.work()

    thread = threading.Thread(target=test)
    thread.start()
    thread.join(90)
    assert shop.threads == [thread]


async def test_an_event_loop_is_not_blocked_by_functions_that_it_awaits(shop, bench):
    shop.app.sync  # noqa: B018
    await shop.send.enqueue(1)
    await bench.work()
    assert shop.threads != [threading.current_thread()]


def test_the_time_that_a_function_waits_for_its_thread_is_not_part_of_its_timeout(shop, bench):
    @shop.app.task
    def first() -> None:
        threading.Event().wait(2.2)

    @shop.app.task(timeout=2, max_attempts=1)
    def behind_it() -> None: ...

    first.sync.enqueue()
    for _ in range(3):
        behind_it.sync.enqueue()
    bench.work()


def test_a_function_in_the_calling_thread_times_out(shop, bench):
    @shop.app.task(timeout=0.01, max_attempts=1)
    def wait(ctx: Context) -> None:
        while not ctx.cancelled:
            threading.Event().wait(0.005)

    wait.sync.enqueue()
    with pytest.raises(JobFailed, match="TimeoutError"):
        bench.work()


def test_interrupting_a_function_interrupts_the_test(shop, bench):
    @shop.app.task
    def stop() -> None:
        raise KeyboardInterrupt

    stop.sync.enqueue()
    with pytest.raises(KeyboardInterrupt):
        bench.work()
    while shop.app.sync.stats().workers:  # it is leaving
        pass


# -- failures


def test_work_raises_the_error_of_a_job_that_ended_dead(shop, bench):
    shop.broken.sync.enqueue(7)
    with pytest.raises(JobFailed, match="ValueError: no order 7") as raised:
        bench.work()
    assert isinstance(raised.value.__cause__, ValueError)
    assert [entry.name for entry in raised.traceback[-1:]] != ["broken"], "the cause has the task's frames"
    frames = raised.value.__cause__.__traceback__
    while frames.tb_next:
        frames = frames.tb_next
    assert frames.tb_frame.f_code.co_name == "broken"
    assert "bench.work(check=False)" in raised.value.__notes__[0]
    bench.work()  # it ended before: reported once


def test_a_test_may_expect_dead_jobs(shop, bench):
    handle = shop.broken.sync.enqueue(7)
    bench.work(check=False)
    assert handle.job().state == State.DEAD


async def test_async_work_raises_too(shop, bench):
    await shop.broken.enqueue(7)
    with pytest.raises(JobFailed, match="no order 7"):
        await bench.work()


def test_every_failed_attempt_is_logged_once_with_its_traceback(shop, bench, caplog):
    @shop.app.task
    def flaky(ctx: Context) -> None:
        if ctx.attempt == 1:
            raise ValueError("once")

    with bench.inline():
        flaky.sync.enqueue()
    logged = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert ["task 'flaky'" in record.getMessage() for record in logged] == [True]
    assert logged[0].exc_info[0] is ValueError
    assert shop.app.on_error != [], "until the block ends"


def test_the_hooks_are_as_before(shop):
    with on_memory(shop.app), inline(shop.app):
        pass
    with inline(shop.app):
        pass
    assert shop.app.on_error == []


# -- assert_enqueued


def test_a_job_is_found_by_some_of_its_arguments(shop, bench):
    shop.send.using(queue="mail").sync.enqueue(1)
    shop.send.sync.enqueue(2, "bob")
    [job] = assert_enqueued(shop.send, order_id=1)
    assert (job.queue, job.state) == ("mail", State.QUEUED)
    assert [job.payload["order_id"] for job in assert_enqueued(shop.send)] == [1, 2]
    assert len(assert_enqueued(shop.send, 1, "ann")) == 1, "a default is an argument too"
    assert_not_enqueued(shop.send, order_id=3)
    assert_not_enqueued(shop.broken)
    bench.work()
    [job] = assert_enqueued(shop.send.using(queue="mail"), to="bob")
    assert job.state == State.SUCCEEDED


def test_a_failed_assertion_shows_the_jobs_that_there_are(shop, bench):
    with pytest.raises(AssertionError, match="no job of task 'send' was enqueued with order_id=1; it has no jobs"):
        assert_enqueued(shop.send, order_id=1)
    shop.send.sync.enqueue(2)
    with pytest.raises(AssertionError, match=r"queued .* send\(to='ann', order_id=2\)|send\(order_id=2, to='ann'\)"):
        assert_enqueued(shop.send, order_id=1)
    with pytest.raises(AssertionError, match="with order_id=2 were enqueued"):
        assert_not_enqueued(shop.send, order_id=2)


def test_an_argument_that_the_task_does_not_have_is_an_error(shop, bench):
    with pytest.raises(InvalidJob, match="'oder_id'"):
        assert_not_enqueued(shop.send, oder_id=1)
    with pytest.raises(ConfigError, match="takes the task itself"):
        assert_enqueued(print)


def test_jobs_are_found_in_the_apps_own_store(shop):
    shop.send.sync.enqueue(1)
    assert_enqueued(shop.send, 1)


async def test_async_tests_need_no_await(shop, bench):
    await shop.send.enqueue(1)
    assert_enqueued(shop.send, order_id=1)


def test_a_plain_task_waits_for_another_in_the_same_thread():
    app, threads = Holdfast("memory://"), []

    @app.task
    def inner(number: int) -> int:
        threads.append(threading.current_thread())
        return number + 1

    @app.task
    def middle(number: int) -> int:
        threads.append(threading.current_thread())
        return inner.sync.enqueue(number).result(timeout=30) + 1

    @app.task
    def outer(number: int) -> int:
        threads.append(threading.current_thread())
        return middle.sync.enqueue(number).result(timeout=30) + 1

    with on_memory(app) as bench:
        handle = outer.sync.enqueue(0)
        bench.work()
        assert handle.result(timeout=30) == 3
    assert threads == [threading.current_thread()] * 3


# -- connection=


def sqlite_connection():
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE orders (id)")
    return connection


def test_a_job_is_stored_when_the_transaction_of_sqlite3_commits(shop, bench):
    connection = sqlite_connection()
    with connection:
        connection.execute("INSERT INTO orders VALUES (1)")
        handles = [shop.send.using(connection=connection).sync.enqueue(number) for number in (1, 2)]
        assert_not_enqueued(shop.send)
    bench.work()
    assert [handle.result(timeout=30) for handle in handles] == ["ann:1", "ann:2"]
    shop.send.using(connection=connection).sync.enqueue(3)
    assert_not_enqueued(shop.send, 3)  # nothing has committed it
    connection.rollback()
    connection.execute("INSERT INTO orders VALUES (2)")
    connection.commit()
    assert_not_enqueued(shop.send, 3)


def test_a_key_that_exists_gives_its_job(shop, bench):
    connection = sqlite_connection()
    first = shop.send.using(key="k").sync.enqueue(1)
    assert shop.send.using(key="k", connection=connection).sync.enqueue(1).id == first.id


@pytest.mark.parametrize("kind", ["session", "connection"])
def test_a_job_is_stored_when_a_transaction_of_sqlalchemy_commits(shop, bench, kind):
    engine = sqlalchemy.create_engine("sqlite://")
    connection = Session(engine) if kind == "session" else engine.connect()
    for number, commits in enumerate([True, False, True, False]):
        connection.execute(sqlalchemy.text("SELECT 1"))
        shop.send.using(connection=connection).sync.enqueue(number)
        assert_not_enqueued(shop.send, number)
        connection.commit() if commits else connection.rollback()
        assert (number in [job.payload["order_id"] for job in assert_enqueued(shop.send)]) is commits
    connection.close()


def statement(text):
    return sqlalchemy.text(text)


@pytest.mark.parametrize("kind", ["session", "connection", "sqlite3"])
@pytest.mark.parametrize("ending", ["commit", "rollback"])
def test_a_savepoint_keeps_or_discards_only_its_own_jobs(shop, bench, kind, ending):
    engine = sqlalchemy.create_engine("sqlite://")
    if kind == "sqlite3":
        connection = sqlite_connection()
        run, begin = connection.execute, lambda: connection.execute("SAVEPOINT s")
        end = {"commit": "RELEASE s", "rollback": "ROLLBACK TO s"}
        finish = lambda _: connection.execute(end[ending])  # noqa: E731
    else:
        connection = Session(engine) if kind == "session" else engine.connect()
        run, begin = lambda text: connection.execute(statement(text)), connection.begin_nested
        finish = lambda nested: getattr(nested, ending)()  # noqa: E731
    task = shop.send.using(connection=connection).sync
    run("SELECT 1")
    task.enqueue(1)
    nested = begin()
    task.enqueue(2)
    finish(nested)
    task.enqueue(3)
    assert_not_enqueued(shop.send)
    connection.commit()
    found = {job.payload["order_id"] for job in assert_enqueued(shop.send)}
    assert found == ({1, 2, 3} if ending == "commit" else {1, 3})
    connection.close()


@pytest.mark.parametrize("kind", ["session", "connection"])
def test_a_savepoint_that_is_older_than_its_jobs_discards_them(shop, bench, kind):
    engine = sqlalchemy.create_engine("sqlite://")
    connection = Session(engine) if kind == "session" else engine.connect()
    nested = connection.begin_nested()
    shop.send.using(connection=connection).sync.enqueue(1)
    nested.rollback()
    connection.commit()
    assert_not_enqueued(shop.send)
    connection.begin_nested()
    shop.send.using(connection=connection).sync.enqueue(1)
    connection.rollback()  # of the whole transaction
    connection.execute(statement("SELECT 1"))
    connection.commit()
    assert_not_enqueued(shop.send)
    connection.close()


def test_jobs_of_one_transaction_share_their_key(shop, bench):
    connection = sqlite_connection()
    task = shop.send.using(key="k", connection=connection).sync
    first = task.enqueue(1)
    assert task.enqueue(1).id == first.id
    with pytest.raises(KeyConflict):
        task.enqueue(2)
    connection.commit()
    assert [job.id for job in assert_enqueued(shop.send)] == [first.id]


def test_a_full_queue_refuses_jobs_of_a_transaction(caplog):
    connection, other = sqlite_connection(), sqlite_connection()
    app = Holdfast("memory://", max_depth=1)
    task = app.task(_plain)
    with on_memory(app):
        first = task.using(connection=connection).sync.enqueue()
        task.using(connection=other).sync.enqueue()
        with pytest.raises(QueueFull):
            task.using(connection=connection).sync.enqueue()
        connection.commit()
        other.commit()
        assert [job.id for job in assert_enqueued(task)] == [first.id]
    assert "was not stored when its transaction committed: full" in caplog.text


def test_without_a_transaction_or_with_an_unknown_connection_a_job_is_stored_at_once(shop, bench):
    autocommit = sqlite3.connect(":memory:", isolation_level=None)
    shop.send.using(connection=autocommit).sync.enqueue(1)
    shop.send.using(connection=object()).sync.enqueue(2)
    assert len(assert_enqueued(shop.send)) == 2


def test_connections_are_accepted_after_a_loop_has_ended(shop, bench):
    asyncio.run(shop.send.enqueue(1))
    asyncio.run(_await(shop.send.using(connection=object()).enqueue(2)))
    assert len(assert_enqueued(shop.send)) == 2


def test_other_memory_stores_refuse_and_name_the_test_helper():
    app = Holdfast("memory://")
    task = app.task(_plain)
    with app.sync, pytest.raises(ConfigError, match="on_memory in tests"):
        task.using(connection=object()).sync.enqueue()


def _plain() -> None: ...


# -- fixtures

PROGRAM = """
    from holdfast import Holdfast

    app = Holdfast("sqlite:////nowhere/at/all/jobs.db", imports=["program_tasks"])
"""

TASKS = """
    from program import app

    @app.task
    def remind(who: str) -> None:
        if who == "eve":
            return never
        sent.append(who)

    sent = []
"""

TESTS = """
    from holdfast.testing import assert_enqueued
    from program import app

    def test_bench(holdfast_bench, holdfast_app):
        assert holdfast_app is app
        from program_tasks import remind, sent
        remind.sync.enqueue("ann")
        assert_enqueued(remind, "ann")
        holdfast_bench.work()
        assert sent == ["ann"]

    def test_inline(holdfast_inline):
        from program_tasks import remind, sent
        remind.sync.enqueue("bob")
        assert sent == ["ann", "bob"]

    def test_the_traceback_is_in_the_report(holdfast_inline):
        from program_tasks import remind, sent
        remind.using(max_attempts=1).sync.enqueue("eve")
        assert "eve" in sent
"""


def test_fixtures_use_the_app_of_the_configuration(pytester):
    pytester.makepyfile(program=PROGRAM, program_tasks=TASKS, test_program=TESTS)
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\nholdfast_app = program:app\n")
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "-q")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["*Captured log call*", "*task 'remind'* failed", "*return never*", "*NameError*"])
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "-q", "-k", "bench")
    result.stdout.fnmatch_lines(["*set holdfast_app = module:app*"])
