"""Holdfast, measured through its public surface: what a user's program does, in a process of its own."""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

from holdfast import Flow, Holdfast, Job, Worker
from holdfast.app import parts_of
from holdfast.core.clock import SystemClock
from holdfast.core.job import Record, State
from holdfast.core.operations import Settlement
from holdfast.store.open import open_store

from . import child
from .holdfast_app import app, hang, joined, latencies, nothing, nothing_in_thread, stamp, stopped, take
from .process import ROOT

WARM_UP = 50
STRAGGLERS = 60.0
"""Seconds after the end of the last job for which others are waited for."""
FLOW_CONCURRENCY = 100


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

    async def run() -> None:
        async with app:
            await _fill(count, thread=thread)

    asyncio.run(run())
    return {"jobs": count}


async def _fill(count: int, *, thread: bool) -> list[str]:
    """The ids of the new jobs."""
    task, ids = nothing_in_thread if thread else nothing, list[str]()
    for start in range(0, count, 1000):
        handles = await app.enqueue_many([app.call(task) for _ in range(min(1000, count - start))])
        ids += [handle.id for handle in handles]
    return ids


def watched(count: int, *, thread: bool) -> dict[str, Any]:
    """Jobs for a worker of another process; the seconds from the first claim to the last end, as the store has them."""

    async def run() -> float:
        async with app:
            ids = await _fill(count, thread=thread)
            child.wait_for_go()
            while (await app.job(ids[-1])).finished_at is None:  # noqa: ASYNC110  # a listener would cost the store more
                await asyncio.sleep(0.1)
            deadline = time.monotonic() + STRAGGLERS
            while (counts := (await app.stats()).counts)["succeeded"] < count:
                if time.monotonic() > deadline:
                    raise RuntimeError(f"of {count} jobs, {STRAGGLERS:g} s after the last one: {counts}")
                await asyncio.sleep(0.1)
            jobs = [job async for job in _all_jobs()]
            start = min(job.started_at for job in jobs if job.started_at is not None)
            end = max(job.finished_at for job in jobs if job.finished_at is not None)
            return (end - start).total_seconds()

    return {"seconds": asyncio.run(run()), "jobs": count}


async def _all_jobs() -> AsyncIterator[Job]:
    cursor: str | None = None
    while True:
        page = await app.jobs(limit=1000, cursor=cursor)
        for job in page.jobs:
            yield job
        cursor = page.cursor
        if cursor is None:
            return


def waiting() -> dict[str, Any]:
    """How many jobs have not succeeded yet."""

    async def run() -> int:
        async with app:
            counts = (await app.stats()).counts
            return sum(counts.values()) - counts["succeeded"]

    return {"jobs": asyncio.run(run())}


def payloads(count: int, size: int) -> dict[str, Any]:
    """Large jobs by one `enqueue_many`; the arguments share one text, so that only the library's copies count."""
    text = child.text(size)

    async def run() -> float:
        async with app:
            await take.enqueue("")
            child.wait_for_go()
            start = time.perf_counter()
            await app.enqueue_many([app.call(take, text) for _ in range(count)])
            took = time.perf_counter() - start
            child.wait_for_go()
            return took

    return {"seconds": asyncio.run(run())}


def flows(count: int) -> dict[str, Any]:
    """Seconds to enqueue and to run flows, and the store calls of one flow on its own."""
    calls = asyncio.run(_flow_calls())

    finish = Finish()

    async def run() -> tuple[float, float]:
        async with app:
            await app.enqueue_flow(_flow(nothing, joined))
            await Worker(app, concurrency=FLOW_CONCURRENCY, until_idle=True).run()
            start = time.perf_counter()
            for _ in range(count):
                await app.enqueue_flow(_flow(nothing, joined))
            middle = time.perf_counter()
            finish.jobs, began = 0, time.monotonic()
            await Worker(app, concurrency=FLOW_CONCURRENCY, until_idle=True).run()
            if finish.jobs != 3 * count:
                raise RuntimeError(f"{finish.jobs} of {3 * count} jobs were run")
            return middle - start, finish.last - began

    to_enqueue, to_run = asyncio.run(run())
    return {"enqueue": to_enqueue, "run": to_run, **calls}


def _flow(first: Any, then: Any) -> Flow:
    flow = Flow()
    flow.add(then, flow.add(first).result, flow.add(first).result)
    return flow


async def _flow_calls() -> dict[str, int]:
    sys.path.insert(0, str(ROOT / "tests"))
    from support.store_calls import counting

    counts: Counter[str] = Counter()
    counted = Holdfast(counting(open_store(os.environ["HOLDFAST_URL"], SystemClock()), counts))
    tasks = counted.task(nothing.fn, name="nothing"), counted.task(joined.fn, name="joined")
    async with counted:
        counts.clear()
        await counted.enqueue_flow(_flow(*tasks))
        enqueued = counts.total()
        await Worker(counted, until_idle=True).run()
        return {"enqueue_calls": enqueued, "run_calls": counts.total() - enqueued}


class Finish:
    """Notes how many settlements were written, and when the last one was."""

    def __init__(self) -> None:
        self.jobs, self.last = 0, 0.0
        events = parts_of(app).events
        settled = events.settled

        def note(record: Record, end: Settlement, began: float | None = None) -> None:
            settled(record, end, began)
            self.jobs += 1
            self.last = time.monotonic()

        events.settled = note


def work(concurrency: int) -> dict[str, Any]:
    """Run everything that is there; leases, heartbeat, fences, retries and results as any worker has them."""
    finish = Finish()

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
    return {"latencies": latencies, "stopped": stopped}


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


def cancel(count: int, pauses: tuple[float, float]) -> dict[str, Any]:
    """Cancel jobs that run in another process, one at a time with pauses; when each call was made, by id."""
    sent: dict[str, int] = {}

    async def run() -> None:
        async with app:
            child.wait_for_go()
            for _ in range(count):
                handle = await hang.enqueue()
                while (await handle.job()).state != State.RUNNING:  # noqa: ASYNC110  # nothing notifies of a start
                    await asyncio.sleep(0.05)
                await asyncio.sleep(random.uniform(*pauses))
                sent[handle.id] = time.monotonic_ns()
                await handle.cancel()
                await handle.wait()

    asyncio.run(run())
    return {"sent": sent}


if __name__ == "__main__":
    commands: dict[str, Callable[..., dict[str, Any]]] = {
        "enqueue": enqueue,
        "fill": fill,
        "watched": watched,
        "waiting": waiting,
        "payloads": payloads,
        "flows": flows,
        "work": work,
        "worker": worker,
        "produce": produce,
        "cancel": cancel,
    }
    child.serve(commands)
