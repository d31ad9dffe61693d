"""Gates that jobs wait at and tests open: files, named by the job's number and its claim's fence."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

LIMIT = 60.0
LOOK_EVERY = 0.005


class Gates:
    """The gates beside one journal."""

    def __init__(self, journal: Path) -> None:
        self._folder = journal.with_name("gates")
        self._folder.mkdir(exist_ok=True)

    def open(self, n: int, fence: int | None = None) -> None:
        """Let the run of job number `n` under this fence pass; or all its runs."""
        (self._folder / f"{n}.{fence or 'any'}").touch()

    def is_open(self, n: int, fence: int) -> bool:
        return (self._folder / f"{n}.{fence}").exists() or (self._folder / f"{n}.any").exists()

    async def wait(self, n: int, fence: int) -> None:
        deadline = time.monotonic() + LIMIT
        while not self.is_open(n, fence):
            _check(deadline, n, fence)
            await asyncio.sleep(LOOK_EVERY)

    def wait_in_thread(self, n: int, fence: int) -> None:
        deadline = time.monotonic() + LIMIT
        while not self.is_open(n, fence):
            _check(deadline, n, fence)
            time.sleep(LOOK_EVERY)


def _check(deadline: float, n: int, fence: int) -> None:
    if time.monotonic() > deadline:
        raise TimeoutError(f"limiter {n}.{fence} was not opened within {LIMIT:g} s")
