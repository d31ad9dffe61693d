"""Runs claims on the event loop, in threads or in processes, as their tasks declare."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from ...core import internal as extra
from ...core.errors import ProcessFailed, UnknownTask
from ...core.job import Record
from ...core.lifecycle import Outcome
from ...tasks.batch import item_of
from ...tasks.context import Context
from ...tasks.task import IN_CHILDREN
from . import explain
from .isolated import Children, Encoded
from .run import Run
from .thread import Threads

if TYPE_CHECKING:
    from ...client.session import Session
    from ...observe.events import Events
    from ...tasks.hooks import RunHooks
    from ...tasks.registry import Registry
    from ...tasks.task import Task

logger = logging.getLogger("holdfast")
UNKNOWN_TASK_PAUSE = 5.0
"""Seconds for which a job of an unknown task is snoozed, with the setting unknown_tasks=wait."""


class Runner:
    """Runs claims and returns their outcomes."""

    def __init__(
        self,
        session: Session,
        registry: Registry,
        hooks: RunHooks,
        events: Events,
        *,
        threads: int,
        new_context: Callable[[Record], Context],
        with_results: Callable[[Record], Awaitable[bytes]],
        address: Callable[[], str],
        isolate_quarantined: bool = False,
    ) -> None:
        self._session = session
        self._registry = registry
        self._hooks = hooks
        self._events = events
        self._with_results = with_results
        self._isolate_quarantined = isolate_quarantined
        self._loop = asyncio.get_running_loop()
        self._threads = Threads(threads)
        self._children = Children(session, address)
        if isolate_quarantined or any(task.run_in in IN_CHILDREN for task in registry.tasks.values()):
            self._children.find_app()
        self._new_context = new_context

    async def close(self) -> None:
        """Accept no more claims; running threads are not waited for."""
        self._threads.close()
        await self._children.close()

    async def run(self, run: Run) -> Outcome:
        """Run a claim and return its outcome; never raises."""
        record, run.begun = run.record, True
        if run.stopped:
            return self._explain(run, asyncio.CancelledError())  # stopped before it began
        try:
            task = self._registry.tasks.get(record.task) or self._registry.find(record.task)
            name, apart = task.arguments.context_name, self._apart(record, task)
            if record.extra is not None and extra.read(record.extra).holes:
                record.payload = await self._with_results(record)
            args, kwargs = ((), {}) if apart else task.decode(record.payload)
            if name is not None or apart or self._hooks.around_run:
                run.context = self._new_context(record)
                if name is not None:
                    kwargs[name] = run.context
            fn, args, on_loop = self._registry.unpacked(task, args)
            if run.batch is None or apart:
                run.in_thread = not on_loop and not apart
                self._start(run, task)
            if self._hooks.around_run:
                value = await self._hooked(run, task, partial(fn, *args, **kwargs), len(self._hooks.around_run))
            else:
                value = await self._call(run, task, fn, args, kwargs)
        except BaseException as error:  # noqa: BLE001  # whatever user code raises ends that one job, never the worker
            if run.context is not None and not run.stopped:
                with suppress(asyncio.CancelledError):  # stopped meanwhile: that decides the outcome
                    await run.context.let_steps_end(error)
            return self._explain_or_fail(run, error)
        finally:
            if run.timer is not None:
                run.timer.cancel()
        if run.why == "timeout":
            return self._timed_out(run, task)
        if run.context is not None and run.context.saw_cancelled and run.why in ("cancel", "release"):
            # It saw the stop request and returned: that is an interruption, not a result.
            return Outcome.cancelled() if run.why == "cancel" else Outcome.released()
        if isinstance(value, Encoded):
            return Outcome.succeeded(value.data)
        return explain.returned(task, value, self._session.settings.max_payload)

    def _start(self, run: Run, task: Task[..., Any]) -> None:
        """The task's code is about to run: start its timeout."""
        timeout = run.record.timeout or task.options.timeout
        if timeout is not None:
            run.timer = self._loop.call_later(timeout, run.stop, "timeout")
        self._events.started(run.record)
        run.ran = True

    def call_together(self, task: Task[..., Any], items: list[Any]) -> Awaitable[Any]:
        """The one call of a batch."""
        return task.fn(items) if task.is_async else self._threads.call(task.fn, (items,), {})

    def _apart(self, record: Record, task: Task[..., Any]) -> bool:
        return task.run_in in IN_CHILDREN or (self._isolate_quarantined and record.quarantined and not task.built_in)

    def _call(
        self, run: Run, task: Task[..., Any], fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Awaitable[Any]:
        if run.in_thread:
            return self._threads.call(fn, args, kwargs)
        if self._apart(run.record, task):
            return self._children.call(run, task)
        if run.batch is not None:
            return run.batch.share(run, item_of(args, kwargs), partial(self._start, run, task))
        return fn(*args, **kwargs)

    async def _hooked(self, run: Run, task: Task[..., Any], fn: partial[Any], left: int) -> Any:
        if left == 0:
            value = await self._call(run, task, fn.func, fn.args, fn.keywords)
            # A hook sees the decoded value, wherever the task ran.
            return _decoded(task, value.data) if isinstance(value, Encoded) else value
        assert run.context is not None
        hook = self._hooks.around_run[left - 1]
        return await hook(run.context, lambda: self._hooked(run, task, fn, left - 1))

    def _explain_or_fail(self, run: Run, error: BaseException) -> Outcome:
        try:
            return self._explain(run, error)
        except Exception as broken:  # a broken exception class, hook or retry rule of the user
            logger.exception(
                "the error of job %s (task %r) could not be described; this attempt fails",
                run.record.id,
                run.record.task,
            )
            return Outcome.failed(
                f"{explain.describe(error)[0]} (describing this error raised {type(broken).__name__})"
            )

    def _explain(self, run: Run, error: BaseException) -> Outcome:
        """The outcome for an exception, depending on why the run was asked to stop."""
        record = run.record
        task = self._registry.tasks.get(record.task)
        if run.why == "timeout" and task is not None:
            return self._timed_out(run, task, error)
        if run.why == "cancel":
            return Outcome.cancelled()
        if run.why in ("release", "lost"):
            return Outcome.released()  # a lost one is not written: another process has ended its claim
        if isinstance(error, UnknownTask) and task is None and self._session.settings.unknown_tasks == "wait":
            return Outcome.snoozed(UNKNOWN_TASK_PAUSE)
        if isinstance(error, ProcessFailed) and record.quarantined and self._isolate_quarantined:
            return Outcome.lost(f"lost: its isolated process failed: {error}", alone=True)
        explain.report(self._hooks.on_error, error, record)
        return explain.raised(task, error, record, self._session.clock, ran=run.ran)

    def _timed_out(self, run: Run, task: Task[..., Any], error: BaseException | None = None) -> Outcome:
        late = TimeoutError(f"ran longer than its timeout of {run.record.timeout or task.options.timeout:g} s")
        late.__cause__ = error
        explain.report(self._hooks.on_error, late, run.record)
        interrupted = error is not None and task.run_in == "loop" and not task.built_in
        trace = explain.describe(error)[1] if error is not None and interrupted else None
        return Outcome.failed(f"TimeoutError: {late}", trace)


def _decoded(task: Task[..., Any], data: bytes | None) -> Any:
    return None if data is None else task.decode_result(data)
