import asyncio
from contextlib import suppress

from holdfast import JobNotFound, Worker
from holdfast.contrib.django import get_app


def work() -> None:
    """Run everything that is due, as a worker does."""

    async def until_idle() -> None:
        async with get_app() as app:
            await Worker(app, until_idle=True).run()

    asyncio.run(until_idle())


def empty() -> None:
    """Delete the jobs of earlier tests: Django empties only its own tables."""
    for job in get_app().sync.jobs(limit=1000).jobs:
        with suppress(JobNotFound):  # it was deleted with its flow
            get_app().sync.delete(job.id)
