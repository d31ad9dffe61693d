"""Binds a stored call to the function of its task: the same for workers, their child processes and the deploy check."""

from __future__ import annotations

from typing import Any

from .registry import CALL_TASK
from .task import Task


def bind(task: Task[..., Any], payload: bytes) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a stored call; raises if the function does not accept them."""
    args, kwargs = task.decode(payload)
    if task.codec is not None and task.name != CALL_TASK:
        task.arguments.named(args, kwargs)  # the task's own codec does not know its parameters
    return args, kwargs


def check_open(task: Task[..., Any], payload: bytes) -> None:
    """Raise what `bind` would, as far as it is known while the payload has placeholders for results of other jobs."""
    if task.codec is None:
        task.arguments.check_open(payload)
