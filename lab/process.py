"""Processes that a run or a test starts, signals, and is sure to be rid of afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

from .fork_server import Forked, ForkServer
from .until import until

ROOT = Path(__file__).resolve().parent.parent


def _path() -> str:
    """So that a program finds the lab, and the modules that its starter finds."""
    return os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])


class Process:
    """A started Python program, its output in a file; forked where there is a fork server."""

    def __init__(
        self,
        name: str,
        module: str,
        args: list[str],
        log: Path,
        *,
        cwd: Path = ROOT,
        env: dict[str, str] | None = None,
        fork_server: ForkServer | None = None,
    ) -> None:
        self.name = name
        self.log = log
        whole = os.environ | {"PYTHONPATH": _path()} | (env or {})
        self._popen: subprocess.Popen[bytes] | Forked
        with log.open("wb") as output:
            if fork_server is not None:
                self._popen = fork_server.popen(module, args, cwd=cwd, env=whole, output=output, piped=True)
            else:
                self._popen = subprocess.Popen(
                    [sys.executable, "-m", module, *args],
                    cwd=cwd,
                    env=whole,
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        self.pid = self._popen.pid
        self.last_seen = ""
        """How it was when it was closed."""

    def __repr__(self) -> str:
        code = self._popen.poll()
        return f"<{self.name} pid {self.pid} {'runs' if code is None else f'ended {code}'}>"

    @property
    def running(self) -> bool:
        return self._popen.poll() is None

    def say(self, line: str) -> None:
        """A line for its standard input."""
        assert self._popen.stdin is not None
        self._popen.stdin.write(line.encode() + b"\n")
        self._popen.stdin.flush()

    def send(self, number: signal.Signals) -> None:
        assert self.running, f"{self!r} is gone already:\n{self.output()}"
        os.kill(self.pid, number)

    def kill(self) -> None:
        """kill -9, and wait until it is dead."""
        self.send(signal.SIGKILL)
        assert self.ended() == -signal.SIGKILL

    def freeze(self) -> None:
        """SIGSTOP, and wait until none of its threads runs any more."""
        self.send(signal.SIGSTOP)
        until(self._is_frozen, f"{self!r} is stopped")

    def _is_frozen(self) -> bool:
        shown = subprocess.run(["ps", "-o", "stat=", "-p", str(self.pid)], capture_output=True, check=False)
        return shown.stdout.strip().startswith(b"T")

    def thaw(self) -> None:
        self.send(signal.SIGCONT)

    def ended(self, limit: float = 30.0) -> int:
        """Its exit status, awaited."""
        try:
            return self._popen.wait(limit)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self!r} has not ended within {limit:g} s:\n{self.output()}") from None

    def output(self) -> str:
        return self.log.read_text(errors="replace") or "(it said nothing)"

    def close(self) -> None:
        """End it and whatever it has forked, however it is doing."""
        if self.last_seen:
            return
        self.last_seen = repr(self)
        if self.running or self._has_group():
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)  # also ends a stopped one
        self._popen.wait()
        if self._popen.stdin is not None:
            with suppress(BrokenPipeError):
                self._popen.stdin.close()

    def _has_group(self) -> bool:
        try:
            os.killpg(self.pid, 0)
        except (ProcessLookupError, PermissionError):
            return False
        return True


def end_with_parent() -> None:
    """Inside a started program: should the test be killed itself, do not stay behind."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(99)

    threading.Thread(target=watch, name="end-with-parent", daemon=True).start()
