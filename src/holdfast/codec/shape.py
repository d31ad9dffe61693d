"""The shape of a call: which parameters a function has, what types they ask for, and how a call is bound to them."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from typing import Annotated, Any, Literal, NoReturn, get_args, get_origin, get_type_hints

from ..core.errors import ConfigError, InvalidJob

STAR = "*"
"""Where a payload keeps its unnamed positional arguments."""

_EMPTY = inspect.Parameter.empty


def name_of(fn: object) -> str:
    """The short name of a function, without the scopes in which it was defined."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    name: str = getattr(fn, "__qualname__", None) or type(fn).__qualname__
    return name.rpartition("<locals>.")[2]


def signature_of(fn: Callable[..., object]) -> inspect.Signature | None:
    """Read the signature, or None for a builtin that has none."""
    try:
        return inspect.signature(fn)
    except NameError:
        # From Python 3.14 an annotation is evaluated when it is asked for, and may name what is not there yet.
        as_text: Any = {"annotation_format": import_module("annotationlib").Format.STRING}
        return inspect.signature(fn, **as_text)
    except (ValueError, TypeError):
        return None


class Annotations:
    """Turns annotations into types, now or later: a name may be defined after the function that uses it."""

    def __init__(self, fn: Callable[..., object]) -> None:
        target: Any = fn
        while isinstance(target, functools.partial):
            target = target.func
        target = inspect.unwrap(target)
        if not (inspect.isroutine(target) or inspect.isclass(target)):
            target = inspect.unwrap(type(target).__call__)
        target = getattr(target, "__func__", target)
        module = sys.modules.get(getattr(target, "__module__", None) or "")
        self._globals: dict[str, Any] = getattr(target, "__globals__", None) or getattr(module, "__dict__", {})
        self._locals = _names_around(target, self._globals)

    def resolve(self, annotation: Any) -> Any:
        """The type, or the annotation itself if it names something unknown so far."""

        def probe() -> None: ...

        probe.__annotations__ = {"it": annotation}
        try:
            return get_type_hints(probe, self._globals, self._locals, include_extras=True)["it"]
        except Exception:  # noqa: BLE001 - an annotation is any expression, and may fail in any way
            return annotation

    def forget_locals(self) -> None:
        """Drop references to the locals of the enclosing function."""
        self._locals = {}


def _names_around(target: Any, module_names: Mapping[str, Any]) -> dict[str, Any]:
    """Names that a nested function can see: its closure, and the current locals of the enclosing function."""
    names: dict[str, Any] = {}
    if inspect.isfunction(target):
        for name, cell in zip(target.__code__.co_freevars, target.__closure__ or (), strict=True):
            with suppress(ValueError):  # not assigned yet
                names[name] = cell.cell_contents
    outer, inside, _ = getattr(target, "__qualname__", "").rpartition(".<locals>.")
    frame = inspect.currentframe() if inside else None
    while frame is not None:
        if frame.f_code.co_qualname == outer and frame.f_globals is module_names:
            return {**frame.f_locals, **names}
        frame = frame.f_back
    return names


Scope = Literal["job", "worker"]
INJECTS = "holdfast_injects"
"""An attribute of the function that makes such a default."""


class Injected:
    """The default of a parameter that the worker fills, by a function; it is never part of a call or a payload.

    `scope`: how long the value is kept.
    """

    __slots__ = ("fn", "scope")

    def __init__(self, fn: Callable[..., Any], scope: Scope) -> None:
        self.fn = fn
        self.scope: Scope = scope

    def __repr__(self) -> str:
        return f"Depends({name_of(self.fn)})"


