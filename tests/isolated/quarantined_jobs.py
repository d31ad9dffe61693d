"""An app for the tests beside it: plain jobs that wait for a file, and one that kills whatever process it runs in."""

import os
import signal
import time
from pathlib import Path

from holdfast import Context, Holdfast

app = Holdfast()


@app.task
def wait_for(ctx: Context, name: str) -> int:
    Path(f"started-{ctx.job.id}").touch()
    while not Path(name).exists():
        time.sleep(0.02)
    return os.getpid()


@app.task
async def kill_my_process() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@app.task
async def add(a: int, b: int) -> int:
    return a + b


@app.task(batch=10, wait=0.2)
async def halves(numbers: list[int]) -> list[float | Exception]:
    if 13 in numbers:
        os.kill(os.getpid(), signal.SIGKILL)
    return [ValueError("odd") if number % 2 else number / 2 for number in numbers]


@app.task
def save_when(ctx: Context, name: str) -> None:
    wait_for.fn(ctx, name)
    with ctx.transaction(result=os.getpid()) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS saved (pid INTEGER)")
        connection.execute("INSERT INTO saved VALUES (?)", (os.getpid(),))


@app.task(run_in="process", max_attempts=1)
async def save(ctx: Context) -> None:
    async with ctx.transaction(result=os.getpid()) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS saved (pid INTEGER)")
        connection.execute("INSERT INTO saved VALUES (?)", (os.getpid(),))
    raise ValueError("after its success")
