"""What tasks print and log is stored under their jobs and attempts."""

import asyncio
import io
import logging
import sys
import threading
from contextlib import contextmanager

import pytest

from holdfast import Context, Holdfast, JobNotFound, Snooze, State, StoreUnavailable, Worker
from holdfast.core.errors import ConfigError
from holdfast.store.reference.memory import MemoryStore
from support.eventually import eventually
from support.workers import work_off, working


async def texts(handle, **options):
    return [line.text async for line in handle.logs(**options)]


@contextmanager
def logger(name, **attributes):
    """A logger of a library, at level DEBUG; as it was, afterwards."""
    one = logging.getLogger(name)
    before = {**vars(one)}
    vars(one).update(attributes)
    one.setLevel("DEBUG")
    try:
        yield one
    finally:
        one.setLevel("NOTSET")
        vars(one).update(before)


async def test_lines_have_level_time_and_logger(app):
    @app.task
    async def speak(ctx: Context) -> None:
        print("printed", 1)
        print("to stderr", file=sys.stderr)
        ctx.log.info("of the %s", "context")
        logging.getLogger("library").warning("of a library")
        try:
            int("wrong")
        except ValueError:
            ctx.log.exception("it broke")

    handle = await speak.enqueue()
    await work_off(app)
    job, lines = await handle.job(), [line async for line in handle.logs()]
    assert [(line.level, line.logger, line.text.partition("\n")[0]) for line in lines] == [
        ("info", None, "printed 1"),
        ("warning", None, "to stderr"),
        ("info", "holdfast.job", "of the context"),
        ("warning", "library", "of a library"),
        ("error", "holdfast.job", "it broke"),
    ]
    assert lines[-1].text.endswith("ValueError: invalid literal for int() with base 10: 'wrong'")
    assert {(line.fence, line.attempt) for line in lines} == {(1, 1)}
    times = [line.time for line in lines]
    assert job.started_at <= times[0] <= times[-1]
    assert [line.position for line in lines] == sorted(line.position for line in lines)


async def test_a_hundred_jobs_at_once_keep_their_lines_apart(app):
    meeting = asyncio.Event()

    @app.task
    async def on_loop(ctx: Context, n: int) -> None:
        for number in range(5):
            print(n, "print", number)
            await asyncio.sleep(0)
            ctx.log.info("%d log %d", n, number)
        await asyncio.to_thread(print, n, "from a helper")
        await meeting.wait()

    @app.task
    def in_thread(n: int) -> None:
        for number in range(5):
            print(n, "print", number)
            logging.getLogger("library").warning("%d log %d", n, number)
        print(n, "from a helper")

    handles = {n: await (on_loop if n % 2 else in_thread).enqueue(n) for n in range(100)}
    async with working(app, concurrency=100):
        for n, handle in handles.items():  # live: half of them still run
            said = [f"{n} {word} {number}" for number in range(5) for word in ("print", "log")]
            await eventually(lambda h=handle, s=[*said, f"{n} from a helper"]: _shows(h, s))
        meeting.set()
        for n, handle in handles.items():
            job = await handle.wait(timeout=60)
            assert (job.state, len(await texts(handle))) == (State.SUCCEEDED, 11), n


async def _shows(handle, lines):
    return await texts(handle) == lines


async def test_lines_are_read_while_the_job_runs(app):
    go = asyncio.Event()

    @app.task
    async def slow() -> None:
        print("begun")
        await go.wait()
        print("ended")

    handle = await slow.enqueue()
    async with working(app):
        reader = handle.logs(follow=True)
        assert (await anext(reader)).text == "begun"
        go.set()
        assert [line.text async for line in reader] == ["ended"]


async def test_who_follows_a_job_that_is_removed_at_its_end_gets_no_error(app):
    read = asyncio.Event()

    @app.task(retention=0)
    async def speak() -> None:
        print("first")
        await read.wait()

    handle, found = await speak.enqueue(), []
    async with working(app):
        async for line in handle.logs(follow=True):
            found.append(line.text)
            read.set()
    assert found == ["first"]
    with pytest.raises(JobNotFound):
        await texts(handle)
    with pytest.raises(JobNotFound):
        await texts(handle, follow=True)


async def test_attempts_are_told_apart(app):
    @app.task(max_attempts=2)
    async def again(ctx: Context) -> None:
        print("attempt", ctx.attempt, end="")  # without an end of line
        if ctx.attempt == 1:
            raise ValueError

    handle = await again.enqueue()
    await work_off(app)
    await app.retry(handle.id)
    await work_off(app)
    assert [(line.attempt, line.fence, line.text) async for line in handle.logs()] == [
        (1, 1, "attempt 1"), (2, 2, "attempt 2"),
    ]  # fmt: skip


async def test_lines_and_chunks_of_a_run_that_used_no_attempt_keep_its_number(app):
    """As who read them while it ran has seen it, and as the history shows it."""

    @app.task
    async def rest(ctx: Context) -> None:
        print("run", ctx.attempt)
        await ctx.emit(ctx.attempt)
        if not ctx.last_checkpoint:
            await ctx.checkpoint(True)
            raise Snooze(0)

    handle = await rest.enqueue()
    await work_off(app)
    assert [line.number for line in (await handle.job()).history] == [1, 1]
    assert [(line.attempt, line.fence) async for line in handle.logs()] == [(1, 1), (1, 2)]
    assert [(chunk.attempt, chunk.fence, chunk.value) async for chunk in handle.stream()] == [(1, 1, 1), (1, 2, 1)]


