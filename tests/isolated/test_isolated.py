"""Tasks in processes of their own: however the process ends, the attempt does, and the worker goes on."""

import asyncio
import contextlib
import logging
import os
import sqlite3
import sys
import threading
from pathlib import Path

import pytest

from holdfast import Holdfast, Worker
from holdfast.app import parts_of
from holdfast.core.errors import ConfigError
from holdfast.worker.run import isolated
from holdfast.worker.run.isolated import Child
from support.eventually import eventually
from support.workers import working

sys.path.insert(0, str(Path(__file__).parent))
import isolated_jobs as tasks


@pytest.fixture
async def app(tmp_path, monkeypatch):
    """The tasks' app, on a store of this test's own."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    app = tasks.app
    store = parts_of(Holdfast(f"sqlite:///{tmp_path}/jobs.db")).runtime.store
    monkeypatch.setattr(parts_of(app).runtime, "_store", store)
    yield app
    await app.close()


async def run(app, *calls, **options):
    """Run these calls to their ends, beside each other."""
    handles = [await call.task.using(max_attempts=1, **options).enqueue(*call.args) for call in map(as_call, calls)]
    async with working(app, concurrency=4):
        return [await handle.wait(timeout=30) for handle in handles]


def as_call(call):
    task, *args = call if isinstance(call, tuple) else (call,)
    return tasks.app.call(task, *args)


async def test_results_travel_and_none_is_one(app):
    doubled, later, nothing = await run(app, (tasks.double, 21), (tasks.double_later, 4), tasks.nothing)
    assert [job.state for job in (doubled, later, nothing)] == ["succeeded"] * 3
    assert (doubled.result, later.result, nothing.result) == (42, 8, None)
    assert doubled.progress is not None
    assert doubled.progress.note == "half"
    assert await app.handle(nothing.id).result() is None


async def test_a_task_in_a_process_has_its_workers_whole_environment(app, monkeypatch):
    monkeypatch.setenv("PGPASSWORD", "hunter2")
    [job] = await run(app, (tasks.variable, "PGPASSWORD"))
    assert job.result == "hunter2"


async def test_what_it_prints_and_logs_is_seen(app, caplog):
    caplog.set_level(logging.INFO)
    [job] = await run(app, (tasks.double, 1))
    stored = [(line.level, line.logger, line.text) async for line in app.handle(job.id).logs()]
    assert stored == [
        ("info", None, "begun 1"),
        ("info", "holdfast.job", "in the middle"),
        ("info", "shop", "at the end"),
    ]
    lines = {record.getMessage(): record for record in caplog.records if record.name in ("holdfast.job", "shop")}
    for text in ("in the middle", "at the end"):
        line = lines[text]
        assert (line.job_id, line.attempt, line.queue) == (job.id, 1, "default")
        assert line.job_type.endswith("double")
    assert job.pid not in (None, os.getpid())


SPOKEN = [
    ("info", None, "printed"),
    ("warning", None, "warned"),
    (None, None, "by another process"),
    (None, None, "by another thread"),
    ("error", "library", "logged"),
    ("info", None, "no end"),
]


async def test_lines_have_levels_and_what_other_code_writes_is_plain(app):
    jobs = await run(app, tasks.speak_alone, tasks.speak_pooled, tasks.warn_pooled)
    stored = [[(line.level, line.logger, line.text) async for line in app.handle(job.id).logs()] for job in jobs]
    assert stored == [SPOKEN, SPOKEN, [line for line in SPOKEN if line[0] != "info"]]


async def test_a_log_call_whose_text_cannot_be_made_fails_no_job(app, caplog):
    [job] = await run(app, tasks.misuse_logging)
    assert job.result == "done", job.error
    expected = ["%d", "(a message of type Broken, whose text cannot be shown)"]
    assert [line.text async for line in app.handle(job.id).logs()] == [*expected, "half \\udcff"]
    told = [record.getMessage() for record in caplog.records if record.name == "library"]
    assert told == [*expected, "half ?"]


async def test_long_lines_of_several_threads_are_kept_apart(app):
    [job] = await run(app, (tasks.shout, 4, 1, 200_000))
    found = [line.text async for line in app.handle(job.id).logs()]
    assert sorted(text[:50] for text in found) == sorted(f"{name} 0 {name * 50}"[:50] for name in "abcd")
    assert {len(text) for text in found} == {200_004}


async def test_a_line_after_output_without_an_end_keeps_its_level_and_time(app):
    [job] = await run(app, tasks.mumble)
    lines = [(line.level, line.text) async for line in app.handle(job.id).logs()]
    assert lines == [(None, "no end"), ("info", "printed")]


async def test_output_that_is_not_stored_goes_to_the_worker(app, capfd):
    for job in await run(app, tasks.quiet_alone, tasks.quiet_pooled):
        assert [line async for line in app.handle(job.id).logs()] == []
    assert capfd.readouterr().err.count("by another process") == 2


ENDS = {
    "leave": "exit 3",
    "leave_hard": "exit 4",
    "crash": "killed by signal 11",
    "kill_self": "killed by signal 9",
    "raise_untold": "Untold: <unlocked _thread.lock",
    "return_a_lock": "the result of task 'return_a_lock' cannot be stored",
    "discard": "Discard: not worth it",
    "eat": "out of memory at 0.2 GB",
    "die": "exit 9",
}


async def test_every_bad_end_is_one_failed_attempt_in_words(app):
    ended = await run(app, *(parts_of(app).registry.tasks[name] for name in ENDS))
    assert [job.state for job in ended] == ["dead"] * len(ENDS)
    for job, (name, error) in zip(ended, ENDS.items(), strict=True):
        assert job.error.startswith(error), (name, job.error)


async def test_chunks_cross_the_boundary_before_the_outcome(app):
    alone, pooled = await run(app, tasks.emit_alone, tasks.emit_pooled)
    assert (alone.result, pooled.error) == ("emitted", "ValueError: no")
    for job in (alone, pooled):
        assert [chunk.value async for chunk in app.handle(job.id).stream()] == list(range(100))


async def test_a_snooze_and_its_checkpoint_cross_the_boundary(app):
    [job] = await run(app, tasks.snooze_once)
    assert (job.result, job.attempt, job.checkpoint) == ("awake", 1, {"seen": True})


async def test_a_killed_attempt_goes_on_behind_its_checkpoint(app):
    handle = await tasks.in_parts.using(max_attempts=2).enqueue(6)
    async with working(app):
        job = await handle.wait(timeout=30)
    assert (job.state, job.attempt, job.result) == ("succeeded", 2, [0, 1, 2, 3, 4, 5])
    assert job.history[0].error == "killed by signal 9"


async def test_a_timeout_kills_it_with_its_children(app):
    [job] = await run(app, (tasks.linger, "511"))
    assert job.error == "TimeoutError: ran longer than its timeout of 1 s"
    assert not any("sleep\x00511" in words for words in commands())


@pytest.mark.parametrize("task", [tasks.hang, tasks.hang_later], ids=["plain", "async"])
async def test_a_timeout_has_the_stack_of_the_task_in_its_process(app, task):
    async with working(app, concurrency=1):
        await (await tasks.who.enqueue(1)).wait(timeout=30)  # its process has loaded the app
        job = await (await task.using(max_attempts=1).enqueue()).wait(timeout=30)
    assert job.error == "TimeoutError: ran longer than its timeout of 1 s"
    assert f"in {task.name}\n" in job.traceback
    assert "# the innermost" in job.traceback
    assert "isolated.py" not in job.traceback


async def test_a_process_outlasts_a_look_at_a_stack_without_source(app):
    """A loader of the user raises an exception instead of giving the source."""
    async with working(app, concurrency=1) as worker:
        await (await tasks.who.enqueue(1)).wait(timeout=30)  # its process has loaded the app
        handle = await tasks.hang_unread.using(timeout=4, max_attempts=1).enqueue()

        async def inside():
            [reply] = await app.workers.stacks(worker.holder.id)
            return [one for one in reply.stacks if "in sleep_unread" in "".join(one.frames)]

        [stack] = await eventually(inside)
        assert (stack.kind, stack.job) == ("process", handle.id)
        job = await handle.wait(timeout=30)
        assert job.error == "TimeoutError: ran longer than its timeout of 4 s"
        assert '  File "/nowhere/unread.py", line 2, in sleep_unread\n' in job.traceback
        assert (await (await tasks.double.enqueue(21)).wait(timeout=30)).result == 42


async def test_stacks_of_a_worker_have_those_of_its_processes(app):
    async with working(app, concurrency=2) as worker:
        jobs = [await task.using(timeout=60).enqueue() for task in (tasks.hang, tasks.hang_later)]

        async def inside():
            [reply] = await app.workers.stacks(worker.holder.id)
            found = {one.job: one for one in reply.stacks if "# the innermost" in "".join(one.frames)}
            return found if found.keys() == {job.id for job in jobs} else None

        found = await eventually(inside)
        assert {one.kind for one in found.values()} == {"process"}
        assert [found[job.id].task for job in jobs] == [tasks.hang.name, tasks.hang_later.name]
        [reply] = await app.workers.stacks(worker.holder.id)
        assert sorted(one.job for one in reply.stacks if one.job is not None) == sorted(job.id for job in jobs)
        for job in jobs:
            await job.cancel()


def commands():
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                yield (folder / "cmdline").read_text()
            except OSError:
                continue


async def test_a_cancelled_one_may_tidy_up(app, tmp_path):
    file = tmp_path / "said"
    handle = await tasks.wait_for_the_end.enqueue(str(file))
    async with working(app, lease=3600):  # a notification, no heartbeat, brings the request
        await eventually(lambda: file.exists() and file.read_text() == "begun", 15)
        await handle.cancel()
        job = await handle.wait(timeout=15)
    assert (job.state, file.read_text()) == ("cancelled", "tidied")


async def test_a_pool_keeps_its_processes_and_loses_only_the_one_that_dies(app):
    first = await run(app, (tasks.who, 1))
    assert first[0].result[1] == 1
    async with working(app, concurrency=1):
        pids = []
        for number in range(3):
            job = await (await tasks.who.enqueue(number)).wait(timeout=20)
            pids.append(job.result[0])
            assert [line.text async for line in app.handle(job.id).logs()] == [f"pooled {number}"]
        assert len(set(pids)) == 1
        dead = await (await tasks.die.using(max_attempts=1).enqueue()).wait(timeout=20)
        assert (dead.error, dead.pid) == ("exit 9", pids[0])
        after = await (await tasks.who.enqueue(4)).wait(timeout=20)
        assert after.result[0] != pids[0]


async def test_hooks_see_values_and_errors_of_the_other_process(app):
    seen = []

    async def watch(ctx, call):
        try:
            value = await call()
        except Exception as error:
            seen.append(str(error))
            raise
        seen.append(value)
        return value

    app.around_run.append(watch)
    try:
        await run(app, (tasks.double, 3))
        await run(app, tasks.leave_hard)
    finally:
        app.around_run.remove(watch)
    assert seen == [6, "exit 4"]


async def test_an_app_that_no_process_could_find_is_refused_at_the_start(tmp_path):
    app = Holdfast(f"sqlite:///{tmp_path}/jobs.db")
    app.task(run_in="isolated", name="lost")(lambda: None)
    with pytest.raises(ConfigError, match="make the app a global variable of a module"):
        await asyncio.wait_for(Worker(app).run(), 90)
    await app.close()


def test_a_memory_limit_needs_a_process_of_its_own():
    app = Holdfast("memory://")
    with pytest.raises(ConfigError, match="memory= needs run_in='isolated'"):
        app.task(name="x", memory="1GB")(lambda: None)


async def test_dependencies_are_made_and_cleaned_up_in_the_process(app):
    plain, later, broken = await run(app, tasks.depending, tasks.depending_later, tasks.depending_on_broken)
    assert plain.result == "opened and read"
    assert later.result == ["opened and read", True]
    assert broken.error == "OSError: no route (in dependency broken())"
    for job in (plain, later):
        printed = [line.text async for line in app.handle(job.id).logs()]
        assert printed == [f"opened for {job.task}", "reading", "opened and read", "read", "closed"]


async def test_a_task_that_has_completed_itself_runs_on(app, tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDFAST_URL", f"sqlite:///{tmp_path}/jobs.db")
    go, ended = tmp_path / "go", tmp_path / "ended"
    handle = await tasks.save_and_wait.enqueue(str(go), str(ended))
    async with working(app) as worker:
        assert await handle.result(timeout=90) == "saved"
        [run] = worker._slots.runs.values()
        await eventually(lambda: run.context.completed)
        run.stop("lost")  # as after a heartbeat, which no longer finds its claim
        go.touch()
        await eventually(ended.exists)


async def test_a_second_block_in_a_process_finds_that_its_claim_has_ended(app, tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDFAST_URL", f"sqlite:///{tmp_path}/jobs.db")
    [job] = await run(app, tasks.save_twice)
    assert (job.state, job.result) == ("succeeded", 1)
    with contextlib.closing(sqlite3.connect(tmp_path / "jobs.db")) as connection:
        assert connection.execute("SELECT number FROM saved").fetchall() == [(1,)]


@pytest.mark.parametrize("call", [(tasks.double, 1), (tasks.who, 1)], ids=["isolated", "pooled"])
async def test_a_job_whose_output_cannot_be_read_fails_before_its_process_starts(app, monkeypatch, call):
    start, started = threading.Thread.start, []

    def fail(thread):
        if thread.name == "holdfast-output":
            raise RuntimeError("can't start new thread")
        start(thread)

    def child(*given):
        started.append(given)
        return Child(*given)

    monkeypatch.setattr(threading.Thread, "start", fail)
    monkeypatch.setattr(isolated, "Child", child)
    [job] = await run(app, call)
    assert (job.state, started) == ("dead", [])
    assert "can't start new thread" in job.error
