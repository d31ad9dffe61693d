"""Events of jobs, workers and requests: logged, and passed to registered handlers, in the same way for every store.

`KINDS` lists all events. An event never contains a payload, a result, meta, or a secret.
"""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any, Protocol

import msgspec

from ..core.clock import Clock, SystemClock
from ..core.errors import ConfigError
from ..core.job import NewJob, Record, State
from ..core.operations import Change, Holder, Settlement
from ..store.group_commit import guard
from .actors import action
from .trace_ids import trace_id_of

logger = logging.getLogger("holdfast")
EVERY = "*"
PATH_LIMIT = 500
"""Maximum characters of a request's path in an event."""
_TOKEN = re.compile(r"(hf_[0-9a-f]+_)[^/]+")
"""A token in a path, where it does not belong."""


class Kind(msgspec.Struct, frozen=True):
    """One row of the table of events."""

    level: int
    when: str
    fields: tuple[str, ...] = ()
    """Fields in addition to those of its event class."""


_ENDED = ("waited", "ran")

KINDS: dict[str, Kind] = {
    "job_created": Kind(logging.INFO, "a job was stored"),
    "idempotent_submission": Kind(logging.INFO, "an enqueue found an existing job with its key"),
    "job_replaced": Kind(logging.INFO, "an enqueue replaced the waiting job of its key"),
    "lease_acquired": Kind(logging.DEBUG, "a worker or a manual claim claimed a job", ("fence", "waited")),
    "handler_start": Kind(logging.DEBUG, "a task's code is about to run"),
    "job_succeeded": Kind(logging.INFO, "the job succeeded", _ENDED),
    "job_failed": Kind(logging.WARNING, "the attempt failed; the job will be retried", (*_ENDED, "error", "retry_in")),
    "job_dead": Kind(logging.ERROR, "the job became dead", (*_ENDED, "error")),
    "job_cancelled": Kind(
        logging.INFO, "the run ended as cancelled, or an operator cancelled the waiting job", (*_ENDED, "error")
    ),
    "job_released": Kind(logging.INFO, "released, such as by a worker that stops; uses no attempt", _ENDED),
    "job_snoozed": Kind(logging.INFO, "snoozed or waiting for a signal; uses no attempt", _ENDED),
    "job_paused": Kind(logging.INFO, "blocked before it started, because its task is paused; uses no attempt", _ENDED),
    "job_refused": Kind(
        logging.DEBUG,
        "delayed, because this worker does not know its task or arguments; uses no attempt",
        (*_ENDED, "error"),
    ),
    "job_expired": Kind(logging.WARNING, "expired before it started, and was cancelled", (*_ENDED, "error")),
    "job_lost": Kind(logging.WARNING, "the lease of its worker expired; it is queued again", (*_ENDED, "error")),
    "lease_lost": Kind(
        logging.WARNING, "the outcome of a run was rejected: its claim had ended or been recovered", ("fence",)
    ),
    "cancel_requested": Kind(logging.INFO, "an operator requested cancellation of a running job"),
    "job_retried": Kind(logging.INFO, "an operator retried a job"),
    "job_meta_updated": Kind(logging.INFO, "an operator updated a job's meta"),
    "job_edited": Kind(logging.INFO, "an operator edited a waiting job"),
    "job_moved": Kind(logging.INFO, "an operator gave a job another task"),
    "job_deleted": Kind(logging.INFO, "an operator deleted a job"),
    "sweep_complete": Kind(
        logging.INFO,
        "lost jobs were recovered (`requeued` counts them, also if they became `dead`)",
        ("requeued", "job_ids"),
    ),
    "worker_started": Kind(
        logging.INFO, "a worker of this process started", ("store", "version", "tasks", "queues", "slots")
    ),
    "worker_stopped": Kind(logging.INFO, "a worker of this process stopped"),
    "operator_action": Kind(logging.INFO, "an operator action of this process has ended"),
    "http_request": Kind(logging.DEBUG, "a request was answered"),
}

