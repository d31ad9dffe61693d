"""Jobs whose children flee: each forks the next, leaves its session and dies, for half a minute."""

import fcntl
import os
import sys
import time
from pathlib import Path

from holdfast import Holdfast

app = Holdfast(max_attempts=1)
CHAINS, SECONDS = 8, 30.0


def flee(path: str) -> None:
    """Any process that is left has the lock of `path`."""
    lock = os.open(path, os.O_CREAT | os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    deadline = time.monotonic() + SECONDS
    for _ in range(CHAINS):
        if os.fork() == 0:
            while time.monotonic() < deadline:
                if os.fork():
                    os._exit(0)
                os.setsid()
                time.sleep(0.002)
            os._exit(0)


@app.task(run_in="isolated")
def flee_and_stay(path: str) -> None:
    flee(path)
    time.sleep(60)


@app.task(run_in="isolated")
def flee_and_return(path: str) -> str:
    flee(path)
    return "returned"


@app.task(run_in="isolated")
def fill_the_pipe(path: str) -> int:
    """More than any pipe holds, while nobody asks for it."""
    for _ in range(200):
        sys.stdout.write("x" * 100_000)
        sys.stderr.write("y" * 100_000)
    Path(path).touch()
    return os.getpid()
