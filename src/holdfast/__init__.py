"""Holdfast: a job queue on the storage you already have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .app import Holdfast
from .claim import Claim
from .context import Context, Discard, Retry, Snooze
from .errors import (
    ConfigError,
    HoldfastError,
    InvalidJob,
    JobCancelled,
    JobExists,
    JobFailed,
    JobNotFound,
    KeyConflict,
    LeaseLost,
    MissingExtra,
    OutcomeUnknown,
    PartlyEnqueued,
    PayloadTooLarge,
    QueueFull,
    StoreUnavailable,
    UnknownTask,
    WrongState,
)
from .handle import Handle
from .job import State
from .limit import limit
from .operate import Page, Stats
from .retry import Backoff
from .task import Task
from .version import __version__
from .view import Job

if TYPE_CHECKING:
    from .flow import Flow
    from .worker import Worker

__all__ = [
    "Backoff",
    "Claim",
    "ConfigError",
    "Context",
    "Discard",
    "Flow",
    "Handle",
    "Holdfast",
    "HoldfastError",
    "InvalidJob",
    "Job",
    "JobCancelled",
    "JobExists",
    "JobFailed",
    "JobNotFound",
    "KeyConflict",
    "LeaseLost",
    "MissingExtra",
    "OutcomeUnknown",
    "Page",
    "PartlyEnqueued",
    "PayloadTooLarge",
    "QueueFull",
    "Retry",
    "Snooze",
    "State",
    "Stats",
    "StoreUnavailable",
    "Task",
    "UnknownTask",
    "Worker",
    "WrongState",
    "__version__",
    "limit",
]


def __getattr__(name: str) -> Any:
    # A program that only enqueues never pays for the worker, nor for flows.
    if name == "Worker":
        from .worker import Worker

        return Worker
    if name == "Flow":
        from .flow import Flow

        return Flow
    raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