_LEVELS = {name: kind.level for name, kind in KINDS.items()}
_SETTLED = {name.removeprefix("job_"): name for name, kind in KINDS.items() if kind.fields[:2] == _ENDED}
_SETTLED["suspended"] = "job_snoozed"


class Event(msgspec.Struct, frozen=True, gc=False):
    """Something that happened in this process; `name` is one of KINDS."""

    name: str

    @property
    def fields(self) -> dict[str, Any]:
        """All fields that are set, without the name."""
        names = self.__struct_fields__[1:]
        return {name: value for name in names if (value := getattr(self, name)) is not None}


class JobEvent(Event, frozen=True, gc=False):
    """An event of a job. Times are in seconds."""

    job_id: str
    job_type: str
    queue: str
    attempt: int | None = None
    worker_id: str | None = None
    trace_id: str | None = None
    """Id of the trace in which the job was enqueued."""
    fence: int | None = None
    waited: float | None = None
    """From due time to claim, by the store's clock."""
    ran: float | None = None
    """From the claim until its outcome was written."""
    error: str | None = None
    retry_in: float | None = None


class SweepEvent(Event, frozen=True, gc=False):
    """Claims of expired leases were settled: their jobs are queued again, `dead` or `cancelled`."""

    requeued: int
    job_ids: tuple[str, ...]


class WorkerEvent(Event, frozen=True, gc=False):
    """A worker of this process started or stopped."""

    worker_id: str
    store: str | None = None
    """The URL of its store, without secrets."""
    version: str | None = None
    """The version of Holdfast."""
    tasks: tuple[str, ...] | None = None
    queues: tuple[str, ...] | None = None
    slots: int | None = None


class RequestEvent(Event, frozen=True, gc=False):
    """An HTTP request was answered."""

    method: str
    path_template: str
    """The path of the route, never the client's text."""
    status_code: int
    ran: float
    path: str | None = None
    """The path of the request, without its query, and without the secrets of tokens."""
    sender: str | None = None
    """The label of its token, else the token's id; or the user of the application that has the service mounted."""


class ActionEvent(Event, frozen=True, gc=False):
    """An operator action has ended."""

    action: str
    actor: str
    surface: str
    outcome: str
    """`done`, `refused`, `failed` or `unknown`."""
    about: str | None = None
    """The job, queue, task or setting."""
    count: int | None = None
    """Jobs that were changed."""
    error: str | None = None
    audit_id: str | None = None
    """Its entry in the audit log."""


Handler = Callable[[Any], object]


class EventSource(Protocol):
    """A source of events: an app."""

    def on(self, name: str, handler: Handler, /) -> None: ...


