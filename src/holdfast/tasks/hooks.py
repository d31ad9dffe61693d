"""The hooks of a program around its workers and running jobs."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    ExitStack,
    asynccontextmanager,
    contextmanager,
)
from functools import partial
from typing import Any

from ..core.errors import ConfigError
from ..views import Job
from .context import Context
from .task import Task

RunHook = Callable[[Context, Callable[[], Awaitable[Any]]], Awaitable[Any]]
CallHook = Callable[[Task[..., Any]], AbstractContextManager[Any]]
ErrorHook = Callable[[BaseException, Job], object]
Life = AbstractContextManager[Any] | AbstractAsyncContextManager[Any]
_REST = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
Lifespan = Callable[[], AsyncIterator[Any] | Iterator[Any] | Life]


class RunHooks:
    """An app's hooks around its workers and running jobs."""

    def __init__(self) -> None:
        self.around_run: list[RunHook] = []
        self.around_call: list[CallHook] = []
        self.on_error: list[ErrorHook] = []
        self.overrides: dict[Callable[..., Any], Callable[..., Any]] = {}
        """Dependencies that are replaced, in tests."""
        self._lifespan: Callable[[], Life] | None = None

    def set_lifespan(self, fn: Lifespan) -> None:
        """Take a function that makes the context manager around a worker's life; a generator function is made one."""
        if self._lifespan is not None:
            raise ConfigError("the app has a lifespan already: put both into one function")
        if any(one.default is one.empty and one.kind not in _REST for one in inspect.signature(fn).parameters.values()):
            raise ConfigError(
                f"app.lifespan calls {getattr(fn, '__name__', fn)}() without arguments: remove its parameters"
            )
        if inspect.isasyncgenfunction(fn):
            self._lifespan = asynccontextmanager(fn)
        elif inspect.isgeneratorfunction(fn):
            self._lifespan = contextmanager(fn)
        else:
            self._lifespan = fn  # type: ignore[assignment]  # pyright: ignore[reportAttributeAccessIssue]

    @asynccontextmanager
    async def life(self) -> AsyncGenerator[Any]:
        """Around a worker's life: enters the app's lifespan, and gives what it yields."""
        made = None if self._lifespan is None else self._lifespan()
        if isinstance(made, AbstractAsyncContextManager):
            async with made as state:
                yield state
        elif isinstance(made, AbstractContextManager):
            with made as state:
                yield state
        elif made is None:
            yield None
        else:
            raise ConfigError(
                f"app.lifespan: {getattr(self._lifespan, '__name__', self._lifespan)}() returned {made!r:.100}, not a"
                " context manager; make it a generator function with one yield"
            )

    def wrapped(self, task: Task[..., Any], fn: Callable[..., Any], *, on_loop: bool) -> Callable[..., Any]:
        """The function inside the `around_call` hooks, for the thread, loop or process that runs it."""
        if not self.around_call:
            return fn
        return partial(_awaited if on_loop else _called, tuple(self.around_call), task, fn)


def _called(
    hooks: tuple[CallHook, ...], task: Task[..., Any], fn: Callable[..., Any], /, *args: Any, **kwargs: Any
) -> Any:
    with _entered(hooks, task):
        return fn(*args, **kwargs)


async def _awaited(
    hooks: tuple[CallHook, ...], task: Task[..., Any], fn: Callable[..., Any], /, *args: Any, **kwargs: Any
) -> Any:
    with _entered(hooks, task):
        return await fn(*args, **kwargs)


@contextmanager
def _entered(hooks: tuple[CallHook, ...], task: Task[..., Any]) -> Generator[None]:
    """Inside all hooks; the last one is the outermost. A hook cannot suppress an error of the task."""
    failed: BaseException | None = None
    with ExitStack() as stack:
        for hook in reversed(hooks):
            made = hook(task)
            if not isinstance(made, AbstractContextManager):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ConfigError(
                    f"around_call: {getattr(hook, '__name__', hook)} must return a context manager, not {made!r:.100};"
                    " write it with @contextlib.contextmanager"
                )
            stack.enter_context(made)
        try:
            yield
        except BaseException as error:
            failed = error
            raise
    if failed is not None:
        raise failed
