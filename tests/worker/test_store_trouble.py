"""A store that fails for a while: the worker goes on afterwards, and what was finished is finished once."""

import asyncio
import threading
from contextlib import suppress

import pytest

from holdfast import Context, Holdfast, OutcomeUnknown, State, StoreLost, StoreUnavailable, Worker
from holdfast.app import parts_of
from holdfast.client.heartbeat import Heartbeat
from holdfast.store import group_commit as commit
from holdfast.store.reference.memory import MemoryStore
from holdfast.testing import ManualClock
from support.eventually import eventually, still
from support.inside import session_of
from support.virtual import VirtualClock, VirtualLoop, run_virtually
from support.workers import work_off, working

FULL = StoreUnavailable("the disk is full")


class Troubled(MemoryStore):
    """A memory store that fails on demand; its siblings fail with it."""

    def __init__(self, *, trouble=None, **rest):
        super().__init__(**rest)
        self.trouble = trouble if trouble is not None else {}

    def sibling(self):
        return Troubled(_data=self._data, trouble=self.trouble)

    def fail(self, *names, error=FULL, times=10**9, after=False):
        """Let these methods fail this often, before or after they did their work."""
        for name in names:
            self.trouble[name] = [times, error, after]

    def recover(self):
        self.trouble.clear()

    async def _go(self, name, work):
        left = self.trouble.get(name)
        if left is None or left[0] <= 0:
            return await work()
        left[0] -= 1
        if left[2]:
            await work()
        raise left[1]

    async def write(self, batch):
        kinds = [kind for kind in ("inserts", "notes", "settles", "changes", "asks") if getattr(batch, kind)]
        name = next((kind for kind in kinds if kind in self.trouble), "write")
        return await self._go(name, lambda: super(Troubled, self).write(batch))

    async def heartbeat(self, holders):
        return await self._go("heartbeat", lambda: super(Troubled, self).heartbeat(holders))

    async def expired(self, limit, holder=None):
        return await self._go("expired", lambda: super(Troubled, self).expired(limit, holder))

    async def leave(self, holders):
        return await self._go("leave", lambda: super(Troubled, self).leave(holders))

    async def records(self, kinds):
        return await self._go("records", lambda: super(Troubled, self).records(kinds))


@pytest.fixture
def store():
    return Troubled()


@pytest.fixture
async def app(store, monkeypatch):
    monkeypatch.setattr("holdfast.worker.settle.RESEND_PAUSE", 0.02)
    monkeypatch.setattr(commit, "RESENDS", (0.0, 0.0, 0.0))
    app = Holdfast(store, poll=0.02, lease=1.5)
    app.runs = []

    @app.task
    async def work(n: int) -> int:
        app.runs.append(n)
        return n

    yield app
    store.recover()
    await app.close()


async def test_a_worker_outlives_a_store_that_is_away(app, store):
    async with working(app):
        first = await app.enqueue("work", 1)
        assert await first.result(timeout=30) == 1
        store.fail("write", "heartbeat", "expired", "asks", "records")
        with pytest.raises(StoreUnavailable, match="the disk is full"):
            await app.enqueue("work", 2)
        await eventually(lambda: store.trouble["asks"][0] < 10**9 - 3)
        store.recover()
        second = await app.enqueue("work", 2)
        assert await second.result(timeout=30) == 2
    assert app.runs == [1, 2]


async def test_work_that_finished_during_an_outage_is_settled_as_finished_once(app, store):
    handle = await app.enqueue("work", 1)
    store.fail("settles", times=5)
    async with working(app):
        assert await handle.result(timeout=30) == 1
    assert app.runs == [1], "it is not run again because its end could not be written at first"
    job = await handle.job()
    assert [line.outcome for line in job.history] == ["succeeded"]


@pytest.mark.parametrize("after", [False, True], ids=["not written", "written, the answer lost"])
async def test_an_end_whose_outcome_is_unknown_counts_once(app, store, after):
    handle = await app.enqueue("work", 1)
    store.fail("settles", error=OutcomeUnknown("the answer was lost"), times=9, after=after)
    async with working(app):
        assert await handle.result(timeout=30) == 1
    assert app.runs == [1]
    assert (await handle.job()).attempt == 1


async def test_failures_survive_an_outage_as_failures(app, store):
    @app.task(max_attempts=1)
    async def bad() -> None:
        raise ValueError("the real reason")

    handle = await bad.enqueue()
    store.fail("settles", times=3)
    async with working(app):
        assert (await handle.wait(timeout=30)).error == "ValueError: the real reason"


