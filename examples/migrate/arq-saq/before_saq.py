import asyncio
import os
import time

from saq import CronJob, Queue

queue = Queue.from_url(os.environ.get("REDIS_URL", "redis://localhost"))


async def open_shop(ctx):
    ctx["prices"] = {"tea": 3}


async def price(ctx, *, item, count):
    if ctx["job"].attempts == 1:
        raise ConnectionError("no answer")
    return ctx["prices"][item] * count


async def clean_up(ctx): ...


settings = {
    "queue": queue,
    "functions": [price],
    "cron_jobs": [CronJob(clean_up, cron="0 3 * * *")],
    "startup": open_shop,
}


async def main():
    await queue.connect()
    due = int(time.time()) + 1
    print("tea:", await queue.apply("price", item="tea", count=2, key="order-7", scheduled=due, retries=5))
    await queue.disconnect()


if __name__ == "__main__":
    asyncio.run(main())
