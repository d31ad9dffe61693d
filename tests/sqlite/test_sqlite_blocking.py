"""Writes of blocking callers, on their own thread or on the write thread, without the event loop. (D, U)"""

import asyncio
import fcntl
import itertools
import os
import signal
import sqlite3
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from holdfast import Holdfast, HoldfastError, OutcomeUnknown, StoreUnavailable
from holdfast.app import parts_of
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

    def fail_first(self, connection, work, **begun):
        if threading.current_thread().name == "holdfast-sqlite-write" and not failed:
            failed.append(1)
            raise ValueError("no")
        return write(self, connection, work, **begun)

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


def on_which_threads(monkeypatch):
    """The threads on which transactions run."""
    names, transact = [], Writer._transact

    def note(self, connection, work, **begun):
        names.append(threading.current_thread().name)
        return transact(self, connection, work, **begun)

    monkeypatch.setattr(Writer, "_transact", note)
    return names


async def test_a_lone_caller_writes_on_its_own_thread(store, monkeypatch):
    names = on_which_threads(monkeypatch)
    await idle(store)
    with ThreadPoolExecutor(1, "caller") as pool:
        await asyncio.wrap_future(pool.submit(insert, store, "a"))
    assert names == ["caller_0"]


def test_a_caller_that_signal_handlers_may_interrupt_does_not(path, monkeypatch):
    """They may enqueue too, and would wait for themselves."""
    app, names = Holdfast(f"sqlite:///{path}"), on_which_threads(monkeypatch)
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        with app.sync:
            app.sync.submit("noop", b"")
            app.sync.submit("noop", b"")
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert set(names) == {"holdfast-sqlite-write"}


async def test_a_caller_leaves_the_connection_to_the_write_thread_while_that_uses_it(store, monkeypatch):
    begun, go, names = threading.Event(), threading.Event(), on_which_threads(monkeypatch)

    def slow(ticket):
        ticket.begin()
        begun.set()
        assert go.wait(90)

    first = asyncio.ensure_future(asyncio.to_thread(store._thread.run_blocking, slow))
    await asyncio.to_thread(begun.wait)
    second = asyncio.ensure_future(asyncio.to_thread(insert, store, "second"))
    await asyncio.to_thread(until, lambda: names or not store._thread._queue.empty())
    assert not names
    go.set()
    await asyncio.gather(first, second)
    assert names == ["holdfast-sqlite-write"]


async def test_two_callers_write_one_after_the_other(path, store, monkeypatch):
    """The second one finds no operation of the write thread, but the connection in use."""
    await idle(store)
    transact, inside, names, go = Writer._transact, [], [], threading.Event()

    def slow(self, connection, work, **begun):
        inside.append(threading.current_thread().name)
        names.append(list(inside))
        if len(names) == 1:
            assert go.wait(90)
        try:
            return transact(self, connection, work, **begun)
        finally:
            inside.pop()

    monkeypatch.setattr(Writer, "_transact", slow)
    with ThreadPoolExecutor(2, "caller") as pool:
        first = asyncio.wrap_future(pool.submit(insert, store, "first"))
        await asyncio.to_thread(until, lambda: names)
        second = asyncio.wrap_future(pool.submit(insert, store, "second"))
        await asyncio.to_thread(until, lambda: len(names) > 1 or store._thread._busy)
        with open(f"{path}-lock") as other, pytest.raises(BlockingIOError):  # noqa: ASYNC230  # kept
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        go.set()
        assert [answers.inserts[0].outcome for answers in await asyncio.gather(first, second)] == ["created"] * 2
    assert names == [["caller_0"], ["holdfast-sqlite-write"]]


async def test_a_caller_waits_interruptibly_for_a_foreign_transaction(path, store, monkeypatch):
    """Inside SQLite no signal would be noticed, so the write thread waits."""
    await idle(store)
    names = on_which_threads(monkeypatch)
    with closing(sqlite3.connect(path, isolation_level=None)) as foreign:
        foreign.execute("BEGIN IMMEDIATE")
        waiting = asyncio.ensure_future(asyncio.to_thread(insert, store, "a"))
        await asyncio.to_thread(until, lambda: names or store._thread._busy)
        foreign.execute("ROLLBACK")
        await waiting
    assert names == ["holdfast-sqlite-write"]
    assert store._writer._connection.execute("PRAGMA busy_timeout").fetchone() == (60_000,)


async def test_an_unknown_outcome_is_not_hidden_by_the_error_of_a_rollback(store, monkeypatch):
    await idle(store)

    def fail(self, connection):
        connection.execute("COMMIT")
        connection.close()
        self._connection = None
        raise OutcomeUnknown("the disk reported an error during the commit")

    def cannot(self):
        raise StoreUnavailable("nothing was written")

    monkeypatch.setattr(Writer, "_commit", fail)
    monkeypatch.setattr(Writer, "_reconnect", cannot)
    with pytest.raises(OutcomeUnknown):
        await asyncio.to_thread(insert, store, "a")


