"""The app: its tasks, the common operations, and the services for the rest."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypedDict, TypeVar, Unpack, cast, overload

from .client.bulk import Bulk
from .client.claims import Claim
from .client.config import Config
from .client.enqueue import EnqueueHook
from .client.errors import ErrorGroups
from .client.inspection import Page, Stats
from .client.pauses import Pause
from .client.timeseries import Timeseries
from .codec import Signed
from .core.clock import Clock, Entropy, SystemClock
from .core.cron import checked
from .core.errors import ConfigError, InvalidJob
from .core.operations import Printed, QueueStats, Transitions
from .core.settings import MANUAL_LEASE, combine, from_environment
from .core.url import redact
from .observe.events import Handler
from .parts import Parts
from .schedules.service import RuleOptions, Schedules, made_rule
from .store.open import client_url, open_store
from .store.protocol import Finding, Store
from .sync.app import SyncApp
from .tasks.context import Context
from .tasks.handle import Handle
from .tasks.hooks import ErrorHook, RunHook
from .tasks.limits import Limit, given_limits
from .tasks.makers import BatchMaker, TaskMaker
from .tasks.options import BatchOptions, JobOptions, TaskOptions
from .tasks.task import Call, Task, Using
from .views import Job, WorkerInfo
from .webhooks.service import Webhooks

if TYPE_CHECKING:
    from .client.explain import Explanation
    from .flows.builder import Flow
    from .flows.service import FlowHandle, Flows

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F")
H = TypeVar("H", bound=Handler)


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
    max_depth: int | None
    retention: float | str | timedelta
    key_retention: float | str | timedelta
    default_result_timeout: float | None
    unknown_tasks: str
    metrics_prefix: str
    request_memory: int | str
    cloudpickle: bool
    secret: str | Sequence[str]
    pass_env: str | Sequence[str]


class Holdfast:
    """A job queue on a store, named by a URL (else HOLDFAST_URL, else sqlite:///holdfast.db) or given as an object:
    a store, or a Redis client of yours.

    `imports` names the modules whose functions may be run by name (`module:qualname`), beside the registered tasks.
    `queue_limits`: by queue, a limit for its jobs whose task has none of its own.
    """

    def __init__(
        self,
        store: str | Store | object | None = None,
        *,
        imports: Sequence[str] = (),
        queue_limits: Mapping[str, Limit] | None = None,
        clock: Clock | None = None,
        entropy: Entropy | None = None,
        **settings: Unpack[Given],
    ) -> None:
        given: dict[str, Any] = dict(settings)
        if store is not None and not isinstance(store, str) and not hasattr(store, "write"):
            store = client_url(store)
        if isinstance(store, str):
            given["url"] = store
        start = combine(given, from_environment(os.environ), {})
        if start.cloudpickle and not start.secret:
            raise ConfigError(
                "the cloudpickle codec needs a secret to sign payloads: set HOLDFAST_SECRET or Holdfast(…, secret=…)"
            )
        clock = clock or SystemClock()
        if store is None or isinstance(store, str):
            kept, url = open_store(start.url, clock), start.url
        else:
            kept = cast("Store", store)
            url = f"{kept.name}://"
        # What a name from the store may be resolved in: the module that makes the app, and those it names.
        own = inspect.currentframe()
        maker = "" if own is None or own.f_back is None else own.f_back.f_globals.get("__name__", "")
        self._parts = parts = Parts(
            url,
            kept,
            given,
            clock,
            entropy,
            trusted={maker, *imports},
            signed=Signed(start.secret) if start.cloudpickle and start.secret else None,
            queue_limits={} if queue_limits is None else given_limits(queue_limits),
        )
        parts.sync = SyncApp(self, parts.runtime, parts.registry, parts.enqueue, parts.claims)

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
    def task(self, fn: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /) -> Task[P, R]: ...
    @overload
    def task(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> Task[P, R]: ...
    @overload
    def task(self, fn: Callable[Concatenate[Context, P], R], /) -> Task[P, R]: ...
    @overload
    def task(self, fn: Callable[P, R], /) -> Task[P, R]: ...
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
        JSON object as one argument. A parameter annotated `Context` receives the running job's context. `unique`,
        `expires`: of its jobs, unless `using` sets them. `limit`: maximum concurrency and start rate of its jobs, over
        all workers. `batch`: one call handles up to so many jobs, collected for at most `wait` seconds; the function
        takes the list of their arguments.
        """
        if fn is None:
            return partial(self._parts.registry.declare, **options)
        return self._parts.registry.declare(fn, **options)

    def cron(
        self, line: str | None = None, /, *, name: str | None = None, **options: Unpack[RuleOptions]
    ) -> Callable[[F], F]:
        """Enqueue a task on a schedule: a cron line in a time zone, or `every` so many seconds.

        It is called without arguments: `app.schedules.put` takes some. `name`: of the schedule, if a task has two.
        `catch_up`: missed runs that are made up for (0 none, 1 one for all, n up to n). `jitter`: delay each run by up
        to so many seconds. `overlap="skip"`: no run while the job of the previous one has not ended.
        """
        rule = checked(made_rule(line, **options))

        def declare(fn: F) -> F:
            task = cast("Task[..., Any]", fn if isinstance(fn, Task) else self.task(cast("Callable[..., Any]", fn)))
            called = name or task.name
            before, rule_before = self._parts.schedules.declared.get(called, (task, rule))
            if (before.name, rule_before) != (task.name, rule):
                raise InvalidJob(
                    f"schedule {called!r} is declared twice: give one declaration another name, @app.cron(…, name=…)"
                )
            try:
                task.encode((), {})
            except InvalidJob as error:
                raise InvalidJob(
                    f"schedule {called!r}: {error}; @app.cron passes no arguments: use app.schedules.put instead"
                ) from None
            self._parts.schedules.declared[called] = (task, rule)
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

    async def enqueue(self, fn: Callable[..., Any] | str, /, *args: Any, **kwargs: Any) -> Handle[Any]:
        """Enqueue a task, a registered name, or any importable callable; others are pickled if that is enabled."""
        call = self._parts.registry.call(fn, args, kwargs)
        return await self._parts.enqueue.enqueue_call(call.task, call.options, call.args, call.kwargs)

    def call(
        self, fn: Callable[..., Any] | str | Task[..., R] | Using[..., R], /, *args: Any, **kwargs: Any
    ) -> Call[Any]:
        """A call that is not yet enqueued, for `enqueue_many`."""
        return self._parts.registry.call(fn, args, kwargs)

    async def enqueue_many(self, calls: Iterable[Call[Any] | tuple[Any, ...]]) -> list[Handle[Any]]:
        """Enqueue many calls, one round trip per thousand. A call is `app.call(task, …)` or a tuple `(task, …)`."""
        return await self._parts.enqueue.enqueue_many(calls)

    async def submit(
        self, name: str, payload: bytes, /, *, json: bool = False, **options: Unpack[JobOptions]
    ) -> Handle[Any]:
        """Store a job with a payload of raw bytes (with `json`: JSON text), and the options of `using`."""
        return await self._parts.enqueue.submit(name, payload, json=json, **options)

    async def enqueue_flow(self, flow: Flow, *, id: str | None = None) -> FlowHandle:
        """Store and start all jobs of a flow, or none. With an `id` the call can be repeated."""
        return await self._parts.flows.enqueue(flow, id)

    # -- one job

    def handle(self, id: str) -> Handle[Any]:
        """A handle on a job, from its id."""
        return self._parts.handles.handle(id)

    async def job(self, id: str) -> Job:
        """One job as it is now."""
        return await self._parts.handles.job(id)

    async def explain(self, id: str) -> Explanation:
        """Why a job is not running, as text."""
        return await self._parts.inspection.explain(id)

    async def output(self, id: str, position: int = 0) -> list[Printed]:
        """A job's output from an offset on, about 1 MiB at a time."""
        return await self._parts.inspection.output(id, position)

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

    async def update_meta(self, id: str, /, **meta: Any) -> None:
        """Merge into the meta of a job that has not ended."""
        await self._parts.operations.update_meta(id, meta)

    async def mark_failed(self, id: str, error: str | BaseException) -> None:
        """For a monitor that knows that a run is lost: end its claim as failed, as its worker would have."""
        await self._parts.claims.mark_failed(id, error)

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

    async def workers(self) -> list[WorkerInfo]:
        """The live workers (and manual claims), by node and pid."""
        return await self._parts.inspection.workers()

    async def transitions(self, since: str | None = None, limit: int = 1000) -> Transitions:
        """The transitions since the cursor of an earlier answer; None: from now on."""
        return await self._parts.inspection.transitions(since, limit)

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

    async def paused_tasks(self) -> list[Pause]:
        """The active pauses of tasks, by name; `stats` has those of queues."""
        return await self._parts.operations.paused_tasks()

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
    def errors(self) -> ErrorGroups:
        """The last errors of jobs, in groups."""
        return self._parts.errors

    @property
    def timeseries(self) -> Timeseries:
        """Data of charts: outcomes of claims and queue depths over time."""
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
    return app._parts  # pyright: ignore[reportPrivateUsage]  # noqa: SLF001
