import asyncio

from holdfast import Context, Holdfast, Retry

app = Holdfast("sqlite:///jobs.db")


@app.lifespan
async def open_shop():
    yield {"tea": 3}


@app.task(max_attempts=5)
async def price(ctx: Context, item: str, count: int) -> int:
    if ctx.attempt == 1:
        raise Retry("no answer", after=1)
    return ctx.state[item] * count


@app.cron("0 3 * * *")
async def clean_up() -> None: ...


async def main() -> None:
    async with app:
        job = await price.using(key="order-7", delay=1).enqueue("tea", 2)
        print("tea:", await job.result(timeout=30))


if __name__ == "__main__":
    asyncio.run(main())
