"""The supervisor: keeps worker processes running and sends heartbeats for those that are alive.

1. Starts `count` worker processes and replaces crashed ones, with backoff if they crash soon after their start; not
   those that an operator has stopped or drained.
2. Recovers the claims of a crashed worker at once, fenced, after the last process of its jobs has ended.
3. Sends heartbeats for its live workers from its own process, so that a job that holds the GIL keeps its lease; kills
   an unresponsive worker that has a job past its timeout.
4. SIGTERM or Ctrl-C: all stop gracefully; a second one: at once. SIGUSR1: running jobs finish without a time limit.
   SIGHUP: in the background all reopen their log file; in the foreground all stop gracefully.
5. Ends when its workers have ended and none is to be restarted.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec

from ..app import Holdfast, parts_of
from ..client.session import Session
from ..core.clock import SystemClock
from ..core.errors import HoldfastError, StoreLost
from ..core.lifecycle import time_left
from ..core.operations import Holder
from ..observe.logs import reopen
from ..observe.outages import Outages
from ..store.notify import wait_for
from ..store.protocol import HeartbeatOnly, Replicated
from .gauges import Gauges
from .prefork import Forked
from .processes import process_table
from .processes.adopt import Adopted, become_subreaper
from .service import RETIRES, Service, StatusMessage
from .unstarted import Unstarted, shared_memory

logger = logging.getLogger("holdfast")
EARLY_CRASH = 5.0
"""Seconds: a worker that crashes sooner after its start is restarted after a pause, longer each time."""
FIRST_RESTART_PAUSE, LONGEST_RESTART_PAUSE = 0.5, 30.0
"""Seconds before a worker is restarted after an early crash; doubles with each one in a row."""
CRASHES_OF_ONE_JOB = 6
"""Crashes that one job can cause before it is marked dead: the pause stays short for so many."""
CHILDREN_EVERY = 0.5
"""Seconds between two checks of the workers."""
UNRESPONSIVE = 10.0
"""Seconds without a message after which a worker with an overdue job is killed."""
SILENT = 3.0
"""Seconds without a message after which the store is asked for a worker's jobs, which may become overdue."""
OVERDUE = 5.0
"""Seconds beyond its timeout after which a job is overdue: its worker should have ended it."""
KILL_AFTER = 20.0
"""Seconds beyond the grace period after which a worker that did not stop is killed."""


Started = tuple[subprocess.Popen[bytes] | Forked, socket.socket, Unstarted]
"""A worker process, the connection to it, and the memory shared with it."""


