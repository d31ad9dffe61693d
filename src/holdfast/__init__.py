"""Holdfast: a job queue on the storage you already have."""

from __future__ import annotations

from importlib import import_module
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
    ProcessFailed,
    QueueFull,
    ScheduleNotFound,
    StoreLost,
    StoreRefused,
    StoreUnavailable,
    UnknownTask,
    WrongState,
)
from .handle import Handle
from .job import State
from .limit import limit
from .operate import Page, Stats
from .retry import Backoff
from .schedule_kept import Schedule
from .search import Filter
from .task import Task
from .version import __version__
from .view import Job

if TYPE_CHECKING:
    from .flow import Flow, Node
    from .flows import FlowHandle, FlowPage, FlowStatus
    from .worker import Worker

__all__ = [
    "Backoff",
    "Claim",
    "ConfigError",
    "Context",
    "Discard",
    "Filter",
    "Flow",
    "FlowHandle",
    "FlowPage",
    "FlowStatus",
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
    "Node",
    "OutcomeUnknown",
    "Page",
    "PartlyEnqueued",
    "PayloadTooLarge",
    "ProcessFailed",
    "QueueFull",
    "Retry",
    "Schedule",
    "ScheduleNotFound",
    "Snooze",
    "State",
    "Stats",
    "StoreLost",
    "StoreRefused",
    "StoreUnavailable",
    "Task",
    "UnknownTask",
    "Worker",
    "WrongState",
    "__version__",
    "limit",
]


# A program that only enqueues never pays for the worker, nor for flows.
_LATE = {
    "Flow": ".flow",
    "FlowHandle": ".flows",
    "FlowPage": ".flows",
    "FlowStatus": ".flows",
    "Node": ".flow",
    "Worker": ".worker",
}


def __getattr__(name: str) -> Any:
    if name in _LATE:
        return getattr(import_module(_LATE[name], __name__), name)
    raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
