"""A busy file: another process holds SQLite's write lock, or our lock file."""

import asyncio
import fcntl
import os
import sqlite3
import threading
from contextlib import closing, suppress
from pathlib import Path

import pytest

from holdfast.core.errors import StoreUnavailable
from holdfast.store.protocol import Batch
from holdfast.store.sqlite import SqliteStore
from holdfast.testing.build import holder, new_job
from holdfast.testing.verbs import claim, enqueue, gone, job, running
from support.eventually import eventually


@pytest.fixture
def foreign(path, store):
    connection = sqlite3.connect(path, isolation_level=None)
    yield connection
    connection.close()


async def test_a_write_waits_for_a_foreign_writer(foreign, store):
    foreign.execute("BEGIN IMMEDIATE")
    writing = asyncio.ensure_future(store.write(Batch(inserts=[new_job("patient")])))
    done, _ = await asyncio.wait([writing], timeout=0.2)
    assert not done
    foreign.execute("COMMIT")
    [answer] = (await writing).inserts
    assert answer.outcome == "created"


async def test_a_foreign_writer_that_never_ends_is_named(foreign, path, open_store):
    store = await open_store(busy_timeout=0.3)
    foreign.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match=r"another connection holds a lock on .*jobs\.db; nothing was written"):
        await enqueue(store, "refused")
    foreign.execute("ROLLBACK")
    assert await gone(store, "refused")
    await enqueue(store, "taken")


async def test_a_lock_that_was_not_waited_for_names_no_wait(tmp_path, open_store):
    """SQLite does not wait for a writer before it refuses to change a file's journal mode."""
    path = tmp_path / "rows.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as writing:
        writing.execute("CREATE TABLE orders (name TEXT)")
        writing.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="another connection holds a lock") as refused:
            await open_store(path=path, busy_timeout=60.0)
    assert "60 s" not in str(refused.value)
    assert await (await open_store(path=path)).stats() == []


def test_an_opening_that_was_cut_short_leaves_no_open_file(path):
    async def cut_short():
        opening = asyncio.ensure_future(SqliteStore(path).open())
        await asyncio.sleep(0)
        opening.cancel()

    before = set(threading.enumerate())  # other tests' stores may still be waiting for their collection
    asyncio.run(cut_short())
    for thread in set(threading.enumerate()) - before:
        if thread.name == "holdfast-sqlite-write":
            thread.join()
    assert [name for name in open_files() if str(path) in name] == []


def open_files():
    """The files that this process has open."""
    for file in Path("/dev/fd").iterdir():
        with suppress(OSError):
            yield str(file.readlink())


async def test_an_opening_that_waits_for_a_reader_names_it_and_not_the_lock_file(tmp_path, open_store):
    path = tmp_path / "rows.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as reading:
        reading.execute("CREATE TABLE orders (name TEXT)")
        reading.execute("BEGIN")
        reading.execute("SELECT * FROM orders").fetchall()
        with pytest.raises(StoreUnavailable, match=r"another connection holds a lock on .*rows\.db"):
            await open_store(path=path, busy_timeout=0.3)
    assert await (await open_store(path=path)).stats() == []


async def test_reads_and_idle_asks_do_not_wait_for_a_writer(foreign, store):
    await enqueue(store, "there", delay=3600)
    foreign.execute("BEGIN IMMEDIATE")
    assert (await job(store, "there")).state == "scheduled"
    assert await claim(store) == []
    assert (await store.stats())[0].counts == {"scheduled": 1}
    foreign.execute("ROLLBACK")


async def test_a_write_behind_a_stuck_process_is_given_up_and_never_made(path, store, open_store):
    stuck = os.open(f"{path}-lock", os.O_RDWR)
    fcntl.flock(stuck, fcntl.LOCK_EX)
    hasty = await open_or_wait(open_store, stuck)
    fcntl.flock(stuck, fcntl.LOCK_EX)
    with pytest.raises(
        StoreUnavailable, match=r"could not begin within 0\.4 s; nothing was written. Another process holds .*-lock"
    ):
        await hasty.write(Batch(inserts=[new_job("late")]))
    fcntl.flock(stuck, fcntl.LOCK_UN)
    os.close(stuck)
    await enqueue(hasty, "next")
    assert await gone(hasty, "late")


async def open_or_wait(open_store, stuck):
    """Opening waits for the lock file too."""
    opening = asyncio.ensure_future(open_store(busy_timeout=0.4))
    done, _ = await asyncio.wait([opening], timeout=0.1)
    assert not done
    fcntl.flock(stuck, fcntl.LOCK_UN)
    return await opening


async def test_a_lease_that_ran_out_behind_the_lock_is_not_lost_while_its_heartbeat_waits_there(
    path, store, open_store
):
    """A process that is stopped, or whose job holds the GIL, may have the lock for many leases."""
    watcher = await open_store()
    await running(store, "x", by=holder("ann", lease=0.2))
    with open(f"{path}-lock") as stuck:  # noqa: ASYNC230  # closing it lets go
        fcntl.flock(stuck, fcntl.LOCK_EX)
        beating = asyncio.ensure_future(store.heartbeat([holder("ann", lease=30)]))
        await eventually(lambda: not_alive(watcher))
        looking = asyncio.ensure_future(watcher.expired(9))
        done, _ = await asyncio.wait([looking, beating], timeout=0.1)
        assert not done
    assert await looking == []
    await beating


async def not_alive(store):
    [seen] = await store.holders()
    return not seen.alive


async def test_a_long_listing_does_not_delay_a_settle(store):
    """Reads have a thread and a connection of their own."""
    reads, gate = threading.Event(), threading.Event()

    def long(step) -> int:
        reads.set()
        gate.wait()
        return step.value("SELECT 7")

    reading = asyncio.ensure_future(store._read(long))
    await eventually(reads.is_set)
    await asyncio.wait_for(store.write(Batch(inserts=[new_job()])), 90)
    gate.set()
    assert await reading == 7


async def test_an_error_of_the_caller_leaves_the_store_usable(store):
    with pytest.raises((OverflowError, UnicodeEncodeError)):
        await store.write(Batch(inserts=[new_job("good"), new_job("bad", priority=2**80)]))
    assert await gone(store, "good")
    await enqueue(store, "good")
