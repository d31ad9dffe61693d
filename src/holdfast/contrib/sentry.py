"""Sentry: a scope with breadcrumbs for each job, errors of failed and dead jobs, check-ins of schedules."""

from __future__ import annotations

import hashlib
import logging
import math
import re
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

from ..app import Holdfast
from ..core.errors import ConfigError, HoldfastError, requires
from ..observe.events import KINDS, JobEvent
from ..observe.job_fields import fields_now
from ..tasks.context import Context
from ..tasks.task import Task
from ..views import Job
from ..worker.run.explain import Ended

with requires("holdfast.contrib.sentry", "sentry", "sentry_sdk"):
    import sentry_sdk
    from sentry_sdk.crons import capture_checkin
    from sentry_sdk.scope import Scope, add_global_event_processor, use_isolation_scope
    from sentry_sdk.utils import event_from_exception

if TYPE_CHECKING:
    from sentry_sdk._types import Event, Hint, MonitorConfig

K = TypeVar("K")
V = TypeVar("V")

FLUSH_TIMEOUT = 2.0
"""Seconds for which the end of a worker, and a failed job in its own process, wait until its events are sent."""
REMEMBERED = 1000
"""Runs of which an app remembers that Sentry has their error, or their schedule."""
ENDS = {"job_succeeded": "ok", "job_dead": "error", "job_cancelled": "error"}
"""The events that end a check-in, and its status."""
_logger = logging.getLogger("holdfast")
_scope: ContextVar[Scope | None] = ContextVar("holdfast_sentry", default=None)
"""The scope of the current run: also after the run has left it, for its error."""
_instrumented: list[str] = []


def instrument(app: Holdfast, *, check_ins: bool = True) -> None:
    """Report the app's jobs to Sentry, which your program configures with `sentry_sdk.init`.

    Call it where you create the app, so that every process does. `check_ins`: also report runs of schedules.
    """
    if not isinstance(app, Holdfast):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError(f"instrument(…) needs your Holdfast app, not {app!r:.100}")
    if not _instrumented:
        _instrumented.append("logs")
        add_global_event_processor(_without_job_logs)
    _Reports(app, check_ins=check_ins)


class _Reports:
    """What one app reports."""

    def __init__(self, app: Holdfast, *, check_ins: bool) -> None:
        self._app = app
        self._check_ins = check_ins
        self._reported: dict[tuple[str, int | None], None] = {}
        """Attempts whose error Sentry has."""
        self._schedules: dict[str, str] = {}
        """The monitor of each job that has checked in."""
        self._last: tuple[str, Scope] | None = None
        """In a child process: the job that runs, or ran last."""
        app.around_run.append(self._run)
        app.around_call.append(self._call)
        app.on_error.append(self._failed)
        app.on("job_dead", self._died)
        app.on("worker_stopped", lambda _: sentry_sdk.flush(FLUSH_TIMEOUT))
        for name in ("job_created", "idempotent_submission", "job_replaced"):
            app.on(name, _add_breadcrumb)
        for name in ENDS:
            app.on(name, self._check_out)

    async def _run(self, ctx: Context, proceed: Callable[[], Awaitable[Any]]) -> Any:
        """Around a run, on the worker's loop: tasks in threads see the scope too."""
        if self._check_ins:
            await self._check_in(ctx.job)
        with _job_scope() as scope:
            _scope.set(scope)  # a run has its own context
            try:
                return await proceed()
            except Ended as ended:
                if ended.outcome.traceback is not None:  # its own process has reported the exception
                    self._mark(ctx.job.id, ctx.job.attempt)
                raise

    @contextmanager
    def _call(self, task: Task[..., Any]) -> Generator[None]:  # noqa: ARG002  # a hook gets it
        """Around a call: in a child process there is no scope of the run yet."""
        if _scope.get() is not None:
            yield
            return
        with _job_scope() as scope:
            self._last = (str(fields_now().get("job_id")), scope)
            yield

    def _failed(self, error: BaseException, job: Job) -> None:
        """Report the exception of an attempt, with the breadcrumbs of its run."""
        self._mark(job.id, job.attempt)
        scope, in_child = _scope.get(), False
        if scope is None and self._last is not None and self._last[0] == job.id:
            scope, in_child = self._last[1], True
        if scope is None:  # it failed before its run began
            with _job_scope() as scope:
                pass
        options = sentry_sdk.get_client().options
        event, hint = event_from_exception(
            error, client_options=options, mechanism={"type": "holdfast", "handled": False}
        )
        with use_isolation_scope(scope):
            sentry_sdk.capture_event(event, hint=hint)
        if in_child:
            sentry_sdk.flush(FLUSH_TIMEOUT)  # nothing waits for the events of a child that ends

    def _died(self, event: JobEvent) -> None:
        """Report a job that became dead without an exception: its process crashed, or its result was refused."""
        if (event.job_id, event.attempt) in self._reported:
            return
        with _job_scope(event.fields):
            sentry_sdk.capture_message(f"job of task {event.job_type} is dead: {event.error}", "error")

    def _mark(self, id: str, attempt: int | None) -> None:
        _remember(self._reported, (id, attempt), None)

    async def _check_in(self, job: Job) -> None:
        """The first attempt of a scheduled run begins, or a further one."""
        name = job.meta.get("schedule")
        if not isinstance(name, str) or job.key is None or not job.key.startswith(f"schedule/{name}/"):
            return
        config: MonitorConfig | None = None
        with suppress(HoldfastError):  # the schedule was deleted, or cannot be read now: the monitor may exist
            schedule = await self._app.schedules.get(name)
            if (config := _monitor(schedule.rule.cron, schedule.rule.every, schedule.rule.tz)) is None:
                return
            if schedule.rule.jitter:
                config["checkin_margin"] = math.ceil(schedule.rule.jitter / 60) + 1
            if job.timeout is not None and job.max_attempts:
                config["max_runtime"] = math.ceil(job.timeout * job.max_attempts / 60)
        slug = re.sub(r"[^a-z0-9_-]+", "-", name.lower()).strip("-")[:50]
        _remember(self._schedules, job.id, slug)
        capture_checkin(slug, _check_in_id(job.id), "in_progress", monitor_config=config)

    def _check_out(self, event: JobEvent) -> None:
        """A job has ended: so has its check-in, if this process began it."""
        if (slug := self._schedules.pop(event.job_id, None)) is not None:
            capture_checkin(slug, _check_in_id(event.job_id), ENDS[event.name], duration=event.ran)


