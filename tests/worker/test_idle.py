"""Idle workers: how seldom they read where notifications are reliable, and that they miss nothing."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter

import pytest
from msgspec.structs import replace

from holdfast import Holdfast, Worker
from holdfast.app import parts_of
from holdfast.client.watched_records import WatchedRecords
from holdfast.store.notify import LocalListener
from holdfast.store.protocol import CONTROL, Versioned
from holdfast.store.reference.memory import MemoryStore
from holdfast.testing.verbs import claim, enqueue
from support.eventually import eventually
from support.inside import session_of
from support.store_calls import counting

LONG = 3600.0


@pytest.fixture
def reliable(monkeypatch):
    monkeypatch.setattr(LocalListener, "reliable", True)


@contextlib.asynccontextmanager
async def working(app, **options):
    worker = Worker(app, **options)
    running = asyncio.create_task(worker.run())
    try:
        await eventually(lambda: worker.holder)
        yield
    finally:
        worker.stop()
        await running


async def test_an_idle_worker_reads_seldom_where_notifications_are_reliable(reliable):
    counts = Counter()
    async with Holdfast(counting(MemoryStore(), counts)) as app, working(app, poll=0.02):
        counts.clear()
        await eventually(lambda: counts["write"] >= 20)  # claims
    assert counts["expired"] <= 2
    assert counts["holders"] <= 40, "polling would read them a hundred times"
    assert counts["records"] <= 20


@pytest.mark.parametrize("store", ["memory", "sqlite"])
async def test_a_worker_that_polls_seldom_sees_a_pause_and_a_schedule_at_once(store, make_app, tmp_path):
    url = MemoryStore() if store == "memory" else f"sqlite:///{tmp_path}/jobs.db"
    app = make_app(url)
    operator = make_app(url.sibling() if store == "memory" else url)
    ran = asyncio.Event()

    @app.task
    async def tick() -> None:
        ran.set()

    async with working(app, poll=LONG):
        await operator.pause(task="send")
        await eventually(lambda: session_of(app).task_pauses._by_task)
        await operator.resume(task="send")
        await eventually(lambda: not session_of(app).task_pauses._by_task)
        await operator.schedules.put("often", "tick", every=0.1)
        await asyncio.wait_for(ran.wait(), 90)


async def test_a_lease_that_expires_is_found_before_the_holders_are_listed_again(clocked):
    app, clock = clocked
    counts = Counter()
    store = counting(session_of(app).store, counts)
    await enqueue(store)
    await claim(store)  # a lease of 30 s
    recover = parts_of(app).claims.recover
    assert await recover(max_age=LONG) == 0
    counts.clear()
    clock.advance(20.0)
    assert await recover(max_age=LONG) == 0
    assert not counts["holders"]
    assert not counts["expired"]
    clock.advance(11.0)
    assert await recover(max_age=LONG) == 1


async def test_a_new_holder_is_known_before_its_lease_expires(clocked):
    app, clock = clocked
    store, recover = session_of(app).store, parts_of(app).claims.recover
    assert await recover(max_age=10.0) == 0
    await enqueue(store)
    await claim(store)
    for _ in range(4):
        clock.advance(9.0)
        recovered = await recover(max_age=10.0)
    assert recovered == 1


async def test_the_holders_of_the_first_look_serve_the_next(clocked):
    app, _ = clocked
    counts = Counter()
    counting(session_of(app).store, counts)
    recover = parts_of(app).claims.recover
    await recover()
    await recover(max_age=LONG)
    assert (counts["holders"], counts["expired"]) == (1, 1)


async def test_a_claim_of_no_listed_holder_is_recovered_soon_after_a_look_that_gave_way(clocked, monkeypatch):
    app, clock = clocked
    session, recover = session_of(app), parts_of(app).claims.recover
    await enqueue(session.store)
    await claim(session.store)
    clock.advance(31.0)

    async def none():
        return []

    monkeypatch.setattr(session.store, "holders", none)  # as if its entry was damaged
    session.give_way(3.0)
    assert await recover() == 0
    clock.advance(4.0)
    assert await recover(max_age=10.0) == 1


async def test_callers_at_the_same_time_share_one_read():
    counts = Counter()
    async with Holdfast(counting(MemoryStore(), counts)) as app:
        counts.clear()
        session = session_of(app)
        watched, fresh = session.watched.of, session.task_pauses.fresh
        await asyncio.gather(watched("schedule"), watched("ended"), fresh(), fresh())
        assert counts["records"] == 1
        await watched("schedule")
        assert counts["records"] == 2


async def test_a_removal_of_old_records_begins_with_one_read(reliable, monkeypatch):
    monkeypatch.setattr("holdfast.worker.maintenance.TIDY_EVERY", 0.0)
    counts, reads = Counter(), []
    store = counting(MemoryStore(), counts)
    records = store.records

    async def noted(kinds):
        reads.append(set(kinds))
        return await records(kinds)

    store.records = noted
    async with Holdfast(store) as app, working(app, poll=0.02):
        await eventually(lambda: counts["tidy"] >= 3)
    assert [kinds for kinds in reads if "signal" in kinds]
    assert all(
        {"signal", "signal_hour", "audit_hour", "control", "control_reply"} == kinds
        for kinds in reads
        if kinds & {"signal", "audit_hour", "control_reply"}
    )


async def test_a_worker_reads_no_requests_that_its_heartbeat_excludes(monkeypatch):
    heartbeats, reads = 0, []
    heartbeat, records = MemoryStore.heartbeat, MemoryStore.records

    async def without_requests(self, holders):
        nonlocal heartbeats
        heartbeats += 1
        return [replace(reply, requests=heartbeats == 1) for reply in await heartbeat(self, holders)]

    async def noted(self, kinds):
        reads.extend(kinds if list(kinds) == [CONTROL] else ())
        return await records(self, kinds)

    monkeypatch.setattr(MemoryStore, "heartbeat", without_requests)
    monkeypatch.setattr(MemoryStore, "records", noted)
    async with Holdfast("memory://") as app, working(app, lease=1.0):
        await eventually(lambda: heartbeats >= 5)
    assert len(reads) <= 1


async def test_a_change_during_a_read_is_read_again():
    class SlowStore:
        def __init__(self):
            self.value, self.reading, self.go = b"old", asyncio.Event(), asyncio.Event()

        async def records(self, kinds):
            found = {kind: {"a": Versioned(self.value, 1)} for kind in kinds}
            self.reading.set()
            await self.go.wait()
            return found

    class Notified:
        reliable = True

        async def wait(self, timeout):
            return True

    store = SlowStore()
    watched = WatchedRecords(store)
    first = asyncio.create_task(watched.of("schedule", LONG))
    await store.reading.wait()
    store.value = b"new"
    await watched.wait("schedule", Notified(), LONG)
    store.go.set()
    await first
    assert (await watched.of("schedule", LONG))["a"].value == b"new"
