"""The demo's story, told live: two workers, one of them killed in the middle of a job, nothing lost."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from .. import Handle, Holdfast, Job, State
from ..core.clock import SystemClock
from ..core.job import TERMINAL

LEASE = 2.0
"""Seconds; short, so that a killed worker is noticed while somebody watches."""
DEMO_TIMEOUT = 60.0
"""Seconds for each part of the demo, on a slow machine."""
COLOURS = {
    State.QUEUED: "cyan",
    State.SCHEDULED: "blue",
    State.RUNNING: "yellow",
    State.FAILED: "magenta",
    State.SUCCEEDED: "green",
    State.DEAD: "red",
    State.CANCELLED: "dim",
}


def show() -> None:
    """Run the demo; exits with 1 if anything did not end as it should."""
    console = Console()
    with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as folder:
        url = f"sqlite:///{Path(folder) / 'demo.db'}"
        os.environ["HOLDFAST_URL"] = url
        story = Story(console, url)
        try:
            right = asyncio.run(story.tell())
        finally:
            if story.supervisor is not None:
                end_workers(story.supervisor)
    if not right:
        raise SystemExit(1)


class Story:
    """What happens, and what the terminal shows of it."""

    def __init__(self, console: Console, url: str) -> None:
        self.console = console
        self.url = url
        self.supervisor: subprocess.Popen[bytes] | None = None
        self.known: set[int] = set()
        self.seen: dict[str, tuple[str, int]] = {}
        self.lines: list[Text] = []
        self.jobs: dict[str, Job] = {}
        self.clock = SystemClock()
        self.started = 0.0

    async def tell(self) -> bool:
        """Enqueue, run, kill, watch, and say what happened."""
        from .tasks import app

        async with app:
            self.started = self.clock.monotonic()
            film = await enqueue_all(app)
            self.say(f"{(await app.stats()).counts['queued']} jobs are queued in {self.url.rpartition('/')[2]}")
            self.supervisor = start_workers()
            live = Live(console=self.console, refresh_per_second=10, get_renderable=self.picture)
            if not self.console.is_terminal:
                return await self.watch(app, film)
            with live:
                return await self.watch(app, film)

    async def watch(self, app: Holdfast, film: Handle[Any]) -> bool:
        """Look until every job has ended; kill the worker that runs the long job once it is well under way."""
        killed = False
        while True:
            await self.look(app)
            job = self.jobs[film.id]
            if not killed and job.state == State.RUNNING and job.progress is not None and job.progress.done >= 3:
                killed = True
                assert job.pid is not None
                os.kill(job.pid, signal.SIGKILL)
                self.say(f"kill -9 {job.pid}: the worker that runs {job.task} is gone, without a word", "bold red")
            if all(one.state in TERMINAL for one in self.jobs.values()):
                break
            if self.clock.monotonic() - self.started > DEMO_TIMEOUT:
                self.say("this took too long; something is wrong", "bold red")
                break
            await asyncio.sleep(0.1)
        return self.conclude(self.jobs[film.id])

    async def look(self, app: Holdfast) -> None:
        """Read every worker and job, and remember what changed."""
        for worker in await app.workers():
            if worker.pid not in self.known:
                self.say(f"{'a new' if len(self.known) >= 2 else 'a'} worker process begins: {worker.pid}")
                self.known.add(worker.pid)
        page = await app.jobs(limit=200)
        for job in sorted(page.jobs, key=lambda one: one.started_at or one.created_at):
            self.jobs[job.id] = job
            now = (job.state.value, job.fence)
            before = self.seen.get(job.id)
            if before == now:
                continue
            self.seen[job.id] = now
            if job.task == "encode" and job.state == State.RUNNING and before is not None and job.fence > 1:
                self.say(f"{name(job)} goes on in {job.pid}, behind checkpoint {job.checkpoint}", "bold green")
            elif job.state == State.DEAD:
                self.say(f"{name(job)} is dead after {job.attempt} attempts: {job.error}", "red")
            elif job.state == State.FAILED:
                self.say(f"{name(job)} failed, to be retried: {job.error}", "magenta")
            elif job.state == State.SUCCEEDED and job.task in ("encode", "flaky"):
                self.say(f"{name(job)} succeeded in attempt {job.attempt}", "green")
            elif job.state == State.SUCCEEDED and job.priority < 0:
                self.say(f"{name(job)} (priority {job.priority}) was enqueued last and came first", "green")
            elif job.state == State.SUCCEEDED and "later" in job.tags:
                self.say(f"{name(job)} (scheduled) ran when it was due", "green")

    def say(self, text: str, style: str = "") -> None:
        """One line of the story."""
        line = Text(f"{self.clock.monotonic() - self.started:5.1f} s  {text}", style=style)
        self.lines.append(line)
        if not self.console.is_terminal:
            self.console.print(line, soft_wrap=True)

    def picture(self) -> Group:
        """What the terminal shows at this moment."""
        counts = Table(box=None, padding=(0, 2), show_edge=False)
        for state, colour in COLOURS.items():
            counts.add_column(state.value, style=colour, justify="right")
        counts.add_row(*(str(sum(1 for job in self.jobs.values() if job.state == state)) for state in COLOURS))
        running = Table(box=None, padding=(0, 2), show_edge=False)
        for title in ("running", "attempt", "worker", ""):
            running.add_column(title)
        for job in list(self.jobs.values()):
            if job.state == State.RUNNING:
                progress = job.progress
                bar = ProgressBar(total=progress.total, completed=progress.done, width=24) if progress else Text("")
                running.add_row(name(job), str(job.attempt), str(job.pid), bar)
        return Group(*self.lines[-14:], Text(""), counts, Text(""), running)

    def conclude(self, film: Job) -> bool:
        """What happened, and whether it is what should have."""
        ended = list(self.jobs.values())
        good = sum(1 for job in ended if job.state == State.SUCCEEDED)
        dead = [job for job in ended if job.state == State.DEAD]
        retried = sum(1 for job in ended if job.state == State.SUCCEEDED and job.attempt > 1)
        right = (
            good + len(dead) == len(ended)
            and all(job.task == "broken" for job in dead)
            and film.state == State.SUCCEEDED
            and film.attempt > 1
        )
        words = f"{good} succeeded ({retried} after a retry), {len(dead)} dead"
        self.say(f"all {len(ended)} jobs have ended: {words}", "bold")
        for attempt in film.history:
            self.say(f"  {name(film)}, attempt {attempt.number} on {attempt.worker}: {attempt.outcome}")
        self.say(f"  result: {film.result}")
        self.say("nothing was lost, nothing finished twice" if right else "this is not how it should end", "bold")
        return right


def start_workers() -> subprocess.Popen[bytes]:
    """Two worker processes under a supervisor, as `holdfast worker start` runs them."""
    command = ["worker", "start", "-A", "holdfast.demo.tasks:app", "--foreground", "--count", "2"]
    command += ["--concurrency", "4"]
    environment = os.environ | {"HOLDFAST_LEASE": str(LEASE), "HOLDFAST_LOG_LEVEL": "ERROR", "HOLDFAST_POLL": "0.5"}
    return subprocess.Popen([sys.executable, "-m", "holdfast", *command], env=environment, stderr=subprocess.DEVNULL)


def end_workers(supervisor: subprocess.Popen[bytes]) -> None:
    """Stop what still runs."""
    if supervisor.poll() is not None:
        return
    supervisor.terminate()
    try:
        supervisor.wait(10)
    except subprocess.TimeoutExpired:
        supervisor.kill()
        supervisor.wait()


async def enqueue_all(app: Holdfast) -> Handle[Any]:
    """A few dozen jobs; the handle of the long one."""
    from .tasks import broken, encode, flaky, invoice, resize

    film = await encode.enqueue("holiday.mov", 10)
    await app.enqueue_many([app.call(resize, f"{'x' * (n % 7)}picture-{n}.raw") for n in range(18)])
    await app.enqueue_many([app.call(invoice, customer) for customer in range(8)])
    await app.enqueue_many([app.call(flaky, host) for host in ("mail", "stock", "tax")])
    await app.enqueue_many([app.call(broken, order) for order in (17, 23)])
    await resize.using(delay=4, tags=["later"]).enqueue("tomorrow.raw")
    await resize.using(priority=-10).enqueue("urgent.raw")
    return film


def name(job: Job) -> str:
    """A job in few words."""
    return f"{job.task}({next(iter(job.payload.values()), '')})"
