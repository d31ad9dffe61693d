"""The tasks that may run: registered ones, and public functions of trusted modules. Nothing else."""

from __future__ import annotations

import functools
import importlib
import inspect
import re
import sys
from collections.abc import Callable, Coroutine, Iterable, Sequence
from types import MethodType
from typing import Any, cast

from ..codec import Arguments, Signed, decode_value, encode_untyped, encode_value
from ..core.errors import ConfigError, HoldfastError, InvalidJob, UnknownTask
from ..core.job import SHELL_TASK, Record
from ..core.validation import RESERVED, checked_name
from .handle import BlockingHandle, Handle
from .options import Codec, JobOptions, Options, declared, name_of_codec
from .task import BlockingTask, Call, Task, TaskClient, Using, is_async
from .unawaited import Enqueuing, coroutine_function

CALL_TASK = "holdfast.call"
"""The task of a pickled callable."""


class Registry:
    """An app's tasks by name."""

    client: TaskClient
    """Stores the calls of these tasks; set before the first task is registered."""

    def __init__(self, trusted: set[str], signed: Callable[[], Signed | None], codec: Codec | None = None) -> None:
        """`codec`: for tasks that declare no codec."""
        self._trusted = trusted
        self._codec = codec
        self._make_signed = signed
        self.tasks: dict[str, Task[..., Any]] = {}
        self.queues: set[str] = set()
        """Queues that workers serve besides the queues of the tasks."""
        self._looked_up: set[str] = set()
        """Tasks that were not registered: functions of trusted modules that have run here."""
        self.store_id: str | None = None
        """The id of the worker's store, in a child process, which has not opened it."""

    @functools.cached_property
    def _signed(self) -> Signed | None:
        return self._make_signed()

    def trust_only(self, modules: Iterable[str]) -> None:
        """Let functions run by name that these modules define, and no others."""
        self._trusted = set(modules)

    def settings_changed(self) -> None:
        """Make the codec of pickled callables again."""
        vars(self).pop("_signed", None)

    def add(
        self, fn: Callable[..., Any], name: str | None, options: Options, aliases: Sequence[str] = (), **rest: Any
    ) -> Task[..., Any]:
        """Register a function under its own or a given name, and for stored jobs under its `aliases` too."""
        if isinstance(fn, Task):
            fn = fn.fn
        if not callable(fn):
            raise ConfigError(f"a task must be a function, not {fn!r:.100}")
        _refuse_unusable(fn)
        name = getattr(fn, "__name__", None) if name is None else checked_name(name, "task")
        if not name or name == "<lambda>":
            raise ConfigError(f"{fn!r} has no name that a task can use: pass one, as in app.task(name=…)")
        if isinstance(aliases, str):
            raise ConfigError(f"task {name!r}: aliases must be a list of names, such as [{aliases!r:.100}]")
        names = (name, *(checked_name(alias, "task") for alias in aliases))
        for one in names:
            known = self.tasks.get(one)
            if known is not None and not known.built_in and not _same_function(known.fn, fn):
                raise ConfigError(
                    f"task {one!r} is already registered ({known.fn!r}); pass another name= to one of the functions"
                )
        if not rest.get("built_in") and not rest.get("payload") and rest.get("codec") is None:
            rest["default_codec"] = self._codec
        task: Task[..., Any] = Task(self.client, fn, name, options, **rest)
        self.tasks |= dict.fromkeys(names, task)
        self._looked_up.difference_update(names)
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
                    name, "the signed cloudpickle codec is not enabled in this app: set cloudpickle=True and secret="
                )
            task = self._pickled_task(self._signed, None)
        else:
            task = self._task(self._resolve(name), name)
            self._looked_up.add(name)
        self.tasks[name] = task
        return task

    def of_job(self, name: str, codec: str) -> Task[..., Any]:
        """The task that runs jobs with this stored codec; UnknownTask if there is none."""
        return (self.tasks.get(name) or self.find(name)).stored_as(codec)

    def _task(self, fn: Callable[..., Any], name: str, codec: Codec | None = None) -> Task[..., Any]:
        return Task(self.client, fn, name, Options(), codec=codec, default_codec=self._codec)

    def _named_task(self, name: str) -> Task[..., Any]:
        """A task that is only known by its name here. Internal tasks and shell commands are always JSON."""
        built_in = name == SHELL_TASK or name.startswith(RESERVED)
        if built_in or self._codec is None:
            return self._task(_unknown, name, _Untyped())
        task = self._task(_unknown, name)
        if task.plain is not None:
            task.plain.codec = _Untyped()
        return task

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
        if (task := self._with_codec(record)) is not None:
            return task.decode_result(record.result)
        if self._codec is not None and record.task not in self.tasks and record.codec == name_of_codec(self._codec):
            return self._codec.loads(record.result)
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
        task = self._with_codec(record)
        if task is None:
            return encode_value(value, what=f"the result of job {record.id}")
        try:
            return task.encode_result(value)
        except HoldfastError:
            raise
        except Exception as error:
            raise InvalidJob(
                f"the codec of task {task.name!r} cannot encode the result of job {record.id}: {error}; the result was"
                " not stored: return a value that the codec can encode"
            ) from error

    def _with_codec(self, record: Record) -> Task[..., Any] | None:
        """The task of a job, if it is known and the job is not JSON."""
        name = record.task
        known = self.find(name) if name == CALL_TASK and self._signed is not None else self.tasks.get(name)
        return None if known is None or known.stored_as(record.codec).codec is None else known

    def _resolve(self, name: str) -> Callable[..., Any]:
        named = named_function(name)
        if named is None:
            raise UnknownTask(name, "it is not registered in this app; import the module that defines it")
        module, path = named
        if module not in self._trusted:
            raise UnknownTask(name, f"module {module!r} is not trusted by this app; add it to Holdfast(imports=[…])")
        try:
            target: Any = sys.modules.get(module) or importlib.import_module(module)
        except ImportError as error:
            raise UnknownTask(
                name, f"module {module!r} cannot be imported: {error}; correct this, or install what is missing"
            ) from None
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
            task = self.tasks.get(fn) or self._named_task(checked_name(fn, "task"))
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
        if Arguments(fn).injected:
            raise InvalidJob(f"{fn!r} has dependencies (Depends), which pickled callables cannot have: make it a task")
        return Call(self._pickled_task(self._signed, fn), Options(), args, kwargs)

    def _place(self, part: str) -> tuple[str, str, str]:
        """What a signature is bound to: the part of the job, its task, and the store."""
        id = self.store_id or self.client.known_store_id()
        if id is None:
            raise ConfigError("the cloudpickle setting has changed since the app was made: create a new app")
        return part, CALL_TASK, id


