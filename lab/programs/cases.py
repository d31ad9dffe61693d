"""`python -m lab.programs.cases CASE URL COUNT`: one program. It prints its counts and peaks as JSON."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from holdfast import Holdfast, HoldfastError
from holdfast.app import parts_of

Reported = tuple[int, int, int, int]
"""Acknowledged, reported, peak descriptors, peak threads."""


def measure(pid: int | str = "self") -> tuple[int, int]:
    """The open descriptors and the threads of a process."""
    with suppress(OSError):
        return len(list(Path(f"/proc/{pid}/fd").iterdir())), len(list(Path(f"/proc/{pid}/task").iterdir()))
    return 0, 0


class Tally:
    """Counts answers, and looks at the process's files and threads after each tenth."""

    def __init__(self) -> None:
        self.acknowledged = self.reported = self.files = self.threads = 0
        self._lock = threading.Lock()

    def call(self, enqueue: Callable[[], object]) -> None:
        """Make one call."""
        try:
            enqueue()
            stored = True
        except HoldfastError:
            stored = False
        with self._lock:
            self.acknowledged += stored
            self.reported += not stored
            if (self.acknowledged + self.reported) % 10 == 1:
                self.look()

    def look(self, pid: int | str = "self") -> None:
        """Note the peaks of a process."""
        files, threads = measure(pid)
        self.files, self.threads = max(self.files, files), max(self.threads, threads)

    def result(self) -> Reported:
        """Everything."""
        return self.acknowledged, self.reported, self.files, self.threads


def run_per_call(app: Holdfast, count: int) -> Reported:
    """`asyncio.run` for each call."""
    tally = Tally()
    for _ in range(count):
        tally.call(lambda: asyncio.run(app.enqueue("noop")))
    return tally.result()


def async_to_sync(app: Holdfast, count: int) -> Reported:
    """asgiref's `async_to_sync`, as Django's views use it."""
    from asgiref.sync import async_to_sync as made

    tally, enqueue = Tally(), made(app.enqueue)
    for _ in range(count):
        tally.call(lambda: enqueue("noop"))
    return tally.result()


def threads(app: Holdfast, count: int) -> Reported:
    """Threads, each with an event loop for each call."""
    tally = Tally()
    with ThreadPoolExecutor(16) as pool:
        for _ in range(count):
            pool.submit(tally.call, lambda: asyncio.run(app.enqueue("noop")))
    return tally.result()


def blocks(app: Holdfast, count: int) -> Reported:
    """Threads, each with `async with app` on a loop of its own for every ten calls."""
    tally = Tally()

    async def block(calls: int) -> None:
        async with app:
            for _ in range(calls):
                try:
                    await app.enqueue("noop")
                except HoldfastError:
                    tally.call(_refused)
                else:
                    tally.call(lambda: None)

    with ThreadPoolExecutor(8) as pool:
        for done in pool.map(lambda calls: asyncio.run(block(calls)), [10] * (count // 10)):
            assert done is None  # to open the app, and to close it, is never refused
    return tally.result()


def _refused() -> None:
    raise HoldfastError


def child(url: str, count: int) -> Reported:
    """In a process of a pool."""
    return run_per_call(_apps.setdefault(url, Holdfast(url)), count)


_apps: dict[str, Holdfast] = {}


def processes(method: str) -> Callable[[Holdfast, int], Reported]:
    """Four processes of `multiprocessing`; a fork inherits an app that is open."""

    def run(app: Holdfast, count: int) -> Reported:
        _apps[parts_of(app).url] = app
        app.sync.stats()
        with multiprocessing.get_context(method).Pool(4) as pool:
            answers = pool.starmap(child, [(parts_of(app).url, count // 4)] * 4, chunksize=1)
        counts = list(zip(*answers, strict=True))
        return sum(counts[0]), sum(counts[1]), max(counts[2]), max(counts[3])

    return run


CASES: dict[str, Callable[[Holdfast, int], Reported]] = {
    "asyncio.run": run_per_call,
    "async_to_sync": async_to_sync,
    "threads": threads,
    "async with": blocks,
    "fork": processes("fork"),
    "spawn": processes("spawn"),
    "forkserver": processes("forkserver"),
}


if __name__ == "__main__":
    case, url, count = sys.argv[1:]
    print(json.dumps(CASES[case](Holdfast(url), int(count))))
