"""streaq."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

from streaq import Worker

from .redis_scaffold import CONCURRENCY, URL, Side, arrived, ran

worker: Worker[Any] = Worker(redis_url=URL, concurrency=CONCURRENCY, handle_signals=False)
stack = AsyncExitStack()


@worker.task()
async def nothing() -> int:
    ran()
    return 1


@worker.task()
async def stamp(sent: int) -> None:
    arrived(sent)


async def opened() -> None:
    await stack.enter_async_context(worker)


async def put() -> None:
    await nothing.enqueue()


async def put_stamp(sent: int) -> None:
    await stamp.enqueue(sent)


async def bulk(count: int) -> None:
    await worker.enqueue_many([nothing.enqueue() for _ in range(count)])


async def work() -> None:
    await worker.run_async()


if __name__ == "__main__":
    Side(put, put_stamp, work, opened=opened, bulk=bulk).serve()
