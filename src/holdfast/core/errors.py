"""All errors that Holdfast raises, one class per different reaction of the caller.

HoldfastError
├── InvalidJob            the call is invalid; nothing was stored
│   └── PayloadTooLarge
├── JobNotFound           no such job (it never existed, was deleted, or is past its retention)
├── WorkerNotFound        no such live worker; no request was sent
├── ScheduleNotFound      no schedule with that name
├── JobExists             the explicit id is taken
├── KeyConflict           the same key, with another task or payload
├── QueueFull             too many waiting jobs (max_depth)
├── PartialEnqueue        enqueue_many stored some of its jobs
├── LeaseLost             another process ended this claim; its result does not count
├── InvalidState          the state of the job does not allow this
├── UnknownTask           no task with that name is registered here
├── JobFailed             `result()` of a job that ended dead
│   └── JobCancelled      … or cancelled
├── ProcessFailed         the process of a job failed: its exit code, its signal, or why it was killed
├── StoreUnavailable      the store did not accept the write
│   ├── StoreLost         … and never will: it was deleted, replaced or truncated while it was open
│   └── StoreRefused      … and will not until it is changed: it is read-only, or permissions are missing
├── OutcomeUnknown        the store may have accepted the write
├── MissingExtra          an optional dependency is not installed
└── ConfigError           a setting or a URL is invalid
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any


class HoldfastError(Exception):
    """The base class of all errors that Holdfast raises."""

    retry_safe: bool = False
    """Whether repeating the call is safe: it does nothing twice."""


class InvalidJob(HoldfastError, ValueError):
    """The job cannot be stored as given; nothing was stored."""


class PayloadTooLarge(InvalidJob):
    """The payload, result or checkpoint is over its limit; nothing was stored."""


class JobNotFound(HoldfastError, LookupError):
    """There is no job with this id: it never existed, was deleted, or is past its retention."""

    def __init__(self, job_id: str) -> None:
        super().__init__(
            f"there is no job {job_id!r} in this store: it was deleted, or removed after its retention, or the id is"
            " wrong"
        )
        self.job_id = job_id


class WorkerNotFound(HoldfastError, LookupError):
    """No live worker has this id, or matches; no request was sent."""


class ScheduleNotFound(HoldfastError, LookupError):
    """There is no schedule with this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no schedule {name!r} in this store; `holdfast schedule list` lists all")
        self.name = name


