"""Dependencies: `Depends`, and what the worker makes for a call, in which order."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar, overload

from ..codec.shape import INJECTS, Injected, Scope, Shape, name_of, signature_of
from ..core.errors import ConfigError
from .context import Context

T = TypeVar("T")
Maker = Callable[..., Any]


@overload
def Depends(fn: Callable[..., AsyncIterator[T]], /, *, scope: Scope = "job") -> T: ...
@overload
def Depends(fn: Callable[..., Iterator[T]], /, *, scope: Scope = "job") -> T: ...
@overload
def Depends(fn: Callable[..., Coroutine[Any, Any, T]], /, *, scope: Scope = "job") -> T: ...
@overload
def Depends(fn: Callable[..., T], /, *, scope: Scope = "job") -> T: ...
def Depends(fn: Maker, /, *, scope: Scope = "job") -> Any:  # noqa: N802  # as in other frameworks
    """The default of a keyword-only parameter of a task, or of another dependency, that the worker fills.

    `fn` returns the value, or yields it and cleans up after it: a function or generator function, plain or async.
    `scope`: "job": made for each run; "worker": made once in each worker process, when it is first needed.
    """
    if not callable(fn):
        raise ConfigError(f"Depends takes a function or a class, not {fn!r:.100}")
    try:
        hash(fn)
    except TypeError:
        raise ConfigError(
            f"Depends cannot use {fn!r:.100}, which is not hashable: pass a function that calls it"
        ) from None
    if scope not in ("job", "worker"):
        raise ConfigError(f"Depends({name_of(fn)}, scope=…) must be 'job' or 'worker', not {scope!r:.100}")
    return Injected(fn, scope)


setattr(Depends, INJECTS, True)


class Provider:
    """A function that makes a dependency, with the dependencies that it needs itself."""

    def __init__(self, fn: Maker, scope: Scope, context: str | None, needs: dict[str, Provider]) -> None:
        self.fn = fn
        self.label = f"{name_of(fn)}()"
        self.scope = scope
        self.key = (fn, scope)
        """Equal for dependencies that are made once for all who need them."""
        self.context = context
        """The parameter that takes the job's context."""
        self.needs = needs
        code = _code_of(fn)
        self.is_async = inspect.iscoroutinefunction(code) or inspect.isasyncgenfunction(code)
        self.manager: Callable[..., Any] | None = None
        """Makes a context manager, if the function is a generator function."""
        if inspect.isasyncgenfunction(code):
            self.manager = asynccontextmanager(fn)
        elif inspect.isgeneratorfunction(code):
            self.manager = contextmanager(fn)

    @property
    def takes_context(self) -> bool:
        """Whether it or a dependency of it takes the job's context."""
        return self.context is not None or any(need.takes_context for need in self.needs.values())


class Dependencies:
    """The injected parameters of one function. `overrides`: functions that replace others, in tests."""

    def __init__(self, declared: Mapping[str, Injected], overrides: Mapping[Maker, Maker] | None = None) -> None:
        self._declared = declared
        known: dict[tuple[Maker, Scope], Provider] = {}
        self.needs = _providers(declared, overrides or {}, known, ())
        self.takes_context = any(provider.takes_context for provider in self.needs.values())

    def replaced(self, overrides: Mapping[Maker, Maker]) -> Dependencies:
        """The same with these overrides."""
        return Dependencies(self._declared, overrides) if overrides else self


def dependencies_of(
    fn: Callable[..., Any],
    declared: Mapping[str, Injected],
    *,
    batch: bool,
    overrides: Mapping[Maker, Maker] | None = None,
) -> Dependencies:
    """The dependencies of a task's function; ConfigError if no worker could provide them."""
    parameters, label = inspect.signature(fn).parameters, f"{name_of(fn)}()"
    for name, default in declared.items():
        if parameters[name].kind is not inspect.Parameter.KEYWORD_ONLY:
            raise ConfigError(
                f"{label}: parameter {name!r} has a dependency as its default but is not keyword-only; declare it as"
                f" (…, *, {name}={default!r})"
            )
    found = Dependencies(declared, overrides)
    if batch and found.takes_context:
        taking = next(provider.label for provider in found.needs.values() if provider.takes_context)
        raise ConfigError(
            f"{label} handles a batch, whose jobs share no context: remove the Context from dependency {taking}, or"
            " from a dependency that it needs"
        )
    return found


def _providers(
    declared: Mapping[str, Injected],
    overrides: Mapping[Maker, Maker],
    known: dict[tuple[Maker, Scope], Provider],
    path: tuple[Maker, ...],
) -> dict[str, Provider]:
    found: dict[str, Provider] = {}
    for name, dependency in declared.items():
        fn, scope = overrides.get(dependency.fn, dependency.fn), dependency.scope
        if (fn, scope) not in known:
            known[fn, scope] = _provider(fn, scope, overrides, known, path)
        found[name] = known[fn, scope]
    return found


def _provider(
    fn: Maker,
    scope: Scope,
    overrides: Mapping[Maker, Maker],
    known: dict[tuple[Maker, Scope], Provider],
    path: tuple[Maker, ...],
) -> Provider:
    label = f"dependency {name_of(fn)}()"
    if fn in path:
        raise ConfigError(f"{label} needs itself: {' -> '.join(map(name_of, (*path, fn)))}; remove one of these")
    code = _code_of(fn)
    if _generates(inspect.unwrap(code)) and not _generates(code):
        raise ConfigError(f"{label}: a decorator hides its generator: remove the decorator, such as @contextmanager")
    signature = signature_of(fn)
    if signature is None:
        return Provider(fn, scope, None, {})
    shape = Shape(fn, signature, Context)
    if shape.required:
        raise ConfigError(
            f"{label} needs {shape.required[0]!r}, which no worker provides: give it a default, or Depends(…)"
        )
    if any(signature.parameters[name].kind is inspect.Parameter.POSITIONAL_ONLY for name in shape.injected):
        raise ConfigError(f"{label}: parameters with Depends are passed by name; remove the / after them")
    provider = Provider(fn, scope, shape.context, _providers(shape.injected, overrides, known, (*path, fn)))
    if scope == "worker":
        if provider.context is not None:
            raise ConfigError(f"{label} is made once per worker, so it has no job: remove {provider.context!r}")
        for need in provider.needs.values():
            if need.scope == "job":
                raise ConfigError(
                    f"{label} is made once per worker, but needs {need.label}, which is made for each job: declare"
                    f" Depends({name_of(need.fn)}, scope='worker') in it"
                )
    return provider


def _generates(code: Any) -> bool:
    return inspect.isgeneratorfunction(code) or inspect.isasyncgenfunction(code)


def _code_of(fn: Any) -> Any:
    """The function that is called: that of a partial, or the `__call__` of an object."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    return fn if inspect.isroutine(fn) or inspect.isclass(fn) else type(fn).__call__