@pytest.mark.parametrize("plain", [False, True])
async def test_each_job_of_a_batch_gets_the_lines_of_its_call(app, plain):
    async def together(items: list[int]) -> None:
        print("together", sorted(items), end="")

    def in_thread(items: list[int]) -> None:
        print("together", sorted(items), end="")

    task = app.task(batch=2, wait=30)(in_thread if plain else together)
    handles = [await task.enqueue(n) for n in range(2)]
    await work_off(app)
    assert [await texts(handle) for handle in handles] == [["together [0, 1]"]] * 2


async def test_a_handler_of_logging_does_not_store_a_record_twice(app):
    @app.task
    async def configure() -> None:
        handler = logging.StreamHandler()  # to standard error, as it is while the task runs
        with logger("library", handlers=[handler], propagate=False) as library:
            library.info("once")

    handle = await configure.enqueue()
    await work_off(app)
    assert await texts(handle) == ["once"]


async def test_a_record_whose_text_cannot_be_made_harms_no_job(app):
    class Broken:
        def __str__(self) -> str:
            raise RuntimeError("no text")

    @app.task
    async def speak() -> str:
        with logger("library", propagate=False, handlers=[logging.NullHandler()]) as library:
            library.warning(Broken())
            library.warning("%d", "text")
            library.warning("%s", Broken())
        return "done"

    handle = await speak.enqueue()
    await work_off(app)
    assert await handle.result() == "done"
    assert await texts(handle) == ["(a message of type Broken, whose text cannot be shown)", "%d", "%s"]


async def test_a_traceback_whose_source_cannot_be_read_harms_no_job(app):
    class Loader:
        def get_source(self, name: str) -> str:
            raise RuntimeError(f"no source of {name}")

    code = compile("def fail(error):\n    raise error\n", "/nowhere/fails.py", "exec")
    exec(code, names := {"__name__": "fails", "__loader__": Loader()})

    @app.task(max_attempts=1)
    async def speak() -> str:
        with logger("library", propagate=False, handlers=[logging.NullHandler()]) as library:
            try:
                names["fail"](ValueError("no"))
            except ValueError:
                library.exception("it failed")
        return "done"

    handle = await speak.enqueue()
    await work_off(app)
    assert await handle.result() == "done"
    assert await texts(handle) == ["it failed\nValueError: no"]


async def test_levels_below_the_stored_one_are_not_stored(make_app):
    app = make_app(task_log_level="warning")

    def speak() -> None:
        print("info")
        with logger("library") as library:
            library.debug("debug")
            library.error("error")

    loud, off = app.task(name="loud", log_level="DEBUG")(speak), app.task(name="off", log_level="off")(speak)
    handles = [await task.enqueue() for task in (app.task(name="normal")(speak), loud, off)]
    await work_off(app, concurrency=1)
    assert [await texts(handle) for handle in handles] == [["error"], ["info", "debug", "error"], []]
    with pytest.raises(ConfigError, match="task 'x': log_level= must be DEBUG, INFO, WARNING, ERROR or OFF, not 'all'"):
        app.task(name="x", log_level="all")(speak)


async def test_storing_can_be_switched_off_for_all_workers_of_a_store(app):
    @app.task
    async def speak() -> None:
        print("spoken")

    await app.config.set("task_log_level", "off")
    handle = await speak.enqueue()
    await work_off(app)
    assert await texts(handle) == []


async def test_more_than_max_output_keeps_the_newest_with_a_note(make_app):
    app = make_app(max_output=1000)

    @app.task
    def endless() -> None:
        for number in range(1000):
            print("line", number)

    handle = await endless.enqueue()
    await work_off(app)
    note, *lines = await texts(handle)
    assert "bytes of older output were dropped" in note
    assert lines == [f"line {number}" for number in range(1000 - len(lines), 1000)]
    assert 10 < len(lines) < 100


async def test_output_outside_of_tasks_is_untouched(app, capsys, caplog):
    streams, factory, inside = (sys.stdout, sys.stderr), logging.getLogRecordFactory(), threading.Event()

    @app.task
    async def speak() -> None:
        inside.set()
        print("of the task")

    handle = await speak.enqueue()
    async with working(app):
        await eventually(inside.is_set)
        print("of the program")
        logging.getLogger("program").warning("logged")
        assert (sys.stdout.encoding, sys.stdout.isatty()) == (streams[0].encoding, False)
        await handle.wait(timeout=60)
    assert await texts(handle) == ["of the task"]
    assert sorted(capsys.readouterr().out.splitlines()) == ["of the program", "of the task"]
    assert "logged" in caplog.text
    assert (sys.stdout, sys.stderr) == streams
    assert logging.getLogRecordFactory() is factory


