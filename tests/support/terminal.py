"""A person's terminal in a folder of its own: the real command, real processes, and a table of its processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
from lab.fork_server import Forked

from holdfast import Holdfast
from holdfast.sync.app import SyncApp

from .forks import fork_server

T = TypeVar("T")
HOLDFAST = (sys.executable, "-m", "holdfast")


class Terminal:
    """Runs `holdfast …` in `folder`. Everything started from here carries a mark, by which `process_table` finds it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mark = uuid.uuid4().hex
        self.env = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
        self.env |= {"XDG_STATE_HOME": str(folder / "state"), "TERMINAL_TEST": self.mark, "COLUMNS": "80"}
        self.env["HOLDFAST_PASS_ENV"] = "TERMINAL_TEST"  # shell jobs are counted too
        self.started: list[subprocess.Popen[bytes]] = []
        self._app: Holdfast | None = None

    def __call__(self, *words: str, code: int | None = 0, stdin: str | None = None, limit: float = 60) -> str:
        """Run a command to its end; what it printed, standard error behind standard output."""
        with (
            tempfile.TemporaryFile() as given,
            tempfile.TemporaryFile() as printed,
            tempfile.TemporaryFile() as complained,
        ):
            given.write((stdin or "").encode())
            given.seek(0)
            files = (given.fileno(), printed.fileno(), complained.fileno())
            server = fork_server()
            process = Forked(server, server.start("holdfast", words, cwd=self.folder, env=self.env, files=files))
            try:
                ended = process.wait(limit)
            finally:
                process.kill()
            printed.seek(0)
            complained.seek(0)
            said = (printed.read() + complained.read()).decode()
        assert "Traceback" not in said, said
        assert code is None or ended == code, f"exit {ended}: {said}"
        return said

    def json(self, *words: str) -> Any:
        return json.loads(self(*words, "--json"))

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """Start a command and leave it running, in a process group of its own, its output in `front.log`."""
        with (self.folder / "front.log").open("ab") as log:
            process = subprocess.Popen(
                [*HOLDFAST, *words], cwd=self.folder, env=self.env, stdout=log, stderr=log, start_new_session=True
            )
        self.started.append(process)
        return process

    # -- what jobs do

    @property
    def store(self) -> SyncApp:
        """The same store from here, for looks that need no process each."""
        if self._app is None:
            self._app = Holdfast(self.env.get("HOLDFAST_URL", f"sqlite:///{self.folder / 'holdfast.db'}"))
        return self._app.sync

    def job(self, id: str) -> dict[str, Any]:
        return json.loads(msgspec.json.encode(self.store.job(id)))

    def states(self) -> dict[str, int]:
        return {state: count for state, count in self.store.stats().counts.items() if count}

    def workers(self) -> list[dict[str, Any]]:
        return [one for one in msgspec.to_builtins(self.store.workers()) if one["kind"] == "worker"]

    def printed(self, id: str) -> str:
        return b"".join(piece.data for piece in self.store.handle(id).output()).decode()

    def until(self, condition: Callable[[], T], limit: float = 60.0) -> T:
        """The condition's first true answer."""
        deadline = time.monotonic() + limit
        while not (answer := condition()):
            assert time.monotonic() < deadline, f"not within {limit:g} s; {self.states()}\n{self.log()[-3000:]}"
            time.sleep(0.05)
        return answer

    def log(self) -> str:
        logs = [*self.folder.glob("state/holdfast/*.log"), self.folder / "front.log"]
        return "\n".join(log.read_text() for log in logs if log.exists())

    # -- processes

    def supervisors(self) -> list[int]:
        return [json.loads(file.read_text())["pid"] for file in self.folder.glob("state/holdfast/*.json")]

    def process_table(self) -> dict[int, str]:
        """Every living process that was started from this terminal, directly or not: its command by its id."""
        found: dict[int, str] = {}
        mark = f"TERMINAL_TEST={self.mark}".encode()
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                with suppress(OSError):
                    if mark in (folder / "environ").read_bytes().split(b"\0"):
                        words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                        state = (folder / "stat").read_bytes().rpartition(b")")[2].split()[0]
                        if state not in (b"Z", b"X"):
                            found[int(folder.name)] = words
        return found

    def close(self) -> None:
        if self._app is not None:
            self._app.sync.close()
        for pid in self.process_table():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in self.started:
            process.wait(90)


def kill(pid: int) -> None:
    """kill -9, of one that may be dead already."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    """A terminal per test; nothing that was started from it outlives the test."""
    made = Terminal(tmp_path)
    yield made
    made.close()
