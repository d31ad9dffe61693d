"""The app: its tasks, the common operations, and the services for the rest."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypedDict, TypeVar, Unpack, cast, overload

from .client.claims import Claim
from .client.config import Config
from .client.enqueue import EnqueueHook
from .core.clock import Clock, Entropy, SystemClock
from .core.errors import ConfigError, InvalidJob
from .core.operations import QueueStats
from .core.settings import MANUAL_LEASE, combine
from .core.url import redact
from .observe.events import Handler
from .parts import Parts
from .store.open import given_store
from .store.protocol import Finding, Store
from .tasks.context import Context
from .tasks.handle import Handle
from .tasks.hooks import CallHook, ErrorHook, Lifespan, RunHook
from .tasks.limits import Limit, given_limits
from .tasks.makers import BatchMaker, Declared, Function, TaskMaker
from .tasks.options import BatchOptions, Codec, JobOptions, TaskOptions
from .tasks.registry import UsingApp
from .tasks.task import Call, Task, Using
from .tasks.unawaited import Enqueuing, coroutine_function
from .views import Job
from .webhooks.service import Webhooks

if TYPE_CHECKING:
    from .client.audit import Audit
    from .client.bulk import Bulk
    from .client.control import Workers
    from .client.errors import ErrorGroups
    from .client.explain import Explanation
    from .client.inspection import Page, Stats
    from .client.reasons import Reasons
    from .client.timeseries import Timeseries
    from .flows.builder import Flow
    from .flows.service import FlowHandle, Flows
    from .schedules.service import RuleOptions, Schedules
    from .sync.app import SyncApp

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F")
H = TypeVar("H", bound=Handler)
L = TypeVar("L", bound=Lifespan)


class Given(TypedDict, total=False):
    """The settings that an app takes as keyword arguments."""

    lease: float
    poll: float
    grace: float
    concurrency: int
    max_attempts: int
    retry_base: float
    retry_factor: float
    retry_jitter: float
    retry_cap: float
    max_crashes: int
    max_payload: int | str
    max_output: int | str
    task_log_level: str
    max_depth: int | None
    retention: float | str | timedelta
    key_retention: float | str | timedelta
    audit_retention: float | str | timedelta
    default_result_timeout: float | None
    refusal_timeout: float | str
    metrics_prefix: str
    request_memory: int | str
    cloudpickle: bool
    secret: str | Sequence[str]
    pass_env: str | Sequence[str]
    release: str


def _placed(
    store: str | Store | object | None, settings: Given, clock: Clock | None = None
) -> tuple[dict[str, Any], Store | None]:
    """The settings with the URL of a store, and the store itself if it was given as an object."""
    given: dict[str, Any] = dict(settings)
    if store is None:
        return given, None
    found = store if isinstance(store, str) else given_store(store, clock)
    return (given | {"url": found}, None) if isinstance(found, str) else (given, found)


class Holdfast:
    """A job queue on a store, named by a URL (else HOLDFAST_URL, else sqlite:///holdfast.db) or given as an object:
    a store, or your own Redis client, asyncpg pool or obstore store. Without a store, the environment is read at the
    first use, and `setup` can name the store before that.

    `imports` names the modules that define its tasks. They are imported when a worker, a server or a command starts;
    their functions may also be run by name (`module:qualname`).
    `queue_limits`: by queue, a limit for its jobs whose task has no limit.
    `codec`: encodes the calls and results of tasks that declare no codec, instead of JSON. Schedules,
    follow-ups and jobs that are stored as JSON stay JSON.
    """

    def __init__(
        self,
        store: str | Store | object | None = None,
        *,
        imports: Sequence[str] = (),
        queue_limits: Mapping[str, Limit] | None = None,
        codec: Codec | None = None,
        clock: Clock | None = None,
        entropy: Entropy | None = None,
        **settings: Unpack[Given],
    ) -> None:
        if isinstance(imports, str) or not all(isinstance(name, str) for name in imports):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(f"imports= must be a list of module names, such as ['shop.mail'], not {imports!r:.100}")
        given, kept = _placed(store, settings, clock)
        combine(given, {}, {})
        # What a name from the store may be resolved in: the module that makes the app, and those it names.
        own = inspect.currentframe()
        maker = "" if own is None or own.f_back is None else own.f_back.f_globals.get("__name__", "")
        self._parts = Parts(
            kept,
            given,
            clock or SystemClock(),
            entropy,
            app=self,
            trusted={maker, *imports},
            imports=imports,
            queue_limits={} if queue_limits is None else given_limits(queue_limits),
            codec=codec,
        )
        if store is not None:
            self._parts.settle()

    def setup(self, url: str | Store | object | None = None, **settings: Unpack[Given]) -> None:
        """Set the store and settings of an app that was made without them: before its first use."""
        given, kept = _placed(url, settings)
        self._parts.set_up(kept, given)

    if not TYPE_CHECKING:  # type checkers report a name that does not exist

        def __getattr__(self, name: str) -> Any:
            from .tasks.celery_names import APP, missing

            raise missing(self, name, APP)

    def __repr__(self) -> str:
        return f"Holdfast({redact(self._parts.url)!r})"

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._parts.runtime.leave_block()

    async def open(self) -> None:
        """Connect now, and use this loop until it ends or the app is closed.

        An app on a background loop moves here. An app that another loop has opened stays there.
        """
        await self._parts.runtime.open()

    async def close(self) -> None:
        """Write all accepted operations, then disconnect. The app can be used again: it reopens."""
        await self._parts.runtime.close()

    @property
    def sync(self) -> SyncApp:
        """The app for blocking code."""
        return self._parts.sync

    # -- tasks

    @overload
    def task(
        self, fn: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /
    ) -> Declared[P, R, Concatenate[Context, P], Coroutine[Any, Any, R]]: ...
    @overload
    def task(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> Declared[P, R, P, Coroutine[Any, Any, R]]: ...
    @overload
    def task(self, fn: Callable[Concatenate[Context, P], R], /) -> Declared[P, R, Concatenate[Context, P], R]: ...
    @overload
    def task(self, fn: Callable[P, R], /) -> Declared[P, R, P, R]: ...
    @overload
    def task(self, fn: Callable[..., Any], /, **options: Unpack[TaskOptions]) -> Task[..., Any]: ...
    @overload
    def task(self, /, **options: Unpack[TaskOptions]) -> TaskMaker: ...
    @overload
    def task(self, /, **options: Unpack[BatchOptions]) -> BatchMaker: ...
    def task(self, fn: Callable[..., Any] | None = None, /, **options: Any) -> Any:
        """Register a function as a task, with or without options.

        `run_in`: "loop" for async functions, "thread" for plain ones; "process" (a pool) or "isolated" (a fresh process
        per job, killable) for either, with a limit of `memory` where given, such as "2GB". `retry`: a Backoff, or a
        function of (exception, attempt) that returns seconds to wait, or None to give up. `payload=True` passes the
        JSON object as one argument. A first parameter annotated `Context` receives the job's context. `unique`,
        `expires`: of its jobs, unless `using` sets them. `limit`: maximum concurrency and start rate of its jobs, over
        all workers. `batch`: one call handles up to so many jobs, collected for at most `wait` seconds; the function
        takes the list of their arguments. `log_level`: the lowest level that is stored of what it prints and logs.
        """
        if fn is None:
            return partial(self._parts.registry.declare, **options)
        return self._parts.registry.declare(fn, **options)

    def cron(
        self,
        line: str | None = None,
        /,
        *,
        name: str | None = None,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        **options: Unpack[RuleOptions],
    ) -> Callable[[F], F]:
        """Enqueue a task on a schedule: a cron line in a time zone, or `every` so many seconds.

        `args`, `kwargs`: the arguments of its jobs. `name`: of the schedule, if a task has two.
        `catch_up`: missed runs that are made up for (0 none, 1 one for all, n up to n). `jitter`: delay each run by up
        to so many seconds. `overlap="skip"`: no run while the job of the previous one has not ended. `start`, `end`:
        no run is due before or after this aware datetime (or seconds since 1970).
        """
        from .core.cron import checked  # late: most programs that enqueue have no schedule
        from .schedules.service import made_rule

        rule = checked(made_rule(line, **options))
        if isinstance(args, str) or not isinstance(args, Sequence) or not isinstance(kwargs or {}, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidJob(
                "@app.cron takes a list as args= and a dict as kwargs=, such as args=[1], kwargs={'to': 'a'}"
            )

        def declare(fn: F) -> F:
            task = cast("Task[..., Any]", fn if isinstance(fn, Task) else self.task(cast("Callable[..., Any]", fn)))
            called, call = name or task.name, task.call(*args, **(kwargs or {}))
            before, rule_before = self._parts.schedules.declared.get(called, (call, rule))
            if (before.task.name, before.args, before.kwargs, rule_before) != (task.name, call.args, call.kwargs, rule):
                raise InvalidJob(
                    f"schedule {called!r} is declared twice: give one declaration another name, @app.cron(…, name=…)"
                )
            try:
                task.stored_as("json").encode(call.args, call.kwargs)
            except InvalidJob as error:
                raise InvalidJob(
                    f"schedule {called!r}: {error}; pass its arguments as @app.cron(…, args=…, kwargs=…)"
                ) from None
            self._parts.schedules.declared[called] = (call, rule)
            return cast("F", task)

        return declare

    # -- hooks and events

    @property
    def around_enqueue(self) -> list[EnqueueHook]:
        """Async functions of (job, store_it) that are called around every insert; the first is the innermost."""
        return self._parts.enqueue.hooks

    @around_enqueue.setter
    def around_enqueue(self, hooks: list[EnqueueHook]) -> None:
        self._parts.enqueue.hooks = hooks

    @property
    def around_run(self) -> list[RunHook]:
        """Async functions of (context, run_it) that are called around every run, on the worker's loop."""
        return self._parts.hooks.around_run

    @around_run.setter
    def around_run(self, hooks: list[RunHook]) -> None:
        self._parts.hooks.around_run = hooks

    @property
    def around_call(self) -> list[CallHook]:
        """Functions of the task that return a context manager, which is entered around each call of a task's function.

        Entered and left in the thread or process that runs the function; for async tasks, on the worker's loop.
        """
        return self._parts.hooks.around_call

    @around_call.setter
    def around_call(self, hooks: list[CallHook]) -> None:
        self._parts.hooks.around_call = hooks

    def lifespan(self, fn: L) -> L:
        """Enter a context manager around each worker's life, once per process; `ctx.state` is what it yields.

        A decorator for a generator function, async or plain, without parameters.
        """
        self._parts.hooks.set_lifespan(fn)
        return fn

    @property
    def on_error(self) -> list[ErrorHook]:
        """Functions of (error, job) that are called when a run has failed."""
        return self._parts.hooks.on_error

    @on_error.setter
    def on_error(self, hooks: list[ErrorHook]) -> None:
        self._parts.hooks.on_error = hooks

    @overload
    def on(self, name: str, handler: Handler, /) -> None: ...
    @overload
    def on(self, name: str, /) -> Callable[[H], H]: ...
    def on(self, name: str, handler: Any = None, /) -> Any:
        """Call a plain function with every event of this name (`*`: any); also as a decorator.

        It is called in this process, usually on the app's loop, after the store has written the change: be quick.
        """
        events = self._parts.events

        def listen(handler: H) -> H:
            events.on(name, handler)
            return handler

        return listen if handler is None else events.on(name, handler)

    # -- enqueue

    @overload
    def enqueue(
        self, fn: Task[P, R] | Using[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, Handle[R]]: ...
    @overload
    def enqueue(
        self, fn: Function[Concatenate[Context, P]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, Handle[Any]]: ...
    @overload
    def enqueue(self, fn: Function[P], /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, Handle[Any]]: ...
    @overload
    def enqueue(self, fn: str | partial[Any], /, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, Handle[Any]]: ...
    @coroutine_function
    def enqueue(self, fn: Any, /, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, Handle[Any]]:
        """Enqueue a task, a registered name, or any importable callable; others are pickled if that is enabled."""
        return Enqueuing(self._enqueue(fn, args, kwargs), "app", "enqueue")

    async def _enqueue(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Handle[Any]:
        call = self._parts.registry.call(fn, args, kwargs)
        return await self._parts.enqueue.enqueue_call(call.task, call.options, call.args, call.kwargs)

    def using(self, **options: Unpack[JobOptions]) -> UsingApp:
        """Options for calls of any callable: `app.using(delay=60).enqueue(fn, 1)`; see `Task.using`."""
        return UsingApp(self._parts.registry, options)

    @overload
    def call(self, fn: Task[P, R] | Using[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Call[R]: ...
    @overload
    def call(self, fn: Function[Concatenate[Context, P]], /, *args: P.args, **kwargs: P.kwargs) -> Call[Any]: ...
    @overload
    def call(self, fn: Function[P], /, *args: P.args, **kwargs: P.kwargs) -> Call[Any]: ...
    @overload
    def call(self, fn: str | partial[Any], /, *args: Any, **kwargs: Any) -> Call[Any]: ...
    def call(self, fn: Any, /, *args: Any, **kwargs: Any) -> Call[Any]:
        """A call that is not yet enqueued, for `enqueue_many`."""
        return self._parts.registry.call(fn, args, kwargs)

    @overload
    def enqueue_many(self, calls: Iterable[Call[R]]) -> Coroutine[Any, Any, list[Handle[R]]]: ...
    @overload
    def enqueue_many(self, calls: Iterable[Call[Any] | tuple[Any, ...]]) -> Coroutine[Any, Any, list[Handle[Any]]]: ...
    @coroutine_function
    def enqueue_many(self, calls: Iterable[Call[Any] | tuple[Any, ...]]) -> Coroutine[Any, Any, list[Handle[Any]]]:
        """Enqueue many calls, up to 1,000 jobs and 8 MB per write.

        A call is `app.call(task, …)` or a tuple `(task, …)`. Calls are taken from the
        iterable as they are written, at most 32 MB ahead.
        """
        return Enqueuing(self._parts.enqueue.enqueue_many(calls), "app", "enqueue_many")

    @coroutine_function
    def submit(
        self, name: str, payload: bytes, /, *, json: bool = False, **options: Unpack[JobOptions]
    ) -> Coroutine[Any, Any, Handle[Any]]:
        """Store a job with a payload of raw bytes (with `json`: JSON text), and the options of `using`."""
        return Enqueuing(self._parts.enqueue.submit(name, payload, json=json, **options), "app", "submit")

    @coroutine_function
    def enqueue_flow(self, flow: Flow, *, id: str | None = None) -> Coroutine[Any, Any, FlowHandle]:
        """Store and start all jobs of a flow, or none. With an `id` the call can be repeated."""
        return Enqueuing(self._parts.flows.enqueue(flow, id), "app", "enqueue_flow")

    # -- one job

    def handle(self, id: str) -> Handle[Any]:
        """A handle on a job, from its id."""
        return self._parts.handles.handle(id)

    async def job(self, id: str) -> Job:
        """One job as it is now."""
        return await self._parts.handles.job(id)

    @overload
    async def explain(self, id: str) -> Explanation: ...
    @overload
    async def explain(self, id: None = None, *, queue: str | None = None) -> Reasons: ...
    async def explain(self, id: Any = None, *, queue: str | None = None) -> Explanation | Reasons:
        """Why a job is not running; without an id: why the jobs of a queue, or of the whole store, wait."""
        return await self._parts.inspection.explain(id, queue=queue)

    async def cancel(self, id: str) -> bool:
        """Cancel a waiting job, ask a running one to stop; False if it had ended. For a flow: all of its jobs."""
        return await self._parts.operations.cancel(id)

    async def retry(self, id: str) -> Job:
        """Run an ended job again, from attempt 0, keeping its history; or a waiting one at once.

        For a flow: its dead jobs, and then their dependents that did not run. A job of a flow: with its dependents.
        """
        return await self._parts.operations.retry(id)

    async def delete(self, id: str) -> None:
        """Delete a job that is not running and whose flow, if any, has ended. For a flow: all of its jobs."""
        await self._parts.operations.delete(id)

    async def signal(self, name: str, value: Any = None) -> int:
        """Wake every job that waits for this signal, and pass it the value; returns how many.

        The signal is kept for key_retention seconds, for jobs that wait later. Sending it again replaces the value.
        """
        return await self._parts.operations.signal(name, value)

    # -- the store

    async def jobs(
        self,
        *,
        state: str | Sequence[str] | None = None,
        queue: str | None = None,
        task: str | None = None,
        tag: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page:
        """A page of jobs that match, newest first."""
        return await self._parts.inspection.jobs(
            state=state, queue=queue, task=task, tag=tag, limit=limit, cursor=cursor
        )

    async def stats(self) -> Stats:
        """Counts by queue and state, and the number of live workers."""
        return await self._parts.inspection.stats()

    async def queues(self) -> tuple[list[QueueStats], int, tuple[Finding, ...]]:
        """The counts of every queue, the store's time, and current conditions that may lose jobs."""
        return await self._parts.inspection.queues()

    async def pause(
        self, queue: str | None = None, *, task: str | None = None, where: Mapping[str, Any] | None = None
    ) -> bool:
        """Start no more jobs of a queue, a task, or a task with certain arguments; running jobs continue.

        A queue is paused at once. Jobs of a task are deferred when they are claimed; workers notice the pause within
        about a poll interval. False if no job, live worker, schedule or task of this app has that queue or task: it is
        paused anyway, and a warning is logged, since the name may be misspelled.
        """
        return await self._parts.operations.pause(queue, task=task, where=where)

    async def resume(
        self, queue: str | None = None, *, task: str | None = None, where: Mapping[str, Any] | None = None
    ) -> bool:
        """Lift a pause, named as it was set. False if nothing of that name was paused."""
        return await self._parts.operations.resume(queue, task=task, where=where)

    async def claim(
        self,
        queues: Sequence[str] | str = ("default",),
        *,
        tasks: Sequence[str] | None = None,
        limit: int = 1,
        lease: float = MANUAL_LEASE,
        wait: float = 0.0,
    ) -> list[Claim]:
        """Claim up to `limit` jobs manually, under one lease; lost claims are recovered first.

        [] if there are none within `wait` seconds. The claims are released if this process ends.
        """
        return await self._parts.claims.claim(queues, tasks=tasks, limit=limit, lease=lease, wait=wait)

    # -- services

    @property
    def flows(self) -> Flows:
        """Jobs that depend on each other."""
        return self._parts.flows

    @property
    def schedules(self) -> Schedules:
        """Cron schedules and intervals."""
        return self._parts.schedules

    @property
    def bulk(self) -> Bulk:
        """Operations on many jobs: search, count, change, retry the dead, purge, recover lost claims."""
        return self._parts.bulk

    @property
    def audit(self) -> Audit:
        """The audit log: who did what, when, and with which outcome."""
        return self._parts.audit

    @property
    def workers(self) -> Workers:
        """The live workers: `await app.workers()` lists them, its methods control them."""
        return self._parts.workers

    @property
    def errors(self) -> ErrorGroups:
        """The last errors of jobs, in groups."""
        return self._parts.errors

    @property
    def timeseries(self) -> Timeseries:
        """What happened over time: transitions of jobs, outcomes of claims, queue depths."""
        return self._parts.timeseries

    @property
    def webhooks(self) -> Webhooks:
        """HTTP notifications of the ends of jobs."""
        return self._parts.webhooks

    @property
    def config(self) -> Config:
        """Settings in the store, shared by all processes that use it."""
        return self._parts.config


def parts_of(app: Holdfast) -> Parts:
    """The parts of an app, for workers, servers and commands. Not part of the public API."""
    try:
        return app._parts  # pyright: ignore[reportPrivateUsage]  # noqa: SLF001
    except AttributeError:
        raise ConfigError(f"pass a Holdfast app, such as Holdfast('sqlite:///jobs.db'), not {app!r:.100}") from None
