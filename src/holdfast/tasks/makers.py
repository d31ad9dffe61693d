"""The types of `app.task`, for type checkers."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, overload

from .context import Context
from .task import Task

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
C = TypeVar("C")
T = TypeVar("T")
Async = Coroutine[Any, Any, R]


class Function(Protocol[P]):
    """A function or method: a callable that is not a task, since the parameters of a task's jobs may be others."""

    @property
    def __code__(self) -> Any: ...

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any: ...


class Declared(Task[P, R], Generic[P, R, Q, C]):
    """A task of a function with the parameters `Q` that returns `C`, and so does a call of the task in place.

    Its jobs have the parameters `P`, without the context, and the result `R`.
    """

    if TYPE_CHECKING:

        def __call__(self, *args: Q.args, **kwargs: Q.kwargs) -> C: ...  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]


class TaskMaker(Protocol):
    """What `app.task(…)` with options returns: the decorator."""

    @overload
    def __call__(
        self, fn: Callable[Concatenate[Context, P], Async[R]], /
    ) -> Declared[P, R, Concatenate[Context, P], Async[R]]: ...
    @overload
    def __call__(self, fn: Callable[P, Async[R]], /) -> Declared[P, R, P, Async[R]]: ...
    @overload
    def __call__(self, fn: Callable[Concatenate[Context, P], R], /) -> Declared[P, R, Concatenate[Context, P], R]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> Declared[P, R, P, R]: ...


class BatchMaker(Protocol):
    """What `app.task(batch=…)` returns: each job is enqueued with one item of the list that the function takes."""

    @overload
    def __call__(
        self, fn: Callable[[list[T]], Async[list[R | Exception]]], /
    ) -> Declared[[T], R, [list[T]], Async[list[R | Exception]]]: ...
    @overload
    def __call__(self, fn: Callable[[list[T]], Async[list[R]]], /) -> Declared[[T], R, [list[T]], Async[list[R]]]: ...
    @overload
    def __call__(self, fn: Callable[[list[T]], Async[None]], /) -> Declared[[T], None, [list[T]], Async[None]]: ...
    @overload
    def __call__(self, fn: Callable[[list[T]], Async[Any]], /) -> Declared[[T], Any, [list[T]], Async[Any]]: ...
    @overload
    def __call__(
        self, fn: Callable[[list[T]], list[R | Exception]], /
    ) -> Declared[[T], R, [list[T]], list[R | Exception]]: ...
    @overload
    def __call__(self, fn: Callable[[list[T]], list[R]], /) -> Declared[[T], R, [list[T]], list[R]]: ...
    @overload
    def __call__(self, fn: Callable[[list[T]], None], /) -> Declared[[T], None, [list[T]], None]: ...
    @overload
    def __call__(self, fn: Callable[[list[T]], Any], /) -> Declared[[T], Any, [list[T]], Any]: ...
