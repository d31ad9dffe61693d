"""Jobs that run where they are enqueued, in the thread and the transaction of their caller."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from asgiref.sync import async_to_sync

from ...app import Holdfast, parts_of
from ...testing import inline
from .connections import around_call


@contextmanager
def immediately(app: Holdfast) -> Generator[None]:
    """While the block runs, every job runs where it is enqueued, in the thread and the transaction of its caller."""
    with inline(app), in_callers_thread(app):
        yield


@contextmanager
def in_callers_thread(app: Holdfast) -> Generator[None]:
    """Run async functions in the thread of a blocking caller too, and leave its database connections open."""
    registry = parts_of(app).registry
    unpacked = registry.unpacked

    def plain(task: Any, args: tuple[Any, ...]) -> tuple[Callable[..., Any], tuple[Any, ...], bool]:
        fn, args, is_async = unpacked(task, args)
        return (async_to_sync(fn) if is_async else fn), args, False

    hooks = app.around_call
    vars(registry)["unpacked"] = plain
    app.around_call = [hook for hook in hooks if hook is not around_call]
    try:
        yield
    finally:
        app.around_call = hooks
        del vars(registry)["unpacked"]
