"""Starts Python programs from a process that has imported Holdfast already: a start costs a fork instead of 0.2 s.

What is started is a process like any other: its own pid, folder, environment, files and exit status. Only its
`/proc/PID/environ` and command line are those of the fork server. What depends on how Python itself starts (a preloaded
library, another interpreter, a terminal) has to be started without it.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import resource
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

PRELOAD = (
    "holdfast.cli.commands",
    "holdfast.cli.jobs",
    "holdfast.cli.enqueue",
    "holdfast.cli.status",
    "holdfast.cli.worker",
    "holdfast.store.reference.memory",
    "holdfast.store.sqlite.store",
    "holdfast.store.remote.store",
    "holdfast.worker.worker",
    "holdfast.worker.supervisor",
    "holdfast.testing",
    "holdfast.flows.service",
    "holdfast.client.explain",
    "rich.console",
    "rich.table",
    "holdfast.http.serve",
    "holdfast.http.service",
    "aiohttp",
)
"""What most programs import. Nothing of it opens a file or starts a thread when it is imported."""
LENGTH = struct.Struct("!I")


# -- in the fork server


def _serve(control: socket.socket) -> dict[str, Any]:
    """Fork for each request until the other side is gone. Returns what to run, in a child only."""
    ended, wake = os.pipe()
    os.set_blocking(ended, False)
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    while True:
        ready, _, _ = select.select([control, ended], [], [])
        if ended in ready:
            os.read(ended, 4096)
            _report_ends(control)
        if control not in ready:
            continue
        data, descriptors, _, _ = socket.recv_fds(control, LENGTH.size, 3)
        if not data:
            os._exit(0)
        request = json.loads(_receive(control, LENGTH.unpack(data)[0]))
        apart, own_end = os.pipe()
        pid = os.fork()
        if pid == 0:
            if request["new_session"]:
                os.setsid()
            os.close(apart)
            os.close(own_end)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for own in (control.detach(), ended, wake):
                os.close(own)
            for number, descriptor in enumerate(descriptors):
                os.dup2(descriptor, number)
                os.close(descriptor)
            return request
        for descriptor in (*descriptors, own_end):
            os.close(descriptor)
        # Returns when the child has closed its end: until then a signal to its group finds no process.
        os.read(apart, 1)
        os.close(apart)
        _send(control, {"started": pid})


def _report_ends(control: socket.socket) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        _send(control, {"ended": pid, "code": os.waitstatus_to_exitcode(status)})


def _become(request: dict[str, Any]) -> None:
    """In a child: be the program that was asked for."""
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    resource.setrlimit(resource.RLIMIT_NOFILE, request["max_files"])
    time.tzset()
    paths = os.environ.get("PYTHONPATH", "")
    sys.path[:0] = [request["cwd"], *filter(None, paths.split(os.pathsep))]
    sys.argv = [request["module"], *request["args"]]


def _send(control: socket.socket, message: Any) -> None:
    data = json.dumps(message).encode()
    control.sendall(LENGTH.pack(len(data)) + data)


def _receive(control: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length:
        piece = control.recv(length - len(data))
        if not piece:
            os._exit(0)
        data += piece
    return data


# -- in the program that starts others


class ForkServer:
    """One fork server, started at its first use."""

    def __init__(self) -> None:
        self._control: socket.socket | None = None
        self._server: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._ended: dict[int, int] = {}

    def start(
        self,
        module: str,
        args: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        files: tuple[int, int, int],
        new_session: bool = False,
    ) -> int:
        """Run a module as `python -m` would; its pid. `files`: its standard input, output and error."""
        request = {
            "module": module,
            "args": list(args),
            "cwd": str(cwd),
            "env": dict(env),
            "new_session": new_session,
            "max_files": resource.getrlimit(resource.RLIMIT_NOFILE),
        }
        data = json.dumps(request).encode()
        with self._lock:
            control = self._connected()
            socket.send_fds(control, [LENGTH.pack(len(data))], files)
            control.sendall(data)
            while True:
                message = self._message(control)
                if "started" in message:
                    self._ended.pop(message["started"], None)
                    return message["started"]

    def popen(
        self,
        module: str,
        args: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        output: IO[bytes],
        piped: bool = False,
    ) -> Forked:
        """The same in a session of its own, with all that it prints in one file; `piped`: with an input to write to."""
        read, write = os.pipe() if piped else (os.open(os.devnull, os.O_RDONLY), None)
        try:
            files = (read, output.fileno(), output.fileno())
            pid = self.start(module, args, cwd=cwd, env=env, files=files, new_session=True)
        finally:
            os.close(read)
        return Forked(self, pid, None if write is None else os.fdopen(write, "wb"))

    def code(self, pid: int, limit: float | None) -> int | None:
        """The exit status of one that it started, awaited for `limit` seconds."""
        deadline = None if limit is None else time.monotonic() + limit
        while True:
            with self._lock:
                while pid not in self._ended and self._readable(0.0):
                    self._message(self._connected())
                if pid in self._ended:
                    return self._ended[pid]
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return None
                if self._readable(0.05 if left is None else min(left, 0.05)):
                    self._message(self._connected())

    def remove(self) -> None:
        """End it; what it started and still runs ends by itself, if it was started to end with its parent."""
        if self._control is not None and self._server is not None:
            self._control.close()
            self._server.wait()
            self._control = self._server = None

    def _connected(self) -> socket.socket:
        if self._control is None:
            self._control, theirs = socket.socketpair()
            with theirs:
                self._server = subprocess.Popen(
                    [sys.executable, "-c", f"from lab.fork_server import main; main({theirs.fileno()})"],
                    cwd=Path(__file__).resolve().parent.parent,
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                )
        return self._control

    def _readable(self, seconds: float) -> bool:
        return bool(select.select([self._connected()], [], [], seconds)[0])

    def _message(self, control: socket.socket) -> dict[str, Any]:
        head = control.recv(LENGTH.size, socket.MSG_WAITALL)
        if len(head) < LENGTH.size:
            raise RuntimeError("the fork server has ended")
        message = json.loads(control.recv(LENGTH.unpack(head)[0], socket.MSG_WAITALL))
        if "ended" in message:
            self._ended[message["ended"]] = message["code"]
        return message


class Forked:
    """What `subprocess.Popen` gives, for a program of the fork server."""

    def __init__(self, server: ForkServer, pid: int, stdin: IO[bytes] | None = None) -> None:
        self.pid = pid
        self.stdin = stdin
        self.returncode: int | None = None
        self._server = server

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self._server.code(self.pid, 0.0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            self.returncode = self._server.code(self.pid, timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _run(module: str) -> int:
    """Run the module as Python runs a program; its exit status."""
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as wanted:
        if wanted.code is None or isinstance(wanted.code, int):
            return wanted.code or 0
        print(wanted.code, file=sys.stderr)
        return 1
    except BaseException:  # noqa: BLE001  # as Python itself does
        traceback.print_exc()
        return 1
    return 0


def main(control: int) -> None:
    """Import, serve, and in a child be the program."""
    for name in PRELOAD:
        importlib.import_module(name)
    gc.freeze()
    request = _serve(socket.socket(fileno=control))
    _become(request)
    code = _run(request["module"])
    # As Python ends, but for freeing each object of a large heap one by one: that would take longer than most programs.
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code & 0xFF)
