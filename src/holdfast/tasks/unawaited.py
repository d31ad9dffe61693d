"""The coroutine of an enqueue, which reports that it was not awaited: without `await`, no job is stored."""

from __future__ import annotations

import asyncio
import inspect
import logging
import sys
import warnings
from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, TypeVar

from ..core.errors import InvalidJob
from .handle import Handle

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Coroutine[Any, Any, Any]])
logger = logging.getLogger("holdfast")


def coroutine_function(fn: F) -> F:
    """Mark a plain function that returns a coroutine: frameworks that ask for coroutine functions await its result."""
    if sys.version_info >= (3, 12):
        return inspect.markcoroutinefunction(fn)
    vars(fn)["_is_coroutine"] = vars(asyncio.coroutines)["_is_coroutine"]  # what `asyncio.iscoroutinefunction` asks for
    return fn


class Enqueuing(Coroutine[Any, Any, T]):
    """Await it to store the job. Dropped before that, it logs an error and warns; used as a handle, it raises the same.

    The warning names the line at which it was dropped, and pytest shows it.
    """

    __slots__ = ("_begun", "_coroutine", "_method", "_of")

    def __init__(self, coroutine: Coroutine[Any, Any, T], of: str, method: str) -> None:
        self._coroutine = coroutine
        self._of = of
        self._method = method
        self._begun = False

    def __await__(self) -> Generator[Any, Any, T]:
        self._begun = True
        return self._coroutine.__await__()

    def send(self, value: Any, /) -> Any:
        self._begun = True
        return self._coroutine.send(value)

    def throw(
        self,
        typ: type[BaseException] | BaseException,
        val: BaseException | object = None,
        tb: TracebackType | None = None,
        /,
    ) -> Any:
        self._begun = True
        error = typ if isinstance(typ, BaseException) else val if isinstance(val, BaseException) else typ()
        return self._coroutine.throw(error.with_traceback(tb) if tb is not None else error)

    def close(self) -> None:
        """End it without storing a job."""
        self._begun = True
        self._coroutine.close()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(Handle, name):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        raise InvalidJob(self._missing())

    def __del__(self) -> None:
        if not getattr(self, "_begun", True):
            self._coroutine.close()  # without Python's own warning
            logger.error(self._missing())
            warnings.warn(self._missing(), RuntimeWarning, stacklevel=2)

    def _missing(self) -> str:
        return (
            f"{self._of}.{self._method}(…) was called without await: no job was stored; in blocking code use"
            f" {self._of}.sync.{self._method}(…)"
        )
