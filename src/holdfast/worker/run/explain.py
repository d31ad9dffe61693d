"""Turns an exception or a returned value into the outcome of a job, with a readable error text."""

from __future__ import annotations

import contextlib
import logging
import traceback
from collections.abc import Sequence
from concurrent.futures import thread as futures_thread
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ...core.clock import Clock, micros
from ...core.errors import InvalidJob, ProcessFailed
from ...core.lifecycle import Outcome
from ...core.retry import Backoff
from ...core.validation import checked_seconds, type_name
from ...tasks.context import Discard, Retry, Snooze
from ...tasks.durable_steps import StepResultLost, Suspended
from ...views import job_view
from .injection import InDependency

if TYPE_CHECKING:
    from ...core.job import Record
    from ...tasks.hooks import ErrorHook
    from ...tasks.task import Task

logger = logging.getLogger("holdfast")
_PACKAGE = Path(__file__).parents[2]
_OWN_FOLDERS = (str(_PACKAGE / "worker" / "run"), str(_PACKAGE / "contrib"))
_OTHERS = (futures_thread.__file__, contextlib.__file__, str(_PACKAGE / "tasks" / "hooks.py"))


class Ended(Exception):
    """A run in another process has ended with this outcome."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.error or outcome.kind)
        self.outcome = outcome


def returned(task: Task[..., Any], value: Any, limit: int) -> Outcome:
    """The outcome of a task that returned."""
    try:
        data = task.encode_result(value)
    except Exception as error:  # noqa: BLE001  # any encoder's error
        return Outcome.dead(f"the result of task {task.name!r} cannot be stored: {error}")
    if data is not None and len(data) > limit:
        return Outcome.dead(
            f"the result of task {task.name!r} cannot be stored: it has {len(data)} bytes, over max_payload ({limit});"
            " return less, or raise max_payload"
        )
    return Outcome.succeeded(data)


def refused(error: Exception) -> Outcome:
    """The outcome of a job whose task or arguments this process does not know."""
    return Outcome.refused(text_of(error))


def raised(task: Task[..., Any] | None, error: BaseException, record: Record, clock: Clock, *, ran: bool) -> Outcome:
    """The outcome of a task that raised. `ran`: its own code had begun."""
    if isinstance(error, Ended):
        return error.outcome
    if (suspended := _suspended(error)) is not None:
        delay, waiting_for = suspended.delay, suspended.waiting_for
        return Outcome.snoozed(delay) if waiting_for is None else Outcome.suspended(waiting_for, delay)
    kind = type_name(error)
    if isinstance(error, StepResultLost):
        return Outcome.dead(str(error), error_type=kind)
    if isinstance(error, Snooze):
        return Outcome.snoozed(_seconds_until(error.until, clock))
    if isinstance(error, Discard):
        return Outcome.dead(f"Discard: {error}", error_type=kind)
    if isinstance(error, Retry):
        return Outcome.failed(f"Retry: {error}", None, error.after, error_type=kind)
    text, trace = describe(error)
    if isinstance(error, ProcessFailed):
        text, trace = str(error), None
    elif isinstance(error, InvalidJob) and not ran:
        trace = None  # not raised by the task's code: the message is enough
    rule = (
        None if task is None or record.retry is not None else task.retry
    )  # the call's retry rule takes precedence over the task's
    if rule is None or isinstance(rule, Backoff):
        return Outcome.failed(text, trace, error_type=kind)
    try:
        delay = rule(error, record.attempt)
        delay = None if delay is None else checked_seconds(delay, "the delay from a retry rule")
    except Exception as broken:
        logger.exception(
            "job %s: the retry rule of task %r raised an exception; the default backoff applies",
            record.id,
            record.task,
        )
        text += f" (and the retry rule of its task raised {type(broken).__name__})"
        return Outcome.failed(text, trace, error_type=kind)
    if delay is None:
        return Outcome.dead(text, trace, error_type=kind)
    return Outcome.failed(text, trace, delay, error_type=kind)


def report(hooks: Sequence[ErrorHook], error: BaseException, record: Record) -> None:
    """Pass an error to the app's hooks; an exception in a hook is logged."""
    if isinstance(error, Snooze | Discard | Retry | Ended) or _suspended(error) is not None:
        return
    for hook in hooks:
        try:
            hook(error, job_view(record))
        except Exception:
            logger.exception("the on_error hook %r raised an exception for job %s: correct the hook", hook, record.id)


def _suspended(error: BaseException) -> Suspended | None:
    """The sleep or wait that suspended a run; also inside a TaskGroup's exception group without other errors."""
    if not isinstance(error, BaseExceptionGroup):
        return error if isinstance(error, Suspended) else None
    inner = [_suspended(one) for one in cast("BaseExceptionGroup[BaseException]", error).exceptions]
    return None if None in inner else inner[0]


def text_of(error: BaseException) -> str:
    """An exception as `Type: message`, even where the exception itself is broken."""
    try:
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        for note in getattr(error, "__notes__", ()):
            text += f" ({note})" if isinstance(note, InDependency) else ""
    except Exception:  # noqa: BLE001  # its __str__ raised
        return f"{type(error).__name__} (its text cannot be shown: __str__ raised an exception)"
    return text


def describe(error: BaseException) -> tuple[str, str]:
    """The text and the traceback of an exception."""
    text = text_of(error)
    try:
        # Without the worker's own frames: start at the task's.
        frames = error.__traceback__
        while frames is not None and frames.tb_next is not None and is_own(frames.tb_frame.f_code.co_filename):
            frames = frames.tb_next
        trace = "".join(traceback.format_exception(type(error), error, frames))
    except Exception:  # noqa: BLE001  # a frame, a cause or a repr raised
        trace = f"(no traceback: formatting it failed)\n{text}"
    return text, trace


def is_own(file: str) -> bool:
    """Whether a file contains the code that calls tasks."""
    return file.startswith(_OWN_FOLDERS) or file in _OTHERS


def _seconds_until(until: datetime | float, clock: Clock) -> float:
    return max(0.0, (micros(until) - clock.now()) / 1_000_000) if isinstance(until, datetime) else until