@contextmanager
def _job_scope(fields: dict[str, Any] | None = None) -> Generator[Scope]:
    """A scope with the fields of the current job, without the breadcrumbs of other code."""
    about = {name: value for name, value in (fields or fields_now()).items() if value is not None}
    with sentry_sdk.isolation_scope() as scope:
        scope.clear_breadcrumbs()
        scope.set_context("holdfast", about)
        for tag, name in (("holdfast.task", "job_type"), ("holdfast.queue", "queue"), ("holdfast.job", "job_id")):
            if name in about:
                scope.set_tag(tag, about[name])
        if "job_type" in about:
            scope.set_transaction_name(about["job_type"], source="task")
        yield scope


def _add_breadcrumb(event: JobEvent) -> None:
    """An enqueue. Where it is logged, Sentry makes a breadcrumb of the line."""
    if not _logger.isEnabledFor(KINDS[event.name].level):
        data = {"job": event.job_id, "queue": event.queue}
        sentry_sdk.add_breadcrumb(category="holdfast", message=f"{event.name} {event.job_type}", data=data)


def _without_job_logs(event: Event, hint: Hint) -> Event | None:
    """Sentry makes events of error lines: not of `job_dead`, nor of the lines of a child, which has reported them."""
    line = hint.get("log_record")
    return None if line is not None and (_is_event(line) or hasattr(line, "child")) else event


def _is_event(line: logging.LogRecord) -> bool:
    return line.name == "holdfast" and getattr(line, "event", None) in KINDS


def _monitor(cron: str | None, every: float | None, tz: str) -> MonitorConfig | None:
    """The rule of a schedule as Sentry understands it; None if it is too fine, since Sentry counts in minutes."""
    if cron is not None:
        fine = len(cron.split()) == 6  # with seconds; an alias such as @daily is one word
        return None if fine else {"schedule": {"type": "crontab", "value": cron}, "timezone": tz}
    if every is None or every < 60:
        return None
    return {"schedule": {"type": "interval", "value": math.ceil(every / 60), "unit": "minute"}}


def _check_in_id(job: str) -> str:
    """The same in every process that runs an attempt of the job."""
    return hashlib.blake2b(job.encode(), digest_size=16).hexdigest()


def _remember(seen: dict[K, V], key: K, value: V) -> None:
    """Set a value; beyond REMEMBERED ones, the oldest is dropped."""
    seen.pop(key, None)
    seen[key] = value
    if len(seen) > REMEMBERED:
        del seen[next(iter(seen))]
