"""Holdfast, measured through its public surface: what a user's program does, in a process of its own."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any

from holdfast import Worker
from holdfast.core.job import Record
from holdfast.core.operations import Settlement
from holdfast.observe.events import Events

from . import child
from .holdfast_app import app, latencies, nothing, nothing_in_thread, stamp

WARM_UP = 50


def enqueue(how: str, count: int) -> dict[str, Any]:
    return asyncio.run(_enqueue_async(how, count)) if how != "sync" else _enqueue_sync(count)


async def _enqueue_async(how: str, count: int) -> dict[str, Any]:
    async with app:
        for _ in range(WARM_UP):
            await nothing.enqueue()
        child.wait_for_go()
        start = time.perf_counter()
        if how == "singles":
            for _ in range(count):
                await nothing.enqueue()
        elif how == "callers":
            await asyncio.gather(*[_caller(count // 100) for _ in range(100)])
        else:
            for _ in range(count // 1000):
                await app.enqueue_many([app.call(nothing) for _ in range(1000)])
        return {"seconds": time.perf_counter() - start, "jobs": count}


async def _caller(count: int) -> None:
    for _ in range(count):
        await nothing.enqueue()


def _enqueue_sync(count: int) -> dict[str, Any]:
    with app.sync:
        for _ in range(WARM_UP):
            nothing.sync.enqueue()
        child.wait_for_go()
        start = time.perf_counter()
        for _ in range(count):
            nothing.sync.enqueue()
        return {"seconds": time.perf_counter() - start, "jobs": count}


def fill(count: int, *, thread: bool = False) -> dict[str, Any]:
    """Jobs to be run later, in bulk."""
    task = nothing_in_thread if thread else nothing

    async def run() -> None:
        async with app:
            for start in range(0, count, 1000):
                await app.enqueue_many([app.call(task) for _ in range(min(1000, count - start))])

    asyncio.run(run())
    return {"jobs": count}


class Finish(Events):
    """Notes when the last settlement was written; everything else stays as it is."""

    def __init__(self) -> None:
        super().__init__()
        self.jobs, self.last = 0, 0.0

    def settled(self, record: Record, end: Settlement, began: float | None = None) -> None:
        super().settled(record, end, began)
        self.jobs += 1
        self.last = time.monotonic()


def work(concurrency: int) -> dict[str, Any]:
    """Run everything that is there; leases, heartbeat, fences, retries and results as any worker has them."""
    finish = app.events = Finish()

    async def run() -> None:
        async with app:
            worker = Worker(app, concurrency=concurrency, until_idle=True)
            child.wait_for_go()
            await worker.run()

    asyncio.run(run())
    return {"ended": finish.last, "jobs": finish.jobs}


def worker(concurrency: int) -> dict[str, Any]:
    """An idle worker that notes when jobs reach it."""

    async def run() -> None:
        async with app:
            worker = Worker(app, concurrency=concurrency)
            running = asyncio.create_task(worker.run())
            child.say(ready=True)
            await asyncio.to_thread(child.wait_for_stop)
            worker.stop()
            await running

    asyncio.run(run())
    return {"latencies": latencies}


def produce(count: int, pauses: tuple[float, float]) -> dict[str, Any]:
    """Enqueue one at a time with pauses, telling each job when it was sent."""

    async def run() -> None:
        async with app:
            child.wait_for_go()
            for _ in range(count):
                await asyncio.sleep(random.uniform(*pauses))
                await stamp.enqueue(time.monotonic_ns())

    asyncio.run(run())
    return {"jobs": count}


if __name__ == "__main__":
    child.serve({"enqueue": enqueue, "fill": fill, "work": work, "worker": worker, "produce": produce})