class Child:
    """One worker process and its last status."""

    def __init__(self, started: Started, now: float) -> None:
        self.process, self.connection, self.unstarted = started
        self.started = self.last_message = now
        self.holder: Holder | None = None
        self.leaving: str | None = None
        self.retired = False
        """An operator has requested its end: it is not replaced."""
        self.kill_at = math.inf
        """When it is killed, if it has not stopped by then."""
        self.refused: HoldfastError | None = None
        self.active = 0
        self.grace = 0.0
        self.held_since: dict[tuple[str, int], float] = {}
        """Its claims, by job and fence, and when they were first seen here, by the monotonic clock of this process."""
        self._rest = b""

    def messages(self) -> list[StatusMessage] | None:
        """New messages; None once the worker has closed its connection."""
        try:
            data = self.connection.recv(65536)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if not data:
            return None
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [msgspec.json.decode(line, type=StatusMessage) for line in lines]

    def responsive(self) -> bool:
        """Whether it is alive and not stopped (SIGSTOP): the lease of a stopped worker expires."""
        if self.process.poll() is not None:
            return False
        try:
            state = Path(f"/proc/{self.process.pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
        except (OSError, IndexError):
            return True
        return state not in (b"T", b"t", b"Z", b"X")


class Supervisor:
    """Runs until its workers have ended and are not restarted.

    `ready` is called with the process ids of the first workers once all have started. If one crashes before it has
    registered, the supervisor gives up; a worker that crashes later is replaced. `forked`: the first workers.
    """

    def __init__(
        self,
        service: Service,
        ready: Callable[[list[int]], None],
        forked: Sequence[Started] = (),
    ) -> None:
        self._service = service
        self._forked = list(forked)
        self._ready = ready
        self._clock = SystemClock()
        self._loop = asyncio.get_running_loop()
        self._children: list[Child] = []
        self._first: list[Child] = []
        self._app: Holdfast | None = None
        """Opened when it is needed if there is `_light`, else for the first heartbeat."""
        self._light: HeartbeatOnly | None = None
        """Sends heartbeats to a store that would have a copy of all jobs here."""
        self._opening: asyncio.Task[None] | None = None
        self._recoveries = 0
        """Recoveries in progress."""
        self._url: str | None = None
        self._stops = 0
        self._kill_at = math.inf
        self._crashes = 0
        self._adopted = Adopted()
        self._changed = asyncio.Event()
        self._endings: set[asyncio.Task[None]] = set()
        self._announced = False
        self._failed: HoldfastError | None = None
        """Why the supervisor gives up."""
        self._outages = Outages(self._clock)
        self._gauges: Gauges | None = None
        self._heartbeat_lock = asyncio.Lock()
        self._described = asyncio.Event()
        """A worker has another description: the store may show the old one, from a heartbeat sent before."""
        self._log_opened = -math.inf

    async def run(self) -> None:
        """Start the workers, watch them, and return when all have ended."""
        become_subreaper()
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._stop, signal.SIGTERM)
        self._loop.add_signal_handler(signal.SIGUSR1, self._stop, signal.SIGUSR1)
        if self._service.log is not None:
            self._loop.add_signal_handler(signal.SIGHUP, self._reopen_log, self._service.log)
        elif signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup
            self._loop.add_signal_handler(signal.SIGHUP, self._hang_up)
        self._loop.add_signal_handler(signal.SIGCHLD, self._changed.set)
        if self._service.metrics is not None:
            self._gauges = Gauges(
                self._service.metrics, lambda: sum(one.active for one in self._children), self._service.metrics_prefix
            )
            await self._gauges.open(patient=self._service.handover)
        for _ in range(self._service.count):
            self._first.append(self._spawn())
        helpers = [self._loop.create_task(self._heartbeat())]
        if self._service.reload:
            helpers.append(self._loop.create_task(self._reload()))
        try:
            while self._children or self._endings:
                self._check_workers()
                try:
                    async with asyncio.timeout(CHILDREN_EVERY):
                        await self._changed.wait()
                except TimeoutError:
                    pass
                self._changed.clear()
        finally:
            for helper in helpers:
                helper.cancel()
            await asyncio.wait(helpers)
            if self._gauges is not None:
                await self._gauges.close()
            if self._light is not None:
                await self._light.close()
            if self._app is not None:
                await self._app.close()
        if self._failed is not None:
            raise self._failed

    # -- children

    def _spawn(self) -> Child:
        started = self._forked.pop(0) if self._forked else self._start()
        started[1].setblocking(False)
        child = Child(started, self._clock.monotonic())
        self._children.append(child)
        self._loop.add_reader(child.connection, self._receive, child)
        with suppress(OSError):  # it has ended; `_check_workers` handles it
            child.connection.send(b"\n")  # a forked worker waits for it
        return child

    def _start(self) -> Started:
        ours, theirs = socket.socketpair()
        memory = shared_memory()
        command = [sys.executable, "-m", "holdfast.worker.member", msgspec.json.encode(self._service).decode()]
        try:
            # Its own process group: Ctrl-C in the terminal reaches only the supervisor.
            process = subprocess.Popen(
                [*command, str(theirs.fileno()), str(memory)],
                pass_fds=[theirs.fileno(), memory],
                stdin=subprocess.DEVNULL,
                process_group=0,
            )
            return process, ours, Unstarted(memory)
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
            os.close(memory)

    def _receive(self, child: Child) -> None:
        messages = child.messages()
        if messages is None:
            self._loop.remove_reader(child.connection)
            child.connection.close()
            self._changed.set()
            return
        child.last_message = self._clock.monotonic()
        for message in messages:
            self._apply(child, message)

    def _apply(self, child: Child, message: StatusMessage) -> None:
        if message.holder is not None:
            self._outages.worked("starting a worker")
        child.leaving = message.leaving or child.leaving
        child.holder = message.holder or message.described or child.holder
        if message.described is not None:
            self._described.set()
        if message.request is not None:
            child.retired = message.request in RETIRES
            if message.request in ("stop", "restart"):
                child.kill_at = self._clock.monotonic() + (0.0 if message.now else child.grace) + KILL_AFTER
        child.active = message.active
        child.refused = message.refused.error() if message.refused is not None else child.refused
        if self._gauges is not None:
            self._gauges.metrics.tally.add_all(message.counted)
        if message.holder is not None:
            child.grace = message.grace
            self._connect(message)
            self._announce()
            if child.started <= self._log_opened:  # it could not handle the signal yet
                child.process.send_signal(signal.SIGHUP)

    def _announce(self) -> None:
        if not self._announced and all(one.holder is not None for one in self._first):
            self._announced = True
            self._ready([one.process.pid for one in self._first])

    def _connect(self, message: StatusMessage) -> None:
        """Open the workers' store here too, if its URL allows it."""
        if self._app is None and message.url is not None and not message.url.startswith("memory:"):
            try:
                self._app = Holdfast(message.url, max_crashes=message.max_crashes)
                store = parts_of(self._app).runtime.store
                if self._gauges is not None:
                    self._gauges.watch(parts_of(self._app))
                elif isinstance(store, Replicated):
                    self._light = store.heartbeat_only()
            except HoldfastError as error:
                logger.warning(
                    "the supervisor cannot open the store, so jobs of a crashed worker are recovered only when its"
                    " lease expires: %s",
                    error,
                )

    def _check_workers(self) -> None:
        """Detect workers that have ended, and kill those that did not stop in time."""
        for child in list(self._children):
            if child.process.poll() is not None:
                self._children.remove(child)
                ending = self._loop.create_task(self._handle_end(child))
                self._endings.add(ending)
                ending.add_done_callback(partial(self._end_handled, child.process.pid))
        self._adopted.reap({child.process.pid for child in self._children})
        now = self._clock.monotonic()
        for child in self._children:
            if now > min(self._kill_at, child.kill_at):
                logger.warning(
                    "worker process %s did not stop in time and was killed; its jobs are recovered", child.process.pid
                )
                child.process.kill()

    def _end_handled(self, pid: int, ending: asyncio.Task[None]) -> None:
        self._endings.discard(ending)
        self._changed.set()
        if not ending.cancelled() and (error := ending.exception()) is not None:
            logger.error(
                "could not recover the jobs of worker process %s; they are recovered when its lease expires: %s",
                pid,
                error,
            )

    async def _handle_end(self, child: Child) -> None:
        """A worker has ended: recover its claims, and start another if one is due."""
        code = child.process.returncode
        while True:  # its last messages may still be unread
            try:
                messages = child.messages()
            except (OSError, ValueError):
                messages = None
            if not messages:
                break
            for message in messages:
                self._apply(child, message)
        if child.leaving is None and child.holder is None and self._stops:
            child.leaving = "stopped"  # it ended before it could handle a signal
        if child.leaving is None:
            if child.refused is None:
                pid = child.process.pid
                logger.warning("worker process %s crashed (%s); its jobs are recovered", pid, _exit_text(code))
            elif child not in self._first:
                self._outages.failed("starting a worker", child.refused)
            await self._adopted.gone(lambda: {one.process.pid for one in self._children}, child.process.pid)
            await asyncio.to_thread(process_table.sweep)
            unregistered = not self._announced and child.holder is None
            hopeless = child in self._first and (unregistered or child.refused is not None)
            if hopeless or isinstance(child.refused, StoreLost):
                # It cannot start, or the store is lost: give up instead of restarting for ever.
                self._give_up(child.refused or HoldfastError("the workers did not start: read the log of the workers"))
        early = child.leaving is None and self._clock.monotonic() - child.started < EARLY_CRASH
        if not early:
            self._crashes = 0
            try:
                self._replace(child)  # first: it loads its store while the claims are recovered
            except OSError as error:
                logger.warning("no worker process could be started, will retry: %s", error)
                early = True
        held = await self._recover(child)
        if early and not self._stops:
            self._crashes += 1
            pause = pause_after(self._crashes, held)
            logger.warning(
                "worker processes crash soon after they start (%d in a row): read their log; the next starts in %g s",
                self._crashes,
                pause,
            )
            await asyncio.sleep(pause)
            self._replace(child)

    def _replace(self, child: Child) -> None:
        if self._stops or child.retired or child.leaving == "drained":
            return
        successor = self._spawn()
        if child.holder is None:  # restarted by a reload before it had registered
            self._first = [successor if one is child else one for one in self._first]

    def _give_up(self, why: HoldfastError) -> None:
        self._failed = self._failed or why
        if not self._stops:
            self._stop(signal.SIGTERM)

    async def _recover(self, child: Child) -> int:
        """Recover the claims of a worker that ended; returns the number of jobs."""
        if child.holder is None or self._app is None:
            return 0
        self._recoveries += 1
        try:
            for _ in range(3):
                try:
                    await self._app.open()  # loading all jobs must not delay heartbeats
                    async with self._heartbeat_lock:  # a late heartbeat would renew its lease
                        claims = parts_of(self._app).claims
                        held = 0
                        while some := await claims.recover(holder=child.holder.id, unstarted=child.unstarted.covers):
                            held += some
                        await claims.leave([child.holder.id])
                except HoldfastError as error:
                    self._outages.failed("recovering jobs", error)
                    await asyncio.sleep(0.5)
                else:
                    self._outages.worked("recovering jobs")
                    return held
            return 0
        finally:
            self._recoveries -= 1

    # -- heartbeats

    async def _heartbeat(self) -> None:
        while True:
            pause = 1.0
            try:
                async with self._heartbeat_lock:
                    began = self._clock.monotonic()
                    live = [one for one in self._children if one.holder and not one.leaving and one.responsive()]
                    if live and self._app is not None:
                        third = min(one.holder.lease for one in live if one.holder) / 3
                        pause = min(pause, third)  # if this fails, the lease is still valid for a while
                        await self._heartbeat_for(self._app, live)
                        # A slow heartbeat has used up part of the lease that it renewed.
                        pause = max(third / 10, third - (self._clock.monotonic() - began))
            except Exception as error:  # noqa: BLE001  # nothing may stop heartbeats while there are workers
                self._outages.failed("heartbeat", error)
            else:
                self._outages.worked("heartbeat")
            await wait_for(self._described, pause)

    async def _heartbeat_for(self, app: Holdfast, live: list[Child]) -> None:
        holders = [child.holder for child in live if child.holder is not None]
        if self._light is not None:
            await self._light.heartbeat(holders)
            now = self._clock.monotonic()
            if all(now - child.last_message < SILENT for child in live):
                self._opening = None
                if not self._recoveries:
                    await app.close()
                return
            self._opening = self._opening or self._loop.create_task(app.open())
            if not self._opening.done():  # loading all jobs must not delay heartbeats
                return
            opening, self._opening = self._opening, None  # if it has failed, the next round tries again
            await opening
        await app.open()
        session = await parts_of(app).runtime.opened()
        heartbeats = await session.store.heartbeat(holders)
        for child, heartbeat in zip(live, heartbeats, strict=True):
            now, before = self._clock.monotonic(), child.held_since
            child.held_since = {
                each: before.get(each, now) for each in ((held.id, held.fence) for held in heartbeat.held)
            }
            if now - child.last_message > UNRESPONSIVE and await self._overdue(session, child):
                why = "worker process %s is unresponsive and one of its jobs is past its timeout: killed"
                logger.warning(why, child.process.pid)
                child.process.kill()

    async def _overdue(self, session: Session, child: Child) -> bool:
        now, since = self._clock.monotonic(), {id: seen for (id, _), seen in child.held_since.items()}
        records = await session.store.get(list(since))
        limits = [(r.id, limit) for r in records if r for limit in (r.timeout, time_left(r)) if limit is not None]
        return any(now > since[id] + limit + OVERDUE for id, limit in limits)

    # -- ending

    def _stop(self, number: int) -> None:
        self._stops += 1
        if number == signal.SIGTERM:
            grace = max((one.grace for one in self._children), default=0.0)
            self._kill_at = self._clock.monotonic() + (grace if self._stops == 1 else 0.0) + KILL_AFTER
        for child in self._children:
            if child.process.poll() is None:
                child.process.send_signal(number)
        self._changed.set()

    def _hang_up(self) -> None:
        if not self._stops:  # a terminal that is closed may send more than one
            self._stop(signal.SIGTERM)

    def _reopen_log(self, path: str) -> None:
        reopen(path)
        self._log_opened = self._clock.monotonic()
        for child in self._children:
            if child.holder is not None and child.process.poll() is None:
                child.process.send_signal(signal.SIGHUP)

    # -- for development

    async def _reload(self) -> None:
        """Restart the workers when a Python file below this folder has changed."""
        seen = await asyncio.to_thread(_modified)
        while True:
            await asyncio.sleep(1.0)
            now = await asyncio.to_thread(_modified)
            if now != seen:
                seen = now
                logger.info("Python files changed: restarting the workers")
                for child in self._children:
                    child.leaving = "recycle"
                    child.process.send_signal(signal.SIGTERM)


def pause_after(crashes: int, held: int) -> float:
    """Seconds before the next worker starts, after `crashes` early crashes in a row, the last one with `held` jobs.

    If jobs were running, quarantine finds the one that crashes its process within a few restarts: keep the pause short.
    """
    tolerated = CRASHES_OF_ONE_JOB if held else 0
    return min(LONGEST_RESTART_PAUSE, FIRST_RESTART_PAUSE * 2 ** min(max(0, crashes - 1 - tolerated), 10))


def _modified() -> dict[str, int]:
    found: dict[str, int] = {}
    for folder, below, files in os.walk("."):
        below[:] = [name for name in below if not name.startswith(".") and name not in ("node_modules", "__pycache__")]
        for name in files:
            if name.endswith(".py"):
                path = Path(folder, name)
                try:
                    found[str(path)] = path.stat().st_mtime_ns
                except OSError:
                    continue
    return found


def _exit_text(code: int) -> str:
    return f"killed by signal {-code}" if code < 0 else f"exit {code}"
