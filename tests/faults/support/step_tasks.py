"""A task in steps, whose process dies by kill -9 at named points, each once."""

from __future__ import annotations

import os
import signal
import uuid
from pathlib import Path

from holdfast import Context, Holdfast
from holdfast.client import signals
from holdfast.client.session import Session
from holdfast.tasks import durable_steps as remember

from .journal import Journal

STEPS = 3
POINTS = [
    *(f"{where} step {n}" for n in range(STEPS) for where in ("before", "inside", "behind")),
    "behind the sleep",
    "suspended",
    "behind the signal",
]
"""Where it dies, in this order: `inside` a step is after its effect, and before its result is remembered."""
SIGNAL = "go"


class Crashes:
    """Whether a process is to die at a point, which it does once."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._folder = Path(journal.path).with_name("crashes")

    def arm(self) -> None:
        """From now on, at every point."""
        self._folder.mkdir()

    def die(self, point: str) -> None:
        if not self._folder.exists():
            return
        try:
            (self._folder / point).touch(exist_ok=False)
        except FileExistsError:
            return
        self._journal.write("dies", at_point=point)
        os.kill(os.getpid(), signal.SIGKILL)


def die_when_suspended(journal: Journal) -> None:
    """Kill this process between suspending a job and looking for its signal again; such jobs come back soon here."""
    crashes, look_again = Crashes(journal), signals.look_again
    remember.RECHECK_AFTER = signals.RECHECK_AFTER = 1.0

    async def dies_before_looking(session: Session, id: str) -> None:
        crashes.die("suspended")
        await look_again(session, id)

    signals.look_again = dies_before_looking


def add_to(app: Holdfast, journal: Journal) -> None:
    """Have this app run such tasks."""
    crashes = Crashes(journal)

    def effect(job: str, n: int) -> str:
        crashes.die(f"before step {n}")
        mark = uuid.uuid4().hex
        journal.write("effect", job, step=n, mark=mark)
        crashes.die(f"inside step {n}")
        return mark

    @app.task(name="wait_for")
    async def wait_for(ctx: Context, name: str) -> str:
        return await ctx.wait_for(name)

    @app.task(name="in_steps")
    async def in_steps(ctx: Context) -> list[str]:
        marks = []
        for n in range(STEPS):
            marks.append(await ctx.step(f"step {n}", effect, ctx.job.id, n))
            journal.write("got", ctx.job.id, step=n, mark=marks[-1])
            crashes.die(f"behind step {n}")
        await ctx.sleep(0.1)
        crashes.die("behind the sleep")
        marks.append(await ctx.wait_for(SIGNAL))
        crashes.die("behind the signal")
        return marks

    @app.task(name="in_steps_in_thread")
    def in_steps_in_thread(ctx: Context) -> list[str]:
        marks = []
        for n in range(STEPS):
            marks.append(ctx.step(f"step {n}", effect, ctx.job.id, n))
            journal.write("got", ctx.job.id, step=n, mark=marks[-1])
            crashes.die(f"behind step {n}")
        ctx.sleep(0.1)
        crashes.die("behind the sleep")
        marks.append(ctx.wait_for(SIGNAL))
        crashes.die("behind the signal")
        return marks
