"""RUN: one claim in, one outcome out. Nothing here writes to the store."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import traceback
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import thread as futures_thread
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from ..context import Context, Discard, Retry, Snooze
from ..errors import InvalidJob, UnknownTask
from ..job import Record
from ..lifecycle import Outcome
from ..retry import Backoff
from ..view import job_seen, micros

if TYPE_CHECKING:
    from ..app import Holdfast
    from ..task import Task

logger = logging.getLogger("holdfast")
_OWN_FILES = (__file__, futures_thread.__file__)
UNKNOWN_TASK_PAUSE = 5.0
"""Seconds for which a job of an unknown task is put back, where workers are told to wait."""


class Run:
    """One claim while it runs. `why` says who asked it to stop: cancel, timeout, lost, release; None: nobody."""

    __slots__ = ("context", "in_thread", "key", "record", "runner", "timer", "why")

    def __init__(self, record: Record) -> None:
        self.record = record
        self.key = (record.id, record.fence)
        self.runner: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.context: Context | None = None
        self.in_thread = False
        self.why: str | None = None

    def stop(self, why: str) -> None:
        """Ask the run to stop. A coroutine is interrupted; a thread sees `ctx.cancelled`, and ends when it ends."""
        if self.why is None or why == "lost":
            self.why = why
        if self.context is not None:
            self.context.ask_to_stop()
        if self.runner is not None and not self.in_thread:
            self.runner.cancel()


class Runner:
    """Runs claims on the loop or in threads, and puts into words how they ended."""

    def __init__(self, app: Holdfast, threads: int, new_context: Callable[[Record], Context]) -> None:
        self._app = app
        self._loop = asyncio.get_running_loop()
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="holdfast-task")
        self._new_context = new_context

    def close(self) -> None:
        """Take no more; threads that still run are left to end."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def run(self, run: Run) -> Outcome:
        """Run a claim to its end, whatever that is."""
        record = run.record
        try:
            task = self._app.registry.tasks.get(record.task) or self._app.registry.find(record.task)
            args, kwargs = task.decode(record.payload)
            name = task.arguments.context_name
            if name is not None or self._app.around_run:
                run.context = self._new_context(record)
                if name is not None:
                    kwargs[name] = run.context
            timeout = record.timeout or task.options.timeout
            if timeout is not None:
                run.timer = self._loop.call_later(timeout, run.stop, "timeout")
            run.in_thread = task.run_in == "thread"
            self._app.events.started(record)
            if self._app.around_run:
                value = await self._hooked(run, task, args, kwargs, len(self._app.around_run))
            elif run.in_thread:
                value = await self._in_thread(task, args, kwargs)
            else:
                value = await task.fn(*args, **kwargs)
        except BaseException as error:  # noqa: BLE001  # whatever user code raises ends that one job, never the worker
            return self._explain(run, error)
        finally:
            if run.timer is not None:
                run.timer.cancel()
        return self._returned(run, task, value)

    async def _hooked(
        self, run: Run, task: Task[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], left: int
    ) -> Any:
        if left == 0:
            if run.in_thread:
                return await self._in_thread(task, args, kwargs)
            return await task.fn(*args, **kwargs)
        assert run.context is not None
        hook = self._app.around_run[left - 1]
        return await hook(run.context, lambda: self._hooked(run, task, args, kwargs, left - 1))

    def _in_thread(self, task: Task[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Awaitable[Any]:
        call = contextvars.copy_context().run
        return self._loop.run_in_executor(self._threads, lambda: call(_guarded, task.fn, args, kwargs))

    def _returned(self, run: Run, task: Task[..., Any], value: Any) -> Outcome:
        if run.why == "timeout":
            return _timed_out(run, task)
        if run.why == "cancel" and run.context is not None and run.context.saw_cancelled:
            return Outcome.cancelled()
        try:
            data = task.encode_result(value)
        except Exception as error:  # noqa: BLE001  # any encoder's error
            return Outcome.dead(f"the result of task {task.name!r} cannot be stored: {error}")
        limit = self._app.session.settings.max_payload
        if data is not None and len(data) > limit:
            return Outcome.dead(f"the result of task {task.name!r} is {len(data)} bytes, over max_payload ({limit})")
        return Outcome.succeeded(data)

    def _explain(self, run: Run, error: BaseException) -> Outcome:
        """The outcome that an exception stands for."""
        record = run.record
        task = self._app.registry.tasks.get(record.task)
        if run.why == "timeout" and task is not None:
            return _timed_out(run, task, error)
        if run.why == "cancel":
            return Outcome.cancelled()
        if run.why == "release":
            return Outcome.released()
        if isinstance(error, Snooze):
            return Outcome.snoozed(self._seconds_until(error.until))
        if isinstance(error, Discard):
            return Outcome.dead(f"Discard: {error}")
        if isinstance(error, Retry):
            return Outcome.failed(f"Retry: {error}", None, error.after)
        if isinstance(error, UnknownTask) and task is None and self._app.session.settings.unknown_tasks == "wait":
            return Outcome.snoozed(UNKNOWN_TASK_PAUSE)
        text, trace = describe(error)
        self._report(error, record)
        if isinstance(error, InvalidJob | UnknownTask) and run.context is None:
            trace = None  # not the task's code: the message says all
        rule = None if task is None else task.retry
        if rule is None or isinstance(rule, Backoff):
            return Outcome.failed(text, trace)
        try:
            delay = rule(error, record.attempt)
        except Exception as broken:
            logger.exception("the retry rule of task %r raised", record.task)
            return Outcome.failed(f"{text} (and its retry rule raised {type(broken).__name__})", trace)
        return Outcome.dead(text, trace) if delay is None else Outcome.failed(text, trace, float(delay))

    def _seconds_until(self, until: datetime | timedelta | float) -> float:
        if isinstance(until, datetime):
            return max(0.0, (micros(until) - self._app.clock.now()) / 1_000_000)
        return max(0.0, until.total_seconds() if isinstance(until, timedelta) else float(until))

    def _report(self, error: BaseException, record: Record) -> None:
        for hook in self._app.on_error:
            try:
                hook(error, job_seen(record))
            except Exception:
                logger.exception("an error hook raised")


def describe(error: BaseException) -> tuple[str, str]:
    """An exception as `Type: message` and its traceback, even where the exception itself is broken."""
    try:
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    except Exception:  # noqa: BLE001  # its __str__ raised
        text = f"{type(error).__name__} (which cannot be printed)"
    try:
        # Without the worker's own frames: the first that matters is the task's.
        frames = error.__traceback__
        while frames is not None and frames.tb_next is not None and frames.tb_frame.f_code.co_filename in _OWN_FILES:
            frames = frames.tb_next
        trace = "".join(traceback.format_exception(type(error), error, frames))
    except Exception:  # noqa: BLE001  # a frame, a cause or a repr raised
        trace = f"(no traceback: formatting it failed)\n{text}"
    return text, trace


def _guarded(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    try:
        return fn(*args, **kwargs)
    except StopIteration as error:
        # A future cannot carry StopIteration: it would be taken for the end of the coroutine.
        raise RuntimeError(f"the task raised StopIteration({error.value!r})") from error


def _timed_out(run: Run, task: Task[..., Any], error: BaseException | None = None) -> Outcome:
    limit = run.record.timeout or task.options.timeout
    trace = describe(error)[1] if error is not None and not run.in_thread else None
    return Outcome.failed(f"TimeoutError: ran longer than its timeout of {limit:g} s", trace)
