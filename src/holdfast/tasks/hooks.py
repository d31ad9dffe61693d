"""The hooks of a program around its running jobs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from ..views import Job
from .context import Context

RunHook = Callable[[Context, Callable[[], Awaitable[Any]]], Awaitable[Any]]
ErrorHook = Callable[[BaseException, Job], object]


class RunHooks:
    """An app's hooks around its running jobs."""

    def __init__(self) -> None:
        self.around_run: list[RunHook] = []
        self.on_error: list[ErrorHook] = []
