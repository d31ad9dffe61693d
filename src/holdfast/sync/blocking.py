"""Blocking methods, made from the async ones: the same name, parameters and documentation, the answer itself.

A call goes to the loop that the app lives on; where there is none, to a thread of the app's own that runs one.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from ..client.loop_calls import NotStarted, run_on_loop
from ..client.runtime import ENDING_LOOKS, ENDING_PAUSE, Runtime
from ..store.callers import refuse_blocking

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")


class Run(Protocol):
    """Calls an async function on the app's loop and waits for its answer."""

    def __call__(self, function: Callable[..., Coroutine[Any, Any, R]], /, *args: Any, **kwargs: Any) -> R: ...


def runs_on(runtime: Runtime) -> Run:
    """How blocking code of an app calls async functions."""

    def run(function: Callable[..., Coroutine[Any, Any, R]], /, *args: Any, **kwargs: Any) -> R:
        refuse_blocking()
        for _ in range(ENDING_LOOKS):
            if not runtime.loop_is_ending():
                break
            threading.Event().wait(ENDING_PAUSE)
        while True:
            try:
                return run_on_loop(function(*args, **kwargs), runtime.choose_loop(), runtime.undo_of(function))
            except NotStarted:  # that loop has just ended: on another
                pass

    return run


def blocking(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Any, P], R]:
    """The blocking twin of an async method. Its class has `_run`, and `_of`, which is the async object."""
    name = method.__name__

    @functools.wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._run(getattr(self._of, name), *args, **kwargs)

    return call
