"""What an app hands out, for blocking code: tasks, handles, claims and flows; settings, schedules and webhooks."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypeVar, Unpack

from ..client.config import Config
from ..schedules.service import Schedules
from ..tasks.handle import Handle
from ..tasks.options import JobOptions, Options
from ..tasks.task import Call, Task
from ..webhooks.service import Webhooks

if TYPE_CHECKING:
    from ..client.claims import Claim
    from ..client.enqueue import Enqueuing
    from ..core.job import NewJob
    from ..core.settings import Settings
    from ..flows.builder import Node
    from ..flows.service import FlowHandle, FlowPage, FlowStatus
    from ..schedules.schedule import Schedule
    from ..views import Job
    from ..webhooks.service import Webhook

P = ParamSpec("P")
R = TypeVar("R")


class Blocking(Protocol):
    """What the parts ask of the app for blocking code."""

    def run(self, function: Callable[..., Coroutine[Any, Any, R]], *args: Any, **kwargs: Any) -> R:
        """Call an async function on the app's loop and wait for its answer."""
        ...

    def bound(
        self, options: Options, make: Callable[[Settings], NewJob], decode: Callable[[bytes], R] | None = None
    ) -> SyncHandle[R]:
        """Enqueue in the user's own transaction."""
        ...


class SyncTask(Generic[P, R]):
    """A task for blocking code."""

    def __init__(self, sync: Blocking, task: Task[P, R], options: Options) -> None:
        self._sync = sync
        self._task = task
        self._options = options

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> SyncHandle[R]:
        """Store a job that calls the task; durable once this returns."""
        task, app, options = self._task, self._task.app, self._options
        if options.connection is None:
            return SyncHandle(self._sync, self._sync.run(app.enqueue_call, task, options, args, kwargs))
        return self._sync.bound(
            options, lambda settings: app.new_job(settings, task, options, args, kwargs), task.decode_result
        )

    def using(self, **options: Unpack[JobOptions]) -> SyncTask[P, R]:
        """The same task with other options; see `Task.using`."""
        return SyncTask(self._sync, self._task, self._options.changed(options))


class SyncFlowHandle:
    """A handle on a flow for blocking code."""

    def __init__(self, sync: Blocking, handle: FlowHandle) -> None:
        self._sync = sync
        self._handle = handle
        self.id = handle.id

    def __repr__(self) -> str:
        return f"SyncFlowHandle({self.id!r})"

    def handle(self, node: Node | int) -> SyncHandle[Any]:
        """A handle on one of its jobs."""
        return SyncHandle(self._sync, self._handle.handle(node))

    def status(self) -> FlowStatus:
        """How far it is."""
        return self._sync.run(self._handle.status)

    def jobs(self) -> list[Job]:
        """All of its jobs that are kept, in the order in which they were added."""
        return self._sync.run(self._handle.jobs)

    def wait(self, timeout: float | None = None) -> FlowStatus:
        """Wait until all of its jobs have ended, however they did."""
        return self._sync.run(self._handle.wait, timeout)

    def cancel(self) -> bool:
        """Cancel every job that has not ended; False where the flow has."""
        return self._sync.run(self._handle.cancel)

    def retry(self) -> int:
        """Run what died again, and then what was not run because of it; how many jobs."""
        return self._sync.run(self._handle.retry)


class SyncFlows:
    """The flows of a store for blocking code."""

    def __init__(self, sync: Blocking, app: Enqueuing) -> None:
        from ..flows.service import Flows  # late: most programs that enqueue have none

        self._sync = sync
        self._flows = Flows(app)

    def list(
        self, *, state: str | Sequence[str] | None = None, limit: int = 100, cursor: str | None = None
    ) -> FlowPage:
        """A page of flows, newest first. One that has not ended is blocked."""
        return self._sync.run(self._flows.list, state=state, limit=limit, cursor=cursor)


class SyncHandle(Generic[R]):
    """A handle for blocking code."""

    def __init__(self, sync: Blocking, handle: Handle[R]) -> None:
        self._sync = sync
        self._handle = handle
        self.id = handle.id

    def __repr__(self) -> str:
        return f"SyncHandle({self.id!r})"

    def job(self) -> Job:
        """The job as it is now."""
        return self._sync.run(self._handle.job)

    def wait(self, timeout: float | None = None) -> Job:
        """Wait until the job has ended, however it ended."""
        return self._sync.run(self._handle.wait, timeout)

    def result(self, timeout: float | None = None) -> R:
        """The value the job returned; see `Handle.result`."""
        return self._sync.run(self._handle.result, timeout)

    def cancel(self) -> bool:
        """End the job if it waits, ask it to stop if it runs."""
        return self._sync.run(self._handle.cancel)


