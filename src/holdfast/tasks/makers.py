"""The decorators that `app.task(…)` returns, for type checkers."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

from .context import Context
from .task import Task

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class TaskMaker(Protocol):
    """What `app.task(…)` with options returns: the decorator."""

    @overload
    def __call__(self, fn: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /) -> Task[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> Task[P, R]: ...
    @overload
    def __call__(self, fn: Callable[Concatenate[Context, P], R], /) -> Task[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> Task[P, R]: ...


class BatchMaker(Protocol):
    """What `app.task(batch=…)` returns: each job is enqueued with one item of the list that the function takes."""

    @overload
    def __call__(self, fn: Callable[[list[T]], Coroutine[Any, Any, list[R | Exception]]], /) -> Task[[T], R]: ...
    @overload
    def __call__(self, fn: Callable[[list[T]], Coroutine[Any, Any, list[R]]], /) -> Task[[T], R]: ...
    @overload
    def __call__(self, fn: Callable[[list[T]], Coroutine[Any, Any, None]], /) -> Task[[T], None]: ...
    @overload
    def __call__(self, fn: Callable[[list[T]], Coroutine[Any, Any, Any]], /) -> Task[[T], Any]: ...
    @overload
    def __call__(self, fn: Callable[[list[T]], list[R | Exception]], /) -> Task[[T], R]: ...
    @overload
    def __call__(self, fn: Callable[[list[T]], list[R]], /) -> Task[[T], R]: ...
    @overload
    def __call__(self, fn: Callable[[list[T]], None], /) -> Task[[T], None]: ...
    @overload
    def __call__(self, fn: Callable[[list[T]], Any], /) -> Task[[T], Any]: ...
