"""Processes that are measured: started, talked to by JSON lines, and always ended by the process that started them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from . import look

ROOT = Path(__file__).resolve().parent.parent
PATIENCE = 600.0
"""Seconds after which a silent process is given up."""


class BenchError(Exception):
    """A process did not do what it was started for."""


def environment(more: Mapping[str, str]) -> dict[str, str]:
    """What a measured process finds in its environment: this checkout, and no setting of the measuring process."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("HOLDFAST_", "PYTHON"))}
    return {**inherited, "PYTHONPATH": str(ROOT / "src"), **more}


class Child:
    """One process of its own session; leaving the `with` block ends it and what it started.

    What it writes to standard error goes to a file.
    """

    def __init__(self, command: Sequence[str], env: Mapping[str, str]) -> None:
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115  # closed by __exit__
        self._command = command
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            start_new_session=True,
        )
        self.pid = self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._errors.close()

    def _end(self) -> None:
        """Kill the process group, which is this child's own, and descendants in sessions of their own (workers).

        Until a process is waited for, its number is taken: the child is stopped first, so that it waits for none.
        """
        if self._process.poll() is None:
            os.kill(self.pid, signal.SIGSTOP)
            descendants = look.family(self.pid)[1:]
            for pid in descendants:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()

    def receive(self, timeout: float = PATIENCE) -> dict[str, Any]:
        """The next line that the process says."""
        assert self._process.stdout is not None
        timer = threading.Timer(timeout, self._end)
        timer.start()
        try:
            line = self._process.stdout.readline()
        finally:
            timer.cancel()
        if not line:
            raise self.trouble(f"ended early, or said nothing for {timeout:g} s")
        try:
            return json.loads(line)
        except ValueError:
            raise self.trouble(f"said {line!r}") from None

    def wait_until_ready(self) -> None:
        if self.receive() != {"ready": True}:
            raise self.trouble("was not ready")

    def send(self) -> None:
        """Send the line that it waits for: go, or stop."""
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def check_alive(self) -> None:
        if self._process.poll() is not None:
            raise self.trouble(f"ended with {self._process.returncode}")

    def trouble(self, what: str) -> BenchError:
        self._errors.seek(0)
        return BenchError(f"{' '.join(self._command)} {what}\n{self._errors.read()[-2000:]}".rstrip())
