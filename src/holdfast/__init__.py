"""Holdfast: a job queue on the storage you already have."""

from __future__ import annotations

import gc
import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from .version import __version__

if TYPE_CHECKING:
    from .app import Holdfast
    from .client.claims import Claim
    from .client.inspection import Page, Stats
    from .client.search import Filter
    from .core.chunks import Chunk
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
        WorkerNotFound,
    )
    from .core.job import State
    from .core.retry import Backoff
    from .flows.builder import Flow, Node
    from .flows.service import FlowHandle
    from .flows.status import FlowPage, FlowStatus
    from .schedules.schedule import Schedule
    from .sync.completed import as_completed
    from .tasks.context import Context, Discard, Retry, Snooze
    from .tasks.depends import Depends
    from .tasks.handle import Handle
    from .tasks.limits import limit
    from .tasks.task import Task
    from .views import Job
    from .worker import Worker

__all__ = [
    "Backoff",
    "Chunk",
    "Claim",
    "ConfigError",
    "Context",
    "Depends",
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
    "WorkerNotFound",
    "__version__",
    "as_completed",
    "limit",
]


_MODULES = {
    ".app": "Holdfast",
    ".client.claims": "Claim",
    ".client.inspection": "Page Stats",
    ".client.search": "Filter",
    ".core.chunks": "Chunk",
    ".core.job": "State",
    ".core.retry": "Backoff",
    ".flows.builder": "Flow Node",
    ".flows.service": "FlowHandle",
    ".flows.status": "FlowPage FlowStatus",
    ".schedules.schedule": "Schedule",
    ".sync.completed": "as_completed",
    ".tasks.context": "Context Discard Retry Snooze",
    ".tasks.depends": "Depends",
    ".tasks.handle": "Handle",
    ".tasks.limits": "limit",
    ".tasks.task": "Task",
    ".views": "Job",
    ".worker": "Worker",
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names.split()}
"""Public names to modules, imported on first use: a command or a supervisor needs few. The others are errors."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    if not gc.isenabled():
        return _imported(name)
    _importing.add(name)
    gc.disable()  # an import makes no garbage
    try:
        return _imported(name)
    finally:
        gc.enable()
        _importing.discard(name)


def _imported(name: str) -> Any:
    found = globals()[name] = getattr(import_module(_MODULE_OF.get(name, ".core.errors"), __name__), name)
    return found


_importing: set[str] = set()
"""The names whose imports have disabled garbage collection."""


def _collect_in_child() -> None:
    """Another thread may have forked during an import, which does not end in the child."""
    if _importing:
        _importing.clear()
        gc.enable()


os.register_at_fork(after_in_child=_collect_in_child)
