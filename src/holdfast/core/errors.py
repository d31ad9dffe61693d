"""Every error a user can meet, one class per different reaction.

HoldfastError
├── InvalidJob            the call is wrong; nothing was stored
│   └── PayloadTooLarge
├── JobNotFound           no such job (never was, deleted, or past its retention)
├── ScheduleNotFound      no schedule of that name
├── JobExists             an explicit id that is taken
├── KeyConflict           the same key, with another task or payload
├── QueueFull             too many waiting jobs (max_depth)
├── PartialEnqueue        enqueue_many stored some of its jobs
├── LeaseLost             this claim was ended by somebody else; its result does not count
├── InvalidState            the job's state does not allow this
├── UnknownTask           no task of that name here
├── JobFailed             `result()` of a job that ended dead
│   └── JobCancelled      … or cancelled
├── ProcessFailed         a job's own process ended badly: its exit code, its signal, or why it was killed
├── StoreUnavailable      the store did not take the write
│   ├── StoreLost         … and never will: it was deleted, replaced or truncated while it was open
│   └── StoreRefused      … and will not, until somebody changes it: it is read-only, or these rights may not write
├── OutcomeUnknown        the store may have taken the write
├── MissingExtra          an optional dependency is not installed
└── ConfigError           a setting or a URL is wrong
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any


class HoldfastError(Exception):
    """The root of all errors that Holdfast raises."""

    retry_safe: bool = False
    """Whether the same call may be made again without doing anything twice."""


class InvalidJob(HoldfastError, ValueError):
    """The job cannot be stored as it was given; nothing was stored."""


class PayloadTooLarge(InvalidJob):
    """The payload, result or checkpoint is over its limit; nothing was stored."""


class JobNotFound(HoldfastError, LookupError):
    """There is no job of this id: it never was, was deleted, or is past its retention."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"no job {job_id!r} in this store")
        self.job_id = job_id


class ScheduleNotFound(HoldfastError, LookupError):
    """There is no schedule of this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no schedule {name!r} in this store")
        self.name = name


class JobExists(HoldfastError):
    """An explicit id that another job has already."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"job {job_id!r} exists already; leave out id= to have one made")
        self.job_id = job_id


class KeyConflict(HoldfastError):
    """The idempotency key stands for another task or payload."""

    def __init__(self, key: str, job_id: str) -> None:
        super().__init__(f"key {key!r} belongs to job {job_id!r}, whose task, payload or unique= differs")
        self.key = key
        self.job_id = job_id


class QueueFull(HoldfastError):
    """The queue holds as many waiting jobs as max_depth allows; nothing was stored."""

    retry_safe = True

    def __init__(self, queue: str, max_depth: int) -> None:
        super().__init__(f"queue {queue!r} holds {max_depth} waiting jobs already (max_depth); try again later")
        self.queue = queue
        self.max_depth = max_depth


class PartialEnqueue(HoldfastError):
    """`enqueue_many` stored some of its jobs and not others: `handles` has None for each that was not stored.

    `__cause__` is what happened to the first of those. Where it is OutcomeUnknown, its `job_ids` may be stored.
    """

    def __init__(self, handles: list[Any], error: Exception) -> None:
        stored = sum(handle is not None for handle in handles)
        super().__init__(f"{stored} of {len(handles)} jobs were stored; of the others the first: {error}")
        self.handles = handles


class LeaseLost(HoldfastError):
    """The claim was ended by somebody else. Whatever this holder did does not count; do not repeat the call."""

    def __init__(self, job_id: str, fence: int) -> None:
        super().__init__(
            f"the claim on job {job_id!r} with fence {fence} has ended: it was settled before, or taken away"
        )
        self.job_id = job_id
        self.fence = fence


class InvalidState(HoldfastError):
    """The job's state does not allow what was asked."""

    def __init__(self, job_id: str, state: str, wanted: str) -> None:
        super().__init__(f"job {job_id!r} is {state}: {wanted}")
        self.job_id = job_id
        self.state = state


class UnknownTask(HoldfastError, LookupError):
    """No task of that name is registered, and it is not in a trusted module."""

    def __init__(self, name: str, hint: str = "") -> None:
        super().__init__(f"unknown task {name!r}" + (f": {hint}" if hint else ""))
        self.name = name


class JobFailed(HoldfastError):
    """The job ended dead; carries its error and the remote traceback."""

    def __init__(self, job_id: str, error: str, traceback: str | None = None, *, verb: str = "failed") -> None:
        text = f"job {job_id!r} {verb}: {error}"
        super().__init__(f"{text}\n\n{traceback.rstrip()}" if traceback else text)
        self.job_id = job_id
        self.error = error
        self.traceback = traceback


class JobCancelled(JobFailed):
    """The job was cancelled before it could end otherwise."""

    def __init__(self, job_id: str, reason: str = "cancelled") -> None:
        super().__init__(job_id, reason, verb="did not run to its end")


class ProcessFailed(HoldfastError):
    """A job's process did not end as it should: `exit 3`, `killed by signal 9`, `out of memory at 2.1 GB`."""

    def __init__(self, words: str, *, code: int | None = None, signal: int | None = None) -> None:
        super().__init__(words)
        self.code = code
        self.signal = signal


class StoreUnavailable(HoldfastError):
    """The store cannot be reached or refused the write; nothing was written."""

    retry_safe = True


class StoreLost(StoreUnavailable):
    """What the app has open was deleted, replaced or truncated; nothing was written. Restart, or reopen the app."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what}; nothing was written. Stop every program that uses it, see to it that the right one is there, and"
            " start them again"
        )
        self.what = what
        """What happened to the store."""


class StoreRefused(StoreUnavailable):
    """The store answers and refuses: it is a standby, a read-only file, or does not allow this. Nothing was written.

    Waiting alone does not help. A worker that meets it at its start ends; one that runs tries less and less often.
    """


class OutcomeUnknown(HoldfastError):
    """The answer was lost, also after the write was sent again: it may have happened.

    Settling, noting and changing may be repeated: a repeat is recognised. So may an enqueue with `key=` (the same job)
    or `id=` (JobExists where it had happened; of a flow, the same flow). One without would be another job: look for
    `job_ids` first.
    """

    retry_safe = True

    def __init__(self, message: str, job_ids: tuple[str, ...] = (), *, retry_safe: bool = True) -> None:
        super().__init__(message)
        self.retry_safe = retry_safe
        self.job_ids = job_ids
        """The ids that an enqueue gave the jobs which may or may not exist."""


class MissingExtra(HoldfastError, ImportError):
    """An optional dependency is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs an extra: pip install 'holdfast[{extra}]'")
        self.extra = extra


@contextmanager
def requires(what: str, extra: str, *modules: str) -> Generator[None]:
    """Around an import: MissingExtra where a module of the extra is not installed; any other ImportError as it is."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in modules:
            raise
        raise MissingExtra(what, extra) from None


SERVER = ("aiohttp", "httptools", "prometheus_client", "starlette", "uvicorn")
"""The modules of the extra `server`."""


class ConfigError(HoldfastError, ValueError):
    """A setting, a name or a URL is not usable."""