async def test_ends_that_the_store_does_not_take_keep_their_slots(app, store):
    await app.enqueue_many([("work", n) for n in range(20)])
    store.fail("settles")
    async with working(app, concurrency=3):
        await eventually(lambda: len(app.runs) >= 3)

        async def no_more_than_three():
            return (await app.stats()).counts["running"] <= 3

        await still(no_more_than_three)
        store.recover()

        async def all_done():
            return (await app.stats()).counts["succeeded"] == 20

        await eventually(all_done)
    assert sorted(app.runs) == list(range(20))


async def test_one_end_that_can_never_be_written_does_not_block_the_others(app, store):
    write = store.write

    async def picky(batch):
        if any(end.id == "cursed" for end in batch.settles):
            raise OverflowError("int too large to convert")
        return await write(batch)

    store.write = picky
    await app.submit("work", b'{"n": 1}', json=True, id="cursed")
    others = await app.enqueue_many([("work", n) for n in range(10)])
    async with working(app, concurrency=2, grace=0.1):
        for handle in others:
            await handle.wait(timeout=30)
        store.write = write
        assert (await app.handle("cursed").wait(timeout=30)).state == State.SUCCEEDED


async def test_a_claim_whose_answer_was_lost_goes_back_and_is_run(app, store):
    handle = await app.enqueue("work", 1)
    store.fail("asks", error=OutcomeUnknown("the answer was lost"), times=1, after=True)
    async with working(app):
        assert await handle.result(timeout=30) == 1
    job = await handle.job()
    assert app.runs == [1]
    assert (job.attempt, [line.outcome for line in job.history]) == (1, ["released", "succeeded"])


async def test_a_claim_that_failed_is_tried_again(app, store):
    handle = await app.enqueue("work", 1)
    store.fail("asks", times=3)
    async with working(app):
        assert await handle.result(timeout=30) == 1


class HeartbeatOnLoop(Heartbeat):
    """A heartbeat on the worker's own loop: virtual time has no threads."""

    def start(self):
        self._beating = asyncio.get_running_loop().create_task(self._live())

    async def stopped(self):
        self._beating.cancel()
        await asyncio.wait([self._beating])


def test_a_worker_claims_soon_after_a_long_outage():
    """In virtual time: its tries do not become so rare that it sleeps on beside a store that is back."""
    loop = VirtualLoop()
    clock = VirtualClock(loop)

    async def story():
        store = Troubled(clock=clock)
        async with Holdfast(store, clock=clock, poll=1.0) as app:

            @app.task
            async def work() -> None: ...

            worker = Worker(app)
            worker.heartbeat_class = HeartbeatOnLoop
            running = asyncio.create_task(worker.run())
            await (await work.enqueue()).result(timeout=60)
            store.fail("asks")
            for n in range(7):  # the ends of outages, at different moments between two tries
                await asyncio.sleep(600.5 + 4 * n)
                store.recover()
                back, handle = loop.time(), await work.enqueue()
                await handle.wait(timeout=60)
                waiting_for.append(loop.time() - back)
                store.fail("asks")
            store.recover()
            worker.stop()
            await running

    waiting_for = []
    run_virtually(story(), loop)
    assert max(waiting_for) <= 3


@pytest.mark.parametrize(
    "error",
    [StoreUnavailable("away"), OutcomeUnknown("lost"), StoreLost("it was moved"), RuntimeError("a driver's defect")],
    ids=lambda error: type(error).__name__,
)
async def test_a_failed_heartbeat_does_not_stop_later_heartbeats(app, store, error):
    entered, gate = asyncio.Event(), asyncio.Event()

    @app.task
    async def slow() -> str:
        entered.set()
        await gate.wait()
        return "kept"

    handle = await slow.enqueue()
    async with working(app):
        await asyncio.wait_for(entered.wait(), 90)
        store.fail("heartbeat", error=error, times=2)
        await eventually(lambda: store.trouble["heartbeat"][0] == 0)

        async def renewed():
            [seen] = await session_of(app).store.holders()
            return seen.heartbeat

        since = await renewed()

        async def on():
            return await renewed() > since + 1

        await eventually(on)
        gate.set()
        assert await handle.result(timeout=30) == "kept"


@pytest.mark.parametrize("error", [StoreUnavailable("away"), RuntimeError("a driver's defect")])
async def test_maintenance_goes_on_after_an_error(app, store, error):
    async with working(app):
        store.fail("expired", error=error, times=2)
        await eventually(lambda: store.trouble["expired"][0] == 0)
        store.recover()
        await app.submit("work", b'{"n": 5}', json=True, id="lost", queue="hand")
        [claim] = await app.claim("hand")
        await parts_of(app).claims.leave([claim.holder.id])  # its lease ends now

        async def swept():
            return (await app.job("lost")).state == State.QUEUED

        await eventually(swept)
        assert claim.fence == 1


