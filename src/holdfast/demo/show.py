"""The demo in the terminal: two workers, one killed while it runs a job, and the recovery of that job."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
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
"""Lease in seconds; short, so that the recovery is quick to see."""
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


def show(make: Callable[[Console, str], Story] | None = None) -> None:
    """Run the demo, with the Story that `make` returns if given; exit code 1 if the jobs did not end as expected."""
    with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as folder:
        url = f"sqlite:///{Path(folder) / 'demo.db'}"
        os.environ["HOLDFAST_URL"] = url
        story = (make or Story)(Console(), url)
        try:
            right = asyncio.run(story.run())
        finally:
            if story.supervisor is not None:
                end_workers(story.supervisor)
    if not right:
        raise SystemExit(1)


class Story:
    """The state of the demo and its display in the terminal."""

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

    async def run(self) -> bool:
        """Enqueue the jobs, start the workers, kill one, and print events; True if all ended as expected."""
        from .tasks import app

        async with app:
            self.started = self.clock.monotonic()
            film = await enqueue_all(app)
            stored = sum((await app.stats()).counts.values())
            self.say(f"{stored} jobs are stored in {self.url.rpartition('/')[2]}")
            self.supervisor = start_workers()
            live = Live(console=self.console, refresh_per_second=10, get_renderable=self.picture)
            if not self.console.is_terminal:
                return await self.watch(app, film)
            with live:
                return await self.watch(app, film)

    async def watch(self, app: Holdfast, film: Handle[Any]) -> bool:
        """Poll until all jobs have ended; kill the worker of the long job after its third checkpoint."""
        killed = False
        while True:
            await self.look(app)
            job = self.jobs[film.id]
            if not killed and job.state == State.RUNNING and job.progress is not None and job.progress.done >= 3:
                killed = True
                assert job.pid is not None
                os.kill(job.pid, signal.SIGKILL)
                self.say(f"kill -9 {job.pid}: killed the worker that runs {job.task}", "bold red")
            if all(one.state in TERMINAL for one in self.jobs.values()):
                break
            if self.clock.monotonic() - self.started > DEMO_TIMEOUT:
                self.say(f"some jobs did not end within {DEMO_TIMEOUT:g} s; run the demo again", "bold red")
                break
            await asyncio.sleep(0.1)
        return self.conclude(self.jobs[film.id])

    async def look(self, app: Holdfast) -> None:
        for worker in await app.workers():
            if worker.pid not in self.known:
                self.say(f"{'a new' if len(self.known) >= 2 else 'a'} worker process started: {worker.pid}")
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
                self.say(f"{name(job)} resumes in process {job.pid} after checkpoint {job.checkpoint}", "bold green")
            elif job.state == State.DEAD:
                self.say(f"{name(job)} is dead after {job.attempt} attempts: {job.error}", "red")
            elif job.state == State.FAILED:
                self.say(f"{name(job)} failed and will be retried: {job.error}", "magenta")
            elif job.state == State.SUCCEEDED and job.task in ("encode", "flaky"):
                self.say(f"{name(job)} succeeded in attempt {job.attempt}", "green")
            elif job.state == State.SUCCEEDED and job.priority < 0:
                self.say(f"{name(job)} (priority {job.priority}) was enqueued last and ran first", "green")
            elif job.state == State.SUCCEEDED and "later" in job.tags:
                self.say(f"{name(job)} (scheduled) ran when it was due", "green")

    def say(self, text: str, style: str = "") -> None:
        """Print one line with the elapsed seconds."""
        line = Text(f"{self.clock.monotonic() - self.started:5.1f} s  {text}", style=style)
        self.lines.append(line)
        if not self.console.is_terminal:
            self.console.print(line, soft_wrap=True)

    def picture(self) -> Group:
        """The live display: last lines, counts by state, running jobs."""
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
        """Print the summary; True if all jobs ended as expected."""
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
        counts = f"{good} succeeded ({retried} after a retry), {len(dead)} dead"
        self.say(f"{good + len(dead)} of {len(ended)} jobs have ended: {counts}", "bold")
        for attempt in film.history:
            self.say(f"  {name(film)}, attempt {attempt.number} on {attempt.worker}: {attempt.outcome}")
        self.say(f"  result: {film.result}")
        self.say("no job was lost, none finished twice" if right else "the jobs did not end as expected", "bold")
        return right


def start_workers() -> subprocess.Popen[bytes]:
    """Start two worker processes under a supervisor, as `holdfast worker start` does."""
    command = ["worker", "start", "-A", "holdfast.demo.tasks:app", "--foreground", "--count", "2"]
    command += ["--concurrency", "4"]
    environment = os.environ | {"HOLDFAST_LEASE": str(LEASE), "HOLDFAST_LOG_LEVEL": "ERROR", "HOLDFAST_POLL": "0.5"}
    return subprocess.Popen([sys.executable, "-m", "holdfast", *command], env=environment, stderr=subprocess.DEVNULL)


def end_workers(supervisor: subprocess.Popen[bytes]) -> None:
    """Stop the supervisor and its workers; kill them after 10 s."""
    if supervisor.poll() is not None:
        return
    supervisor.terminate()
    try:
        supervisor.wait(10)
    except subprocess.TimeoutExpired:
        supervisor.kill()
        supervisor.wait()


async def enqueue_all(app: Holdfast) -> Handle[Any]:
    """Enqueue a few dozen jobs; returns the handle of the long one."""
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
    """The task of a job with its first argument."""
    return f"{job.task}({next(iter(job.payload.values()), '')})"
