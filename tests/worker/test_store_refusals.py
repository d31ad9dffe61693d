"""A store that refuses: a worker that can never work ends and says why, one that could before backs off."""

import asyncio

import pytest
from test_store_trouble import Troubled

from holdfast import ConfigError, Holdfast, StoreRefused, Worker
from support.eventually import eventually
from support.workers import working

REFUSALS = [StoreRefused("it is a standby"), ConfigError("permission denied for table job")]


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("call", ["beat", "write"])
async def test_a_worker_that_can_never_work_ends_with_the_reason(refusal, call, caplog):
    store = Troubled()
    async with Holdfast(store, poll=0.01) as app:
        store.fail(call, error=refusal)
        with pytest.raises(type(refusal), match=str(refusal)):
            await asyncio.wait_for(Worker(app).run(), 30)
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
            names = ("beat", "write", "expired", "records")
            store.fail(*names, error=StoreRefused("it is a standby"))
            await eventually(lambda: all(store.trouble[name][0] < 10**9 - 1 for name in ("beat", "write", "expired")))
            store.recover()
            assert await (await add.enqueue(2, 2)).result(timeout=10) == 4
            await eventually(lambda: not app.outages._failing)
    said = [record.event for record in caplog.records if hasattr(record, "event")]
    assert said.count("outage_began") == 1
