"""Runs synchronous task functions in threads."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any


class Threads:
    """A thread pool with as many threads as the worker has slots."""

    def __init__(self, count: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="holdfast-task")

    def call(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Awaitable[Any]:
        call = contextvars.copy_context().run
        return self._loop.run_in_executor(self._pool, lambda: call(_guarded, fn, args, kwargs))

    def close(self) -> None:
        """Accept no more calls; running threads are not waited for."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _guarded(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    try:
        return fn(*args, **kwargs)
    except (StopIteration, GeneratorExit) as error:
        # A future cannot carry these: the waiting coroutine would take them for its own end.
        raise RuntimeError(f"the task raised {error!r}: raise another exception") from error
