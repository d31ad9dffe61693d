"""A store that is away for longer than a lease, while a job runs that was claimed before."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Protocol

from holdfast import Holdfast, Job, StoreUnavailable

from .eventually import eventually
from .workers import working

LEASE = 2.0
SWEEPERS = 3


class Server(Protocol):
    def kill(self) -> None: ...
    def start(self) -> object: ...


async def outlasted(url: str, server: Server) -> Job:
    """The job, once it has ended. Its worker lives all the while; of those that look for lost claims one is new."""
    entered, gate = asyncio.Event(), asyncio.Event()
    async with AsyncExitStack() as stack:
        app = await stack.enter_async_context(Holdfast(url, lease=LEASE, poll=0.2))

        @app.task
        async def long() -> str:
            entered.set()
            await gate.wait()
            return "kept"

        await stack.enter_async_context(working(app))

        async def sweep(poll: float) -> None:
            other = await stack.enter_async_context(Holdfast(url, lease=LEASE, poll=poll))
            await stack.enter_async_context(working(other, queues=["elsewhere"]))

        for _ in range(SWEEPERS - 1):
            await sweep(0.2)
        handle = await long.enqueue()
        await asyncio.wait_for(entered.wait(), 90)
        await asyncio.to_thread(server.kill)
        await asyncio.sleep(1.5 * LEASE)
        await asyncio.to_thread(server.start)
        await sweep(1.0)
        await eventually(lambda: _heard_again(app))
        gate.set()
        return await handle.wait(timeout=60)


async def _heard_again(app: Holdfast) -> bool:
    try:
        return len(await app.workers()) == 1 + SWEEPERS
    except StoreUnavailable:
        return False
