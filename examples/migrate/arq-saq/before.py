import asyncio
import os

from arq import Retry, create_pool, cron
from arq.connections import RedisSettings

REDIS = RedisSettings.from_dsn(os.environ.get("REDIS_URL", "redis://localhost"))


async def open_shop(ctx):
    ctx["prices"] = {"tea": 3}


async def price(ctx, item, count):
    if ctx["job_try"] == 1:
        raise Retry(defer=1)
    return ctx["prices"][item] * count


async def clean_up(ctx): ...


class WorkerSettings:
    functions = [price]
    cron_jobs = [cron(clean_up, hour=3, minute=0)]
    on_startup = open_shop
    redis_settings = REDIS


async def main():
    pool = await create_pool(REDIS)
    job = await pool.enqueue_job("price", "tea", 2, _job_id="order-7", _defer_by=1)
    print("tea:", await job.result(timeout=30))


if __name__ == "__main__":
    asyncio.run(main())
