"""Holdfast: a job queue on the storage you already have."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .app import Holdfast
from .client.claims import Claim
from .client.inspection import Page, Stats
from .client.search import Filter
from .core.errors import (
    ConfigError,
    HoldfastError,
    InvalidJob,
    InvalidState,
    JobCancelled,
    JobExists,
    JobFailed,
    JobNotFound,
    KeyConflict,
    LeaseLost,
    MissingExtra,
    OutcomeUnknown,
    PartialEnqueue,
    PayloadTooLarge,
    ProcessFailed,
    QueueFull,
    ScheduleNotFound,
    StoreLost,
    StoreRefused,
    StoreUnavailable,
    UnknownTask,
)
from .core.job import State
from .core.retry import Backoff
from .schedules.schedule import Schedule
from .tasks.context import Context, Discard, Retry, Snooze
from .tasks.handle import Handle
from .tasks.limits import limit
from .tasks.task import Task
from .version import __version__
from .views import Job

if TYPE_CHECKING:
    from .flows.builder import Flow, Node
    from .flows.service import FlowHandle, FlowPage, FlowStatus
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
    "InvalidState",
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
    "PartialEnqueue",
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
    "__version__",
    "limit",
]


# A program that only enqueues never pays for the worker, nor for flows.
_LATE = {
    "Flow": ".flows.builder",
    "FlowHandle": ".flows.service",
    "FlowPage": ".flows.service",
    "FlowStatus": ".flows.service",
    "Node": ".flows.builder",
    "Worker": ".worker",
}


def __getattr__(name: str) -> Any:
    if name in _LATE:
        return getattr(import_module(_LATE[name], __name__), name)
    raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
