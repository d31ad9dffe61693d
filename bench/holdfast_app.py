"""The measured app: on the store that HOLDFAST_URL names, at its defaults."""

from __future__ import annotations

import asyncio
import time

from holdfast import Context, Holdfast

app = Holdfast()
stopped: dict[str, int] = {}
"""When the cancellation of a job reached it in this process, by its id, in nanoseconds of the machine's clock."""
latencies: list[float] = []
"""Seconds from before the call of enqueue to the first line of the task, in this process."""


@app.task
async def nothing() -> int:
    """Returns something, so that results are stored."""
    return 1


@app.task
def nothing_in_thread() -> int:
    return 1


@app.task
async def stamp(sent: int) -> None:
    latencies.append((time.monotonic_ns() - sent) / 1e9)


@app.task
async def hang(ctx: Context) -> None:
    """Runs until it is cancelled."""
    try:
        await asyncio.Event().wait()
    finally:
        stopped[ctx.job.id] = time.monotonic_ns()


@app.task
async def take(text: str) -> None: ...


@app.task
async def joined(one: int, two: int) -> int:
    return one + two