async def test_what_a_task_leaves_running_writes_to_no_job(app, capsys):
    left = []

    @app.task
    async def leave() -> None:
        left.append(asyncio.create_task(_print_later()))

    go = asyncio.Event()

    async def _print_later() -> None:
        await go.wait()
        print("too late")

    handle = await leave.enqueue()
    async with working(app):
        await handle.wait(timeout=60)
        go.set()
        await left[0]
    assert await texts(handle) == []
    assert capsys.readouterr().out == "too late\n"


async def test_a_progress_bar_is_one_line(app):
    @app.task
    async def bar() -> None:
        for number in range(100):
            sys.stdout.write(f"\r{number} %")
        print(" done")

    handle = await bar.enqueue()
    await work_off(app)
    assert await texts(handle) == ["99 % done"]


async def test_workers_that_overlap_capture_until_the_last_one_stops(app, make_app):
    stream, other = sys.stdout, make_app()

    @app.task
    async def speak() -> None:
        print("spoken")

    async with working(app):
        async with working(other):
            pass
        handle = await speak.enqueue()
        await handle.wait(timeout=60)
    assert await texts(handle) == ["spoken"]
    assert sys.stdout is stream


@pytest.mark.parametrize("wraps", [False, True], ids=["replaced", "wrapped"])
async def test_a_worker_captures_although_an_older_one_has_other_streams(app, monkeypatch, wraps):
    class Wrapped(io.StringIO):
        def write(self, text):
            return before.write(text)

    @app.task
    async def speak() -> None:
        print("spoken")

    async with working(Holdfast("memory://")) as older:
        await eventually(lambda: older.holder)
        before = sys.stdout
        monkeypatch.setattr(sys, "stdout", mine := Wrapped() if wraps else io.StringIO())
        handle = await speak.enqueue()
        await work_off(app)
        assert sys.stdout is not mine, "the proxies stay until the last worker stops"
    assert await texts(handle) == ["spoken"]
    assert (sys.stdout, mine.getvalue()) == (mine, "" if wraps else "spoken\n")


async def test_a_stream_that_is_kept_after_its_worker_captures_for_the_next(app, monkeypatch):
    @app.task
    async def speak() -> None:
        print("spoken")

    async with working(Holdfast("memory://")) as first:
        await eventually(lambda: first.holder)
        kept = sys.stdout
    monkeypatch.setattr(sys, "stdout", kept)
    handle = await speak.enqueue()
    await work_off(app)
    assert await texts(handle) == ["spoken"]
    assert sys.stdout is kept


async def test_a_blocking_program_reads_the_lines(app):
    @app.task
    async def speak() -> None:
        print("spoken")

    handle = await speak.enqueue()
    await work_off(app)
    await app.close()
    blocking = app.sync.handle(handle.id)
    assert await asyncio.to_thread(lambda: [line.text for line in blocking.logs(follow=True)]) == ["spoken"]


async def test_a_stream_that_was_replaced_stays(app, monkeypatch):
    mine = io.StringIO()

    @app.task
    async def speak() -> None:
        print("spoken")

    async with working(app) as worker:
        await eventually(lambda: worker.holder)
        monkeypatch.setattr(sys, "stdout", mine)
        handle = await speak.enqueue()
        await handle.wait(timeout=60)
    assert (sys.stdout, mine.getvalue()) == (mine, "spoken\n")


class Refusing(MemoryStore):
    """Fails so many writes that end a job, or write output."""

    fails = 0

    async def write(self, batch):
        if (batch.settles or batch.notes) and self.fails:
            self.fails -= 1
            raise StoreUnavailable("away")
        return await super().write(batch)


async def test_the_last_lines_are_written_with_an_outcome_that_is_repeated():
    async with Holdfast(store := Refusing()) as app:

        @app.task
        async def speak() -> None:
            print("first")
            print("last")
            store.fails = 2

        handle = await speak.enqueue()
        await asyncio.wait_for(Worker(app, until_idle=True).run(), 90)
        assert (store.fails, (await handle.job()).state) == (0, State.SUCCEEDED)
        assert await texts(handle) == ["first", "last"]


@pytest.mark.parametrize("plain", [False, True])
async def test_lines_before_and_in_a_transaction_are_stored_with_it(tmp_path, make_app, plain):
    app = make_app(f"sqlite:///{tmp_path}/own.db")

    async def on_loop(ctx: Context) -> None:
        print("before")
        async with ctx.transaction():
            print("inside")

    def in_thread(ctx: Context) -> None:
        print("before")
        with ctx.transaction():
            print("inside")

    handle = await app.task(in_thread if plain else on_loop).enqueue()
    await work_off(app)
    assert (await handle.job()).state == State.SUCCEEDED
    assert await texts(handle) == ["before", "inside"]


async def test_lines_of_a_transaction_that_is_rolled_back_are_stored(tmp_path, make_app):
    app = make_app(f"sqlite:///{tmp_path}/own.db")

    @app.task(max_attempts=1)
    async def broken(ctx: Context) -> None:
        async with ctx.transaction():
            print("inside")
            raise ValueError
        print("never")

    handle = await broken.enqueue()
    await work_off(app)
    assert await texts(handle) == ["inside"]
