"""Claims that are answered late: what has ended or was released meanwhile is not started, what is held runs once."""

import asyncio

import pytest

from holdfast import Holdfast, State, StoreUnavailable
from holdfast.core.errors import OutcomeUnknown
from holdfast.store.reference.memory import MemoryStore
from holdfast.testing import ManualClock
from support.eventually import eventually
from support.inside import session_of
from support.workers import working

LEASE = 0.6


class Late(MemoryStore):
    """A memory store that makes claims at once, and answers them when it is let."""

    def __init__(self, *, clock=None, shared=None, **rest):
        super().__init__(clock, **rest)
        self.shared = shared or {"heartbeats": 0, "held": 0, "answer": asyncio.Event(), "heartbeat": True}
        self.clock = clock
        self.is_sibling = shared is not None

    def sibling(self):
        return Late(clock=self.clock, shared=self.shared, _data=self._data)

    async def write(self, batch):
        answers = await super().write(batch)
        if any(claims.records for claims in answers.asks):
            self.shared["held"] += 1
            await self.shared["answer"].wait()
        return answers

    async def heartbeat(self, holders):
        if self.is_sibling and not self.shared["heartbeat"]:
            raise StoreUnavailable("this line is dead")
        self.shared["heartbeats"] += 1
        return await super().heartbeat(holders)

    @property
    def heartbeats(self):
        return self.shared["heartbeats"]

    def let_go(self):
        self.shared["answer"].set()


@pytest.fixture
def store():
    return Late()


@pytest.fixture
async def app(store):
    async with Holdfast(store, poll=0.02, lease=LEASE) as app:
        app.runs, app.gate = [], asyncio.Event()

        @app.task
        async def work(n: int) -> None:
            app.runs.append(n)
            await app.gate.wait()

        @app.task(batch=10)
        async def together(items: list[int]) -> None:
            app.runs.extend(items)
            await app.gate.wait()

        yield app
        store.let_go()


@pytest.mark.parametrize("task", ["work", "together"])
async def test_a_heartbeat_does_not_release_a_claim_that_is_on_its_way(app, store, task):
    handle = await app.enqueue(task, 1)
    async with working(app):
        await eventually(lambda: store.heartbeats >= 5)
        store.let_go()
        await eventually(lambda: app.runs)
        seen = store.heartbeats
        await eventually(lambda: store.heartbeats >= seen + 2)
        app.gate.set()
        assert (await handle.wait(timeout=30)).state == State.SUCCEEDED
    job = await handle.job()
    assert (app.runs, job.fence, [line.outcome for line in job.history]) == ([1], 1, ["succeeded"])


async def test_jobs_that_a_batch_is_gathering_are_not_released_on_their_way(app, store):
    store.let_go()
    first = await app.enqueue("together", 1)
    async with working(app):
        await eventually(lambda: app.runs == [1])
        store.shared["answer"] = asyncio.Event()
        seen, second = store.heartbeats, await app.enqueue("together", 2)
        await eventually(lambda: store.heartbeats >= seen + 5)
        store.let_go()
        await eventually(lambda: app.runs == [1, 2])
        seen = store.heartbeats
        await eventually(lambda: store.heartbeats >= seen + 2)
        app.gate.set()
        await asyncio.gather(first.wait(timeout=30), second.wait(timeout=30))
    assert (app.runs, (await second.job()).fence) == ([1, 2], 1)


async def test_a_claim_that_never_arrives_is_released_while_others_are_on_their_way(app, store):
    lost = await app.enqueue("work", 1)
    write = store.write

    async def lose(batch):
        answers = await MemoryStore.write(store, batch)
        if any(claims.records for claims in answers.asks):
            store.write = write
            raise OutcomeUnknown("the answer was lost")
        return answers

    store.write = lose
    async with working(app, concurrency=1):
        await eventually(lambda: store.write == write)
        await app.enqueue("work", 2)
        await eventually(lambda: store.shared["held"])
        seen = store.heartbeats
        await eventually(lambda: store.heartbeats >= seen + 5)
        store.let_go()
        app.gate.set()
        assert (await lost.wait(timeout=30)).state == State.SUCCEEDED
    assert sorted(app.runs) == [1, 2]
    assert [line.outcome for line in (await lost.job()).history] == ["released", "succeeded"]


