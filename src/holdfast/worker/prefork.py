"""Starts the first workers by fork, before their supervisor opens anything, so that they share its memory.

A worker that replaces another is started as a new program: by then, the supervisor has threads and connections.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import traceback
from contextlib import suppress
from typing import Any

from ..store.open import preload
from . import member
from .service import Service
from .unstarted import Unstarted, shared_memory


class Forked:
    """A forked worker process: what a supervisor uses of `subprocess.Popen`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | Any = None

    def poll(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def fork_workers(service: Service) -> list[tuple[Forked, socket.socket, Unstarted]]:
    """The first workers, each with its connection; it starts to work when it receives a byte.

    They exit if the connection closes first. This process must have one thread. None on macOS, whose system libraries
    do not survive a fork.
    """
    if sys.platform == "darwin":
        return []
    preload(service.engine)
    gc.collect()
    gc.freeze()  # a collection in one process would copy the pages that it shares with the others
    made: list[tuple[Forked, socket.socket, Unstarted]] = []
    for _ in range(service.count):
        ours, theirs = socket.socketpair()
        memory = shared_memory()
        unstarted = Unstarted(memory)
        os.close(memory)
        pid = os.fork()
        if pid == 0:
            _run(service, theirs, unstarted)
        theirs.close()
        made.append((Forked(pid), ours, unstarted))
    return made


def _run(service: Service, connection: socket.socket, unstarted: Unstarted) -> None:
    """In a forked worker: detach from the supervisor as a new program would, and work. Does not return."""
    try:
        sys.argv[:] = [member.__file__]  # as in a worker that was not forked
        os.setpgid(0, 0)  # Ctrl-C in the terminal reaches only the supervisor
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        # Also the connections of other workers, which would not notice the supervisor's end.
        for descriptor in map(int, os.listdir("/dev/fd")):  # noqa: PTH208  # numbers, not paths
            if descriptor > 2 and descriptor != connection.fileno():
                with suppress(OSError):  # that of the list itself
                    os.close(descriptor)
        if connection.recv(1):
            member.work(service, connection, unstarted)
        os._exit(0)
    except BaseException:  # noqa: BLE001  # the frames below belong to the supervisor
        traceback.print_exc()
    finally:
        os._exit(1)
