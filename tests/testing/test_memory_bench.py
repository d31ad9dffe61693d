"""An app of the user in a test: `on_memory`, and its pytest fixture."""

import asyncio
import json

import pytest

from holdfast import ConfigError, Holdfast, JobFailed, State
from holdfast.app import parts_of
from holdfast.testing import ManualClock, on_memory
from support.eventually import eventually
from support.workers import working

pytest_plugins = ["pytester"]


@pytest.fixture
def app(tmp_path):
    """An app at the top of a module, as in a program."""
    app = Holdfast(f"sqlite:///{tmp_path}/jobs.db", max_attempts=7)
    app.sent = []

    @app.task(queue="mail")
    def remind(who: str) -> None:
        app.sent.append(who)

    @app.task
    async def signup(who: str) -> None:
        await remind.using(delay=86400).enqueue(who)

    yield app
    app.sync.close()


def test_blocking_code_runs_what_is_due_when_the_test_says_so(app, tmp_path):
    with on_memory(app) as bench:
        assert isinstance(bench.clock, ManualClock)
        handle = app.sync.enqueue("signup", "ann")
        assert handle.job().state == State.QUEUED
        bench.work()
        assert handle.job().state == State.SUCCEEDED
        assert app.sent == []
        bench.advance(86400)
        bench.work()
        assert app.sent == ["ann"]
        assert handle.job().max_attempts == 7, "settings stay as they are"
    assert not (tmp_path / "jobs.db").exists(), "the app's own store was not touched"


@pytest.mark.parametrize(("task", "args"), [("unknown", ()), ("signup", (1, 2, 3))])
async def test_a_refused_job_fails_the_test(app, task, args):
    with on_memory(app) as bench:
        handle = await app.submit(task, json.dumps({"args": args}).encode(), json=True)
        with pytest.raises(JobFailed, match=r"was refused: (UnknownTask|InvalidJob): "):
            await bench.work()
        await bench.work()
        bench.advance(1)
        await bench.work(check=False)
        assert (await handle.job()).state == State.SCHEDULED


async def test_async_code_does_the_same_with_await(app):
    with on_memory(app) as bench:
        await app.enqueue("signup", "ann")
        await bench.work()
        bench.advance(86400)
        await bench.work()
    assert app.sent == ["ann"]


def test_every_block_begins_empty_and_leaves_the_app_as_it_was(app):
    url, clock = parts_of(app).url, parts_of(app).runtime.clock
    for _ in range(2):
        with on_memory(app):
            app.sync.enqueue("signup", "ann")
            assert app.sync.stats().counts["queued"] == 1
            assert parts_of(app).url == "memory://"
    assert (parts_of(app).url, parts_of(app).runtime.clock) == (url, clock)
    assert app.sync.stats().counts["queued"] == 0


def test_the_duration_of_a_job_is_measured_by_the_manual_clock(app):
    reported = []
    app.on("job_succeeded", lambda event: reported.append(event.ran))
    with on_memory(app) as bench:
        app.sync.enqueue("signup", "ann")
        bench.work()
    assert reported == [0.0]


def test_work_finds_queues_that_no_task_names(app):
    with on_memory(app) as bench:
        handle = parts_of(app).registry.tasks["signup"].using(queue="unheard of").sync.enqueue("ann")
        bench.work()
        assert handle.job().state == State.SUCCEEDED


def test_a_job_may_run_where_it_is_enqueued(app):
    with on_memory(app) as bench, bench.inline():
        app.sync.enqueue("remind", "ann")
        assert app.sent == ["ann"]


async def test_advancing_wakes_a_worker_that_waits_for_its_time(app):
    with on_memory(app) as bench:
        async with working(app, poll=60):
            handle = await parts_of(app).registry.tasks["remind"].using(delay=3600).enqueue("ann")

            async def listed():
                return (await app.stats()).workers == 1

            await eventually(listed)
            bench.advance(3600)
            await handle.result(timeout=30)
    assert app.sent == ["ann"]


def test_a_wait_for_a_result_ends_with_a_manual_clock(app):
    with on_memory(app):
        handle = app.sync.enqueue("signup", "ann")
        with pytest.raises(TimeoutError):
            handle.result(timeout=0.05)


async def test_an_app_that_a_loop_has_opened_is_not_taken_over(app):
    async with app:
        with pytest.raises(ConfigError, match="close it before a test replaces its store"), on_memory(app):
            pass


def test_an_app_that_was_left_open_on_a_loop_that_ended_can_be_taken_over(app):
    asyncio.run(app.stats())
    with on_memory(app):
        assert app.sync.stats().workers == 0


PROGRAM = """
    from holdfast import Holdfast

    app = Holdfast("sqlite:////nowhere/at/all/jobs.db")
    sent = []

    @app.task
    def remind(who: str) -> None:
        sent.append(who)
"""

TESTS = """
    import pytest
    from holdfast.app import parts_of
    from program import app, remind, sent

    def test_blocking(holdfast_memory):
        bench = holdfast_memory(app)
        remind.sync.using(delay=60).enqueue("ann")
        bench.work()
        assert sent == []
        bench.advance(60)
        bench.work()
        assert sent == ["ann"]

    def test_every_test_begins_empty(holdfast_memory):
        holdfast_memory(app)
        assert app.sync.jobs().jobs == []

    @pytest.mark.asyncio
    async def test_async(holdfast_memory):
        bench = holdfast_memory(app)
        with bench.inline():
            await remind.enqueue("bob")
        assert sent == ["ann", "bob"]

    def test_afterwards_the_app_is_as_it_was():
        assert parts_of(app).url == "sqlite:////nowhere/at/all/jobs.db"
"""


def test_the_fixture_is_available_if_holdfast_is_installed(pytester):
    pytester.makepyfile(program=PROGRAM, test_program=TESTS)
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-W", "error", "-q")
    result.assert_outcomes(passed=4)


@pytest.mark.extended
def test_the_fixture_has_a_description(pytester):
    result = pytester.runpytest_subprocess("--fixtures", "-p", "no:cacheprovider")
    result.stdout.fnmatch_lines(["holdfast_memory*", "*Give an app an empty memory store*"])
