"""The demo's app: short jobs, failing jobs, and one long job with checkpoints."""

from __future__ import annotations

import asyncio
import time

from .. import Backoff, Context, Holdfast

app = Holdfast(retry_base=0.4, retry_factor=1.5, retry_jitter=0.3)


@app.task
async def resize(picture: str) -> str:
    """A short async job."""
    await asyncio.sleep(0.25 + len(picture) % 5 / 10)
    return picture.replace(".raw", ".jpg")


@app.task
def invoice(customer: int) -> int:
    """A short sync job, run in a thread."""
    time.sleep(0.2)
    return customer * 100


@app.task(max_attempts=4)
async def flaky(ctx: Context, name: str) -> str:
    """Fails twice, then succeeds."""
    await asyncio.sleep(0.1)
    if ctx.attempt < 3:
        raise ConnectionError(f"{name} did not answer")
    return "ok"


@app.task(max_attempts=3, retry=Backoff(base=0.3, factor=1.0, jitter=0.2))
async def broken(order: int) -> None:
    """Always fails: ends dead."""
    raise ValueError(f"order {order} has no address")


@app.task
async def encode(ctx: Context, film: str, parts: int) -> str:
    """A long job: saves a checkpoint after every part and resumes after the last one."""
    done = ctx.last_checkpoint or 0
    for part in range(done, parts):
        await asyncio.sleep(0.5)
        await ctx.checkpoint(part + 1)
        ctx.progress(part + 1, parts, f"part {part + 1} of {parts}")
    return f"{film}: {parts} parts, the first {done} by an earlier attempt"
