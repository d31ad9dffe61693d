"""Remote control of workers, and deadlines of jobs, on a real worker with this store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import msgspec

from holdfast import Holdfast, State, Worker
from holdfast.store.protocol import CONTROL, CONTROL_REPLY, Store
from holdfast.testing.build import holder
from holdfast.testing.verbs import claim, running

from .harness import Harness
from .topic import Topic, requires

WEEK = 7 * 86400.0
"""Seconds: a lease whose heartbeats come after the end of the test."""


@asynccontextmanager
async def working(app: Holdfast, harness: Harness, lease: float | None = None) -> AsyncGenerator[Worker]:
    worker = Worker(app, lease=lease, concurrency=1, grace=0.0)
    async with app, asyncio.timeout(20 * harness.notify_limit):
        running = asyncio.create_task(worker.run())
        await _until(lambda: _registered(worker))
        try:
            yield worker
        finally:
            worker.stop()
            await running


async def _until(condition: Callable[[], Awaitable[bool]]) -> None:
    while True:
        if await condition():
            return
        await asyncio.sleep(0.01)


async def _registered(worker: Worker) -> bool:
    return worker.holder is not None


async def _with(app: Holdfast, jobs: int) -> bool:
    return [len(one.jobs) for one in await app.workers()] == [jobs]


async def _ended(app: Holdfast) -> bool:
    return not await app.workers()


class TestControl(Topic):
    async def test_a_heartbeat_updates_the_state_and_concurrency_of_its_holder(self, store: Store) -> None:
        ann = holder("ann", lease=WEEK)
        await running(store, "ann")
        for state, slots in (("quiet", 3), ("draining", 2)):
            await store.heartbeat([msgspec.structs.replace(ann, state=state, slots=slots)])
            assert await claim(store, "ann") == []  # an ask does not undo it
            [seen] = [one.holder for one in await store.holders() if one.holder.id == "ann"]
            assert (seen.state, seen.slots) == (state, slots)

    @requires("hints")
    async def test_a_holder_is_notified_of_each_request_to_it(self, store: Store, harness: Harness) -> None:
        other = await harness.another(store)
        await running(store, "ann")
        listener = store.listen(["holder/ann"])
        for n in range(4):  # the first wait may end when the listener is registered
            await other.put_record(CONTROL, f"ann/{n}", b"{}")
            await asyncio.wait_for(listener.wait(WEEK), harness.notify_limit)
        listener.close()

    @requires("hints")
    async def test_a_worker_serves_requests_long_before_its_next_heartbeat(
        self, store: Store, harness: Harness
    ) -> None:
        app, began, gate = Holdfast(store.sibling()), asyncio.Event(), asyncio.Event()

        @app.task(name="wait_for_gate")
        async def wait_for_gate() -> None:
            began.set()
            await gate.wait()

        async with working(app, harness, WEEK) as worker, Holdfast(store.sibling()) as operator:
            assert worker.holder is not None
            id = worker.holder.id
            first, second = await wait_for_gate.enqueue(), await wait_for_gate.enqueue()
            await began.wait()
            [reply] = await operator.workers.concurrency(2, id, timeout=harness.notify_limit)
            assert (reply.error, reply.slots) == (None, 2)
            await _until(lambda: _with(operator, jobs=2))
            [reply] = await operator.workers.stacks(id, timeout=harness.notify_limit)
            assert {one.job for one in reply.stacks if "gate.wait()" in one.frames[0]} == {first.id, second.id}
            [reply] = await operator.workers.quiet(id, timeout=harness.notify_limit)
            assert (reply.error, reply.state) == (None, "quiet")
            [seen] = await operator.workers()
            assert (seen.state, seen.slots) == ("quiet", 2)
            third = await wait_for_gate.enqueue()
            gate.set()
            await asyncio.gather(first.wait(), second.wait())
            await operator.workers.concurrency(1, id, timeout=harness.notify_limit)
            assert (await third.job()).state == State.QUEUED
            [reply] = await operator.workers.resume(id, timeout=harness.notify_limit)
            assert (await third.wait()).state == State.SUCCEEDED
            [reply] = await operator.workers.drain(id, timeout=harness.notify_limit)
            assert (reply.error, reply.state) == (None, "draining")
            await _until(lambda: _ended(operator))
            found = await store.records([CONTROL, CONTROL_REPLY])
            assert found == {CONTROL: {}, CONTROL_REPLY: {}}

    async def test_a_job_past_its_deadline_is_dead_and_a_later_retry_has_none(
        self, store: Store, harness: Harness
    ) -> None:
        app = Holdfast(store.sibling())

        @app.task(name="work")
        async def work() -> None: ...

        async with app:
            late = await work.using(deadline=harness.unit / 10, max_attempts=5).enqueue()
            await harness.pass_time(harness.unit)
            on_time = await work.using(deadline=WEEK, stall_timeout=WEEK).enqueue()
            await asyncio.wait_for(Worker(app, until_idle=True).run(), 20 * harness.notify_limit)
            job = await late.job()
            assert job.state == State.DEAD
            assert job.error
            assert (await on_time.job()).state == State.SUCCEEDED
            await app.retry(late.id)
            await asyncio.wait_for(Worker(app, until_idle=True).run(), 20 * harness.notify_limit)
            assert (await late.job()).state == State.SUCCEEDED
