"""`holdfast worker quiet, drain, stop, restart, …`: workers under a supervisor, controlled by id."""

import os
import signal

import pytest

from holdfast.app import parts_of
from holdfast.core.operations import Holder
from holdfast.store.protocol import CONTROL, CONTROL_REPLY

APP = """
import time
from holdfast import Holdfast

app = Holdfast("sqlite:///holdfast.db")

@app.task
async def hang() -> None:
    time.sleep(600)  # blocks the event loop
"""


def ids(terminal):
    return sorted(one["id"] for one in terminal.workers())


@pytest.fixture
def two(terminal):
    """A supervisor with two workers; returns their ids."""
    terminal("worker", "start", "--count", "2", "--concurrency", "1")
    return terminal.until(lambda: found if len(found := ids(terminal)) == 2 else None)


def test_a_stopped_worker_stays_stopped_and_a_restarted_one_is_replaced(terminal, two):
    first, second = two
    assert terminal("worker", "restart", first) == (f"Worker {first} is stopping, and its supervisor starts another.\n")
    found = terminal.until(lambda: now if first not in (now := ids(terminal)) and len(now) == 2 else None)
    [third] = set(found) - {second}
    [supervisor] = terminal.supervisors()
    assert f"Worker {third} is stopping." in terminal("worker", "stop", third)
    terminal.until(lambda: ids(terminal) == [second])
    assert terminal("worker", "drain", second).startswith(f"Worker {second} claims no more jobs, and stops")
    terminal.until(lambda: terminal.process_table() == {})
    assert ids(terminal) == [], "no other process was started for them, and the supervisor has ended"
    assert supervisor not in terminal.process_table()
    assert "crashed" not in terminal.log()


def test_quiet_is_shown_in_the_list_and_undone(terminal, two):
    [one, other] = two
    states = {one: "quiet", other: "active"}
    assert terminal("worker", "quiet", one) == f"Worker {one} claims no more jobs.\n"
    # A heartbeat of the supervisor may be under way with the old state; the next one follows at once.
    terminal.until(lambda: {each["id"]: each["state"] for each in terminal.json("worker", "list")} == states)
    listed = terminal("worker", "list")
    assert "quiet" in listed
    assert one in listed
    host = terminal.workers()[0]["node"]
    assert terminal("worker", "concurrency", "7", "--host", host).count("runs up to 7 jobs at a time") == 2
    terminal.until(lambda: [each["slots"] for each in terminal.workers()] == [7, 7])
    terminal("worker", "resume", "--all")
    terminal.until(lambda: {each["state"] for each in terminal.workers()} == {"active"})
    replies = terminal.json("worker", "stacks", one)
    assert [(each["worker"], each["action"]) for each in replies] == [(one, "stacks")]
    assert "thread" in terminal("worker", "stacks", one)


def test_mistakes_are_explained_on_one_line(terminal, two):
    said = terminal("worker", "quiet", "nobody", code=1)
    assert said.startswith("holdfast: no request was sent: nobody is not the id of a live worker;")
    assert "needs to know which workers" in terminal("worker", "drain", code=2)
    assert "use `holdfast worker drain`" in terminal("worker", "stop", two[0], "--finish", code=2)
    assert len(terminal.workers()) == 2


@pytest.mark.extended  # maintenance looks every half minute
def test_a_killed_worker_leaves_no_request_and_is_replaced(terminal):
    """kill -9 with an open request: the client learns it, and the record is removed."""
    terminal("worker", "start", "--lease", "2")  # returns when the supervisor knows its worker, and so replaces it
    [one] = terminal.until(terminal.workers)
    os.kill(one["pid"], signal.SIGSTOP)
    store = terminal.store
    request = terminal.start("worker", "stop", one["id"], "--timeout", "60")
    records = lambda: store._run(_records, store)  # noqa: E731
    terminal.until(lambda: records()[CONTROL])
    os.kill(one["pid"], signal.SIGKILL)
    terminal.until(lambda: [each for each in terminal.workers() if each["id"] != one["id"]])
    request.terminate()  # so that nobody withdraws it
    request.wait(60)
    terminal.until(lambda: records() == {CONTROL: {}, CONTROL_REPLY: {}}, 120)


async def _on_store(store, work):
    session = await parts_of(store._of).runtime.opened()
    return await work(session.store)


async def _records(store):
    return await _on_store(store, lambda engine: engine.records([CONTROL, CONTROL_REPLY]))


def test_a_worker_that_dies_before_it_answers_is_reported(terminal):
    """The test is the worker: it leaves when the request has arrived."""
    store, silent = terminal.store, Holder(id="silent", lease=600.0, kind="worker")
    store._run(_on_store, store, lambda engine: engine.heartbeat([silent]))
    request = terminal.start("worker", "drain", "silent", "--timeout", "6")
    terminal.until(lambda: store._run(_records, store)[CONTROL])
    store._run(_on_store, store, lambda engine: engine.leave(["silent"]))
    assert request.wait(60) == 1
    assert "worker silent ended before it answered; the request was not applied" in terminal.log()


@pytest.mark.extended  # the supervisor waits for 20 s
def test_the_stop_of_a_worker_with_a_blocked_loop_ends_in_a_kill(terminal):
    (terminal.folder / "tasks.py").write_text(APP)
    terminal.start("-A", "tasks:app", "worker", "start", "--foreground", "--count", "2", "--lease", "3", "--grace", "0")
    terminal.until(lambda: len(terminal.workers()) == 2)
    terminal("-A", "tasks:app", "enqueue", "--task", "hang")
    [busy] = terminal.until(lambda: [one for one in terminal.workers() if one["jobs"]])
    assert "time.sleep(600)  # blocks the event loop" in terminal("worker", "stacks", busy["id"])
    assert "is stopping" in terminal("worker", "stop", busy["id"], "--now")
    terminal.until(lambda: busy["pid"] not in terminal.process_table(), 60)
    assert "did not stop in time and was killed; its jobs are recovered" in terminal.log()
    terminal.until(lambda: len(terminal.workers()) == 1)
