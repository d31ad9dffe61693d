"""Writes of blocking callers, which the write thread answers without the event loop. (D, U)"""

import asyncio
import fcntl
import os
import threading
from contextlib import closing

import pytest

from holdfast import Holdfast, OutcomeUnknown, StoreUnavailable
from holdfast.store.protocol import Batch
from holdfast.store.sqlite import SqliteStore, thread
from holdfast.store.sqlite.writer import Writer
from holdfast.testing.build import new_job
from holdfast.testing.verbs import enqueue, gone, job

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def stuck(path, store):
    """Another process that holds the lock file, until it is closed."""
    with open(f"{path}-lock") as file, closing(file):
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file


@pytest.fixture(autouse=True)
def look_often(monkeypatch):
    monkeypatch.setattr(thread, "LOOK_EVERY", 0.05)


def insert(store, id):
    return store.write_blocking(Batch(inserts=[new_job(id)]))


async def test_a_write_is_committed_when_it_returns(store, open_store):
    answers = await asyncio.to_thread(insert, store, "a")
    assert [answer.outcome for answer in answers.inserts] == ["created"]
    assert (await job(await open_store(), "a")).state == "queued"


async def test_listeners_of_this_process_are_notified(store):
    listener = store.listen(["queue/default"])
    waiting = asyncio.ensure_future(listener.wait(60))
    await asyncio.to_thread(insert, store, "a")
    assert await waiting


async def test_a_write_behind_a_stuck_process_is_given_up_and_never_made(path, store, open_store):
    hasty = await open_store(busy_timeout=0.2)
    with open(f"{path}-lock") as stuck:  # noqa: ASYNC230  # closing it lets go
        fcntl.flock(stuck, fcntl.LOCK_EX)
        with pytest.raises(StoreUnavailable, match=r"could not begin within 0\.2 s; nothing was written"):
            await asyncio.to_thread(insert, hasty, "late")
    await enqueue(hasty, "next")
    assert await gone(hasty, "late")


async def test_an_interrupted_caller_writes_nothing_if_its_write_has_not_begun(store, stuck, monkeypatch):
    def interrupted(self, _):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(thread.BlockingTicket, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            insert(store, "interrupted")
    stuck.close()
    await enqueue(store, "next")
    assert await gone(store, "interrupted")


async def test_a_write_that_has_begun_is_waited_for(open_store, monkeypatch):
    store, wait, go, looks = await open_store(busy_timeout=0.1), thread.BlockingTicket.wait, threading.Event(), []

    def look(self, seconds):
        looks.append(1)
        if len(looks) > 9:  # long after `busy_timeout`
            go.set()
        return wait(self, seconds)

    def slow(ticket):
        ticket.begin()
        assert go.wait(90)
        return "done"

    monkeypatch.setattr(thread.BlockingTicket, "wait", look)
    assert await asyncio.to_thread(store._thread.run_blocking, slow) == "done"


async def test_a_caller_behind_others_joins_the_group_commit(store, stuck):
    waiting = asyncio.ensure_future(enqueue(store, "first"))
    await asyncio.sleep(0)
    assert await asyncio.to_thread(insert, store, "second") is None
    stuck.close()
    await waiting
    assert await gone(store, "second")


async def test_a_closed_store_writes_nothing(path, open_store):
    store = SqliteStore(path)
    await store.open()
    thread = store._thread
    await store.close()
    assert insert(store, "a") is None
    assert await asyncio.to_thread(thread.run_blocking, lambda _: pytest.fail("it ran")) is None
    assert await gone(await open_store(), "a")


def test_a_write_that_failed_is_made_on_the_loop(path, monkeypatch):
    """It was rolled back, whatever the error is."""
    app, write, failed = Holdfast(f"sqlite:///{path}"), Writer._transact, []

    def fail_first(self, connection, work):
        if threading.current_thread().name == "holdfast-sqlite-write" and not failed:
            failed.append(1)
            raise ValueError("no")
        return write(self, connection, work)

    with app.sync:
        app.sync.submit("noop", b"", id="first")
        monkeypatch.setattr(Writer, "_transact", fail_first)
        app.sync.submit("noop", b"", id="second")
        assert ({job.id for job in app.sync.jobs().jobs}, failed) == ({"first", "second"}, [1])


@pytest.mark.parametrize("options", [{}, {"key": "k"}], ids=["id", "key"])
def test_a_write_whose_outcome_is_unknown_is_stored_once(path, monkeypatch, options):
    app, confirm = Holdfast(f"sqlite:///{path}"), Writer._confirm

    def doubt(self):
        monkeypatch.setattr(Writer, "_confirm", confirm)
        raise OutcomeUnknown("the files could not be examined")

    with app.sync:
        app.sync.submit("noop", b"", id="first")
        monkeypatch.setattr(Writer, "_confirm", doubt)
        assert app.sync.submit("noop", b"", id="second", **options).id == "second"
        assert {job.id for job in app.sync.jobs().jobs} == {"first", "second"}


def test_a_fork_waits_for_the_write_and_both_processes_go_on(path):
    app = Holdfast(f"sqlite:///{path}")
    with app.sync:
        app.sync.submit("noop", b"", id="before")
        child = os.fork()
        if not child:
            status = 1
            try:
                for n in range(10):
                    app.sync.submit("noop", b"", id=f"child {n}")
                status = 0
            finally:
                os._exit(status)
        for n in range(10):
            app.sync.submit("noop", b"", id=f"parent {n}")
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        wanted = {"before", *(f"{who} {n}" for who in ("parent", "child") for n in range(10))}
        assert {job.id for job in app.sync.jobs().jobs} == wanted