class Shape:
    """A function's parameters, without the context and injected ones, prepared to bind calls without `inspect`."""

    def __init__(self, fn: Callable[..., object], signature: inspect.Signature, context_type: type | None) -> None:
        self.label = name_of(fn)
        self.annotations = Annotations(fn)
        self.hints: dict[str, Any] = {}
        self.defaults: dict[str, Any] = {}
        self.context: str | None = None
        self.injected: dict[str, Injected] = {}
        self.star: str | None = None
        self.extra: str | None = None
        self.batch = False
        """Its one parameter is a list, of which each call has one item."""
        positional: list[str] = []
        named: list[str] = []
        self.positional_only = 0
        for name, parameter in signature.parameters.items():
            hint = Any if parameter.annotation is _EMPTY else self.annotations.resolve(parameter.annotation)
            if context_type is not None and _is_context(hint, context_type):
                self._take_context(parameter, signature)
                continue
            if isinstance(parameter.default, Injected):
                self.injected[name] = parameter.default
                continue
            if getattr(parameter.default, INJECTS, False):
                raise ConfigError(f"{self.label}(): the default of {name!r} is Depends itself: write Depends(function)")
            if get_origin(hint) is Annotated and any(isinstance(part, Injected) for part in get_args(hint)):
                raise ConfigError(
                    f"{self.label}(): the annotation of {name!r} contains Depends: make it the default instead,"
                    f" {name}: … = Depends(…), so that type checkers accept calls without this argument"
                )
            self.hints[name] = hint
            if parameter.default is not _EMPTY:
                self.defaults[name] = parameter.default
            match parameter.kind:
                case parameter.VAR_POSITIONAL:
                    self.star = name
                case parameter.VAR_KEYWORD:
                    self.extra = name
                case parameter.KEYWORD_ONLY:
                    named.append(name)
                case parameter.POSITIONAL_ONLY:
                    self.positional_only += 1
                    positional.append(name)
                case parameter.POSITIONAL_OR_KEYWORD:
                    positional.append(name)
        self.annotations.forget_locals()
        self.positional = tuple(positional)
        self.names = (*positional, *named)
        self._nameable = frozenset(self.names[self.positional_only :])
        self.required = tuple(name for name in self.names if name not in self.defaults)

    def _take_context(self, parameter: inspect.Parameter, signature: inspect.Signature) -> None:
        name = parameter.name
        if self.context is not None:
            raise ConfigError(f"{self.label}() has two context parameters, {self.context!r} and {name!r}: keep one")
        by_position = parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        if not by_position or name != next(iter(signature.parameters)):
            raise ConfigError(
                f"{self.label}(): the context must be the first parameter: def {self.label}({name}: Context, …)"
            )
        self.context = name

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Arguments by name in the order of the signature, as Python would bind them; the rest under "*"."""
        values = self.bind_some(args, kwargs)
        self._need(values)
        return values

    def bind_some(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The same; arguments may be missing."""
        values = dict(zip(self.positional, args))  # noqa: B905 - either may be longer
        rest = args[len(self.positional) :]
        if rest and self.star is None:
            self._too_many(len(args))
        extra: dict[str, Any] = {}
        for name, value in kwargs.items():
            if name in values:
                self._refuse(f"got multiple values for argument {name!r}")
            if name in self._nameable:
                values[name] = value
            else:
                self._expect(name)
                extra[name] = value
        if kwargs:
            # The same call gives the same payload, in whatever order its arguments were named.
            values = {name: values[name] for name in self.names if name in values}
        if rest:
            values[STAR] = list(rest)
        values.update(sorted(extra.items()))
        return values

    def place(self, given: dict[str, Any], star: list[Any]) -> tuple[dict[str, Any], list[Any]]:
        """Name the values under "*", and reject what the function does not take."""
        if star and not all(name in given for name in self.positional):
            # Written without the function at hand, so its positionals have no names yet.
            for name in self.positional[: len(star)]:
                if name in given:
                    self._refuse(f"got multiple values for argument {name!r}")
            given = dict(zip(self.positional, star, strict=False)) | given
            star = star[len(self.positional) :]
        if star and self.star is None:
            self._too_many(len(self.positional) + len(star))
        for name in given:
            if name not in self.names:
                self._expect(name)
        self._need(given)
        return given, star

    def call(self, values: dict[str, Any], rest: list[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The call that gives each parameter its value: by name wherever Python allows."""
        by_position = self.positional if rest else self.positional[: self.positional_only]
        last = max((index for index, name in enumerate(by_position, 1) if name in values), default=0)
        if rest:
            last = len(by_position)
        args = [values.pop(name) if name in values else self.defaults[name] for name in by_position[:last]]
        return (*args, *rest), values

    def _expect(self, name: str) -> None:
        if name == self.context:
            self._refuse(f"gets {name!r} from the worker; do not pass it")
        if name in self.injected:
            self.refuse_injected(name)
        if name == STAR and self.extra is not None:
            self._refuse(f"cannot take an argument named {STAR!r}, which means its positional arguments; rename it")
        if self.extra is None:
            self._refuse(f"got an unexpected keyword argument {name!r}")
        if name in self.names:
            self._refuse(
                f"takes {name!r} by position only; **{self.extra} cannot have the same name: rename one of them"
            )

    def refuse_injected(self, name: str) -> NoReturn:
        """InvalidJob: a call has this argument, which the worker fills."""
        self._refuse(f"gets {name!r} from {self.injected[name]!r}; do not pass it")

    def _need(self, values: dict[str, Any]) -> None:
        for name in self.required:
            if name not in values:
                self._missing(values)

    def _missing(self, values: dict[str, Any]) -> NoReturn:
        missing = [repr(name) for name in self.required if name not in values]
        names = missing[0] if len(missing) == 1 else f"{', '.join(missing[:-1])} and {missing[-1]}"
        hint = "; annotate it as ctx: Context to receive the running job's context" if "'ctx'" in missing else ""
        self._refuse(f"missing {len(missing)} required argument{'s' if len(missing) > 1 else ''}: {names}{hint}")

    def _too_many(self, given: int) -> NoReturn:
        count = len(self.positional)
        takes = f"{count} positional argument{'s' if count != 1 else ''}"
        self._refuse(f"takes {takes} but {given} {'was' if given == 1 else 'were'} given")

    def _refuse(self, reason: str) -> NoReturn:
        raise InvalidJob(f"{self.label}() {reason}")


def _is_context(hint: Any, context_type: type) -> bool:
    if isinstance(hint, str):
        # Imported for the type checker alone; its name is all there is.
        return hint.rpartition(".")[2] == context_type.__name__
    if get_origin(hint) is Annotated or type(None) in get_args(hint):
        return any(_is_context(part, context_type) for part in get_args(hint))
    return hint is context_type
