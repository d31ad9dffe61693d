"""Child processes that run claims, one at a time each: a fresh one per job, or one of a pool."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from ...core.errors import HoldfastError, ProcessFailed
from ...core.lifecycle import Outcome
from ...observe import task_output, traces
from ..processes import process_table
from ..processes.printer import Printer
from ..processes.tree import SHORT_TERM_GRACE, TERM_GRACE, Tree, unhindered
from .explain import Ended
from .line import (
    Answer,
    Broken,
    Completed,
    Done,
    Load,
    Log,
    Look,
    Position,
    Start,
    Stop,
    ToWorker,
    WriteNote,
    frame,
    next_frame,
)
from .run import Run
from .stacks import as_text

if TYPE_CHECKING:
    from ...client.session import Session
    from ...tasks.context import Context
    from ...tasks.task import Task

LOOK_TIMEOUT = 1.0
"""Seconds to wait for the stack of a job in its process."""
MEMORY_EVERY = 0.1
"""Seconds between two checks of a child's memory."""


class Encoded(msgspec.Struct):
    """A result that the child has encoded."""

    data: bytes | None


Address = tuple[str, list[str]]
"""The import address of an app, and the modules that define its tasks."""


class Child:
    """One child process."""

    def __init__(self, app: Address, env: dict[str, str], output: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._ours, theirs = socket.socketpair()
        self._pipes, their_pipes = socket.socketpair()
        fds = (theirs.fileno(), their_pipes.fileno())
        command = [sys.executable, "-m", "holdfast.worker.run.child", *map(str, fds)]
        self.tree = Tree(command, env=env, output=output, pass_fds=fds)
        theirs.close()
        their_pipes.close()
        self._app = app
        self._context: Context | None = None
        self._done: asyncio.Future[Outcome] = self._loop.create_future()
        self._broken: Broken | None = None
        self._interrupted_at: list[str] = []
        self._looking: asyncio.Future[list[str]] = self._loop.create_future()
        self._writer: asyncio.Future[asyncio.StreamWriter] = self._loop.create_future()
        self._listening = self._loop.create_task(self._listen())

    async def _listen(self) -> None:
        task_output.current.set(None)  # what a child logs, it has written to the output of its job itself
        reader, writer = await asyncio.open_connection(sock=self._ours)
        self._writer.set_result(writer)
        level = logging.getLogger().getEffectiveLevel()
        writer.write(frame(Load(*self._app, sys.path, level)))
        decode = msgspec.msgpack.Decoder(ToWorker).decode
        while (data := await next_frame(reader)) is not None:
            message = decode(data)
            if isinstance(message, Done):
                if not self._done.done():
                    self._done.set_result(message.outcome)
            elif isinstance(message, Completed):
                if self._context is not None:
                    self._context.completed = True
            elif isinstance(message, WriteNote):
                self._loop.create_task(self._note(message)).add_done_callback(lambda task: task.exception())
            elif isinstance(message, Log):
                _log(message)
            elif isinstance(message, Position):
                if message.interrupted:
                    self._interrupted_at = self._interrupted_at or message.frames
                elif not self._looking.done():
                    self._looking.set_result(message.frames)
            else:
                self._broken = message
        writer.close()

    async def _note(self, request: WriteNote) -> None:
        context = self._context
        try:
            written = context is not None and await context.write(request.note)
            answer = Answer(request.number, written)
        except HoldfastError as error:
            answer = Answer(request.number, error=str(error))
        (await self._writer).write(frame(answer))

    def start(self, context: Context, start: Start, pipe: int | None) -> None:
        """Send a claim to the child, and the pipe for its output."""
        self._context = context
        self._done = self._loop.create_future()
        if pipe is not None:
            socket.send_fds(self._pipes, [b"."], [pipe])
        self._loop.create_task(self._send(start))

    async def _send(self, message: Start | Stop) -> None:
        (await asyncio.shield(self._writer)).write(frame(message))

    async def outcome(self) -> Outcome:
        """The outcome of the claim; raises ProcessFailed if the process ended without one."""
        await asyncio.wait([self._done, self.tree.ended], return_when=asyncio.FIRST_COMPLETED)
        if not self._done.done():
            await self._listening  # its last messages may still be unread
        if self._done.done():
            return self._done.result()
        if self._broken is not None:
            return Outcome.failed(
                f"the process of the job could not load the app: {self._broken.error}", self._broken.traceback
            )
        ending = self.tree.ended.result()
        raise ProcessFailed(ending.words, code=ending.code, signal=ending.signal)

    async def frames(self) -> list[str]:
        """The stack of the job; [] if the process does not send it in time."""
        self._looking = self._looking if not self._looking.done() else self._loop.create_future()
        (await asyncio.shield(self._writer)).write(frame(Look()))
        await asyncio.wait([self._looking], timeout=LOOK_TIMEOUT)
        return self._looking.result() if self._looking.done() else []

    async def stop(self, why: str, patience: float) -> str | None:
        """Ask the job to stop, then end its processes. Returns its stack at that time, if it said so."""
        self._loop.create_task(self._send(Stop(why)))
        await self.tree.end(patience)
        await asyncio.wait([self._listening], timeout=SHORT_TERM_GRACE)  # its last messages may still be unread
        return as_text(self._interrupted_at)

    async def close(self) -> None:
        """Close the connection of an idle child, which ends it."""
        await unhindered(self._close())

    async def _close(self) -> None:
        (await self._writer).close()
        self._pipes.close()
        await asyncio.wait([self.tree.ended], timeout=SHORT_TERM_GRACE)
        await self.tree.end(0)


class Children:
    """Every child process of a worker."""

    def __init__(self, session: Session, address: Callable[[], Address]) -> None:
        self._session = session
        self._find = address
        self._address: Address | None = None
        self._idle: list[Child] = []
        self._running: dict[Run, Child] = {}
        self._max_idle = os.cpu_count() or 1

    def find_app(self) -> Address:
        """The import address of the app; ConfigError if a child cannot import it."""
        if self._address is None:
            self._address = self._find()
        return self._address

    async def close(self) -> None:
        """End the idle children of the pool."""
        idle, self._idle = self._idle, []
        await asyncio.gather(*(child.close() for child in idle))

    async def frames(self) -> dict[Run, list[str]]:
        """The stacks of the jobs that run in processes, of those that send it in time."""
        running = dict(self._running)
        found = await asyncio.gather(*(child.frames() for child in running.values()))
        return {run: frames for run, frames in zip(running, found, strict=True) if frames}

    async def call(self, run: Run, task: Task[..., Any]) -> Encoded:
        """Run a claim in a child; raises Ended or ProcessFailed if it did not succeed."""
        context, settings = run.context, self._session.settings
        assert context is not None
        address, pooled = self.find_app(), task.run_in == "process"
        log = run.log
        printer = None if log is None else Printer(log.writer)
        child: Child | None = None
        try:
            # A fresh child prints to the pipe from its start; one of the pool gets the pipe with the job.
            child = (self._take() if pooled else None) or Child(
                address, _environment(context), 2 if pooled or printer is None else printer.fd
            )
            record, known = traces.handed_on(run.record), self._session.store_id
            success = None if context.completion is None else context.completion.success(run.record)
            level, pipe = task_output.OFF if log is None else log.level, printer.fd if pooled and printer else None
            start = Start(record, settings.max_payload, settings.max_output, level, pipe is not None, known, success)
            child.start(context, start, pipe)
            self._running[run] = child
        except BaseException:
            if child is not None:
                await unhindered(child.close())
            if printer is not None:
                await unhindered(printer.end())
            raise
        if printer is not None:
            printer.handed_over()
        limits = [asyncio.ensure_future(_note_pid(context, child.tree))]
        killed: list[str] = []
        if task.memory is not None:
            limits.append(asyncio.ensure_future(_watch_memory(child.tree, task.memory, killed)))
        well = False
        try:
            outcome = await child.outcome()
            well = True
        except asyncio.CancelledError:
            why = context.stopped_by or "cancel"
            run.stack = await child.stop(why, SHORT_TERM_GRACE if why in ("release", "lost") else TERM_GRACE)
            raise
        except ProcessFailed as error:
            if killed:
                raise ProcessFailed(killed[0], signal=error.signal) from None
            raise
        finally:
            for limit in limits:
                limit.cancel()
            del self._running[run]
            await unhindered(self._after(child, printer, keep=pooled and well))
        if outcome.kind != "succeeded":
            raise Ended(outcome)
        return Encoded(outcome.result)

    def _take(self) -> Child | None:
        while self._idle:
            child = self._idle.pop()
            if not child.tree.ended.done():
                return child
        return None

    async def _after(self, child: Child, printer: Printer | None, *, keep: bool) -> None:
        idle = keep and len(self._idle) < self._max_idle and not child.tree.ended.done()
        if idle:
            self._idle.append(child)
        elif not keep:
            await child.close()
        if printer is not None:
            await printer.end()
        if keep and not idle:
            await child.close()


def _environment(context: Context) -> dict[str, str]:
    mark = process_table.marker(context.job.id, context.fence)
    return {**os.environ, "PYTHONUNBUFFERED": "1", process_table.MARKER: mark}


async def _note_pid(context: Context, tree: Tree) -> None:
    await context.say(pid=await asyncio.shield(tree.started))


async def _watch_memory(tree: Tree, limit: int, killed: list[str]) -> None:
    pid = await asyncio.shield(tree.started)
    while True:
        used = process_table.memory_of_tree(pid)
        if used > limit:
            killed.append(f"out of memory at {used / 1e9:.1f} GB (memory= of its task: {limit / 1e9:.1f} GB)")
            await tree.end(0)
            return
        await asyncio.sleep(MEMORY_EVERY)


def _log(message: Log) -> None:
    logger = logging.getLogger(message.logger)
    if logger.isEnabledFor(message.level):
        logger.log(message.level, "%s", message.message, extra={**message.fields, "fields": message.fields})
