"""Workers inside a test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from holdfast import Holdfast, Worker


async def work_off(app: Holdfast, **options: Any) -> None:
    """Run everything that is due, then return."""
    await asyncio.wait_for(Worker(app, until_idle=True, **options).run(), 60)


@asynccontextmanager
async def working(app: Holdfast, **options: Any) -> AsyncIterator[Worker]:
    """A worker that runs beside the block, and is stopped in order after it."""
    worker = Worker(app, **{"grace": 2.0, **options})
    running = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        worker.stop()
        await asyncio.wait_for(running, 60)
