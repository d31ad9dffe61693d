"""arq."""

from __future__ import annotations

from typing import Any

from arq import create_pool
from arq.connections import RedisSettings
from arq.worker import Worker

from .redis_scaffold import CONCURRENCY, URL, Side, arrived, ran

pool: Any = None


async def nothing(ctx: dict[str, Any]) -> int:
    ran()
    return 1


async def stamp(ctx: dict[str, Any], sent: int) -> None:
    arrived(sent)


async def opened() -> None:
    global pool  # noqa: PLW0603  # made on the loop that uses it
    pool = await create_pool(RedisSettings.from_dsn(URL))


async def put() -> None:
    await pool.enqueue_job("nothing")


async def put_stamp(sent: int) -> None:
    await pool.enqueue_job("stamp", sent)


async def work() -> None:
    settings = RedisSettings.from_dsn(URL)
    await Worker([nothing, stamp], redis_settings=settings, max_jobs=CONCURRENCY, handle_signals=False).main()


if __name__ == "__main__":
    Side(put, put_stamp, work, opened=opened).serve()
