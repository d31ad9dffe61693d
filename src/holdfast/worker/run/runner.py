"""Runs claims on the event loop, in threads or in processes, as their tasks declare."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from ...core import internal as extra
from ...core.errors import ProcessFailed
from ...core.job import Record
from ...core.lifecycle import Outcome, deadline_error, time_left
from ...core.operations import Note
from ...observe.job_fields import run_for
from ...tasks.batch import item_of
from ...tasks.binding import bind
from ...tasks.context import Context
from ...tasks.task import IN_CHILDREN
from . import explain, stacks
from .ahead import NotStarted
from .injection import WorkerScope, injected
from .isolated import Address, Children, Encoded
from .refusals import Refusals
from .run import TIMED, Run
from .run_log import RunLogs
from .thread import Threads

if TYPE_CHECKING:
    from ...client.session import Session
    from ...observe.events import Events
    from ...tasks.depends import Dependencies
    from ...tasks.hooks import RunHooks
    from ...tasks.registry import Registry
    from ...tasks.task import Task

logger = logging.getLogger("holdfast")


class Runner:
    """Runs claims and returns their outcomes."""

    def __init__(
        self,
        session: Session,
        registry: Registry,
        hooks: RunHooks,
        events: Events,
        *,
        threads: Threads,
        new_context: Callable[[Record], Context],
        write_note: Callable[[Note], Awaitable[bool]],
        with_results: Callable[[Record], Awaitable[bytes]],
        address: Callable[[], Address],
        isolate_quarantined: bool = False,
    ) -> None:
        self._session = session
        self._registry = registry
        self._hooks = hooks
        self._events = events
        self._with_results = with_results
        self._isolate_quarantined = isolate_quarantined
        self._refusals = Refusals(session.clock)
        self._loop = asyncio.get_running_loop()
        self.threads = threads
        self._children = Children(session, address)
        self.frames_in_processes = self._children.frames
        if isolate_quarantined or any(task.run_in in IN_CHILDREN for task in registry.tasks.values()):
            self._children.find_app()
        self._new_context = new_context
        self._logs = RunLogs(session, write_note)
        self._worker_scope = WorkerScope()

    async def close(self) -> None:
        """Accept no more claims; running threads are not waited for."""
        self.threads.close()
        await self._children.close()

    async def clean_up(self) -> None:
        """Clean up the dependencies of this worker."""
        await self._worker_scope.close()

    def interrupt_clean_up(self) -> None:
        """Cancel the cleanup that runs now; those of other dependencies follow."""
        self._worker_scope.interrupt()

    async def run(self, run: Run) -> Outcome:
        """Run a claim and return its outcome; never raises."""
        record, run.begun = run.record, True
        run_for(record)  # a run has its own asyncio task, and so its own context
        if run.stopped:
            return self._explain(run, asyncio.CancelledError())  # stopped before it began
        accepting = False
        try:
            if record.extra is not None and extra.read(record.extra).holes:
                record.payload = await self._with_results(record)
            accepting = True
            task = self._registry.of_job(record.task, record.codec)
            run.log = self._logs.begin(record, task)  # a run has its own asyncio task, and so its own context
            with_context, apart = task.arguments.takes_context, self._apart(record, task)
            run.apart = apart
            args, kwargs = ((), {}) if apart else bind(task, record.payload)
            accepting = False
            needed = None if task.dependencies is None else task.dependencies.replaced(self._hooks.overrides)
            if with_context or apart or self._hooks.around_run or (needed is not None and needed.takes_context):
                run.context = self._new_context(record)
                if with_context:
                    args = (run.context, *args)
            fn, args, on_loop = self._registry.unpacked(task, args)
            if needed is not None:
                fn = self._injected(needed, fn, run.context, on_loop=on_loop)
            fn = self._hooks.wrapped(task, fn, on_loop=on_loop)
            if run.batch is None or apart:
                run.in_thread = not on_loop and not apart
                if run.ahead is None:
                    self._start(run, task)
                else:
                    run.ahead.announce = partial(self._start, run, task)
            if self._hooks.around_run:
                value = await self._hooked(run, task, partial(fn, *args, **kwargs), len(self._hooks.around_run))
            else:
                value = await self._call(run, task, fn, args, kwargs)
        except BaseException as error:  # noqa: BLE001  # whatever user code raises ends that one job, never the worker
            if accepting and isinstance(error, Exception):
                return self._refused(run, explain.refused(error), error)
            self._announce(run)
            if run.context is not None and not run.stopped:
                with suppress(asyncio.CancelledError):  # stopped meanwhile: that decides the outcome
                    await run.context.let_steps_end(error)
            return self._explain_or_fail(run, error)
        finally:
            if run.ahead is not None:
                self._announce(run)
            if run.timers is not None:
                for timer in run.timers.values():
                    timer.cancel()
        if run.why in TIMED:
            return self._timed_out(run, task)
        if run.context is not None and run.context.saw_cancelled and run.why in ("cancel", "release"):
            # It saw the stop request and returned: that is an interruption, not a result.
            return Outcome.cancelled() if run.why == "cancel" else Outcome.released()
        if isinstance(value, Encoded):
            return Outcome.succeeded(value.data)
        return explain.returned(task, value, self._session.settings.max_payload)

    def _announce(self, run: Run) -> None:
        """Report the start of a run that waited for a thread, if it was not reported yet."""
        if run.ahead is not None and run.ahead.began is not None:
            run.ahead.announce()

    def _start(self, run: Run, task: Task[..., Any]) -> None:
        """The task's code is about to run (or has begun to, if it waited for a thread): start its timers."""
        if run.ran:
            return
        record, options = run.record, task.options
        timeout, stall = record.timeout or options.timeout, options.stall_timeout
        if run.ahead is not None and run.ahead.began is not None:
            run.began = run.ahead.began
            timeout = timeout and timeout - (self._session.clock.monotonic() - run.began)
        if timeout is not None or stall is not None or record.extra is not None:
            self._set_timers(run, timeout, _stall_timeout(record, task))
        self._events.started(record)
        run.ran = True

    def _set_timers(self, run: Run, timeout: float | None, stall: float | None) -> None:
        run.timers = timers = {}
        if timeout is not None:
            timers["timeout"] = self._loop.call_later(timeout, self._time_out, run, "timeout")
        if stall is not None:
            run.active_at = self._loop.time()
            timers["stall"] = self._loop.call_later(stall, self._check_activity, run, stall)
        if (left := time_left(run.record)) is not None:  # from the claim, by the store's clock
            passed = 0.0 if run.began is None else self._session.clock.monotonic() - run.began
            timers["deadline"] = self._loop.call_later(max(0.0, left - passed), self._time_out, run, "deadline")

    def _check_activity(self, run: Run, stall: float) -> None:
        """Stop a run that has written nothing for `stall` seconds; else look again when it could be.

        One whose note the store has not answered is not stalled: it, or its next note, waits for the store.
        """
        left = stall if run.writing else run.active_at + stall - self._loop.time()
        if left <= 0:
            self._time_out(run, "stall")
        elif run.timers is not None:
            run.timers["stall"] = self._loop.call_later(left, self._check_activity, run, stall)

    def _time_out(self, run: Run, why: str) -> None:
        if run.why is None:
            run.stack = stacks.of_run(run)
        run.stop(why)

    def call_together(
        self, task: Task[..., Any], items: list[Any], runs_in: Callable[[int | None], object]
    ) -> Awaitable[Any]:
        """The one call of a batch. `runs_in` gets the thread of a plain function, and None when it has returned."""
        run_for(task.name)
        fn = task.fn
        if task.dependencies is not None:
            fn = self._injected(task.dependencies.replaced(self._hooks.overrides), fn, None, on_loop=task.is_async)
        fn = self._hooks.wrapped(task, fn, on_loop=task.is_async)
        if task.is_async:
            return fn(items)

        def call(items: list[Any]) -> Any:
            runs_in(threading.get_ident())
            try:
                return fn(items)
            finally:
                runs_in(None)

        return self.threads.call(call, (items,), {})

    def _injected(
        self, needed: Dependencies, fn: Callable[..., Any], context: Context | None, *, on_loop: bool
    ) -> Callable[..., Any]:
        return injected(needed, fn, on_loop=on_loop, context=context, loop=self._loop, worker=self._worker_scope)

    def _apart(self, record: Record, task: Task[..., Any]) -> bool:
        return task.run_in in IN_CHILDREN or (self._isolate_quarantined and record.quarantined and not task.built_in)

    def _call(
        self, run: Run, task: Task[..., Any], fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Awaitable[Any]:
        if run.in_thread:
            return self.threads.call(fn, args, kwargs, run)
        if run.apart:
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
                "job %s (task %r) raised an exception that could not be handled because of the error below; this"
                " attempt fails",
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
        if run.why in TIMED and task is not None:
            return self._timed_out(run, task, error)
        if run.why == "cancel":
            return Outcome.cancelled()
        if run.why in ("release", "lost") or isinstance(error, NotStarted):
            return Outcome.released()  # a lost one is not written: another process has ended its claim
        if isinstance(error, explain.Ended) and error.outcome.kind == "refused":
            return self._refused(run, error.outcome, error)
        if isinstance(error, ProcessFailed) and record.quarantined and self._isolate_quarantined:
            return Outcome.lost(f"lost: its isolated process failed: {error}", alone=True)
        explain.report(self._hooks.on_error, error, record)
        return explain.raised(task, error, record, self._session.clock, ran=run.ran)

    def _refused(self, run: Run, outcome: Outcome, error: Exception) -> Outcome:
        """This worker does not know the task or its arguments. The app's hooks are called as often as it warns."""
        if self._refusals.add(run.record, outcome.error, self._session.settings.refusal_timeout):
            explain.report(self._hooks.on_error, error, run.record)
        return outcome

    def _timed_out(self, run: Run, task: Task[..., Any], error: BaseException | None = None) -> Outcome:
        record = run.record
        if run.why == "deadline":
            late = TimeoutError(deadline_error(record))
        elif run.why == "stall":
            quiet = _stall_timeout(record, task)
            late = TimeoutError(f"no progress, output or checkpoint for {quiet:g} s (stall_timeout)")
        else:
            late = TimeoutError(f"ran longer than its timeout of {record.timeout or task.options.timeout:g} s")
        late.__cause__ = error
        explain.report(self._hooks.on_error, late, record)
        trace = None if task.built_in else run.stack
        if trace is None and error is not None and task.run_in == "loop" and not task.built_in:
            trace = explain.describe(error)[1]
        if run.why == "deadline":
            return Outcome.dead(f"TimeoutError: {late}", trace, error_type="TimeoutError")
        return Outcome.failed(f"TimeoutError: {late}", trace, error_type="TimeoutError")


def _stall_timeout(record: Record, task: Task[..., Any]) -> float | None:
    own = None if record.extra is None else extra.read(record.extra).stall_timeout
    return own or task.options.stall_timeout


def _decoded(task: Task[..., Any], data: bytes | None) -> Any:
    return None if data is None else task.decode_result(data)
