"""Waking: listeners across connections and processes, and nothing written while idle."""

import asyncio
import gc
import os
import sqlite3
import sys
import time
from pathlib import Path

import pytest

from holdfast.core.job import State
from holdfast.store.sqlite import wake
from holdfast.store.sqlite.log_events import LogEvents
from holdfast.testing.build import new_job, succeeded
from holdfast.testing.clock import ManualClock
from holdfast.testing.verbs import claim, enqueue, running, settle
from support.eventually import eventually

ENQUEUE_WHEN_TOLD = """
import asyncio, sys
from holdfast.store.protocol import Batch
from holdfast.store.sqlite import SqliteStore
from holdfast.testing.build import new_job

async def main(path):
    store = SqliteStore(path)
    await store.open()
    print("ready", flush=True)
    for line in sys.stdin:
        await store.write(Batch(inserts=[new_job(line.strip())]))
    await store.close()

asyncio.run(main(sys.argv[1]))
"""
LIMIT = 20.0


@pytest.fixture
async def other(open_store, store):
    return await open_store()


async def notified(listener, limit=LIMIT):
    """Seconds until the listener rings."""
    started = time.monotonic()
    await listener.wait(limit)
    return time.monotonic() - started


async def test_another_process_wakes_an_idle_one(path, store, python):
    process = python(ENQUEUE_WHEN_TOLD, path)
    assert process.stdout.readline() == "ready\n"
    listener = store.listen(["queue/default"])
    for number in range(15):
        waiting = asyncio.ensure_future(notified(listener))
        await asyncio.sleep(0)
        process.stdin.write(f"job-{number}\n")
        process.stdin.flush()
        assert await waiting < LIMIT
        while not (found := await claim(store)):  # a notification is a hint, and may be of something else
            assert await notified(listener) < LIMIT
        assert [one.id for one in found] == [f"job-{number}"]


async def test_the_end_of_a_job_in_another_process_notifies_its_listeners(store, other):
    claimed = await running(store)
    listener = other.listen([f"job/{claimed.id}"])
    waiting = asyncio.ensure_future(notified(listener))
    await settle(store, succeeded(claimed))
    assert await waiting < LIMIT


async def test_what_happened_just_before_the_wait_is_not_missed(store, other):
    listener = other.listen(["queue/default"])
    await listener.wait(0.05)
    await enqueue(store)
    assert await notified(listener) < LIMIT


async def test_a_neighbours_other_work_wakes_nobody(store, other):
    listener = other.listen(["queue/default", "job/never"])
    await listener.wait(0.05)
    claimed = await running(store, queue="elsewhere")
    await enqueue(store, "never", queue="elsewhere", delay=3600)
    await listener.wait(0.05)
    waiting = asyncio.ensure_future(notified(listener, 0.3))
    for _ in range(5):
        await store.heartbeat([])
        await store.put_record("config", "n", b"1")
    await settle(store, succeeded(claimed))
    assert await waiting >= 0.29


async def test_a_job_due_sooner_is_notified_so_that_the_sleep_can_be_shortened(store, other):
    listener = other.listen(["queue/default"])
    await listener.wait(0.05)
    waiting = asyncio.ensure_future(notified(listener))
    await asyncio.sleep(0)
    await enqueue(store, delay=3600)
    assert await waiting < LIMIT


async def test_waiting_costs_next_to_nothing(store):
    listener = store.listen(["queue/default"])
    await listener.wait(1.5)
    began = time.process_time()
    await listener.wait(2.0)
    waited = time.process_time()
    sum(range(3_000_000))  # some hundredths of a second
    assert waited - began < time.process_time() - waited


linux = pytest.mark.skipif(sys.platform != "linux", reason="inotify is of Linux")


@linux
async def test_a_commit_of_a_users_own_connection_notifies_a_reliable_listener(path, store):
    listener = store.listen(["queue/default"])
    waiting = asyncio.ensure_future(listener.wait(LIMIT))
    await eventually(lambda: listener.reliable)
    own = sqlite3.connect(path)
    await store.insert_bound(own, [new_job("own")])
    own.commit()
    own.close()
    assert await waiting
    assert listener.reliable


@linux
async def test_a_busy_worker_polls_rarely_while_commits_follow_each_other(store, other, monkeypatch):
    monkeypatch.setattr(wake, "BURST", 1)
    wanted, pauses = other._listeners._wanted, []
    wait = wanted.wait
    monkeypatch.setattr(wanted, "wait", lambda seconds: pauses.append(seconds) or wait(seconds))

    async def wait_for(topic):
        listener = other.listen([topic])
        while True:
            await listener.wait(LIMIT)

    waiting = [asyncio.ensure_future(wait_for(topic)) for topic in ("holder/worker", "record/pause")]
    await eventually(lambda: other._listeners._seen is not None)

    async def after_another():
        await enqueue(store)
        return wake.BUSY_PAUSE in pauses

    await eventually(after_another)
    for one in waiting:
        one.cancel()