async def test_a_caller_does_not_keep_out_an_operation_that_waits_for_the_connection(store):
    await idle(store)
    assert await asyncio.to_thread(overtake, store) is None


def overtake(store):
    """Try to write while an operation of another caller waits."""
    with ThreadPoolExecutor(1) as pool:
        with store._writer.fork_lock.lock:
            waiting = pool.submit(store._thread.run_blocking, lambda ticket: ticket.begin())
            until(lambda: store._thread._busy and store._thread._queue.empty())
            answer = store._thread.run_here(lambda: "it overtook")
        waiting.result()
    return answer


async def idle(store):
    """Wait until its write thread has nothing to do."""
    await asyncio.to_thread(until, lambda: not store._thread._busy)


def until(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        threading.Event().wait(0.001)


async def test_a_long_log_is_copied_into_the_database(path, store):
    before, text = path.stat().st_size, b"x" * 500_000
    for n in range(30):
        await asyncio.to_thread(store.write_blocking, Batch(inserts=[new_job(f"job {n}", payload=text)]))
    await asyncio.to_thread(until, lambda: path.stat().st_size > before)


async def test_a_call_during_a_write_of_its_own_thread_is_refused(path, monkeypatch):
    """Like that of a finalizer: it would wait for this write."""
    app, confirm, refused = Holdfast(f"sqlite:///{path}"), Writer._confirm, []

    def finalize(self):
        confirm(self)
        if threading.current_thread().name.startswith("caller"):
            with pytest.raises(HoldfastError, match="nothing was done: the call came from a finalizer"):
                app.sync.submit("noop", b"", id="nested")
            refused.append(1)

    def enqueue():
        app.sync.submit("noop", b"", id="before")
        until(lambda: not parts_of(app).runtime.live_session().store._thread._busy)
        app.sync.submit("noop", b"", id="a")

    with ThreadPoolExecutor(1, "caller") as pool:
        monkeypatch.setattr(Writer, "_confirm", finalize)
        await asyncio.wrap_future(pool.submit(enqueue))
        assert {job.id for job in (await app.jobs()).jobs} == {"before", "a"}
        assert refused
        await app.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # raised in a generator that is closed
async def test_a_caller_may_be_interrupted_at_any_point(open_store):
    """By the exception of a signal handler, or one that another thread sets: nothing stays locked or half written."""
    store, other, stored = await open_store(busy_timeout=1), await open_store(busy_timeout=1), 0
    for point in itertools.count():
        await idle(store)
        interrupted = await asyncio.to_thread(insert_until, store, f"job {point}", point)
        stored += not await gone(other, f"job {point}")
        await enqueue(other, f"other {point}")
        await enqueue(store, f"next {point}")
        if not interrupted:
            break
    assert point > 30
    assert 0 < stored < point


def insert_until(store, id, point):
    """Insert a job, with an exception at this point; whether there was one."""
    points, reached = itertools.count(), []

    def interrupt(_, event, called):
        # Where Python looks for exceptions: when a function begins, and after a call of one that is written in C.
        if event in ("call", "c_return") and called is not sys.setprofile and next(points) == point:
            sys.setprofile(None)
            reached.append(point)
            raise KeyboardInterrupt

    sys.setprofile(interrupt)
    try:
        insert(store, id)
    except KeyboardInterrupt:
        pass
    finally:
        sys.setprofile(None)
    return bool(reached)


def test_a_fork_during_a_write_of_its_own_thread_closes_the_connection(path, python):
    """As a finalizer may: it does not wait for itself, and the write fails."""
    forks = python(FORKS, path)
    assert forks.communicate(timeout=60)[0].splitlines() == ["nothing was written", "False True"]


FORKS = """
import asyncio, os, sys
from holdfast import StoreUnavailable
from holdfast.store.protocol import Batch
from holdfast.store.sqlite import SqliteStore
from holdfast.store.sqlite.writer import Writer
from holdfast.testing.build import new_job

transact, children = Writer._transact, []

def fork_first(self, connection, work, **begun):
    def forked(step):
        answer = work(step)
        if not children:
            child = os.fork()
            if not child:
                os._exit(0)
            children.append(child)
        return answer

    return transact(self, connection, forked, **begun)

async def main():
    store, *others = [SqliteStore(sys.argv[1]) for _ in range(4)]
    for one in (store, *others):
        await one.open()
    Writer._transact = fork_first
    while store._thread._busy:
        await asyncio.sleep(0)
    try:
        await asyncio.to_thread(store.write_blocking, Batch(inserts=[new_job("a")]))
    except StoreUnavailable as error:
        print("nothing was written" if "nothing was written" in str(error) else error)
    os.waitpid(children[0], 0)
    await store.write(Batch(inserts=[new_job("b")]))
    print(*[record is not None for record in await others[0].get(["a", "b"])])
    for one in (store, *others):
        await one.close()

asyncio.run(main())
"""
