"""A contender: whose code, in which environment, on which file; and the few ways in which it is put to work."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .measure import quantile
from .process import BenchError, Child

PAUSES = (0.4, 0.8)
"""Seconds between jobs when latency is measured: long enough for every worker to have gone to sleep again."""


@dataclass(frozen=True)
class Contender:
    python: str
    module: str
    env: Callable[[Path], Mapping[str, str]]
    """What its processes find in their environment, given the folder for the database."""

    def start(self, folder: Path, **request: Any) -> Child:
        return Child([self.python, "-m", self.module, json.dumps(request)], self.env(folder))

    def ask(self, folder: Path, **request: Any) -> dict[str, Any]:
        """Start a process for this one request, let it go when it is ready, and return its answer."""
        with self.start(folder, **request) as process:
            received = process.receive()
            if received == {"ready": True}:
                process.send()
                received = process.receive()
            return received

    def rate(self, folder: Path, **request: Any) -> float:
        """Jobs a second, where the process itself takes the time."""
        answer = self.ask(folder, **request)
        return answer["jobs"] / answer["seconds"]

    def fill(self, folder: Path, **request: Any) -> None:
        """Have jobs enqueued ahead of a measurement, and on disk: the kernel shall not write them back during it."""
        self.ask(folder, do="fill", **request)
        os.sync()

    def run_rate(self, folder: Path, processes: int, jobs: int, **request: Any) -> float:
        """Jobs a second from the word go, given to all processes at once, to the end of the last job."""
        with ExitStack() as stack:
            workers = [stack.enter_context(self.start(folder, **request)) for _ in range(processes)]
            for worker in workers:
                worker.wait_until_ready()
            start = time.monotonic()
            for worker in workers:
                worker.send()
            answers = [worker.receive() for worker in workers]
        done = sum(answer["jobs"] for answer in answers)
        if done != jobs:
            raise BenchError(f"{self.module}: {done} of {jobs} jobs were run")
        return jobs / (max(answer["ended"] for answer in answers if answer["jobs"]) - start)

    def latencies(self, folder: Path, count: int, **request: Any) -> tuple[float, float]:
        """Median and 99th percentile in milliseconds, from enqueue in one process to the task in another, idle one."""
        with self.start(folder, do="worker", **request) as worker:
            worker.wait_until_ready()
            self.ask(folder, do="produce", count=count, pauses=PAUSES)
            time.sleep(PAUSES[1])
            worker.send()
            found = [seconds * 1000 for seconds in worker.receive()["latencies"]]
        if len(found) != count:
            raise BenchError(f"{self.module}: {len(found)} of {count} jobs arrived")
        return quantile(found, 0.5), quantile(found, 0.99)

    def cancel_latencies(self, folder: Path, count: int, **request: Any) -> tuple[float, float]:
        """Median and 99th percentile in milliseconds, from the call of cancel in one process to the task in another."""
        with self.start(folder, do="worker", **request) as worker:
            worker.wait_until_ready()
            sent = self.ask(folder, do="cancel", count=count, pauses=PAUSES)["sent"]
            worker.send()
            stopped = worker.receive()["stopped"]
        if stopped.keys() != sent.keys():
            raise BenchError(f"{self.module}: {len(stopped)} of {count} jobs were stopped")
        found = [(stopped[id] - at) / 1e6 for id, at in sent.items()]
        return quantile(found, 0.5), quantile(found, 0.99)

    @contextmanager
    def shell_worker(self, folder: Path, command: list[str], waiting: Callable[[], int]) -> Iterator[Child]:
        """A worker that was started as its users start it, and has run one job."""
        self.fill(folder, count=1)
        with Child(command, self.env(folder)) as worker:
            deadline = time.monotonic() + 30
            while waiting():
                worker.check_alive()
                if time.monotonic() > deadline:
                    raise worker.trouble("did not run its job")
                time.sleep(0.05)
            yield worker

    @contextmanager
    def ready_worker(self, folder: Path, **request: Any) -> Iterator[Child]:
        """A worker inside a process of the benchmark that waits for jobs."""
        with self.start(folder, do="worker", **request) as worker:
            worker.wait_until_ready()
            yield worker
