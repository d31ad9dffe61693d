"""The process tree of one job: started under a process guard, watched until all have ended, ended as a whole."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, TypeVar

import msgspec

from .process_table import MARKER, kill_marked

T = TypeVar("T")
TERM_GRACE = 5.0
"""Seconds that a job's processes get between SIGTERM and SIGKILL."""
SHORT_TERM_GRACE = 1.0
"""The same, if the worker stops or the claim is lost."""
_PROCESS_GUARD = str(Path(__file__).with_name("process_guard.py"))


class Ending(msgspec.Struct, frozen=True):
    """How a command ended. Neither code nor signal: its process guard was killed, and the command with it."""

    code: int | None = None
    signal: int | None = None

    @property
    def words(self) -> str:
        """A description for error messages."""
        if self.signal is not None:
            return f"killed by signal {self.signal}"
        if self.code is None:
            return "killed with its parent process, a process guard of Holdfast"
        hint = {126: " (the command cannot be executed)", 127: " (command not found)"}.get(self.code, "")
        return f"exit {self.code}{hint}"


class Tree:
    """A command with all its descendants. `ended` is done once all of them have ended."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str | None = None,
        stdin: int | IO[bytes] = subprocess.DEVNULL,
        output: int,
        pass_fds: Sequence[int] = (),
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._reading, writing = os.pipe()
        os.set_blocking(self._reading, False)
        self._status = b""
        self._mark = env.get(MARKER)
        self.started: asyncio.Future[int] = self._loop.create_future()
        """The command's process id."""
        self.ended: asyncio.Future[Ending] = self._loop.create_future()
        try:
            self._process_guard = subprocess.Popen(
                [sys.executable, "-I", "-S", _PROCESS_GUARD, str(writing), str(os.getpid()), *command],
                env=env,
                cwd=cwd,
                stdin=stdin,
                stdout=output,
                stderr=output,
                pass_fds=(writing, *pass_fds),
                start_new_session=True,
            )
        except BaseException:
            os.close(self._reading)
            raise
        finally:
            os.close(writing)
        self._loop.add_reader(self._reading, self._on_status)

    def _on_status(self) -> None:
        try:
            data = os.read(self._reading, 4096)
        except BlockingIOError:
            return
        if data:
            self._status += data
            line, _, rest = self._status.partition(b"\n")
            if rest or self._status.endswith(b"\n"):
                self._set_pid(line)
            return
        self._loop.remove_reader(self._reading)
        os.close(self._reading)
        self._process_guard.wait()  # it closes its status as it ends
        if not self.started.done():
            self.started.cancel()
        self._loop.create_task(self._end_with(_ending(self._status))).add_done_callback(_never_fails)

    async def _end_with(self, ending: Ending) -> None:
        if ending == Ending() and self._mark:
            await asyncio.to_thread(kill_marked, self._mark)  # the process guard was killed: end the rest here
        if not self.ended.done():
            self.ended.set_result(ending)

    def _set_pid(self, line: bytes) -> None:
        if line.startswith(b"pid ") and not self.started.done():
            self.started.set_result(int(line[4:]))

    def _signal(self, number: int) -> None:
        if self._process_guard.poll() is None:
            self._process_guard.send_signal(number)

    async def end(self, patience: float) -> Ending:
        """SIGTERM to all, SIGKILL after `patience` seconds; returns when all have ended, even if cancelled."""
        return await unhindered(self._end(patience))

    async def _end(self, patience: float) -> Ending:
        if patience > 0:
            self._signal(signal.SIGTERM)
            await asyncio.wait([self.ended], timeout=patience)
        if not self.ended.done():
            self._signal(signal.SIGUSR1)
        return await self.ended


async def unhindered(work: Coroutine[Any, Any, T]) -> T:
    """Finish `work`, however often the caller is cancelled meanwhile."""
    task = asyncio.ensure_future(work)
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise
    return task.result()


def _never_fails(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        task.result()


def _ending(status: bytes) -> Ending:
    for line in status.splitlines():
        kind, _, number = line.partition(b" ")
        if kind == b"exit":
            return Ending(code=int(number))
        if kind == b"signal":
            return Ending(signal=int(number))
    return Ending()
