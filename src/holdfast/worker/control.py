"""A worker's side of remote control: takes the requests for it from the store, applies and answers them.

This runs on the thread of the heartbeat, after each heartbeat: so a worker whose event loop is blocked answers too.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from collections.abc import Set as AbstractSet
from contextlib import suppress
from itertools import accumulate
from typing import Any, Protocol

from msgspec.structs import replace

from ..client.control import REPLY_BYTES, SAME_VERSION, ControlReply, Request, Stack, decode_request, encode
from ..client.heartbeat import Heartbeat
from ..core.errors import ConfigError, InvalidJob
from ..core.job import UNDECODABLE
from ..core.operations import HeartbeatReply, Holder
from ..store.protocol import CONTROL, CONTROL_REPLY, Store, holder_in, records_of
from .lease import Leases
from .run import Run, stacks
from .run.isolated import LOOK_TIMEOUT
from .run.thread import Threads
from .slots import Slots

logger = logging.getLogger("holdfast")
DRAIN_POLL = 0.1
"""Seconds between two checks whether a worker that drains is idle."""
MAX_STACKS = 200
"""Threads and asyncio tasks of one answer."""
STACK_BYTES = REPLY_BYTES // 2
"""Characters of all frames of one answer, about."""


class Supervised(Protocol):
    """The connection to a worker's supervisor. Both are called on the heartbeat's thread."""

    def describe(self, holder: Holder) -> None:
        """The supervisor sends this with its heartbeats from now on."""
        ...

    def pass_on(self, request: Request) -> None:
        """The supervisor learns whether to start another process after the end of this one."""
        ...


class RemoteControl:
    """Applies requests of operators to one worker.

    `stop(now)` stops it; `changed` gets the holder with its new state. `supervisor`: None if there is none.
    """

    heartbeat: Heartbeat

    def __init__(
        self,
        leases: Leases,
        slots: Slots,
        threads: Threads,
        *,
        frames_in_processes: Callable[[], Coroutine[Any, Any, dict[Run, list[str]]]],
        stop: Callable[[bool], None],
        changed: Callable[[Holder], None],
        supervisor: Supervised | None,
    ) -> None:
        self._leases = leases
        self._slots = slots
        self._threads = threads
        self._frames_in_processes = frames_in_processes
        self._stop = stop
        self._changed = changed
        self._supervisor = supervisor
        self._loop = asyncio.get_running_loop()
        self._unsent: dict[str, bytes] = {}
        """Answers that could not be stored yet, by the name of the request."""
        self._draining: asyncio.Task[None] | None = None

    @property
    def state(self) -> str:
        """active, quiet, draining or stopping."""
        return self._leases.holder.state

    def close(self) -> None:
        """The worker stops: do not wait until it is idle."""
        if self._draining is not None:
            self._draining.cancel()

    def stopping(self) -> None:
        """The worker stops, for whatever reason."""
        self._describe(state="stopping")

    async def serve(self, store: Store, heartbeat: HeartbeatReply) -> None:
        """Take, apply and answer the requests for this worker, after a heartbeat. On the heartbeat's thread."""
        me = self._leases.holder.id
        requests = await records_of(store, CONTROL) if heartbeat.requests else {}
        for name, kept in requests.items():
            if holder_in(name) == me and await store.put_record(CONTROL, name, None, kept.version):
                reply, then = await self._apply(kept.value)
                self._unsent[name] = encode(reply)
                try:
                    if reply.error is None and reply.action != "stacks":
                        with suppress(Exception):  # a reader of the answer sees the new state; else after a heartbeat
                            await self.heartbeat.send_now()
                    await self._answer(store)
                finally:  # also if the store was too slow, which cancels this
                    then()
        await self._answer(store)

    async def _answer(self, store: Store) -> None:
        for name, answer in list(self._unsent.items()):
            try:
                await store.put_record(CONTROL_REPLY, name, answer)
            except (ConfigError, InvalidJob) as error:  # now and later: it must not keep back the other answers
                text = "worker %s applied the control request %s, but the store refused its answer: %s"
                logger.warning(text, self._leases.holder.id, name, error)
            del self._unsent[name]

    async def _apply(self, value: bytes) -> tuple[ControlReply, Callable[[], None]]:
        """Apply a request; returns the answer, and what to do once it is stored."""
        holder = self._leases.holder
        try:
            request = decode_request(value)
        except UNDECODABLE:
            error = f"worker {holder.id} cannot decode the request; {SAME_VERSION}"
            return ControlReply(holder.id, "", error), _nothing
        if request.action != "stacks":
            logger.info("worker %s: an operator has requested: %s", holder.id, request.action)
        then, error, found, left_out = _nothing, None, (), 0
        if self.state == "stopping" and request.action != "stacks" and not (request.action == "stop" and request.now):
            if request.action not in ("stop", "drain"):
                error = f"worker {holder.id} is stopping, so the request was refused"
        elif request.action in ("quiet", "resume"):
            self._open(closed=request.action == "quiet")
            self._describe(state="active" if request.action == "resume" else "quiet")
            self._pass_on(request)
        elif request.action == "drain":
            self._open(closed=True)
            self._describe(state="draining")
            self._pass_on(request)
            then = self._on_loop(self._begin_drain)
        elif request.action == "restart" and self._supervisor is None:
            error = f"worker {holder.id} has no supervisor that could start it again, so it was not stopped"
        elif request.action in ("stop", "restart"):
            self._open(closed=True)
            self._describe(state="stopping")
            self._pass_on(request)
            then = self._stop_by(now=request.now)
        elif request.action == "concurrency" and request.size is not None:
            self._slots.size = request.size
            self._threads.resize(request.size)
            self._describe(slots=request.size)
            self._on_loop(self._slots.freed.set)()
        elif request.action == "stacks":
            found, left_out = await self._stacks()
        else:
            error = f"worker {holder.id} does not know the request {request.action!r:.100}; {SAME_VERSION}"
        holder = self._leases.holder
        return ControlReply(holder.id, request.action, error, holder.state, holder.slots, found, left_out), then

    def _open(self, *, closed: bool) -> None:
        self._slots.closed = closed
        if not closed:
            self._on_loop(self._slots.freed.set)()

    def _describe(self, **fields: Any) -> None:
        """The holder as the store shows it from the next heartbeat on."""
        new = replace(self._leases.holder, **fields)
        self._leases.holder = self.heartbeat.holder = new
        self._changed(new)
        if self._supervisor is not None:
            self._supervisor.describe(new)

    def _pass_on(self, request: Request) -> None:
        if self._supervisor is not None:
            self._supervisor.pass_on(request)

    def _stop_by(self, *, now: bool) -> Callable[[], None]:
        return lambda: self._stop(now)

    def _on_loop(self, call: Callable[[], object]) -> Callable[[], None]:
        def later() -> None:
            with suppress(RuntimeError):  # the loop has ended, and the worker with it
                self._loop.call_soon_threadsafe(call)

        return later

    def _begin_drain(self) -> None:
        if self._draining is None or self._draining.done():
            self._draining = self._loop.create_task(self._drain())

    async def _drain(self) -> None:
        while self.state == "draining":
            if self._leases.idle:
                self._stop(False)
                return
            await asyncio.sleep(DRAIN_POLL)

    async def _stacks(self) -> tuple[tuple[Stack, ...], int]:
        """Stacks of all threads but this one, of the tasks of the worker's loop, and of jobs in processes of their own;
        those of jobs first.
        """
        apart = await self._in_processes()
        runs = [run for run in self._slots.runs.values() if run not in apart]
        found = [*self._threads_of(runs), *self._tasks_of(runs, {run.runner for run in apart})]
        for run, frames in apart.items():
            found.append(Stack("process", "MainThread", tuple(frames), run.record.id, run.record.task))
        found.sort(key=lambda one: one.job is None)
        kept: list[Stack] = []
        sizes = accumulate(sum(map(len, one.frames)) for one in found)
        for size, one in zip(sizes, found, strict=True):
            if size <= STACK_BYTES and len(kept) < MAX_STACKS:
                kept.append(one)
        return tuple(kept), len(found) - len(kept)

    def _threads_of(self, runs: list[Run]) -> list[Stack]:
        jobs = {run.thread: run.record for run in reversed(runs) if run.thread is not None}
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        found: list[Stack] = []
        for ident, frames in stacks.of_threads().items():
            if frames and ident != threading.get_ident():
                job = jobs.get(ident)
                who = (None, None) if job is None else (job.id, job.task)
                found.append(Stack("thread", names.get(ident, str(ident)), tuple(frames), *who))
        return found

    async def _in_processes(self) -> dict[Run, list[str]]:
        """The frames of jobs in processes; none if the worker's loop is blocked."""
        if not any(run.apart for run in self._slots.runs.values()):
            return {}
        with suppress(TimeoutError, RuntimeError):  # blocked, or closed: the worker ends
            async with asyncio.timeout(2 * LOOK_TIMEOUT):
                return await asyncio.wrap_future(
                    asyncio.run_coroutine_threadsafe(self._frames_in_processes(), self._loop)
                )
        return {}

    def _tasks_of(self, runs: list[Run], without: AbstractSet[asyncio.Task[Any] | None]) -> list[Stack]:
        jobs = {task: run.record for run in reversed(runs) if (task := run.calling) is not None}
        found: list[Stack] = []
        for task in asyncio.all_tasks(self._loop) - without:
            if frames := stacks.of_task(task):
                job = jobs.get(task)
                who = (None, None) if job is None else (job.id, job.task)
                found.append(Stack("task", task.get_name(), tuple(frames), *who))
        return found


def _nothing() -> None:
    """Nothing is left to do."""