class JobExists(HoldfastError):
    """The explicit id belongs to another job."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"job {job_id!r} already exists; the new job was not stored: use another id=, or none")
        self.job_id = job_id


class KeyConflict(HoldfastError):
    """The idempotency key belongs to a job with another task or payload."""

    def __init__(self, key: str, job_id: str) -> None:
        super().__init__(
            f"key {key!r} belongs to job {job_id!r}, which has another task or payload, or only one of the two"
            " calls has unique=; the new job was not stored: use another key"
        )
        self.key = key
        self.job_id = job_id


class QueueFull(HoldfastError):
    """The queue has as many waiting jobs as max_depth allows; nothing was stored."""

    retry_safe = True

    def __init__(self, queue: str, max_depth: int) -> None:
        super().__init__(
            f"queue {queue!r} is full: it has at least {max_depth} waiting jobs (max_depth); the job was neither"
            " stored nor moved to it: try again later"
        )
        self.queue = queue
        self.max_depth = max_depth


class PartialEnqueue(HoldfastError):
    """`enqueue_many` stored some of its jobs and not others: `handles` has None for each that was not stored.

    `handles` ends at the last call that was taken, if the calls came from a generator.
    `__cause__` is OutcomeUnknown, whose `job_ids` may be stored, or else the error of the first other job.
    """

    def __init__(self, handles: list[Any], error: Exception) -> None:
        stored = sum(handle is not None for handle in handles)
        super().__init__(
            f"{stored} of {len(handles)} jobs were stored; `handles` has None for the others. The error: {error}"
        )
        self.handles = handles


class LeaseLost(HoldfastError):
    """Another process ended the claim. The result of this run does not count; do not repeat the call."""

    def __init__(self, job_id: str, fence: int) -> None:
        super().__init__(
            f"the claim on job {job_id!r} with fence {fence} has ended: its outcome was written before, or its lease"
            " expired. The store refuses writes of this claim: stop the work on this job"
        )
        self.job_id = job_id
        self.fence = fence


class InvalidState(HoldfastError):
    """The state of the job does not allow the operation."""

    def __init__(self, job_id: str, state: str, wanted: str) -> None:
        super().__init__(f"job {job_id!r} is {state}: {wanted}")
        self.job_id = job_id
        self.state = state


class UnknownTask(HoldfastError, LookupError):
    """No task with that name is registered, and it is not in a trusted module."""

    def __init__(self, name: str, hint: str = "") -> None:
        super().__init__(f"unknown task {name!r}" + (f": {hint}" if hint else ""))
        self.name = name


class JobFailed(HoldfastError):
    """The job ended dead; has its error and the remote traceback."""

    def __init__(self, job_id: str, error: str, traceback: str | None = None, *, verb: str = "failed") -> None:
        text = f"job {job_id!r} {verb}: {error}"
        super().__init__(f"{text}\n\n{traceback.rstrip()}" if traceback else text)
        self.job_id = job_id
        self.error = error
        self.traceback = traceback


class JobCancelled(JobFailed):
    """The job was cancelled, so it has no result."""

    def __init__(self, job_id: str, reason: str = "cancelled") -> None:
        super().__init__(job_id, reason, verb="did not complete")


class ProcessFailed(HoldfastError):
    """The process of a job failed: `exit 3`, `killed by signal 9`, `out of memory at 2.1 GB`."""

    def __init__(self, words: str, *, code: int | None = None, signal: int | None = None) -> None:
        super().__init__(words)
        self.code = code
        self.signal = signal


class StoreUnavailable(HoldfastError):
    """The store cannot be reached or rejected the write; nothing was written."""

    retry_safe = True

    @classmethod
    def not_open(cls, store: str) -> StoreUnavailable:
        """The error of a call to a store that is closed."""
        return cls(f"the store {store} is not open: open the app first (`await app.open()`)")


class StoreLost(StoreUnavailable):
    """The open store was deleted, replaced or truncated; nothing was written. Restart, or reopen the app."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what}; nothing was written. Stop every program that uses this store, make sure that the right store is"
            " in place, and start the programs again"
        )
        self.what = what
        """What happened to the store."""


class StoreRefused(StoreUnavailable):
    """The store answers but rejects the write: it is a standby, read-only, or lacks permissions. Nothing was written.

    Waiting does not help. A worker that gets it at its start exits; a running worker retries with growing intervals.
    """


class OutcomeUnknown(HoldfastError):
    """The answer was lost, also after the write was resent: the write may have happened.

    Settling, notes and changes may be repeated: a repeat is recognised. So may an enqueue with `key=` (the same job) or
    `id=` (JobExists if it had happened; for a flow, the same flow). Repeating an enqueue without them creates another
    job: look up `job_ids` first.
    """

    retry_safe = True

    def __init__(self, message: str, job_ids: tuple[str, ...] = (), *, retry_safe: bool = True) -> None:
        super().__init__(message)
        self.retry_safe = retry_safe
        self.job_ids = job_ids
        """The ids of the jobs that may have been stored by an enqueue."""


class MissingExtra(HoldfastError, ImportError):
    """An optional dependency is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} requires an optional dependency: pip install 'holdfast[{extra}]'")
        self.extra = extra


@contextmanager
def requires(what: str, extra: str, *modules: str) -> Generator[None]:
    """Around an import: MissingExtra if a module of the extra is not installed; any other ImportError unchanged."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in modules:
            raise
        raise MissingExtra(what, extra) from None


SERVER = ("aiohttp", "httptools", "prometheus_client", "starlette", "uvicorn")
"""The modules of the extra `server`."""


class ConfigError(HoldfastError, ValueError):
    """A setting, a name or a URL is invalid."""
