"""The tasks that may run: registered ones, and public functions of trusted modules. Nothing else."""

from __future__ import annotations

import functools
import importlib
import inspect
import re
import sys
from collections.abc import Callable, Sequence
from types import MethodType
from typing import Any, cast

from ..codec import Signed, decode_value, encode_untyped, encode_value
from ..core.errors import ConfigError, HoldfastError, InvalidJob, UnknownTask
from ..core.job import Record
from ..core.validation import checked_name
from .options import Codec, Options, declared
from .task import Call, Task, TaskClient, Using, is_async

CALL_TASK = "holdfast.call"
"""The task of a pickled callable."""


class Registry:
    """An app's tasks by name."""

    client: TaskClient
    """Stores the calls of these tasks; set before the first task is registered."""

    def __init__(self, trusted: set[str], signed: Signed | None) -> None:
        self._trusted = trusted
        self._signed = signed
        self.tasks: dict[str, Task[..., Any]] = {}
        self._looked_up: set[str] = set()
        """Tasks that were not registered: functions of trusted modules that have run here."""
        self.store_id: str | None = None
        """The id of the worker's store, in a child process, which has not opened it."""

    def add(self, fn: Callable[..., Any], name: str | None, options: Options, **rest: Any) -> Task[..., Any]:
        """Register a function under its own or a given name."""
        if isinstance(fn, Task):
            fn = fn.fn
        if not callable(fn):
            raise ConfigError(f"a task must be a function, not {fn!r:.100}")
        name = getattr(fn, "__name__", None) if name is None else checked_name(name, "task")
        if not name or name == "<lambda>":
            raise ConfigError(f"{fn!r} has no name that a task can use: pass one, as in app.task(name=…)")
        known = self.tasks.get(name)
        if known is not None and not known.built_in and not _same_function(known.fn, fn):
            raise ConfigError(
                f"task {name!r} is already registered ({known.fn!r}); pass another name= to one of the functions"
            )
        task = self.tasks[name] = Task(self.client, fn, name, options, **rest)
        self._looked_up.discard(name)
        return task

    def declare(self, fn: Callable[..., Any], **given: Any) -> Task[..., Any]:
        """Register a function with the options of `app.task`; TypeError for an unknown option."""
        options, own = declared(given)
        return self.add(fn, own.pop("name", None), options, **own)

    def is_registered(self, name: str) -> bool:
        """Whether a task was registered under this name; not if it was only found in a module."""
        return name in self.tasks and name not in self._looked_up

    def find(self, name: str) -> Task[..., Any]:
        """The task with a stored name; UnknownTask if there is none."""
        task = self.tasks.get(name)
        if task is not None:
            return task
        if name == CALL_TASK:
            if self._signed is None:
                raise UnknownTask(
                    name, "the signed cloudpickle codec is not enabled here: set cloudpickle=True and secret="
                )
            task = self._pickled_task(self._signed, None)
        else:
            task = self._task(self._resolve(name), name)
            self._looked_up.add(name)
        self.tasks[name] = task
        return task

    def _task(self, fn: Callable[..., Any], name: str, codec: Codec | None = None) -> Task[..., Any]:
        return Task(self.client, fn, name, Options(), codec=codec)

    def _pickled_task(self, signed: Signed, fn: Callable[..., Any] | None) -> Task[..., Any]:
        call, result = PickledCall(signed, self._place, fn), PickledResult(signed, self._place)
        return Task(self.client, _pickled, CALL_TASK, Options(), codec=call, result_codec=result)

    def unpacked(self, task: Task[..., Any], args: tuple[Any, ...]) -> tuple[Callable[..., Any], tuple[Any, ...], bool]:
        """The function to call, with its arguments, and whether it is async: for a pickled call, its function."""
        if task.name == CALL_TASK and args:
            return args[0], args[1:], is_async(args[0])
        return task.fn, args, task.is_async

    def decode_result(self, record: Record) -> Any:
        """A stored result as a value: by the codec of its task if this app has it, else as plain JSON."""
        if record.result is None:
            return None
        if (task := self._with_codec(record.task)) is not None:
            return task.decode_result(record.result)
        try:
            return decode_value(record.result, what=f"the result of job {record.id}")
        except InvalidJob:
            if record.codec in ("json", "bytes"):
                raise
            raise InvalidJob(
                f"the result of job {record.id} is encoded by the codec {record.codec!r} of task {record.task!r}, "
                "which this app does not have: read it with an app that registers the task (for pickled callables, "
                "with cloudpickle=True and the secret)"
            ) from None

    def encode_result(self, record: Record, value: Any) -> bytes | None:
        """A result that another process than the task returns, encoded by the codec of the task."""
        if value is None:
            return None
        task = self._with_codec(record.task)
        if task is None:
            return encode_value(value, what="a result")
        try:
            return task.encode_result(value)
        except HoldfastError:
            raise
        except Exception as error:
            raise InvalidJob(f"the codec of task {task.name!r} cannot encode this result: {error}") from error

    def _with_codec(self, name: str) -> Task[..., Any] | None:
        """The task with this name, if it has its own codec."""
        known = self.find(name) if name == CALL_TASK and self._signed is not None else self.tasks.get(name)
        return None if known is None or known.codec is None else known

    def _resolve(self, name: str) -> Callable[..., Any]:
        named = named_function(name)
        if named is None:
            raise UnknownTask(name, "it is not registered in this app; import the module that defines it")
        module, path = named
        if module not in self._trusted:
            raise UnknownTask(name, f"module {module!r} is not trusted here; name it in imports=")
        try:
            target: Any = sys.modules.get(module) or importlib.import_module(module)
        except ImportError as error:
            raise UnknownTask(name, f"module {module!r} cannot be imported: {error}") from None
        if _is_private(path):
            raise UnknownTask(
                name,
                "names that begin with an underscore are private: rename the function, or make it a task (@app.task)",
            )
        for part in path.split("."):
            target = getattr(target, part, None)
        if isinstance(target, Task):
            return target.fn
        # Only functions that the module itself defines: `os:system` must not be reachable as `mymodule:system`.
        if not inspect.isroutine(target) or getattr(target, "__module__", None) != module:
            raise UnknownTask(
                name,
                f"module {module!r} defines no such function; check the name, and that this process has the new code",
            )
        return cast("Callable[..., Any]", target)

    def call(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call[Any]:
        """A call of a task, a name, or any callable that a worker can import (or that may be pickled)."""
        if isinstance(fn, Using | Task):
            return _bound(cast("Task[..., Any]", fn), args, kwargs)
        if isinstance(fn, str):
            task = self.tasks.get(fn) or self._task(_unknown, checked_name(fn, "task"), _Untyped())
            return Call(task, task.options, args, kwargs)
        if isinstance(fn, functools.partial):
            return self.call(fn.func, (*fn.args, *args), {**fn.keywords, **kwargs})
        if not callable(fn):
            raise InvalidJob(f"enqueue takes a task, a task's name or a callable, not {fn!r}")
        for task in self.tasks.values():
            if task.fn is fn:
                return Call(task, task.options, args, kwargs)
        name = _importable_name(fn)
        if name is not None:
            return Call(self._task(fn, name), Options(), args, kwargs)
        if self._signed is None:
            raise InvalidJob(
                f"{fn!r} cannot be found again by a worker: make it a task (@app.task), or a function at the top "
                "of a module whose name has no leading underscore, or switch on the signed cloudpickle codec "
                "(cloudpickle=True and a secret)"
            )
        return Call(self._pickled_task(self._signed, fn), Options(), args, kwargs)

    def _place(self, part: str) -> tuple[str, str, str]:
        """What a signature is bound to: the part of the job, its task, and the store."""
        id = self.store_id or self.client.known_store_id()
        if id is None:
            raise ConfigError("the cloudpickle setting has changed since the app was made: create a new app")
        return part, CALL_TASK, id


class PickledCall:
    """The codec of a pickled, signed callable. `place` is what the signature of a part of a job is bound to."""

    name = "cloudpickle"

    def __init__(self, signed: Signed, place: Callable[[str], Sequence[str]], fn: Callable[..., Any] | None) -> None:
        self._signed = signed
        self._place = place
        self._fn = fn

    def dumps(self, value: Any) -> bytes:
        """A call's (args, kwargs) with its function, which is the first argument if it is not given."""
        args, kwargs = value
        called = args if self._fn is None else (self._fn, *args)
        return self._signed.dumps((called, kwargs), self._place("call"))

    def loads(self, data: bytes) -> Any:
        """Verified first, then unpickled."""
        return self._signed.loads(data, self._place("call"))


class PickledResult:
    """The result of such a call: signed as a result, which is never accepted as a call."""

    def __init__(self, signed: Signed, place: Callable[[str], Sequence[str]]) -> None:
        self._signed = signed
        self._place = place

    def dumps(self, value: Any) -> bytes:
        """Pickled, then signed."""
        return self._signed.dumps(value, self._place("result"))

    def loads(self, data: bytes) -> Any:
        """Verified first, then unpickled."""
        return self._signed.loads(data, self._place("result"))


class _Untyped:
    """The codec of a task that is only known by name here: plain JSON."""

    name = "json"

    def dumps(self, value: Any) -> bytes:
        args, kwargs = value
        return encode_untyped(args, kwargs)

    def loads(self, data: bytes) -> Any:
        return decode_value(data)


def _bound(fn: Using[..., Any] | Task[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call[Any]:
    return Call(fn.task if isinstance(fn, Using) else fn, fn.options, args, kwargs)


def _pickled(fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Calls a pickled function; the worker finds out which one (`Registry.unpacked`)."""
    return fn(*args, **kwargs)


def _unknown(*_: Any, **__: Any) -> None:
    """Replaces a function that is only known by name here."""


def _same_function(one: Any, other: Any) -> bool:
    # A module that is imported again (a reload, or run as __main__ and imported) registers its own tasks again.
    return one is other or (
        getattr(one, "__qualname__", 1) == getattr(other, "__qualname__", 2)
        and getattr(getattr(one, "__code__", None), "co_filename", 1)
        == getattr(getattr(other, "__code__", None), "co_filename", 2)
    )


def named_function(name: str) -> tuple[str, str] | None:
    """The module and the path in it, if a task's name can be that of a function; else None.

    The name of a module may contain a hyphen, or begin with a digit.
    """
    module, _, path = name.partition(":")
    return (module, path) if is_module(module) and all(part.isidentifier() for part in path.split(".")) else None


def is_module(name: str) -> bool:
    """Whether functions of a module with this name can be named."""
    return re.fullmatch(r"[\w-]+(\.[\w-]+)*", name) is not None


def _is_private(path: str) -> bool:
    return any(part.startswith("_") for part in path.split("."))


def _importable_name(fn: Any) -> str | None:
    module, path = getattr(fn, "__module__", None), getattr(fn, "__qualname__", None)
    if not module or not path or "<" in path or module == "__main__" or _is_private(path) or not inspect.isroutine(fn):
        return None
    target: Any = sys.modules.get(module)
    for part in path.split("."):
        target = getattr(target, part, None)
    # A class method is a new object at each access, but compares equal.
    return f"{module}:{path}" if target is fn or (isinstance(fn, MethodType) and target == fn) else None
