"""Processes that a test starts, signals, and is sure to be rid of afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lab.fork_server import ForkServer
from lab.process import Process, end_with_parent

__all__ = ["Process", "Processes", "end_with_parent"]
FAULTS = Path(__file__).resolve().parent.parent


class Processes:
    """Everything that one test has started."""

    def __init__(self, url: str, folder: Path, fork_server: ForkServer | None = None) -> None:
        self._url = url
        self._fork_server = fork_server
        self._folder = folder
        self._all: list[Process] = []

    def start(self, module: str, *, name: str | None = None, **options: Any) -> Process:
        """Run a program of `support` on the test's store and journal."""
        name = name or f"{module}-{len(self._all)}"
        args = ["--url", self._url, "--journal", str(self._folder / "journal")]
        for option, value in options.items():
            args += [f"--{option.replace('_', '-')}", str(value)]
        log = self._folder / f"{len(self._all)}-{name}.log"
        process = Process(name, f"support.{module}", args, log, cwd=FAULTS, fork_server=self._fork_server)
        self._all.append(process)
        return process

    def worker(self, *, lease: float = 1.5, poll: float = 0.1, **options: Any) -> Process:
        """Run a worker."""
        return self.start("worker_main", lease=lease, poll=poll, **options)

    def __iter__(self):
        return iter(self._all)

    def close(self) -> None:
        """Be rid of all of them."""
        for process in self._all:
            process.close()
