"""The app for blocking code. Every method is made from its async counterpart, or returns blocking objects."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, Self, TypeVar, Unpack, overload

from ..client.claims import ManualClaims
from ..client.enqueue import Enqueue
from ..client.handles import Handles
from ..client.inspection import Inspection
from ..client.loop_calls import held_lock, run_on_loop
from ..client.operations import Operations
from ..client.runtime import Runtime
from ..core.settings import MANUAL_LEASE
from ..store.callers import refuse_blocking
from ..tasks.context import Context
from ..tasks.handle import Handle
from ..tasks.makers import Function
from ..tasks.options import JobOptions, Options
from ..tasks.registry import BlockingUsingApp, Registry, UsingApp
from ..tasks.task import Call, Task, Using
from .blocking import Service, blocking, runs_on
from .services import (
    SyncAudit,
    SyncBulk,
    SyncConfig,
    SyncErrors,
    SyncSchedules,
    SyncTimeseries,
    SyncWebhooks,
    SyncWorkers,
)
from .tasks import SyncClaim, SyncEnqueue, SyncHandle, SyncTask

if TYPE_CHECKING:
    from ..flows.builder import Flow
    from ..flows.service import FlowHandle, Flows
    from .flows import SyncFlowHandle, SyncFlows

P = ParamSpec("P")
R = TypeVar("R")


class AsyncApp(Protocol):
    """The async app, as far as its blocking side needs it besides the methods and services of the same names."""

    @property
    def flows(self) -> Flows: ...


class SyncApp:
    """Everything an app can do, blocking; usable from any thread that runs no event loop."""

    def __init__(
        self, app: AsyncApp, runtime: Runtime, registry: Registry, enqueue: Enqueue, claims: ManualClaims
    ) -> None:
        self._of = app
        self._runtime = runtime
        self._registry = registry
        self._claims = claims
        self._run = runs_on(runtime)
        self._enqueue = SyncEnqueue(self._run, runtime, enqueue)

    def __enter__(self) -> Self:
        self._run(self._runtime.opened)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the app, and stop its background loop if it has one."""
        refuse_blocking()
        if self._runtime.before_close and (loop := self._runtime.live_loop()) is not None:
            run_on_loop(self._runtime.end_workers(), loop, None, held_lock())
        self._runtime.close_blocking()

    # -- for tasks and handles

    def task(self, task: Task[P, R], options: Options) -> SyncTask[P, R]:
        """A task for blocking code."""
        return SyncTask(self._enqueue, task, options)

    def wrap(self, handle: Handle[R]) -> SyncHandle[R]:
        """A handle for blocking code."""
        return SyncHandle(self._run, handle)

    def wrap_flow(self, handle: FlowHandle) -> SyncFlowHandle:
        """A handle on a flow for blocking code."""
        from .flows import SyncFlowHandle  # late: most programs that enqueue have none

        return SyncFlowHandle(self._run, handle)

    # -- methods that return blocking objects

    @overload
    def enqueue(self, fn: Task[P, R] | Using[P, R], /, *args: P.args, **kwargs: P.kwargs) -> SyncHandle[R]: ...
    @overload
    def enqueue(
        self, fn: Function[Concatenate[Context, P]], /, *args: P.args, **kwargs: P.kwargs
    ) -> SyncHandle[Any]: ...
    @overload
    def enqueue(self, fn: Function[P], /, *args: P.args, **kwargs: P.kwargs) -> SyncHandle[Any]: ...
    @overload
    def enqueue(self, fn: str | partial[Any], /, *args: Any, **kwargs: Any) -> SyncHandle[Any]: ...
    def enqueue(self, fn: Any, /, *args: Any, **kwargs: Any) -> SyncHandle[Any]:
        """Enqueue a task, a registered name, or any importable callable."""
        call = self._registry.call(fn, args, kwargs)
        return self._enqueue.call(call.task, call.options, call.args, call.kwargs)

    def using(self, **options: Unpack[JobOptions]) -> BlockingUsingApp:
        """Options for calls of any callable; see `Task.using`."""
        return UsingApp(self._registry, options).sync

    @overload
    def enqueue_many(self, calls: Iterable[Call[R]]) -> list[SyncHandle[R]]: ...
    @overload
    def enqueue_many(self, calls: Iterable[Call[Any] | tuple[Any, ...]]) -> list[SyncHandle[Any]]: ...
    def enqueue_many(self, calls: Iterable[Call[Any] | tuple[Any, ...]]) -> list[SyncHandle[Any]]:
        """Enqueue many calls, up to 1,000 jobs and 8 MB per write."""
        return self._enqueue.many(calls)

    def submit(
        self, name: str, payload: bytes, /, *, json: bool = False, **options: Unpack[JobOptions]
    ) -> SyncHandle[Any]:
        """Store a job with a payload of raw bytes."""
        return self._enqueue.submit(name, payload, Options().changed(options), json=json)

    def enqueue_flow(self, flow: Flow, *, id: str | None = None) -> SyncFlowHandle:
        """Store and start all jobs of a flow, or none. With an `id` the call can be repeated."""
        transaction = self._enqueue.find_transaction()
        if transaction is None:
            return self.wrap_flow(self._run(self._of.flows.enqueue, flow, id))
        id = id or self._runtime.entropy.uuid7(self._runtime.clock.now())
        transaction.on_commit(partial(self._run, self._of.flows.enqueue, flow, id))
        return self.wrap_flow(self._of.flows.handle(id))

    def handle(self, id: str) -> SyncHandle[Any]:
        """A handle on a job, from its id."""
        return self._enqueue.handle(id)

    def claim(
        self,
        queues: Sequence[str] | str = ("default",),
        *,
        tasks: Sequence[str] | None = None,
        limit: int = 1,
        lease: float = MANUAL_LEASE,
        wait: float = 0.0,
    ) -> list[SyncClaim]:
        """Claim jobs manually."""
        claims = self._run(self._claims.claim, queues, tasks=tasks, limit=limit, lease=lease, wait=wait)
        return [SyncClaim(self._run, claim) for claim in claims]

    # -- the same as the app's own

    job = blocking(Handles.job)
    cancel = blocking(Operations.cancel)
    retry = blocking(Operations.retry)
    delete = blocking(Operations.delete)
    signal = blocking(Operations.signal)
    pause = blocking(Operations.pause)
    resume = blocking(Operations.resume)
    explain = blocking(Inspection.explain)
    jobs = blocking(Inspection.jobs)
    stats = blocking(Inspection.stats)
    queues = blocking(Inspection.queues)

    # -- services

    @property
    def flows(self) -> SyncFlows:
        """Jobs that depend on each other."""
        from .flows import SyncFlows  # late, as above

        return SyncFlows(self._run, self._of.flows)

    schedules = Service(SyncSchedules)
    bulk = Service(SyncBulk)
    audit = Service(SyncAudit)
    workers = Service(SyncWorkers)
    errors = Service(SyncErrors)
    timeseries = Service(SyncTimeseries)
    config = Service(SyncConfig)
    webhooks = Service(SyncWebhooks)