class Events:
    """Logs events and calls handlers. Without either, an event costs one comparison."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock = clock or SystemClock()
        self.levels = dict(_LEVELS)
        """The level at which each event is logged."""
        self._handlers: dict[str, tuple[Handler, ...]] = dict.fromkeys(KINDS, ())

    def on(self, name: str, handler: Handler) -> None:
        """Register a handler for events of this name (`*`: all); handlers are called in order of registration."""
        if not callable(handler) or inspect.iscoroutinefunction(handler):
            raise ConfigError(
                f"handler {handler!r:.100} of event {name!r:.50} must be a plain function (def, not async def)"
            )
        for one in _names(name):
            self._handlers[one] = (*self._handlers[one], handler)

    def off(self, name: str, handler: Handler) -> None:
        for one in _names(name):
            self._handlers[one] = tuple(other for other in self._handlers[one] if other != handler)

    def wanted(self, name: str) -> bool:
        """Whether an event of this name would be logged or handled."""
        return bool(self._handlers[name]) or logger.isEnabledFor(self.levels[name])

    def handled(self, *names: str) -> bool:
        """Whether a handler receives events of one of these names."""
        return any(self._handlers[name] for name in names)

    def emit(self, event: Event, traceback: str | None = None) -> None:
        """Log an event and call its handlers; an exception of a handler is logged and does not propagate.

        A traceback is only logged: it is part of the log record, and no field of the event.
        """
        name, level = event.name, self.levels[event.name]
        if logger.isEnabledFor(level):
            if (write := _sole_writer()) is not None:
                at = self.clock.now() / 1_000_000
                write(level, name, event.fields, at, None if traceback is None else traceback.rstrip())
            else:
                logger.handle(_log_record(level, event, traceback))
        if not (handlers := self._handlers[name]):
            return
        # A handler is app code: the policy of the current request does not apply to its jobs, and its own actions are
        # not part of the current one.
        request, acting = guard.set(None), action.set(None)
        try:
            for handler in handlers:
                try:
                    handler(event)
                except Exception:
                    logger.exception(
                        "handler %r of event %s raised an exception; the event is not delivered again: correct the"
                        " handler",
                        handler,
                        name,
                    )
        finally:
            guard.reset(request)
            action.reset(acting)

    # -- jobs

    def created(self, job: NewJob) -> None:
        """A job was stored."""
        if self.wanted("job_created"):
            self.emit(JobEvent("job_created", job.id, job.task, job.queue, trace_id=trace_id_of(job.meta)))

    def idempotent(self, job: NewJob, id: str) -> None:
        """An enqueue found an existing job with its key."""
        if self.wanted("idempotent_submission"):
            self.emit(JobEvent("idempotent_submission", id, job.task, job.queue, trace_id=trace_id_of(job.meta)))

    def replaced(self, job: NewJob, id: str) -> None:
        """An enqueue replaced the waiting job of its key."""
        if self.wanted("job_replaced"):
            self.emit(JobEvent("job_replaced", id, job.task, job.queue, trace_id=trace_id_of(job.meta)))

    def claimed(self, record: Record) -> None:
        """A job was claimed."""
        if self.wanted("lease_acquired"):
            self.emit(_about("lease_acquired", record, fence=record.fence, waited=_waited(record)))

    def started(self, record: Record) -> None:
        """A task's code is about to run."""
        if self.wanted("handler_start"):
            self.emit(_about("handler_start", record))

    def settled(self, record: Record, end: Settlement, began: float | None = None) -> None:
        """The end of a claim was written. `began`: when it was claimed, by the monotonic clock."""
        name = _SETTLED[end.outcome]
        if self.wanted(name):
            retry_in = end.delay if end.state == State.FAILED else None
            ran = self._ran(record, began)
            error = end.error if "error" in KINDS[name].fields else None  # a released job keeps an earlier error
            trace = end.traceback if name in ("job_failed", "job_dead") else None
            self.emit(_about(name, record, waited=_waited(record), ran=ran, error=error, retry_in=retry_in), trace)

    def refused(self, record: Record) -> None:
        """The end of a claim was refused: the claim had already ended."""
        if self.wanted("lease_lost"):
            self.emit(_about("lease_lost", record, fence=record.fence))

    def changed(self, record: Record, change: Change, *, edited: bool = False) -> None:
        """An operator changed a job."""
        name = _changed(change, edited=edited)
        if self.wanted(name):
            error = change.patch.error if change.patch is not None and name == "job_cancelled" else None
            self.emit(_about(name, record, error=error if isinstance(error, str) else None))

    def _ran(self, record: Record, began: float | None) -> float | None:
        if began is not None:
            return round(self.clock.monotonic() - began, 6)
        if record.started_at is None:
            return None
        # Claimed by another process or manually: the difference of the store's clock and ours, which may deviate.
        return max(0.0, (self.clock.now() - record.started_at) / 1_000_000)

    # -- sweeps, workers and requests

    def swept(self, records: Sequence[Record]) -> None:
        """Claims of expired leases were settled."""
        if records and self.wanted("sweep_complete"):
            self.emit(SweepEvent("sweep_complete", len(records), tuple(record.id for record in records)))

    def worker_started(self, worker: Holder, store: str, tasks: tuple[str, ...]) -> None:
        """A worker has registered; `store`: its redacted URL, `tasks`: those of the app itself."""
        about = (store, worker.version, tasks, worker.queues, worker.slots)
        self.emit(WorkerEvent("worker_started", worker.id, *about))

    def worker_stopped(self, worker: str) -> None:
        """A worker has stopped and has no claims left."""
        self.emit(WorkerEvent("worker_stopped", worker))

    def acted(self, event: ActionEvent) -> None:
        """An operator action has ended."""
        if self.wanted(event.name):
            self.emit(event)

    def answered(self, method: str, template: str, status: int, seconds: float, *, path: str, sender: str) -> None:
        """A request was answered; `template`: the path of the route, `path`: that of the request."""
        shown = _TOKEN.sub(r"\1***", path[:PATH_LIMIT]) if "hf_" in path else path[:PATH_LIMIT]
        self.emit(RequestEvent("http_request", method, template, status, round(seconds, 6), shown, sender))


