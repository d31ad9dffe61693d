"""One worker process under a supervisor: forked, or `python -m holdfast.worker.member OPTIONS CONTROL_FD UNSTARTED_FD`.

1. Sends its supervisor its identity before it claims anything, and a status every second.
2. SIGTERM stops it gracefully, a second one at once; SIGUSR1 lets its jobs finish without a time limit.
3. SIGHUP reopens its log file, if it logs to one; otherwise only its supervisor handles SIGHUP.
4. It stops gracefully when its supervisor ends.
5. It exits after `max_jobs` jobs, above `max_memory`, or when its queues are empty (`--drain`).
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress

import msgspec

from ..app import parts_of
from ..client.control import Request
from ..client.process_usage import resident
from ..core.errors import HoldfastError
from ..core.operations import Holder
from ..observe import meters, traces
from ..observe.events import JobEvent, WorkerEvent
from ..observe.logs import flush, reopen, set_up
from ..observe.tally import Tally
from .processes.process_table import sweep
from .service import RETIRES, Refusal, Service, StatusMessage, ignore_signal
from .unstarted import Unstarted
from .worker import Worker

TICK = 1.0
"""Seconds between two status messages to the supervisor."""


class Member:
    """A worker and its connection to the supervisor."""

    def __init__(self, service: Service, connection: socket.socket, unstarted: Unstarted) -> None:
        self._service = service
        self._connection = connection
        self._app = service.app()
        self._parts = parts_of(self._app)
        self._worker = Worker(
            self._app,
            service.queues,
            service.concurrency,
            lease=service.lease,
            grace=service.grace,
            isolate_quarantined=service.application is not None,
            supervised=True,
            unstarted=None if service.max_jobs else unstarted,  # claims count as jobs there
            supervisor=self,
        )
        self._taken = 0
        self._sending = threading.Lock()
        self._leaving: str | None = None
        self._tally = Tally()
        if service.metrics is not None:
            self._tally.listen(self._parts.events)
        self._app.on("worker_started", self._register)
        if service.max_jobs is not None:
            self._app.on("lease_acquired", self._count)

    def loop_factory(self) -> Callable[[], asyncio.AbstractEventLoop] | None:
        """That of uvloop, where it is installed and wanted."""
        if not self._parts.runtime.current_settings().uvloop:
            return None
        try:
            import uvloop
        except ImportError:
            return None
        return uvloop.new_event_loop

    async def serve(self) -> None:
        """Run jobs until the worker stops."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._worker.stop)
        loop.add_signal_handler(signal.SIGUSR1, self._worker.finish)
        if self._service.log is not None:
            loop.add_signal_handler(signal.SIGHUP, reopen, self._service.log)
        loop.add_reader(self._connection, self._on_closed)
        ticking = loop.create_task(self._tick())
        async with self._app:
            await self._worker.run()
        ticking.cancel()
        self._send(StatusMessage(leaving=self._leaving or "stopped", counted=self._tally.take()))

    def _register(self, _: WorkerEvent) -> None:
        settings, given = self._parts.runtime.current_settings(), self._service.grace
        grace = settings.grace if given is None else given
        crashes = settings.max_crashes
        self._send(StatusMessage(holder=self._worker.holder, url=self._parts.url, max_crashes=crashes, grace=grace))

    def _count(self, _: JobEvent) -> None:
        self._taken += 1
        if self._service.max_jobs is not None and self._taken >= self._service.max_jobs:
            self._leave("recycle")

    def _send(self, message: StatusMessage) -> None:
        with self._sending, suppress(OSError):  # the supervisor has ended; `_on_closed` handles it
            self._connection.sendall(msgspec.json.encode(message) + b"\n")

    def describe(self, holder: Holder) -> None:
        """Send its new state to the supervisor. On the heartbeat's thread."""
        self._send(StatusMessage(described=holder, active=self._worker.active))

    def pass_on(self, request: Request) -> None:
        """Tell the supervisor whether to replace it at its end, before it ends. On the heartbeat's thread."""
        if request.action in RETIRES:
            self._leaving = "retired"
        elif request.action == "restart":
            self._leaving = "recycle"
        elif self._leaving == "retired":
            self._leaving = None
        self._send(StatusMessage(request=request.action, now=request.now, active=self._worker.active))

    def _on_closed(self) -> None:
        if not self._connection.recv(64):
            asyncio.get_running_loop().remove_reader(self._connection)
            self._worker.stop()

    def _leave(self, why: str) -> None:
        if self._leaving is None:
            self._leaving = why
            self._worker.stop()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK)
            self._send(StatusMessage(active=self._worker.active, counted=self._tally.take()))
            limit, used = self._service.max_memory, resident()
            if limit is not None and used is not None and used > limit:
                self._leave("recycle")
            if self._service.drain and self._worker.holder is not None and self._worker.idle and await self._drained():
                self._leave("drained")

    async def _drained(self) -> bool:
        """Whether its queues have no queued, running or failed jobs; scheduled jobs may remain."""
        served = () if self._worker.holder is None else self._worker.holder.queues
        try:
            queues = [queue for queue in (await self._app.stats()).queues if queue.name in served and not queue.paused]
        except HoldfastError:
            return False
        return not any(queue.counts.get(state) for queue in queues for state in ("queued", "running", "failed"))


def main() -> None:
    signal.signal(signal.SIGHUP, ignore_signal)
    service = msgspec.json.decode(sys.argv[1], type=Service)
    set_up(service.log_level, service.log_format)
    connection = socket.socket(fileno=int(sys.argv[2]))
    os.set_inheritable(connection.fileno(), False)
    memory = int(sys.argv[3])
    unstarted = Unstarted(memory)
    os.close(memory)
    work(service, connection, unstarted)


def work(service: Service, connection: socket.socket, unstarted: Unstarted) -> None:
    """Run a worker in this process, and exit."""
    signal.signal(signal.SIGHUP, ignore_signal)
    sweep()
    try:
        member = Member(service, connection, unstarted)
        with asyncio.Runner(loop_factory=member.loop_factory()) as runner:
            runner.run(member.serve())
    except HoldfastError as error:
        with suppress(OSError):  # the supervisor has ended
            connection.setblocking(True)
            connection.sendall(msgspec.json.encode(StatusMessage(refused=Refusal.of(error))) + b"\n")
        flush()
        os._exit(1)
    traces.flush()
    meters.flush()
    flush()
    # A thread that ignores its cancellation cannot be stopped; its job was released, so do not wait for it.
    os._exit(0)


if __name__ == "__main__":
    main()
