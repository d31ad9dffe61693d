"""Background supervisors: each starts in its own session and is ready before the command returns.

Its process runs `python -m holdfast.worker.background OPTIONS KEY READY_FD`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress

import msgspec

from ..core.errors import HoldfastError
from ..observe.logs import log_file, set_up
from . import state
from .prefork import fork_workers
from .processes.process_table import sweep
from .service import Refusal, Service, ignore_signal
from .supervisor import Supervisor


def supervise(service: Service, key: str, ready: Callable[[list[int]], None]) -> None:
    """Run a supervisor until it ends, visible to `worker stop`; with `handover`, earlier supervisors then finish."""
    before = state.running(key)
    mine = state.enter(key, service.count, service.log)

    def at_work(pids: list[int]) -> None:
        if service.handover:
            for one in before:
                one.signal(signal.SIGUSR1)
        ready(pids)

    async def run() -> None:
        await Supervisor(service, at_work, forked).run()

    try:
        sweep()
        forked = fork_workers(service)
        asyncio.run(run())
    finally:
        mine.unlink(missing_ok=True)


def start(service: Service, key: str, url: str) -> tuple[int, list[int]]:
    """Start a supervisor in the background; returns its process id and those of its workers."""
    log = state.log_path(key)
    service = msgspec.structs.replace(service, log=str(log))
    reading, writing = os.pipe()
    handle = log_file(log)
    command = [sys.executable, "-m", "holdfast.worker.background", msgspec.json.encode(service).decode(), key]
    # Inherited: a SIGHUP that arrives before the supervisor handles it (reopens its log) must not end it.
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        process = subprocess.Popen(
            [*command, str(writing)],
            env=os.environ | {"HOLDFAST_URL": url} if service.application is None else None,
            pass_fds=[writing],
            stdin=subprocess.DEVNULL,
            stdout=handle,
            stderr=handle,
            start_new_session=True,
        )
    finally:
        signal.signal(signal.SIGHUP, before)
        os.close(handle)
        os.close(writing)
    with os.fdopen(reading, "rb") as answers:
        reply = answers.readline()
    if not reply:
        raise HoldfastError(f"the workers did not start: read the log file {log}")
    answer = msgspec.json.decode(reply, type=list[int] | Refusal)
    if isinstance(answer, Refusal):
        raise answer.error()
    return process.pid, answer


def main() -> None:
    signal.signal(signal.SIGHUP, ignore_signal)  # until the supervisor handles it
    service = msgspec.json.decode(sys.argv[1], type=Service)
    key, fd = sys.argv[2], int(sys.argv[3])
    os.set_inheritable(fd, False)
    set_up(service.log_level, service.log_format)

    waited_for = True

    def ready(answer: list[int] | Refusal) -> None:
        nonlocal waited_for
        waited_for = False
        with suppress(BrokenPipeError):  # the command that started it was interrupted
            os.write(fd, msgspec.json.encode(answer) + b"\n")
        os.close(fd)

    try:
        supervise(service, key, ready)
    except HoldfastError as error:
        if waited_for and type(error) is not HoldfastError:
            ready(Refusal.of(error))
        sys.exit(f"holdfast: {error}")


if __name__ == "__main__":
    main()
