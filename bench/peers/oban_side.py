"""Oban's Python port (without Pro), as its documentation embeds it. Needs Python 3.12."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from oban import Oban, worker
from oban.schema import install

from .. import child

WARM_UP = 50
CONCURRENCY = 100
done = [0, 0.0]
latencies: list[float] = []


@worker()
class Nothing:
    async def process(self, job: Any) -> None:
        done[0] += 1
        done[1] = time.monotonic()


@worker()
class Stamp:
    async def process(self, job: Any) -> None:
        latencies.append((time.monotonic_ns() - job.args["sent"]) / 1e9)


@asynccontextmanager
async def _open(**options: Any) -> AsyncGenerator[Oban]:
    pool = await Oban.create_pool(os.environ["BENCH_URL"])
    async with pool.connection() as connection:
        there = await (await connection.execute("SELECT to_regclass('oban_jobs') IS NOT NULL")).fetchone()
    if there != (True,):
        await install(pool)
    async with Oban(pool=pool, **options) as oban:
        yield oban
    await pool.close()


def enqueue(how: str, count: int) -> dict[str, Any]:
    async def run() -> float:
        async with _open() as oban:
            for _ in range(WARM_UP):
                await oban.enqueue(Nothing.new())
            child.wait_for_go()
            start = time.perf_counter()
            if how == "singles":
                for _ in range(count):
                    await oban.enqueue(Nothing.new())
            elif how == "callers":

                async def caller() -> None:
                    for _ in range(count // 100):
                        await oban.enqueue(Nothing.new())

                await asyncio.gather(*[caller() for _ in range(100)])
            else:
                for _ in range(count // 1000):
                    await oban.enqueue_many([Nothing.new() for _ in range(1000)])
            return time.perf_counter() - start

    return {"seconds": asyncio.run(run()), "jobs": count}


def fill(count: int) -> dict[str, Any]:
    async def run() -> None:
        async with _open() as oban:
            for at in range(0, count, 1000):
                await oban.enqueue_many([Nothing.new() for _ in range(min(1000, count - at))])

    asyncio.run(run())
    return {"jobs": count}


def work(count: int) -> dict[str, Any]:
    async def run() -> None:
        child.wait_for_go()
        async with _open(queues={"default": CONCURRENCY}):
            while done[0] < count:  # noqa: ASYNC110  # it has no way to say that its queue is empty
                await asyncio.sleep(0.02)

    asyncio.run(run())
    return {"ended": done[1], "jobs": done[0]}


def wait() -> dict[str, Any]:
    """An idle worker that notes when jobs reach it."""

    async def run() -> None:
        async with _open(queues={"default": CONCURRENCY}):
            await asyncio.sleep(1)
            child.say(ready=True)
            await asyncio.to_thread(child.wait_for_stop)

    asyncio.run(run())
    return {"latencies": latencies}


def produce(count: int, pauses: tuple[float, float]) -> dict[str, Any]:
    async def run() -> None:
        async with _open() as oban:
            child.wait_for_go()
            for _ in range(count):
                await asyncio.sleep(random.uniform(*pauses))
                await oban.enqueue(Stamp.new({"sent": time.monotonic_ns()}))

    asyncio.run(run())
    return {"jobs": count}


if __name__ == "__main__":
    child.serve({"enqueue": enqueue, "fill": fill, "work": work, "worker": wait, "produce": produce})
