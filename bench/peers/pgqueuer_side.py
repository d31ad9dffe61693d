"""pgqueuer: its QueueManager over asyncpg, as its documentation starts it."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Callable
from typing import Any

import asyncpg
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.qm import QueueManager
from pgqueuer.queries import Queries
from pgqueuer.types import QueueExecutionMode

from .. import child

WARM_UP = 50


async def _open(*, install: bool = True) -> tuple[asyncpg.Connection, AsyncpgDriver]:
    connection = await asyncpg.connect(os.environ["BENCH_URL"])
    driver = AsyncpgDriver(connection)
    if install and await connection.fetchval("SELECT to_regclass('pgqueuer') IS NULL"):
        await Queries(driver).install()
    return connection, driver


def enqueue(how: str, count: int) -> dict[str, Any]:
    async def run() -> float:
        connection, driver = await _open()
        queries = Queries(driver)
        for _ in range(WARM_UP):
            await queries.enqueue("nothing", b"{}")
        pool = (
            await asyncpg.create_pool(os.environ["BENCH_URL"], min_size=10, max_size=10) if how == "callers" else None
        )
        child.wait_for_go()
        start = time.perf_counter()
        if how == "singles":
            for _ in range(count):
                await queries.enqueue("nothing", b"{}")
        elif pool is not None:

            async def caller() -> None:
                for _ in range(count // 100):
                    async with pool.acquire() as mine:
                        await Queries(AsyncpgDriver(mine)).enqueue("nothing", b"{}")

            await asyncio.gather(*[caller() for _ in range(100)])
        else:
            for _ in range(count // 1000):
                await queries.enqueue(["nothing"] * 1000, [b"{}"] * 1000, [0] * 1000)
        took = time.perf_counter() - start
        await connection.close()
        return took

    return {"seconds": asyncio.run(run()), "jobs": count}


def payloads(count: int, size: int) -> dict[str, Any]:
    """Large jobs, in one call."""
    text = child.text(size).encode()

    async def run() -> float:
        connection, driver = await _open()
        queries = Queries(driver)
        await queries.enqueue("nothing", b"")
        child.wait_for_go()
        start = time.perf_counter()
        await queries.enqueue(["nothing"] * count, [text] * count, [0] * count)
        took = time.perf_counter() - start
        child.wait_for_go()
        await connection.close()
        return took

    return {"seconds": asyncio.run(run())}


def fill(count: int) -> dict[str, Any]:
    async def run() -> None:
        connection, driver = await _open()
        for at in range(0, count, 1000):
            some = min(1000, count - at)
            await Queries(driver).enqueue(["nothing"] * some, [b"{}"] * some, [0] * some)
        await connection.close()

    asyncio.run(run())
    return {"jobs": count}


def work() -> dict[str, Any]:
    done = [0, 0.0]

    async def run() -> None:
        connection, driver = await _open(install=False)
        manager = QueueManager(Queries(driver))

        @manager.entrypoint("nothing")
        async def nothing(job: Job) -> None:
            done[0] += 1
            done[1] = time.monotonic()

        child.wait_for_go()
        await manager.run(batch_size=100, mode=QueueExecutionMode.drain)
        done[1] = max(done[1], time.monotonic()) if done[0] else done[1]
        await connection.close()

    asyncio.run(run())
    return {"ended": done[1], "jobs": done[0]}


def worker() -> dict[str, Any]:
    latencies: list[float] = []

    async def run() -> None:
        _, driver = await _open()
        manager = QueueManager(Queries(driver))

        @manager.entrypoint("stamp")
        async def stamp(job: Job) -> None:
            latencies.append((time.monotonic_ns() - int(job.payload or b"0")) / 1e9)

        running = asyncio.create_task(manager.run())
        await asyncio.sleep(1)
        child.say(ready=True)
        await asyncio.to_thread(child.wait_for_stop)
        manager.shutdown.set()
        await running

    asyncio.run(run())
    return {"latencies": latencies}


def produce(count: int, pauses: tuple[float, float]) -> dict[str, Any]:
    async def run() -> None:
        _, driver = await _open()
        child.wait_for_go()
        for _ in range(count):
            await asyncio.sleep(random.uniform(*pauses))
            await Queries(driver).enqueue("stamp", str(time.monotonic_ns()).encode())

    asyncio.run(run())
    return {"jobs": count}


if __name__ == "__main__":
    commands: dict[str, Callable[..., dict[str, Any]]] = {
        "enqueue": enqueue,
        "payloads": payloads,
        "fill": fill,
        "work": work,
        "worker": worker,
        "produce": produce,
    }
    child.serve(commands)
