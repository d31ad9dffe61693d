"""`python -m lab quarantine`: how long jobs take that were in flight when their worker died, without and with poison.

A process with a worker in it claims all jobs and is killed. From then on it is started again each time it dies, as a
service manager would, until every job has ended.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from holdfast import Holdfast

PROGRAM = """
import asyncio, os, signal, sys
from holdfast import Context, Holdfast, Worker

app = Holdfast(sys.argv[1])
seconds, lease, slots = float(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])

@app.task
async def work(ctx: Context, poison: bool) -> None:
    if ctx.fence == 1:
        await asyncio.sleep(3600)
    await asyncio.sleep(seconds / 2)
    if poison:
        os.kill(os.getpid(), signal.SIGKILL)
    await asyncio.sleep(seconds / 2)

asyncio.run(Worker(app, concurrency=slots, lease=lease).run())
"""


def command(url: str | None, jobs: int, seconds: float, lease: float) -> int:
    """Measure both, each on a store of its own, or on the one at `url`."""
    for poison in (False, True):
        with TemporaryDirectory() as folder:
            took, crashes, counts = _measure(url, Path(folder), jobs, seconds, lease, poison=poison)
        ends = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
        what = "one poisonous job" if poison else "no poison"
        print(f"{jobs} jobs of {seconds:g} s, {what}: {took:.1f} s, {crashes} process crashes; {ends}", flush=True)
    return 0


def _measure(
    url: str | None, folder: Path, jobs: int, seconds: float, lease: float, *, poison: bool
) -> tuple[float, int, dict[str, int]]:
    """Seconds from the crash until all jobs have ended, the crashes since then, and how the jobs ended."""
    url = url or f"sqlite:///{folder}/queue.db"
    program = folder / "program.py"
    program.write_text(PROGRAM)
    arguments = [sys.executable, str(program), url, str(seconds), str(lease), str(jobs)]
    app = Holdfast(url).sync
    for number in range(jobs):
        payload = b'{"poison": true}' if poison and number == jobs // 2 else b'{"poison": false}'
        app.submit("work", payload, json=True, max_attempts=0)
    worker = subprocess.Popen(arguments)
    try:
        while app.stats().counts["running"] < jobs:
            time.sleep(0.01)
        worker.kill()
        worker.wait()
        began, crashes = time.monotonic(), -1
        while (counts := app.stats().counts)["succeeded"] + counts["dead"] < jobs:
            if worker.poll() is not None:
                crashes += 1
                worker = subprocess.Popen(arguments)
            time.sleep(0.01)
        return time.monotonic() - began, crashes, counts
    finally:
        worker.kill()
        worker.wait()
        app.close()
