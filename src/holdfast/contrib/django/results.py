"""Jobs as results of `django.tasks`."""

from __future__ import annotations

import builtins
import inspect
import re
from dataclasses import replace
from datetime import datetime
from traceback import format_exception
from typing import Any

from django.conf import settings
from django.utils.timezone import make_naive, now

from ...core.job import State
from ...views import Job
from .compat import TaskError, TaskResult, TaskResultStatus

STATUS = {
    State.RUNNING: TaskResultStatus.RUNNING,
    State.SUCCEEDED: TaskResultStatus.SUCCESSFUL,
    State.DEAD: TaskResultStatus.FAILED,
    State.CANCELLED: TaskResultStatus.FAILED,
}
"""Every other state is READY: the job waits for its time, a limit or its next attempt."""
META = "django"
"""In the meta of a job: `args`, how many arguments were given by position; `run_after`."""


def result_of(task: Any, job: Job, alias: str) -> Any:
    """The result of a job of this task."""
    args, kwargs = _arguments(task, job)
    attempts = [one for one in job.history if one.started_at is not None]
    running = job.state == State.RUNNING
    after = job.meta.get(META, {}).get("run_after")
    result = TaskResult(
        task=replace(
            task,
            priority=-job.priority,
            queue_name=job.queue,
            backend=alias,
            run_after=None if after is None else datetime.fromisoformat(after),
        ),
        id=job.id,
        status=STATUS.get(job.state, TaskResultStatus.READY),
        enqueued_at=_time(job.created_at),
        started_at=_time(attempts[0].started_at if attempts else job.started_at),
        finished_at=_time(job.finished_at),
        last_attempted_at=_time(job.started_at or (attempts[-1].started_at if attempts else None)),
        args=args,
        kwargs=kwargs,
        backend=alias,
        errors=_errors(job),
        worker_ids=[one.worker or "" for one in attempts] + ([job.worker or ""] if running else []),
    )
    object.__setattr__(result, "_return_value", job.result)
    return result


def _time(moment: datetime | None) -> datetime | None:
    return moment if moment is None or settings.USE_TZ else make_naive(moment)


def _positional(task: Any) -> list[str]:
    """The parameters that a call may give by position."""
    own = list(inspect.signature(task.func).parameters.values())[1 if task.takes_context else 0 :]
    return [one.name for one in own if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]


def meta_of(result: Any) -> dict[str, Any]:
    """The meta of a job: fields of a result that a job does not have. Usually empty.

    A job has all arguments by name, and its due time changes with each retry.
    """
    names, by_position = _positional(result.task), len(result.args)
    meta: dict[str, Any] = {}
    if by_position < len(names) and names[by_position] in result.kwargs:
        meta["args"] = by_position
    if result.task.run_after is not None:
        meta["run_after"] = result.task.run_after.isoformat()
    return {META: meta} if meta else {}


def _arguments(task: Any, job: Job) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of a job, by position and by name, as the call gave them."""
    kwargs = dict(job.payload)
    names = [name for name in _positional(task) if name in kwargs][: job.meta.get(META, {}).get("args")]
    return [*(kwargs.pop(name) for name in names), *kwargs.pop("*", [])], kwargs


def _errors(job: Job) -> list[Any]:
    """An error for each failed attempt; only the last one has its traceback and, if it is no builtin, its module."""
    errors = [one.error for one in job.history if one.error is not None and one.outcome != "refused"]
    if not errors and job.error is not None:
        errors = [job.error]
    return [_error(text, job.traceback or "", last=at == len(errors)) for at, text in enumerate(errors, 1)]


def _error(text: str, traceback: str, *, last: bool) -> Any:
    kind = re.match(r"\w+", text)
    name = kind[0] if kind is not None else "Exception"
    # A traceback ends with `module.Class: message`.
    found = re.findall(rf"^((?:[\w<>]+\.)*{name})(?::|$)", traceback, re.MULTILINE)
    path = found[-1] if found else name
    if "." not in path:
        path = f"builtins.{path}" if hasattr(builtins, path) else "builtins.Exception"
    return TaskError(exception_class_path=path, traceback=traceback if last and traceback else text)


def ended(result: Any, value: Any = None, error: BaseException | None = None) -> Any:
    """The result of a run that has just ended in this process, before it is stored."""
    status = TaskResultStatus.SUCCESSFUL if error is None else TaskResultStatus.FAILED
    object.__setattr__(result, "status", status)
    object.__setattr__(result, "finished_at", now())
    object.__setattr__(result, "_return_value", value)
    if error is not None:
        path = f"{type(error).__module__}.{type(error).__qualname__}"
        trace = "".join(format_exception(error))
        result.errors.append(TaskError(exception_class_path=path, traceback=trace))
    return result