class UsingApp:
    """Options for calls of any callable: `app.using(…)`."""

    def __init__(self, registry: Registry, options: JobOptions) -> None:
        self._registry = registry
        self._options = options
        Options().changed(options)  # rejects wrong ones now

    @coroutine_function
    def enqueue(self, fn: Callable[..., Any] | str, /, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, Handle[Any]]:
        """Enqueue a task, a registered name, or any callable as `app.enqueue` does, with these options."""
        return Enqueuing(self._enqueue(fn, args, kwargs), "app.using(…)", "enqueue")

    async def _enqueue(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Handle[Any]:
        call = self._called(fn, args, kwargs)
        return await self._registry.client.enqueue_call(call.task, call.options, call.args, call.kwargs)

    def call(self, fn: Callable[..., Any] | str, /, *args: Any, **kwargs: Any) -> Call[Any]:
        """A call with these options that is not yet enqueued, for `enqueue_many`, flows and schedules."""
        return self._called(fn, args, kwargs)

    def _called(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call[Any]:
        call = self._registry.call(fn, args, kwargs)
        return Call(call.task, call.options.changed(self._options), call.args, call.kwargs)

    @property
    def sync(self) -> BlockingUsingApp:
        """The same for blocking code."""
        return BlockingUsingApp(self)

    def blocking(self, call: Call[Any]) -> BlockingTask[..., Any]:
        """The task of a call of these options, for blocking code."""
        return self._registry.client.sync.task(call.task, call.options)


class BlockingUsingApp:
    """Options for calls of any callable, for blocking code: `app.sync.using(…)`."""

    def __init__(self, using: UsingApp) -> None:
        self._using = using
        self.call = using.call

    def enqueue(self, fn: Callable[..., Any] | str, /, *args: Any, **kwargs: Any) -> BlockingHandle[Any]:
        """Enqueue a task, a registered name, or any callable, with these options."""
        call = self._using.call(fn, *args, **kwargs)
        return self._using.blocking(call).enqueue(*call.args, **call.kwargs)


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


def _refuse_unusable(fn: Callable[..., Any]) -> None:
    """ConfigError for functions that no worker could call for a result."""
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise ConfigError(
            f"{fn!r} is a generator function, whose body would never run: return a list instead of yielding, or enqueue"
            " one job for each item"
        )
    if not inspect.isfunction(fn):
        return
    owner = fn.__qualname__.rpartition(".")[0]
    first = next(iter(inspect.signature(fn).parameters), None)
    if owner and owner.rpartition(".")[2] != "<locals>" and first in ("self", "cls"):
        raise ConfigError(
            f"{fn.__qualname__} is a method, and a worker has no object to call it on: use a module-level"
            " function that creates the object and calls the method"
        )


def _same_function(one: Any, other: Any) -> bool:
    # A module that is imported again (a reload, or run as __main__ and imported) registers its own tasks again. In a
    # notebook or an interactive session, a task may be defined again.
    interactive = not hasattr(sys.modules.get("__main__"), "__file__")
    again = interactive and getattr(one, "__module__", 1) == getattr(other, "__module__", 2) == "__main__"
    return (
        one is other
        or again
        or (
            getattr(one, "__qualname__", 1) == getattr(other, "__qualname__", 2)
            and getattr(getattr(one, "__code__", None), "co_filename", 1)
            == getattr(getattr(other, "__code__", None), "co_filename", 2)
        )
    )


def named_function(name: str) -> tuple[str, str] | None:
    """The module and the path in it, if a task's name can be that of a function; else None.

    The name of a module may contain a hyphen, or begin with a digit.
    """
    module, named, path = name.partition(":")
    if not named:
        return None
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
