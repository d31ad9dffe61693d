"""A store that refuses: a worker that can never work ends and says why, one that could before backs off."""

import asyncio
import math
from types import SimpleNamespace

import pytest
from test_store_trouble import Troubled

from holdfast import ConfigError, Holdfast, StoreRefused, StoreUnavailable, Worker
from holdfast.app import parts_of
from holdfast.observe.outages import Outages
from holdfast.worker.service import Service
from holdfast.worker.supervisor import Supervisor
from support.eventually import eventually
from support.workers import working

REFUSALS = [StoreRefused("it is a standby"), ConfigError("permission denied for table job")]


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("call", ["heartbeat", "write"])
async def test_a_worker_that_can_never_work_ends_with_the_reason(refusal, call, caplog):
    store = Troubled()
    async with Holdfast(store, poll=0.01) as app:
        store.fail(call, error=refusal)
        with pytest.raises(type(refusal), match=str(refusal)):
            await asyncio.wait_for(Worker(app).run(), 90)
        assert len(caplog.records) <= 1
        store.recover()


async def test_a_worker_whose_store_becomes_a_standby_says_so_once_and_goes_on_afterwards(caplog):
    store = Troubled()
    async with Holdfast(store, poll=0.01) as app:

        @app.task
        async def add(a: int, b: int) -> int:
            return a + b

        async with working(app, lease=0.3):
            assert await (await add.enqueue(1, 2)).result(timeout=10) == 3
            names = ("heartbeat", "write", "expired", "records")
            store.fail(*names, error=StoreRefused("it is a standby"))
            await eventually(
                lambda: all(store.trouble[name][0] < 10**9 - 1 for name in ("heartbeat", "write", "expired"))
            )
            store.recover()
            assert await (await add.enqueue(2, 2)).result(timeout=10) == 4
            await eventually(lambda: not parts_of(app).runtime.outages._failing)
    said = [record.event for record in caplog.records if hasattr(record, "event")]
    assert said.count("outage_began") == 1


@pytest.fixture
def long_pauses(monkeypatch):
    """A retry after the pause that follows a refusal does not come within this test."""
    monkeypatch.setattr(Outages, "failed", lambda *_: 3600.0)


async def test_a_refused_heartbeat_is_sent_again_soon(long_pauses):
    store, renewed = Troubled(), asyncio.Event()
    async with Holdfast(store) as app:
        loop = asyncio.get_running_loop()

        def after(*_):
            loop.call_soon_threadsafe(renewed.set)
            return False

        await app.submit("work", b"")
        [claim] = await app.claim(lease=3600)
        heartbeat = await claim.heartbeat(after)
        store.fail("heartbeat", error=StoreRefused("it is a standby"), times=1)
        heartbeat.start()
        try:
            await asyncio.wait_for(renewed.wait(), 90)
        finally:
            await heartbeat.stopped()


@pytest.mark.parametrize("error", [StoreRefused("it is a standby"), RuntimeError("a driver's defect")])
async def test_a_heartbeat_of_a_supervisor_that_failed_is_sent_again_soon(long_pauses, error):
    store = Troubled()
    async with Holdfast(store) as app:
        await app.submit("work", b"")
        [claim] = await app.claim(lease=0.3)
        supervisor = Supervisor(Service(), print)
        supervisor._app = app
        child = SimpleNamespace(
            holder=claim.holder,
            leaving=None,
            responsive=lambda: True,
            held_since={},
            last_message=math.inf,
            process=None,
        )
        supervisor._children = [child]
        store.fail("heartbeat", error=error, times=1)
        beating = asyncio.create_task(supervisor._heartbeat())
        try:
            await eventually(lambda: child.held_since)
        finally:
            beating.cancel()
            await asyncio.wait([beating])


async def test_a_result_that_was_refused_is_written_again_soon(long_pauses, monkeypatch):
    monkeypatch.setattr("holdfast.worker.settle.RESEND_PAUSE", 0.02)
    store = Troubled()
    async with Holdfast(store, poll=0.01) as app:

        @app.task
        async def add(a: int, b: int) -> int:
            return a + b

        handle = await add.enqueue(1, 2)
        store.fail("settles", error=StoreRefused("it is a standby"), times=2)
        async with working(app):
            assert await handle.result(timeout=30) == 3


async def test_an_end_that_has_to_be_written_again_takes_a_slot_until_then_and_no_longer(monkeypatch):
    monkeypatch.setattr("holdfast.worker.settle.RESEND_PAUSE", 0.02)
    store, running, most = Troubled(), 0, 0
    async with Holdfast(store, poll=0.01) as app:

        @app.task
        async def work() -> None:
            nonlocal running, most
            running, most = running + 1, max(most, running + 1)
            await asyncio.sleep(0.02)
            running -= 1

        handles = await app.enqueue_many([work.call() for _ in range(6)])
        store.fail("settles", error=StoreUnavailable("away"), times=3)
        async with working(app, concurrency=1):
            for handle in handles:
                await handle.result(timeout=30)
    assert most == 1
