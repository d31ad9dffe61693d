"""Batches: one call of a task handles several of its jobs, and its result is split, one part for each."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, cast

import msgspec

from ..core.errors import ConfigError, InvalidJob
from ..core.validation import checked_seconds

MAX_BATCH = 1000
"""Maximum number of jobs of one call."""
MAX_GATHER_WAIT = 3600.0
"""Maximum seconds for which jobs are collected: they are claimed meanwhile."""


class Batching(msgspec.Struct, frozen=True):
    """How the jobs of a task are collected."""

    size: int
    """Maximum number of jobs of one call."""
    wait: float
    """Seconds for which the first job waits for the others."""


def batching(task: str, run_in: str, size: int | None, wait: float | timedelta | None) -> Batching | None:
    """The checked options `app.task(batch=…, wait=…)`; None if jobs run one by one."""
    if size is None:
        if wait is not None:
            raise ConfigError(f"task {task!r}: wait= requires batch=")
        return None
    if type(size) is not int or not 1 <= size <= MAX_BATCH:
        raise ConfigError(f"task {task!r}: batch= must be a whole number from 1 to {MAX_BATCH}, not {size!r:.100}")
    if run_in not in ("loop", "thread"):
        raise ConfigError(
            f"task {task!r}: a task with batch= runs on the loop or in a thread: remove run_in={run_in!r}"
        )
    try:
        seconds = checked_seconds(wait or 0.0, "wait")
    except InvalidJob as error:
        raise ConfigError(f"task {task!r}: {error}") from None
    if seconds > MAX_GATHER_WAIT:
        raise ConfigError(f"task {task!r}: wait= must be at most {MAX_GATHER_WAIT:g} seconds, not {wait!r:.100}")
    return Batching(size, seconds)


def item_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The one argument of a job of a batch."""
    return args[0] if args else next(iter(kwargs.values()))


def parts(task: str, value: Any, count: int) -> list[Any]:
    """The result of each of `count` jobs, from what their call returned; an exception is that job's failure.

    TypeError if the results cannot be assigned to the jobs.
    """
    if value is None:
        return [None] * count
    if not isinstance(value, list | tuple):
        raise TypeError(f"task {task!r} returned {type(value).__name__}: return None or a list, one entry per job")
    found = list(cast("list[Any]", value))
    if len(found) != count:
        raise TypeError(f"task {task!r} was given {count} jobs and returned {len(found)} results: return one per job")
    return found


def only_part(task: str, value: Any) -> Any:
    """The result of a job that was alone in its call; raised if it is an exception."""
    [part] = parts(task, value, 1)
    if isinstance(part, BaseException):
        raise part
    return part
