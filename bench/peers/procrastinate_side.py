"""Procrastinate: its App over psycopg, with async tasks."""

from __future__ import annotations

import asyncio
import os
import random
import time
from typing import Any

from procrastinate import App, PsycopgConnector, SyncPsycopgConnector

from .. import child

WARM_UP = 50
CONCURRENCY = 100
app = App(connector=PsycopgConnector(conninfo=os.environ["BENCH_URL"]))
done = [0, 0.0]
latencies: list[float] = []


@app.task(name="nothing")
async def nothing() -> int:
    done[0] += 1
    done[1] = time.monotonic()
    return 1


@app.task(name="nothing_in_thread")
def nothing_in_thread() -> int:
    done[0] += 1
    done[1] = time.monotonic()
    return 1


@app.task(name="stamp")
async def stamp(sent: int) -> None:
    latencies.append((time.monotonic_ns() - sent) / 1e9)


async def _open() -> None:
    await app.open_async()
    there = await app.connector.execute_query_one_async("SELECT to_regclass('procrastinate_jobs') IS NOT NULL AS there")
    if not there["there"]:
        await app.schema_manager.apply_schema_async()


def enqueue(how: str, count: int) -> dict[str, Any]:
    if how == "sync":
        return _enqueue_blocking(count)

    async def run() -> float:
        await _open()
        for _ in range(WARM_UP):
            await nothing.defer_async()
        child.wait_for_go()
        start = time.perf_counter()
        if how == "singles":
            for _ in range(count):
                await nothing.defer_async()
        elif how == "callers":

            async def caller() -> None:
                for _ in range(count // 100):
                    await nothing.defer_async()

            await asyncio.gather(*[caller() for _ in range(100)])
        else:
            for _ in range(count // 1000):
                await nothing.batch_defer_async(*[{} for _ in range(1000)])
        took = time.perf_counter() - start
        await app.close_async()
        return took

    return {"seconds": asyncio.run(run()), "jobs": count}


def _enqueue_blocking(count: int) -> dict[str, Any]:
    async def make() -> None:
        await _open()
        await app.close_async()

    asyncio.run(make())
    with app.replace_connector(SyncPsycopgConnector(conninfo=os.environ["BENCH_URL"])) as blocking, blocking.open():
        for _ in range(WARM_UP):
            nothing.defer()
        child.wait_for_go()
        start = time.perf_counter()
        for _ in range(count):
            nothing.defer()
        return {"seconds": time.perf_counter() - start, "jobs": count}


def fill(count: int, *, thread: bool = False) -> dict[str, Any]:
    task = nothing_in_thread if thread else nothing

    async def run() -> None:
        await _open()
        for at in range(0, count, 1000):
            await task.batch_defer_async(*[{} for _ in range(min(1000, count - at))])
        await app.close_async()

    asyncio.run(run())
    return {"jobs": count}


def work() -> dict[str, Any]:
    async def run() -> None:
        await _open()
        child.wait_for_go()
        await app.run_worker_async(concurrency=CONCURRENCY, wait=False, install_signal_handlers=False)
        if done[0]:
            done[1] = time.monotonic()
        await app.close_async()

    asyncio.run(run())
    return {"ended": done[1], "jobs": done[0]}


def worker() -> dict[str, Any]:
    async def run() -> None:
        await _open()
        running = asyncio.create_task(app.run_worker_async(concurrency=CONCURRENCY, install_signal_handlers=False))
        await asyncio.sleep(1)
        child.say(ready=True)
        await asyncio.to_thread(child.wait_for_stop)
        running.cancel()
        await asyncio.wait([running])

    asyncio.run(run())
    return {"latencies": latencies}


def produce(count: int, pauses: tuple[float, float]) -> dict[str, Any]:
    async def run() -> None:
        await _open()
        child.wait_for_go()
        for _ in range(count):
            await asyncio.sleep(random.uniform(*pauses))
            await stamp.defer_async(sent=time.monotonic_ns())

    asyncio.run(run())
    return {"jobs": count}


if __name__ == "__main__":
    child.serve({"enqueue": enqueue, "fill": fill, "work": work, "worker": worker, "produce": produce})
