"""The app: its store, its tasks by name, and what belongs to it. What one can ask of it is in the files below it:
`client/`: `enqueue.py`, `claims.py`, `inspection.py`, `operations.py`.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    ParamSpec,
    TypedDict,
    TypeVar,
    Unpack,
    cast,
    overload,
)

from .client.config import Config
from .client.enqueue import EnqueueHook, Enqueuing
from .client.runtime import carried
from .codec import Signed
from .core.clock import Clock, Entropy, SystemClock
from .core.cron import checked
from .core.errors import ConfigError, InvalidJob
from .core.operations import Where
from .core.settings import combine, from_environment
from .schedules.schedule import KIND as SCHEDULES
from .schedules.schedule import read as read_schedule
from .schedules.service import Schedules, made_rule
from .store.open import client_url, open_store
from .store.protocol import Store
from .sync.app import SyncApp
from .tasks.context import Context
from .tasks.limits import Limit, given_limits
from .tasks.makers import BatchMaker, TaskMaker
from .tasks.options import BatchOptions, Options, TaskOptions
from .tasks.registry import Registry
from .tasks.task import Task
from .views import Job
from .webhooks.service import Feed, Webhooks

if TYPE_CHECKING:
    from .flows.builder import Flow
    from .flows.service import FlowHandle, Flows

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F")
RunHook = Callable[[Context, Callable[[], Awaitable[Any]]], Awaitable[Any]]
ErrorHook = Callable[[BaseException, Job], object]


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
    max_silent_deaths: int
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


class Holdfast(Enqueuing):
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
            raise ConfigError("the cloudpickle codec signs what it stores: set secret= or HOLDFAST_SECRET")
        clock = clock or SystemClock()
        if store is None or isinstance(store, str):
            kept, self.url = open_store(start.url, clock), start.url
        else:
            kept = cast("Store", store)
            self.url = f"{kept.name}://"
        super().__init__(kept, given, clock, entropy, feed=Feed)
        # What a name from the store may be resolved in: the module that makes the app, and those it names.
        own = inspect.currentframe()
        maker = "" if own is None or own.f_back is None else own.f_back.f_globals.get("__name__", "")
        signed = Signed(start.secret) if start.cloudpickle and start.secret else None
        self.registry = Registry(self, {maker, *imports}, signed)
        self.declared = {}
        self._queue_limits = {} if queue_limits is None else given_limits(queue_limits)
        self.around_enqueue: list[EnqueueHook] = []
        self.around_run: list[RunHook] = []
        self.on_error: list[ErrorHook] = []
        self._sync = SyncApp(self)
        self.registry.add(_noop, "noop", Options(), built_in=True)

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
        """Register a function as a task, plainly or with options of its own.

        `run_in`: "loop" for async functions, "thread" for plain ones; "process" (a pool) or "isolated" (a fresh process
        per job, killable) for either, with a limit of `memory` where given, such as "2GB". `retry`: a Backoff, or a
        function of (exception, attempt) that answers seconds to wait, or None to give up. `payload=True` hands over the
        JSON object whole. A parameter annotated `Context` receives the running job's context. `once`, `expires`: of its
        jobs, where `using` says nothing else. `limit`: how many of its jobs run and how often one starts, over
        all workers. `batch`: one call handles up to so many jobs, gathered for at most `wait` seconds; the function
        takes the list of what each was enqueued with.
        """
        if fn is None:
            return partial(self.registry.declare, **options)
        return self.registry.declare(fn, **options)

    def cron(
        self,
        line: str | None = None,
        /,
        *,
        every: float | timedelta | None = None,
        tz: str = "UTC",
        name: str | None = None,
        catch_up: int = 1,
        jitter: float | timedelta = 0.0,
        overlap: str = "allow",
    ) -> Callable[[F], F]:
        """Enqueue a task by the clock: a cron line in a time zone, or `every` so many seconds.

        It is called without arguments: `app.schedules.put` takes some. `name`: of the schedule, where a task has two.
        `catch_up`: missed runs that are made up for (0 none, 1 one for all, n up to n). `jitter`: put each run off by
        up to so many seconds. `overlap="skip"`: no run while the last one's job has not ended.
        """
        rule = checked(made_rule(line, every, tz=tz, catch_up=catch_up, jitter=jitter, overlap=overlap))

        def declare(fn: F) -> F:
            task = cast("Task[..., Any]", fn if isinstance(fn, Task) else self.task(cast("Callable[..., Any]", fn)))
            called = name or task.name
            before, rule_before = self.declared.get(called, (task, rule))
            if (before.name, rule_before) != (task.name, rule):
                raise InvalidJob(f"two schedules are called {called!r}: give one of them name= in its @app.cron")
            try:
                task.encode((), {})
            except InvalidJob as error:
                raise InvalidJob(
                    f"schedule {called!r}: {error}; app.schedules.put takes a call with arguments"
                ) from None
            self.declared[called] = (task, rule)
            return cast("F", task)

        return declare

    # -- its parts

    @property
    def sync(self) -> SyncApp:
        """The app for blocking code."""
        return self._sync

    @property
    def flows(self) -> Flows:
        """Jobs that wait for each other."""
        from .flows.service import Flows  # late: most programs that enqueue have none

        return Flows(self)

    @carried
    async def enqueue_flow(self, flow: Flow, *, id: str | None = None) -> FlowHandle:
        """Store all jobs of a flow, or none, and begin it. With an `id` it can be called again: the flow stays one."""
        return await self.flows.start(flow, id)

    def flow(self, id: str) -> FlowHandle:
        """A handle on a flow, from its id alone."""
        from .flows.service import FlowHandle

        return FlowHandle(self, id)

    @property
    def schedules(self) -> Schedules:
        """What is enqueued by the clock."""
        return Schedules(self)

    async def _is_scheduled(self, where: Where) -> bool:
        kept = [read_schedule(one.value) for one in (await self.session.store.records(SCHEDULES)).values()]
        return any(where.queue == one.queue or where.task == one.task for one in kept if one is not None)

    @property
    def webhooks(self) -> Webhooks:
        """Who is told how jobs end."""
        return Webhooks(self)

    @property
    def config(self) -> Config:
        """Settings kept in the store, for everybody who uses it."""
        return Config(self)


def _noop(*_: Any, **__: Any) -> None:
    """Does nothing, durably, with whatever it is given."""