class SyncClaim:
    """A claim for blocking code."""

    def __init__(self, sync: Blocking, claim: Claim) -> None:
        self._sync = sync
        self._claim = claim
        self.payload = claim.payload
        self.fence = claim.fence

    @property
    def job(self) -> Job:
        """The job as it was when it was claimed."""
        return self._claim.job

    def extend(self) -> None:
        """Renew the lease."""
        self._sync.run(self._claim.extend)

    def started(self, pid: int) -> None:
        """Record the process that works on the job."""
        self._sync.run(self._claim.started, pid)

    def complete(self, result: Any = None) -> None:
        """The work is done."""
        self._sync.run(self._claim.complete, result)

    def fail(self, error: str | BaseException, *, retry_in: float | None = None, dead: bool = False) -> None:
        """This attempt failed."""
        self._sync.run(self._claim.fail, error, retry_in=retry_in, dead=dead)

    def release(self, *, delay: float | None = None) -> None:
        """Give the job back uncharged."""
        self._sync.run(self._claim.release, delay=delay)

    def cancel(self) -> None:
        """End the job as cancelled."""
        self._sync.run(self._claim.cancel)

    @contextmanager
    def kept_alive(self) -> Generator[SyncClaim]:
        """Keep the lease while the block runs. It cannot be interrupted: settling after a loss raises LeaseLost."""
        heart = self._sync.run(self._claim.heart)
        heart.start()
        try:
            yield self
        finally:
            heart.stop()


class SyncConfig:
    """The store's settings for blocking code."""

    def __init__(self, sync: Blocking, app: Enqueuing) -> None:
        self._sync = sync
        self._config = Config(app)

    def set(self, name: str, value: Any) -> tuple[str, Any]:
        """Keep a setting in the store."""
        return self._sync.run(self._config.set, name, value)

    def get(self, name: str) -> Any:
        """The stored value, or None."""
        return self._sync.run(self._config.get, name)

    def unset(self, name: str) -> bool:
        """Forget a stored setting; False where it was not set."""
        return self._sync.run(self._config.unset, name)

    def list(self) -> dict[str, Any]:
        """Everything that is set in the store."""
        return self._sync.run(self._config.list)


class SyncSchedules:
    """The schedules of a store for blocking code."""

    def __init__(self, sync: Blocking, app: Enqueuing) -> None:
        self._sync = sync
        self._schedules = Schedules(app)

    def list(self) -> list[Schedule]:
        """All of them, by name."""
        return self._sync.run(self._schedules.list)

    def get(self, name: str) -> Schedule:
        """One of them."""
        return self._sync.run(self._schedules.get, name)

    def put(
        self,
        name: str,
        call: Call[Any] | Task[..., Any] | str,
        /,
        *,
        cron: str | None = None,
        every: float | timedelta | None = None,
        tz: str = "UTC",
        catch_up: int = 1,
        jitter: float | timedelta = 0.0,
        overlap: str = "allow",
    ) -> Schedule:
        """Make a schedule, or change the one of this name; see `Schedules.put`."""
        rule = {"cron": cron, "every": every, "tz": tz, "catch_up": catch_up, "jitter": jitter, "overlap": overlap}
        return self._sync.run(self._schedules.put, name, call, **rule)

    def pause(self, name: str) -> Schedule:
        """Make no more runs until it is resumed."""
        return self._sync.run(self._schedules.pause, name)

    def resume(self, name: str) -> Schedule:
        """Make its runs again, from now on."""
        return self._sync.run(self._schedules.resume, name)

    def run_now(self, name: str) -> SyncHandle[Any]:
        """Enqueue it once, beside its usual runs."""
        return SyncHandle(self._sync, self._sync.run(self._schedules.run_now, name))

    def delete(self, name: str) -> None:
        """Forget it; jobs that it made stay."""
        self._sync.run(self._schedules.delete, name)


class SyncWebhooks:
    """The store's webhooks for blocking code."""

    def __init__(self, sync: Blocking, app: Enqueuing) -> None:
        self._sync = sync
        self._webhooks = Webhooks(app)

    def add(
        self,
        name: str,
        url: str,
        *,
        events: Sequence[str] | None = None,
        queues: Sequence[str] = (),
        tasks: Sequence[str] = (),
    ) -> str:
        """Tell this URL how jobs end; the key that its receiver checks signatures with."""
        return self._sync.run(self._webhooks.add, name, url, events=events, queues=queues, tasks=tasks)

    def list(self) -> list[Webhook]:
        """Every webhook, by name."""
        return self._sync.run(self._webhooks.list)

    def remove(self, name: str) -> bool:
        """Send nothing more there; False where there was none."""
        return self._sync.run(self._webhooks.remove, name)