async def test_a_store_whose_every_look_is_slow_is_swept_all_the_same(monkeypatch):
    clock = ManualClock()
    store = MemoryStore(clock)
    expired = store.expired

    async def slow(limit):
        clock.advance(10)
        return await expired(limit)

    async with Holdfast(store, clock=clock) as app:
        await app.submit("work", b"", id="lost")
        await app.claim(lease=1)
        monkeypatch.setattr(store, "expired", slow)
        assert [await app.bulk.recover() for _ in range(3)] == [0, 1, 0]


async def test_a_store_that_can_be_read_and_not_written_takes_nobody_for_lost():
    clock = ManualClock()
    store = Troubled(clock=clock)
    async with Holdfast(store, clock=clock) as app:
        await app.submit("work", b"", id="long")
        [claim] = await app.claim(lease=10)
        clock.advance(60)
        store.fail("settles")
        with pytest.raises(StoreUnavailable):
            await app.bulk.recover()
        store.recover()
        assert await app.bulk.recover() == 0
        await claim.extend()
        clock.advance(5)
        assert await app.bulk.recover() == 0


@pytest.mark.parametrize("how", ["refuses", "hangs"])
async def test_a_live_worker_is_not_taken_for_lost_when_a_store_comes_back(monkeypatch, how):
    """Nobody could renew a lease while it was away: heartbeats come first."""
    clock = ManualClock()
    store = MemoryStore(clock)
    expired = store.expired

    async def away(limit):
        clock.advance(60)
        if how == "refuses":
            raise FULL
        return await expired(limit)

    async with Holdfast(store, clock=clock) as app:
        await app.submit("work", b"", id="long")
        [claim] = await app.claim(lease=10)
        with monkeypatch.context() as patched, suppress(StoreUnavailable):
            patched.setattr(store, "expired", away)
            assert await app.bulk.recover() == 0
        assert await app.bulk.recover() == 0
        await claim.extend()
        clock.advance(5)
        assert await app.bulk.recover() == 0
        clock.advance(10)
        assert await app.bulk.recover() == 1


async def test_stopping_waits_for_finished_work_to_be_written(app, store):
    handle = await app.enqueue("work", 1)
    store.fail("settles")
    worker = Worker(app, grace=3)
    running = asyncio.create_task(worker.run())
    await eventually(lambda: app.runs == [1])
    worker.stop()
    await eventually(lambda: store.trouble["settles"][0] < 10**9 - 1)
    assert not running.done()
    store.recover()
    await asyncio.wait_for(running, 90)
    assert (await handle.job()).state == State.SUCCEEDED
    assert app.runs == [1]


async def test_a_worker_whose_store_is_gone_for_good_still_stops(app, store):
    await app.enqueue("work", 1)
    worker = Worker(app, grace=0.2)
    running = asyncio.create_task(worker.run())
    await eventually(lambda: app.runs == [1])
    store.fail("write", "settles", "asks", "heartbeat", "expired", "leave")
    worker.stop()
    await asyncio.wait_for(running, 90)


async def test_a_store_that_is_away_at_the_start_raises_to_the_starter(store):
    store.fail("records")
    app = Holdfast(store)
    with pytest.raises(StoreUnavailable):
        await Worker(app).run()
    store.recover()
    await work_off(app)
    await app.close()


async def test_progress_that_could_not_be_written_harms_nobody(app, store):
    @app.task
    async def work_on(ctx: Context) -> str:
        for n in range(5):
            ctx.progress(n, 5)
            await asyncio.sleep(0.005)
        return "done"

    store.fail("notes", times=3)
    handle = await work_on.enqueue()
    async with working(app):
        assert await handle.result(timeout=30) == "done"


async def test_a_checkpoint_that_could_not_be_written_is_reported_to_the_task(app, store):
    cancelled = threading.Event()

    @app.task(max_attempts=1)
    async def work_on(ctx: Context) -> str:
        try:
            await ctx.checkpoint(1)
        except StoreUnavailable:
            cancelled.set()
            return "cancelled"

    store.fail("notes", times=1)
    handle = await work_on.enqueue()
    async with working(app):
        assert await handle.result(timeout=30) == "cancelled"


async def test_jobs_taken_from_a_live_worker_are_not_quarantined(make_app):
    app = make_app(lease=3)
    entered = asyncio.Event()

    @app.task
    async def long() -> None:
        entered.set()
        await asyncio.Event().wait()

    handle = await long.enqueue()
    worker = Worker(app)
    running = asyncio.create_task(worker.run())
    await asyncio.wait_for(entered.wait(), 90)
    await app.pause("default")

    async def recovered():  # refused if the worker sends a heartbeat between the reading and the write
        return await parts_of(app).claims.recover(holder=worker.holder.id) == 1

    await eventually(recovered)
    assert (await handle.job()).quarantined

    async def cleared():
        return not (await handle.job()).quarantined

    await eventually(cleared)
    assert (await handle.job()).state == State.QUEUED
    worker.stop()
    await asyncio.wait_for(running, 90)
