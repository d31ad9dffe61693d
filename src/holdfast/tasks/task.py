"""A task: a named function, the options its jobs start with, and `enqueue` with the function's own signature."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from copy import copy
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypeVar, Unpack

from ..codec import Arguments, Returns, opened
from ..core.errors import ConfigError, InvalidJob
from ..core.job import NewJob
from ..core.retry import Backoff, RetryRule
from ..core.settings import Settings, parse, size
from ..core.validation import checked_name
from .batch import batching
from .context import Context
from .handle import Blocking, BlockingHandle, Handle
from .options import Codec, JobOptions, Options, name_of_codec
from .unawaited import Enqueuing, coroutine_function

if TYPE_CHECKING:
    from .depends import Dependencies

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
RUN_IN = ("loop", "thread", "process", "isolated")
IN_CHILDREN = frozenset({"process", "isolated"})
"""Ways to run a job in its own process: one of a pool, or a new one."""


class BlockingTask(Protocol[P, R_co]):
    """A task for blocking code."""

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> BlockingHandle[R_co]:
        """Store a job that calls the task; durable after this returns."""
        ...

    def using(self, **options: Unpack[JobOptions]) -> BlockingTask[P, R_co]:
        """The same task with other options; see `Task.using`."""
        ...


class BlockingTasks(Blocking, Protocol):
    """The blocking side of an app, as far as tasks need it."""

    def task(self, task: Task[P, R], options: Options, /) -> BlockingTask[P, R]: ...


class TaskClient(Protocol):
    """The operations of an app that a task uses."""

    @property
    def sync(self) -> BlockingTasks: ...

    def enqueue_call(
        self, task: Task[..., R], options: Options, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Coroutine[Any, Any, Handle[R]]: ...

    def new_job(
        self, settings: Settings, task: Task[..., Any], options: Options, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> NewJob: ...

    def known_store_id(self) -> str | None: ...


class Task(Generic[P, R]):
    """A registered function. Calling it runs it in place; `enqueue` passes it to a worker."""

    def __init__(
        self,
        client: TaskClient,
        fn: Callable[..., Any],
        name: str,
        options: Options,
        *,
        retry: RetryRule | None = None,
        run_in: str | None = None,
        payload: bool = False,
        codec: Codec | None = None,
        result_codec: Codec | None = None,
        default_codec: Codec | None = None,
        retention: float | timedelta | str | None = None,
        memory: int | str | None = None,
        batch: int | None = None,
        wait: float | timedelta | None = None,
        log_level: str | None = None,
        built_in: bool = False,
    ) -> None:
        self.client = client
        self.fn = fn
        self.name = checked_name(name, "task")
        self.options = options
        self.retry = retry
        if not (retry is None or isinstance(retry, Backoff) or callable(retry)):
            raise ConfigError(
                f"task {name!r}: retry must be a Backoff or a function of (exception, attempt), not {retry!r}"
            )
        self.is_async = is_async(fn)
        self.run_in = run_in or ("loop" if self.is_async else "thread")
        if self.run_in not in RUN_IN:
            raise ConfigError(f"task {name!r}: run_in must be one of {', '.join(RUN_IN)}, not {run_in!r}")
        if not self.is_async and self.run_in == "loop":
            raise ConfigError(f"task {name!r} is a plain function, which would block the loop; remove run_in='loop'")
        if self.is_async and self.run_in == "thread":
            raise ConfigError(
                f"task {name!r} is async and runs on the loop: remove run_in={run_in!r}, which is for plain functions"
            )
        self.memory = None if memory is None else _checked_memory(memory, self)
        self.codec = codec = default_codec if codec is None else codec
        if codec is not None and not (hasattr(codec, "dumps") and hasattr(codec, "loads")):
            raise ConfigError(f"task {name!r}: a codec must have the methods dumps and loads, but {codec!r} does not")
        self.result_codec = codec if result_codec is None else result_codec
        self.built_in = built_in
        self.retention = None if retention is None else parse("retention", retention)
        self.log_level: str | None = None if log_level is None else _checked_log_level(log_level, name)
        self.batch = batching(name, self.run_in, batch, wait)
        self.arguments = Arguments(fn, whole=payload, batch=self.batch is not None, context_type=Context)
        self.dependencies: Dependencies | None = None
        """What the worker makes for each call."""
        if self.arguments.injected:
            from .depends import dependencies_of  # late: most programs have no dependencies

            self.dependencies = dependencies_of(fn, self.arguments.injected, batch=self.batch is not None)
        self.returns = Returns(fn, batch=self.batch is not None)
        if options.limit is not None:
            options.limit.check(self)
        self.__name__ = name
        self.__doc__ = fn.__doc__
        self.__wrapped__ = fn
        self.plain: Task[P, R] | None = None
        """The same task with JSON if its codec is the app's default: for schedules, follow-ups and JSON jobs."""
        if codec is not None and codec is default_codec and name_of_codec(codec) != "json":
            plain = copy(self)
            plain.codec = plain.result_codec = None
            self.plain = plain

    if not TYPE_CHECKING:  # type checkers report a name that does not exist

        def __getattr__(self, name: str) -> Any:
            from .celery_names import TASK, missing

            raise missing(self, name, TASK)

    def __repr__(self) -> str:
        return f"<Task {self.name!r}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        if missing := self.arguments.injected.keys() - kwargs:
            raise TypeError(
                f"{self.name}() was called directly, and only a worker makes its dependencies: pass"
                f" {', '.join(f'{name}=…' for name in sorted(missing))}"
            )
        return self.fn(*args, **kwargs)

    @coroutine_function
    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, Handle[R]]:
        """Store a job that calls this task with these arguments; durable once it is awaited."""
        return Enqueuing(self.client.enqueue_call(self, self.options, args, kwargs), self.name, "enqueue")

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """A call that is not yet enqueued, for `enqueue_many`, flows and schedules."""
        return Call(self, self.options, args, dict(kwargs))

    def using(self, **options: Unpack[JobOptions]) -> Using[P, R]:
        """The same task with other options for the jobs enqueued through it.

        `delay` in seconds or `at` an aware datetime or seconds since 1970: when it may start. `priority`: lower first.
        `key`: the same key gives the same job. `connection`: enqueue inside your own transaction.

        `unique`: one job for all calls with the same key (else the same arguments) "until_start" (until it is first
        claimed), "until_end" (until it ends), or for so many seconds from the first. `replace`: if the job with the key
        still waits, it gets these arguments and this due time. `debounce`: the same, due so many seconds after the last
        call, but at most `debounce_max` after the first. `expires`: the job is cancelled if it has not started by then,
        in seconds or an aware datetime. `limit`: instead of the task's. `on_success`, `on_dead`: a task (or
        `task.using(…)`, or its name) whose job is stored when this one has succeeded, or is dead. Its argument is the
        id of this job.
        """
        return Using(self, self.options.changed(options))

    @property
    def sync(self) -> BlockingTask[P, R]:
        """The same task for blocking code."""
        return self.client.sync.task(self, self.options)

    def stored_as(self, codec: str) -> Task[P, R]:
        """The task that decodes and encodes jobs with this stored codec."""
        return self.plain if self.plain is not None and codec == "json" else self

    def encode(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        """The payload of a call; InvalidJob names the argument that cannot be encoded."""
        if self.codec is not None:
            self.arguments.refuse_injected(kwargs)
            return self._bytes(self.codec.dumps((args, kwargs)))
        return self.arguments.encode(args, kwargs)

    def encode_open(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        """The payload of a call with placeholders for results of other jobs."""
        if self.codec is None:
            return self.arguments.encode_open(args, kwargs)
        if getattr(self.codec, "name", "") != "json":
            raise InvalidJob(
                f"task {self.name!r} has its own codec, so its arguments cannot be results of other jobs: remove"
                " codec=, or pass plain values"
            )
        self.arguments.refuse_injected(kwargs)
        what = f"the payload of {self.name}()"
        return self._bytes(self.codec.dumps((tuple(opened(args, what)), opened(kwargs, what))))

    def decode(self, payload: bytes) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if self.codec is not None:
            return self.codec.loads(payload)
        return self.arguments.decode(payload)

    def encode_result(self, value: Any) -> bytes | None:
        """A returned value as it is stored."""
        if value is None:
            return None
        if self.result_codec is None:
            return self.returns.encode(value)
        return self._bytes(self.result_codec.dumps(value))

    def _bytes(self, data: Any) -> bytes:
        if isinstance(data, bytes):
            return data
        raise InvalidJob(f"dumps() of the codec of task {self.name!r} must return bytes, not {type(data).__name__}")

    def decode_result(self, data: bytes, codec: str = "") -> R:
        """A stored result as a value; `codec`: the stored one of its job."""
        used = self.stored_as(codec)
        return used.returns.decode(data) if used.result_codec is None else used.result_codec.loads(data)


class Using(Generic[P, R]):
    """A task with options of one call."""

    __slots__ = ("options", "task")

    def __init__(self, task: Task[P, R], options: Options) -> None:
        self.task = task
        self.options = options

    @coroutine_function
    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, Handle[R]]:
        """Store a job that calls the task with these arguments and options."""
        task = self.task
        stored = task.client.enqueue_call(task, self.options, args, kwargs)
        return Enqueuing(stored, f"{task.name}.using(…)", "enqueue")

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """A call that is not yet enqueued, for `enqueue_many`, flows and schedules."""
        return Call(self.task, self.options, args, dict(kwargs))

    @property
    def sync(self) -> BlockingTask[P, R]:
        """The same for blocking code."""
        return self.task.client.sync.task(self.task, self.options)


class Call(Generic[R]):
    """A task with its arguments and options, ready to be enqueued."""

    __slots__ = ("args", "kwargs", "options", "task")

    def __init__(self, task: Task[..., R], options: Options, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.task = task
        self.options = options
        self.args = args
        self.kwargs = kwargs


def is_async(fn: Callable[..., Any]) -> bool:
    """Whether calling it gives a coroutine: async functions, partials of them, objects with an async `__call__`."""
    while hasattr(fn, "func") and not inspect.isfunction(fn):
        fn = fn.func  # type: ignore[attr-defined]  # a functools.partial
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None))  # noqa: B004


def _checked_log_level(level: str, task: str) -> str:
    try:
        return parse("task_log_level", level)
    except ConfigError:
        raise ConfigError(
            f"task {task!r}: log_level= must be DEBUG, INFO, WARNING, ERROR or OFF, not {level!r:.100}"
        ) from None


def _checked_memory(memory: int | str, task: Task[..., Any]) -> int:
    if task.run_in not in IN_CHILDREN:
        raise ConfigError(f"task {task.name!r}: memory= needs run_in='isolated' or 'process'")
    try:
        return size(memory, 2**53)
    except (ValueError, TypeError):
        raise ConfigError(
            f"task {task.name!r}: memory= must be a number of bytes, or text such as '500MB', not {memory!r}"
        ) from None
