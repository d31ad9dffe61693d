"""SAQ on its Postgres queue."""

from __future__ import annotations

import asyncio
import os
import random
import time
from typing import Any

from saq import Queue, Worker

from .. import child

WARM_UP = 50
CONCURRENCY = 100
done = [0, 0.0]
latencies: list[float] = []


async def nothing(ctx: dict[str, Any]) -> int:
    return 1


async def after(ctx: dict[str, Any]) -> None:
    done[0] += 1
    done[1] = time.monotonic()


async def stamp(ctx: dict[str, Any], *, sent: int) -> None:
    latencies.append((time.monotonic_ns() - sent) / 1e9)


async def _open() -> Queue:
    queue = Queue.from_url(os.environ["BENCH_URL"])
    await queue.connect()
    return queue


def enqueue(how: str, count: int) -> dict[str, Any]:
    async def run() -> float:
        queue = await _open()
        for _ in range(WARM_UP):
            await queue.enqueue("nothing")
        child.wait_for_go()
        start = time.perf_counter()
        if how == "singles":
            for _ in range(count):
                await queue.enqueue("nothing")
        else:

            async def caller() -> None:
                for _ in range(count // 100):
                    await queue.enqueue("nothing")

            await asyncio.gather(*[caller() for _ in range(100)])
        took = time.perf_counter() - start
        await queue.disconnect()
        return took

    return {"seconds": asyncio.run(run()), "jobs": count}


def fill(count: int) -> dict[str, Any]:
    async def run() -> None:
        queue = await _open()

        async def caller() -> None:
            for _ in range(count // 100):
                await queue.enqueue("nothing")

        await asyncio.gather(*[caller() for _ in range(100)])
        await queue.disconnect()

    asyncio.run(run())
    return {"jobs": count}


def work(count: int) -> dict[str, Any]:
    async def run() -> None:
        queue = await _open()
        worker = Worker(queue, [nothing], concurrency=CONCURRENCY, after_process=after)
        child.wait_for_go()
        running = asyncio.create_task(worker.start())
        while done[0] < count:  # noqa: ASYNC110  # it has no way to say that its queue is empty
            await asyncio.sleep(0.02)
        await worker.stop()
        running.cancel()
        await asyncio.wait([running])

    asyncio.run(run())
    return {"ended": done[1], "jobs": done[0]}


def worker() -> dict[str, Any]:
    async def run() -> None:
        queue = await _open()
        worker = Worker(queue, [stamp], concurrency=CONCURRENCY)
        running = asyncio.create_task(worker.start())
        await asyncio.sleep(1)
        child.say(ready=True)
        await asyncio.to_thread(child.wait_for_stop)
        await worker.stop()
        running.cancel()
        await asyncio.wait([running])

    asyncio.run(run())
    return {"latencies": latencies}


def produce(count: int, pauses: tuple[float, float]) -> dict[str, Any]:
    async def run() -> None:
        queue = await _open()
        child.wait_for_go()
        for _ in range(count):
            await asyncio.sleep(random.uniform(*pauses))
            await queue.enqueue("stamp", sent=time.monotonic_ns())
        await queue.disconnect()

    asyncio.run(run())
    return {"jobs": count}


if __name__ == "__main__":
    child.serve({"enqueue": enqueue, "fill": fill, "work": work, "worker": worker, "produce": produce})
