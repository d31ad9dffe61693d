"""taskiq with taskiq-redis' streams, which redeliver what a dead worker had taken, and its result backend."""

from __future__ import annotations

from taskiq.api import run_receiver_task
from taskiq_redis import RedisAsyncResultBackend, RedisStreamBroker

from .redis_scaffold import CONCURRENCY, URL, Side, arrived, ran

broker = RedisStreamBroker(URL).with_result_backend(RedisAsyncResultBackend(URL))


@broker.task
async def nothing() -> int:
    ran()
    return 1


@broker.task
async def stamp(sent: int) -> None:
    arrived(sent)


async def opened() -> None:
    await broker.startup()


async def put() -> None:
    await nothing.kiq()


async def put_stamp(sent: int) -> None:
    await stamp.kiq(sent)


async def work() -> None:
    broker.is_worker_process = True
    await run_receiver_task(broker, run_startup=True, max_async_tasks=CONCURRENCY)


if __name__ == "__main__":
    Side(put, put_stamp, work, opened=opened).serve()
