"""The child process: runs one claim at a time for its worker, connected by a socket.

`python -m holdfast.worker.run.child LINE_FD PIPES_FD`. The job runs in the main thread; another thread serves the
connection, so that progress, checkpoints and stop requests pass while the job runs.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from queue import SimpleQueue
from types import FrameType
from typing import Any

import msgspec

from ...app import Holdfast, parts_of
from ...core.clock import Clock, fresh_entropy
from ...core.errors import StoreUnavailable
from ...core.job import Record
from ...core.lifecycle import Outcome, storable
from ...core.operations import Note, Settlement
from ...loading import load_address
from ...observe import task_output, traces
from ...observe.job_fields import fields_for, run_for
from ...parts import Parts
from ...store.protocol import Store, Transacting
from ...tasks.batch import item_of, only_part
from ...tasks.binding import bind
from ...tasks.completion import Completion
from ...tasks.context import Context
from ..progress_writer import ProgressWriter
from . import explain, stacks
from .injection import injected
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
    ToChild,
    WriteNote,
    frame,
    next_frame,
)

NOTES_TIMEOUT = 1.0
"""Seconds to send the last messages of a job that was interrupted."""


class Line:
    """The child's end of the connection, on its own event loop and thread."""

    def __init__(self, line: socket.socket) -> None:
        self._socket = line
        self.received: SimpleQueue[Load | Start | None] = SimpleQueue()
        self.context: Context | None = None
        self.task: asyncio.Task[Any] | None = None
        """The asyncio task of an async job."""
        self.loop = asyncio.new_event_loop()
        self._waiting: dict[int, asyncio.Future[bool]] = {}
        self._number = 0
        threading.Thread(target=self._serve, name="holdfast-line", daemon=True).start()

    def _serve(self) -> None:
        self.loop.run_until_complete(self._listen())
        self.received.put(None)
        os._exit(0)  # the worker has ended

    async def _listen(self) -> None:
        reader, self._writer = await asyncio.open_connection(sock=self._socket)
        decode = msgspec.msgpack.Decoder(ToChild).decode
        while (data := await next_frame(reader)) is not None:
            message = decode(data)
            if isinstance(message, Load | Start):
                self.received.put(message)
            elif isinstance(message, Stop):
                if self.context is not None:
                    self.context.ask_to_stop(message.why)
            elif isinstance(message, Look):
                self._writer.write(frame(Position(self._frames(stacks.frame_of(threading.main_thread().ident)))))
            elif (waiter := self._waiting.pop(message.number, None)) is not None and not waiter.done():
                _settle(waiter, message)

    async def note(self, note: Note) -> bool:
        """Ask the worker to write a note; False if the claim has ended."""
        self._number += 1
        waiter = self._waiting[self._number] = self.loop.create_future()
        self._writer.write(frame(WriteNote(self._number, note)))
        return await waiter

    def send(self, message: Log | Completed | Position) -> None:
        """Send a message. May be called from any thread."""
        self.loop.call_soon_threadsafe(self._write, frame(message))

    def _write(self, data: bytes) -> None:
        self._writer.write(data)

    def end(self, message: Done | Broken, context: Context | None = None) -> None:
        """Send the last message about a claim, after all others; returns when it is sent."""
        asyncio.run_coroutine_threadsafe(self._end(message, context), self.loop).result()

    async def _end(self, message: Done | Broken, context: Context | None) -> None:
        if context is not None:
            if (note := context.progress_note()) is not None:
                await self.note(note)
            await context.finish_stream()
        while self._waiting:
            await asyncio.wait(list(self._waiting.values()))
        self._writer.write(frame(message))
        await self._writer.drain()

    def interrupt(self, _: int, at: FrameType | None) -> None:
        """On SIGTERM: say where the job is, and raise inside its code."""
        self.send(Position(self._frames(at), interrupted=True))
        raise _Stopped

    def _frames(self, at: FrameType | None) -> list[str]:
        return stacks.of_call(at, self.task, run.__code__, _run.__code__)

    def flush(self) -> None:
        """Return when all messages are sent; none follows."""
        asyncio.run_coroutine_threadsafe(self._writer.drain(), self.loop).result(NOTES_TIMEOUT)


def _settle(waiter: asyncio.Future[bool], answer: Answer) -> None:
    if answer.error is None:
        waiter.set_result(answer.written)
    else:
        waiter.set_exception(StoreUnavailable(answer.error))


class _Forward(logging.Handler):
    """Sends log records to the worker's log."""

    def __init__(self, line: Line) -> None:
        super().__init__()
        self._line = line

    def emit(self, record: logging.LogRecord) -> None:
        fields = {"child": os.getpid(), **fields_for(record)}
        message = task_output.message_of(record)
        if record.exc_info:
            message += "\n" + logging.Formatter().formatException(record.exc_info)
        self._line.send(Log(storable(record.name), record.levelno, storable(message), fields))


class _Stopped(BaseException):
    """SIGTERM, raised inside the job's code so that its `finally` blocks run."""


