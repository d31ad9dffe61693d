"""The tasks of these tests; each journals its start and its end."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from holdfast import Context, Holdfast
from holdfast.core.clock import SystemClock

from . import flow_tasks, step_tasks
from .gates import Gates
from .journal import Journal


class SkewedClock(SystemClock):
    """A machine whose wall clock is some seconds off."""

    def __init__(self, skew: float) -> None:
        super().__init__()
        self._skew = int(skew * 1_000_000)

    def now(self) -> int:
        return super().now() + self._skew


def build(url: str, journal: Journal, *, wall_skew: float = 0.0, **settings: Any) -> Holdfast:
    """An app with every task of these tests."""
    app = Holdfast(url, clock=SkewedClock(wall_skew), **settings)
    gates = Gates(journal.path)

    @contextmanager
    def journalled(ctx: Context, n: int) -> Iterator[None]:
        about = {"n": n, "fence": ctx.fence, "attempt": ctx.attempt}
        journal.write("start", ctx.job.id, **about)
        try:
            yield
        except BaseException as error:
            journal.write("broken", ctx.job.id, **about, why=type(error).__name__)
            raise
        journal.write("end", ctx.job.id, **about)

    @app.task(name="work")
    async def work(ctx: Context, n: int, seconds: float = 0.0) -> int:
        with journalled(ctx, n):
            await asyncio.sleep(seconds)
        return n * n

    @app.task(name="work_in_thread")
    def work_in_thread(ctx: Context, n: int, seconds: float = 0.0) -> int:
        with journalled(ctx, n):
            time.sleep(seconds)
        return n * n

    @app.task(name="stream")
    async def stream(ctx: Context, n: int) -> int:
        """Emits and prints the fence and a number, until its gate opens."""
        number = 0
        with journalled(ctx, n):
            while number < 20 or not gates.is_open(n, ctx.fence):
                journal.write("emit", ctx.job.id, fence=ctx.fence, number=number)
                print(f"{ctx.fence}-{number}")
                await ctx.emit(f"{ctx.fence}-{number}")
                await asyncio.sleep(0.01)
                number += 1
        return number

    @app.task(name="block_the_loop")
    async def block_the_loop(ctx: Context, n: int, seconds: float) -> int:
        with journalled(ctx, n):
            time.sleep(seconds)  # noqa: ASYNC251  # the point
        return n * n

    @app.task(name="gated")
    async def gated(ctx: Context, n: int) -> int:
        """Ends when its limiter opens, and says under which fence it ran."""
        with journalled(ctx, n):
            await gates.wait(n, ctx.fence)
        return ctx.fence

    @app.task(name="gated_in_thread")
    def gated_in_thread(ctx: Context, n: int) -> int:
        with journalled(ctx, n):
            gates.wait_in_thread(n, ctx.fence)
        return ctx.fence

    @app.task(name="poison")
    async def poison(ctx: Context, n: int, company: int) -> None:
        """Kills its process; the first time only once `company` other jobs run there too."""
        with journalled(ctx, n):
            first = ctx.fence == 1
            while first and journal.count("start", pid=os.getpid()) <= company:  # noqa: ASYNC110  # a file has no event
                await asyncio.sleep(0.005)
            os.kill(os.getpid(), signal.SIGKILL)

    def talk(ctx: Context, n: int) -> None:
        for number in range(3):
            print(f"{n} printed {number}")
            ctx.log.info("%d logged %d", n, number)

    @app.task(name="talk_on_loop")
    async def talk_on_loop(ctx: Context, n: int) -> None:
        talk(ctx, n)
        with journalled(ctx, n):
            await gates.wait(n, ctx.fence)

    @app.task(name="talk_in_thread")
    def talk_in_thread(ctx: Context, n: int) -> None:
        talk(ctx, n)
        with journalled(ctx, n):
            gates.wait_in_thread(n, ctx.fence)

    step_tasks.add_to(app, journal)
    flow_tasks.add_to(app, journal)
    return app