@pytest.fixture
async def timed():
    """An app whose time the test sets, its store and its clock."""
    clock = ManualClock()
    store = Late(clock=clock)
    async with Holdfast(store, clock=clock, poll=0.02, lease=LEASE) as app:
        app.runs = []

        @app.task
        async def work() -> None:
            app.runs.append("here")

        yield app, store, clock
        store.let_go()


async def stolen(app, store, clock):
    """The job is recovered from a claim that is on its way, and claimed by another worker."""
    await eventually(lambda: store.shared["held"])
    clock.advance(10 * LEASE)
    other = Holdfast(MemoryStore(clock, _data=store._data), clock=clock)
    async with other:
        [theirs] = await other.claim(lease=1000.0)
        store.let_go()
        yield theirs
        await theirs.complete()


async def test_a_claim_by_hand_that_was_lost_on_its_way_is_not_handed_out(timed):
    app, store, clock = timed
    await app.enqueue("work")
    claiming = asyncio.create_task(app.claim(lease=LEASE))
    async for theirs in stolen(app, store, clock):
        assert await asyncio.wait_for(claiming, 90) == []
        assert theirs.fence == 2


async def test_a_claim_that_is_still_valid_is_renewed_and_handed_out(timed):
    app, store, clock = timed
    await app.enqueue("work")
    claiming = asyncio.create_task(app.claim(lease=LEASE))
    await eventually(lambda: store.shared["held"])
    clock.advance(0.9 * LEASE)
    store.let_go()
    [claim] = await asyncio.wait_for(claiming, 90)
    clock.advance(0.9 * LEASE)
    assert await app.bulk.recover() == 0, "its lease began anew"
    await claim.complete()


async def test_claims_that_cannot_be_confirmed_are_released(timed):
    app, store, clock = timed
    handle = await app.enqueue("work")

    async def away(holders):
        raise StoreUnavailable("the store is away")

    store.heartbeat = away
    claiming = asyncio.create_task(app.claim(lease=LEASE))
    await eventually(lambda: store.shared["held"])
    clock.advance(0.9 * LEASE)
    store.let_go()
    with pytest.raises(StoreUnavailable, match="away"):
        await asyncio.wait_for(claiming, 90)
    await session_of(app).commit.drain()
    job = await handle.job()
    assert (job.state, job.attempt) == (State.QUEUED, 0)


async def test_a_line_that_is_always_late_starts_nothing_and_says_so(timed):
    app, store, clock = timed
    handle = await app.enqueue("work")
    heartbeat = store.heartbeat

    async def slow(holders):
        clock.advance(0.9 * LEASE)
        return await heartbeat(holders)

    store.heartbeat = slow
    claiming = asyncio.create_task(app.claim(lease=LEASE))
    await eventually(lambda: store.shared["held"])
    clock.advance(0.9 * LEASE)
    store.let_go()
    with pytest.raises(StoreUnavailable, match=r"half of the lease \(0\.6 s\)\. Use a longer lease"):
        await asyncio.wait_for(claiming, 90)
    await session_of(app).commit.drain()
    assert (await handle.job()).state == State.QUEUED


async def test_a_worker_does_not_start_a_job_that_another_took_while_the_answer_was_late(timed):
    app, store, clock = timed
    handle = await app.enqueue("work")
    store.shared["heartbeat"] = False
    async with working(app):
        async for _ in stolen(app, store, clock):
            await eventually(lambda: store.heartbeats)
        assert (await handle.wait(timeout=30)).state == State.SUCCEEDED
    assert app.runs == []