_call_handlers = logging.Logger.callHandlers
_instrumented = (
    type(_call_handlers) is not FunctionType
    or _call_handlers.__code__.co_filename != logging.getLogger.__code__.co_filename
)
"""Whether a library replaced it before this module was imported."""


def _sole_writer() -> Callable[..., object] | None:
    """`BatchHandler.write_event`, if nothing else could see a log record: no other handler, filter, instrumentation."""
    handlers = logging.root.handlers
    if len(handlers) != 1 or (write := getattr(handlers[0], "event_writer", None)) is None:
        return None
    filtered = logger.handlers or logger.filters or handlers[0].filters or handlers[0].level or not logger.propagate
    filtered = filtered or type(logger) is not logging.Logger
    return None if filtered or _instrumented or logging.Logger.callHandlers is not _call_handlers else write


def _log_record(level: int, event: Event, traceback: str | None) -> logging.LogRecord:
    """A log record of an event. Not by `logger.log`, which searches for the calling line: always this one."""
    record = logger.makeRecord("holdfast", level, __file__, 0, "%s %s", (event.name, _FieldText(event)), None)
    record.__dict__.update(event=event.name, fields=event.fields)
    if traceback is not None:
        record.exc_text = traceback.rstrip()  # where every formatter of `logging` looks for a formatted exception
    return record


class _FieldText:
    """An event's fields as text, formatted only if a log handler needs it."""

    __slots__ = ("_event",)

    def __init__(self, event: Event) -> None:
        self._event = event

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self._event.fields.items())


def _names(name: str) -> Sequence[str]:
    if name == EVERY:
        return tuple(KINDS)
    if name not in KINDS:
        raise ConfigError(f"there is no event {name!r}; use one of: {', '.join(sorted(KINDS))}, or * for all")
    return (name,)


def _about(name: str, record: Record, **more: Any) -> JobEvent:
    trace_id = trace_id_of(record.meta) if record.meta else None
    return JobEvent(name, record.id, record.task, record.queue, record.attempt, record.holder, trace_id, **more)


def _waited(record: Record) -> float | None:
    return None if record.started_at is None else max(0, record.started_at - record.run_at) / 1_000_000


def _changed(change: Change, *, edited: bool) -> str:
    patch = change.patch
    if patch is None:
        return "job_deleted"
    if edited:
        return "job_edited"
    if isinstance(patch.task, str):
        return "job_moved"
    if patch.cancel is True:
        return "cancel_requested"
    if patch.state == State.CANCELLED:
        return "job_cancelled"
    if patch.state == State.QUEUED or isinstance(patch.reset_count, int):
        return "job_retried"
    return "job_meta_updated"
