"""Tasks in steps, in processes of their own."""

import asyncio
import os
from pathlib import Path

from holdfast import Context, Holdfast

app = Holdfast(retry_base=0.01, retry_jitter=0)


def effect(folder: str, name: str) -> int:
    with (Path(folder) / name).open("a") as file:
        file.write(".")
    return os.getpid()


def die_once(folder: str, name: str) -> None:
    mark = Path(folder) / f"died-{name}"
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), 9)


@app.task(run_in="isolated")
def alone(ctx: Context, folder: str) -> object:
    ctx.step("a", effect, folder, "a")
    die_once(folder, "behind a")
    ctx.step("b", effect, folder, "b")
    ctx.checkpoint("mine")
    ctx.sleep(seconds=1)
    die_once(folder, "behind the sleep")
    return [ctx.last_checkpoint, ctx.wait_for("go", timeout=60)]


async def slow_effect(folder: str, name: str) -> int:
    await asyncio.sleep(0.1)
    return effect(folder, name)


@app.task(run_in="isolated")
async def beside_a_wait(ctx: Context, folder: str) -> object:
    return (await asyncio.gather(ctx.wait_for("go", timeout=60), ctx.step("a", slow_effect, folder, "a")))[0]


@app.task(run_in="isolated")
async def beside_a_failure(ctx: Context, folder: str) -> object:
    async def fail_once() -> str:
        if ctx.attempt == 1:
            raise OSError("no answer")
        return "fine"

    return (await asyncio.gather(fail_once(), ctx.step("a", slow_effect, folder, "a")))[0]


@app.task(run_in="isolated")
def hurried(ctx: Context) -> str:
    try:
        return ctx.wait_for("never", timeout=1)
    except TimeoutError as error:
        return str(error)


@app.task(run_in="process")
async def pooled(ctx: Context, folder: str) -> object:
    await asyncio.gather(*(ctx.step(name, effect, folder, name) for name in "ab"))
    die_once(folder, "behind both")
    await ctx.checkpoint("mine")
    await ctx.sleep(seconds=1)
    return [ctx.last_checkpoint, await ctx.wait_for("go", timeout=60)]