async def test_without_events_of_the_log_the_watcher_polls(store, other, monkeypatch):
    monkeypatch.setattr(LogEvents, "of", lambda _: None)
    listener = other.listen(["queue/default"])
    waiting = asyncio.ensure_future(listener.wait(LIMIT))
    await eventually(lambda: other._listeners.connection)
    await enqueue(store)
    assert await waiting
    assert not listener.reliable


async def test_a_commit_whose_query_failed_is_noticed_at_the_next_poll(store, other, monkeypatch):
    concerned, failed = wake._concerned, []

    def fails_once(connection, listener):
        if not failed:
            failed.append(1)
            raise sqlite3.OperationalError("disk I/O error")
        return concerned(connection, listener)

    listener = other.listen(["queue/default"])
    waiting = asyncio.ensure_future(listener.wait(LIMIT))
    await eventually(lambda: other._listeners._seen is not None)
    monkeypatch.setattr(wake, "_concerned", fails_once)
    await enqueue(store)
    assert await waiting
    assert failed


@linux
async def test_a_listener_is_not_reliable_after_commits_without_events(store, other, monkeypatch):
    monkeypatch.setattr(LogEvents, "wait", lambda self, timeout: bool(time.sleep(min(timeout, 0.01))))
    listener = other.listen(["queue/default"])
    waiting = asyncio.ensure_future(listener.wait(LIMIT))
    await eventually(lambda: listener.reliable)

    async def after_another():
        await enqueue(store, queue="mail")
        return not listener.reliable

    await eventually(after_another)
    await enqueue(store)
    assert await waiting


@linux
async def test_events_arrive_after_a_fork(path, store, other):
    listener = other.listen(["queue/default"])
    waiting = asyncio.ensure_future(listener.wait(LIMIT))
    await eventually(lambda: listener.reliable)
    before = other._listeners._events
    child = os.fork()
    if child == 0:
        os._exit(0)
    await asyncio.to_thread(os.waitpid, child, 0)
    await eventually(lambda: other._listeners._events not in (None, before))
    await enqueue(store)
    assert await waiting
    assert listener.reliable


@linux
async def test_a_watcher_leaves_no_descriptor_open(path, open_store):
    def descriptors():
        return len(list(Path("/proc/self/fd").iterdir()))

    store = await open_store()
    await store.close()
    gc.collect()
    before = descriptors()
    for _ in range(3):
        store = await open_store()
        listener = store.listen(["queue/default"])
        waiting = asyncio.ensure_future(listener.wait(LIMIT))
        await eventually(lambda listener=listener: listener.reliable)
        await store.close()
        await waiting
    gc.collect()
    assert descriptors() <= before


async def test_an_idle_store_writes_nothing(path, open_store):
    clock = ManualClock()
    store = await open_store(clock=clock)
    done = await running(store, "done")
    await settle(store, succeeded(done))
    await enqueue(store, "later", delay=3600)
    await enqueue(store, "paused", queue="paused")
    await store.put_record("pause", "paused", b"{}")
    watcher = sqlite3.connect(path)
    before = watcher.execute("PRAGMA data_version").fetchone()
    log = path.with_name("jobs.db-wal").stat()
    for _ in range(3):
        assert await claim(store, "ann", "default", "paused", limit=10) == []
        assert await claim(store, "ann", "default", limit=10, tasks=("other",)) == []
        assert (await store.tidy(10)).jobs == 0
        assert await store.expired(10) == []
        await store.stats()
    now = path.with_name("jobs.db-wal").stat()
    assert watcher.execute("PRAGMA data_version").fetchone() == before
    assert (now.st_size, now.st_mtime_ns) == (log.st_size, log.st_mtime_ns)
    watcher.close()


async def test_leases_follow_the_boot_clock_and_its_boot(path, open_store):
    clock = ManualClock()
    store = await open_store(clock=clock)
    await running(store, "held")
    clock.jump_wall(3600)
    assert await store.expired(10) == []
    clock.jump_wall(-7200)
    assert await store.expired(10) == []
    await store.close()
    clock.reboot()
    again = await open_store(clock=clock)
    [lost] = await again.expired(10)
    assert (lost.record.id, lost.record.state) == ("held", State.RUNNING)
    [seen] = await again.holders()
    assert not seen.alive