def run(app: Holdfast, line: Line, start: Start) -> Outcome:
    """Run one claim, in the main thread."""
    record, accepting = start.record, True
    parts = parts_of(app)
    registry, clock = parts.registry, parts.runtime.clock
    task, registry.store_id = None, start.store_id
    try:
        task = registry.of_job(record.task, record.codec)
        args, kwargs = bind(task, record.payload)
        accepting = False
        notes = _notes(clock, line, start, _completion(parts, line, start))
        context = line.context = asyncio.run_coroutine_threadsafe(notes, line.loop).result().context(record)
        if task.arguments.takes_context:
            args = (context, *args)
        if task.batch is not None:
            args, kwargs = ([item_of(args, kwargs)],), {}
        fn, args, on_loop = registry.unpacked(task, args)
        if task.dependencies is not None:
            fn = injected(task.dependencies, fn, on_loop=on_loop, context=context, loop=line.loop)
        fn = parts.hooks.wrapped(task, fn, on_loop=on_loop)
        value = asyncio.run(_run(fn(*args, **kwargs), line)) if on_loop else fn(*args, **kwargs)
        if task.batch is not None:
            value = only_part(task.name, value)
    except _Stopped:
        raise
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
        return Outcome.failed(f"exit {code}")
    except BaseException as error:  # noqa: BLE001  # whatever user code raises ends that one job
        if accepting and isinstance(error, Exception):
            return explain.refused(error)
        explain.report(parts.hooks.on_error, error, record)
        return explain.raised(task, error, record, clock, ran=True)
    return explain.returned(task, value, start.max_payload)


async def _run(work: Awaitable[Any], line: Line) -> Any:
    line.task = asyncio.current_task()
    try:
        return await work
    except Exception as error:
        assert line.context is not None
        await line.context.let_steps_end(error)
        raise
    finally:
        line.task = None


async def _notes(clock: Clock, line: Line, start: Start, completion: Completion | None) -> ProgressWriter:
    return ProgressWriter(line.note, lambda: (start.max_payload, start.max_output), clock, completion)


def _completion(parts: Parts, line: Line, start: Start) -> Completion | None:
    success, store = start.success, parts.runtime.store
    if success is None or not isinstance(store, Transacting):
        return None
    sibling = _Sibling(store.sibling, line, blocking_transactions=store.blocking_transactions)
    entropy = fresh_entropy()

    def own(_: Record) -> Settlement:
        """The settlement for one block: with the nonce of an earlier one, it would pass for a repeat of that."""
        return msgspec.structs.replace(success, nonce=entropy.token())

    return Completion(sibling, own, parts.registry.encode_result, lambda: start.max_payload)


class _Sibling:
    """The app's store, opened for one transaction, on the loop of the job. The worker learns of its commit at once."""

    def __init__(self, make: Callable[[], Store], line: Line, *, blocking_transactions: bool) -> None:
        self._make = make
        self._line = line
        self.blocking_transactions = blocking_transactions

    @contextlib.asynccontextmanager
    async def transaction(
        self, end: Callable[[], Settlement], notes: Callable[[], Sequence[Note]] = tuple
    ) -> AsyncGenerator[Any, None]:
        store = self._make()
        assert isinstance(store, Transacting)
        await store.open()
        try:
            async with store.transaction(end, notes) as connection:
                yield connection
            self._line.send(Completed())
        finally:
            await store.close()


@contextlib.contextmanager
def redirected(pipes: socket.socket, wanted: bool) -> Any:
    """Send standard output and error to the pipe that the worker passed, during one job."""
    if not wanted:
        yield
        return
    _, [pipe], _, _ = socket.recv_fds(pipes, 1, 1)
    kept = [os.dup(1), os.dup(2)]
    for target in (1, 2):
        os.dup2(pipe, target)
    os.close(pipe)
    try:
        yield
    finally:
        _flush()
        for target, old in zip((1, 2), kept, strict=True):
            os.dup2(old, target)
            os.close(old)


class _ChildLog:
    """What the job prints and logs goes to its output, with level and time, beside what other code writes there."""

    tee = False
    _sending = threading.RLock()
    """A pipe keeps only short lines of several threads apart. Reentrant, since a signal handler may print."""

    def __init__(self, level: int, clock: Clock) -> None:
        self.level = level
        self.clock = clock
        self.open_lines: dict[int, str] | None = None

    def pending(self) -> Sequence[Note]:
        return ()  # the worker writes what it reads from the pipe

    def send(self, data: bytes) -> None:
        with self._sending:
            while data:
                data = data[os.write(1, data) :]


@contextlib.contextmanager
def logged(start: Start, clock: Clock) -> Any:
    """Give the lines of a job level and time."""
    log = None if start.log_level == task_output.OFF else _ChildLog(start.log_level, clock)
    task_output.current.set(log)
    try:
        yield
    finally:
        task_output.current.set(None)
        if log is not None:
            task_output.end_lines(log)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()


def main() -> None:
    """Run claims until the worker closes the connection."""
    line, pipes = Line(socket.socket(fileno=int(sys.argv[1]))), socket.socket(fileno=int(sys.argv[2]))
    for fd in (int(sys.argv[1]), int(sys.argv[2])):
        os.set_inheritable(fd, False)
    load = line.received.get()
    assert isinstance(load, Load)
    sys.path[:] = load.path
    logging.basicConfig(level=load.log_level, handlers=[_Forward(line)], force=True)
    try:
        app = load_address(load.address, load.imports)
    except BaseException as error:  # noqa: BLE001  # whatever the user's module raises
        line.end(Broken(*explain.describe(error)))
        os._exit(1)
    while isinstance(start := line.received.get(), Start):
        try:
            with redirected(pipes, start.redirect), logged(start, parts_of(app).runtime.clock):
                signal.signal(signal.SIGTERM, line.interrupt)
                run_for(start.record)
                with traces.continued(start.record.meta):
                    outcome = run(app, line, start)
                run_for(None)
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
        except _Stopped:
            with contextlib.suppress(Exception):  # the worker has ended
                line.flush()
            os._exit(143)
        _flush()
        traces.flush()
        line.end(Done(outcome), line.context)
        line.context = None


if __name__ == "__main__":
    with contextlib.suppress(concurrent.futures.CancelledError), task_output.captured():
        main()
