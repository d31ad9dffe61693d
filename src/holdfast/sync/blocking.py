"""Blocking methods, made from the async ones: the same name, parameters and documentation; they return the result.

A call runs on the app's loop; if there is none, on the app's background loop.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar, overload

from ..client.loop_calls import NotStarted, run_on_loop
from ..client.runtime import ENDING_LOOKS, ENDING_PAUSE, Runtime
from ..store.callers import refuse_blocking

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")


class Run(Protocol):
    """Calls an async function on the app's loop and waits for its result."""

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
                loop, undo = runtime.choose_loop(), runtime.undo_of(function)
                return run_on_loop(function(*args, **kwargs), loop, undo, runtime.new_answer())
            except NotStarted:  # that loop has just ended: use another
                pass

    return run


@overload
def blocking(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]) -> Callable[Concatenate[Any, P], R]: ...
@overload
def blocking(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]], wrap: Callable[[Run, R], S]
) -> Callable[Concatenate[Any, P], S]: ...
def blocking(method: Callable[..., Coroutine[Any, Any, Any]], wrap: Callable[[Run, Any], Any] | None = None) -> Any:
    """The blocking twin of an async method. Its class has `_run`, and `_of`, which is the async object.

    `wrap` makes the blocking form of an answer that is itself an async object.
    """
    name = method.__name__

    @functools.wraps(method)
    def call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        answer = self._run(getattr(self._of, name), *args, **kwargs)
        return answer if wrap is None else wrap(self._run, answer)

    return call


class Service(Generic[S]):
    """A service of a blocking app, as an attribute: `config = Service(SyncConfig)` is the twin of the app's `config`.

    `kind` makes an object without arguments; its `blocking` methods find `_run` and `_of`, which this sets.
    """

    def __init__(self, kind: Callable[[], S]) -> None:
        self._kind = kind
        self.__doc__ = kind.__doc__

    def __set_name__(self, _: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, app: None, kind: type, /) -> Self: ...
    @overload
    def __get__(self, app: object, kind: type, /) -> S: ...
    def __get__(self, app: Any, kind: type, /) -> Self | S:
        if app is None:
            return self
        made = self._kind()
        vars(made).update(_run=app._run, _of=getattr(app._of, self._name))  # noqa: SLF001
        return made
