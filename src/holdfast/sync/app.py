"""The blocking surface: one thin layer over the async one.

Calls go to the loop the app lives on; where there is none, to a thread of the app's own that runs one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, Unpack

from ..client.loop_calls import NotStarted, run_on_loop
from ..client.runtime import ENDING_LOOKS, ENDING_PAUSE
from ..core.errors import InvalidJob
from ..core.job import NewJob
from ..store.callers import refuse_blocking
from ..tasks.handle import Handle
from ..tasks.options import JobOptions, Options
from ..tasks.task import Call, Task
from .parts import (
    SyncClaim,
    SyncConfig,
    SyncFlowHandle,
    SyncFlows,
    SyncHandle,
    SyncSchedules,
    SyncTask,
    SyncWebhooks,
)

if TYPE_CHECKING:
    from ..client.bulk import Changed, OnProgress
    from ..client.enqueue import Enqueuing
    from ..client.error_groups import Errors
    from ..client.explain import Explanation
    from ..client.inspection import Count
    from ..client.operations import Page, Stats
    from ..client.pauses import Pause
    from ..client.search import Filter, Search
    from ..client.timeseries import Depth, Rate
    from ..core.operations import Minute, Moves, Printed, QueueStats
    from ..core.settings import Settings
    from ..flows.builder import Flow
    from ..flows.service import FlowHandle
    from ..store.protocol import Finding
    from ..views import Job, WorkerSeen

P = ParamSpec("P")
R = TypeVar("R")


class SyncApp:
    """Everything an app can do, blocking; usable from any thread that runs no event loop."""

    def __init__(self, app: Enqueuing) -> None:
        self._app = app

    def __enter__(self) -> Self:
        self.run(self._app.opened)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the app, and end its own loop where it has one."""
        refuse_blocking()
        if self._app.before_close and (loop := self._app.live_loop()) is not None:
            run_on_loop(self._app.end_workers(), loop)
        self._app.close_blocking()

    def run(self, function: Callable[..., Coroutine[Any, Any, R]], *args: Any, **kwargs: Any) -> R:
        """Call an async function on the app's loop and wait for its answer."""
        refuse_blocking()
        undo = getattr(function, "undelivered", None)
        undelivered = None if undo is None else partial(undo, self._app)
        for _ in range(ENDING_LOOKS):
            if not self._app.loop_is_ending():
                break
            threading.Event().wait(ENDING_PAUSE)
        while True:
            try:
                return run_on_loop(function(*args, **kwargs), self._app.choose_loop(), undelivered)
            except NotStarted:  # that loop has just ended: on another
                pass

    # -- the app's own methods

    def task(self, task: Task[P, R], options: Options) -> SyncTask[P, R]:
        """A task for blocking code."""
        return SyncTask(self, task, options)

    def wrap(self, handle: Handle[R]) -> SyncHandle[R]:
        """A handle for blocking code."""
        return SyncHandle(self, handle)

    def wrap_flow(self, handle: FlowHandle) -> SyncFlowHandle:
        """A handle on a flow for blocking code."""
        return SyncFlowHandle(self, handle)

    def handle(self, id: str) -> SyncHandle[Any]:
        """A handle on a job, from its id alone."""
        return SyncHandle(self, self._app.handle(id))

    def enqueue(self, fn: Callable[..., Any] | str, /, *args: Any, **kwargs: Any) -> SyncHandle[Any]:
        """Enqueue a task, a registered name, or any importable callable."""
        call = self._app.call(fn, *args, **kwargs)
        return SyncTask(self, call.task, call.options).enqueue(*call.args, **call.kwargs)

    def enqueue_many(self, calls: Iterable[Call[Any] | tuple[Any, ...]]) -> list[SyncHandle[Any]]:
        """Enqueue many calls with one round trip per thousand."""
        return [SyncHandle(self, handle) for handle in self.run(self._app.enqueue_many, list(calls))]

    def submit(
        self, name: str, payload: bytes, /, *, json: bool = False, **options: Unpack[JobOptions]
    ) -> SyncHandle[Any]:
        """Store a job with a payload of raw bytes."""
        app, chosen = self._app, Options().changed(options)
        if chosen.connection is None:
            return SyncHandle(self, self.run(app.submit, name, payload, json=json, **options))
        return self.bound(chosen, lambda settings: app.submission(settings, name, payload, chosen, json=json))

    def bound(
        self, options: Options, make: Callable[[Settings], NewJob], decode: Callable[[bytes], R] | None = None
    ) -> SyncHandle[R]:
        """Enqueue in the user's own transaction: its connection belongs to this thread, so the insert runs here."""
        refuse_blocking()
        self._app.check_bound(options.connection)
        job = make(self.run(self._app.opened).settings)
        return SyncHandle(self, Handle(self._app, _drive(self._app.insert_bound(options.connection, job)), decode))

    def claim(
        self,
        queues: Sequence[str] | str = ("default",),
        *,
        tasks: Sequence[str] | None = None,
        limit: int = 1,
        lease: float = 300.0,
        wait: float = 0.0,
    ) -> list[SyncClaim]:
        """Claim jobs by hand."""
        claims = self.run(self._app.claim, queues, tasks=tasks, limit=limit, lease=lease, wait=wait)
        return [SyncClaim(self, claim) for claim in claims]

    def recover(self) -> int:
        """Settle the claims whose lease was lost; says how many."""
        return self.run(self._app.recover)

    def job(self, id: str) -> Job:
        """One job as it is now."""
        return self.run(self._app.job, id)

    def jobs(
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
        return self.run(self._app.jobs, state=state, queue=queue, task=task, tag=tag, limit=limit, cursor=cursor)

    def output(self, id: str, position: int = 0) -> list[Printed]:
        """What a job has printed, from a position on."""
        return self.run(self._app.output, id, position)

    def explain(self, id: str) -> Explanation:
        """Why a job is not running, in words."""
        return self.run(self._app.explain, id)

    def now(self) -> int:
        """The store's own wall clock, in microseconds since 1970."""
        return self.run(self._app.now)

    def stats(self) -> Stats:
        """Counts by queue and state, and the number of live workers."""
        return self.run(self._app.stats)

    def queues(self) -> tuple[list[QueueStats], int, tuple[Finding, ...]]:
        """Every queue in numbers, the store's time, and what may lose jobs as the store is now."""
        return self.run(self._app.queues)

    def workers(self) -> list[WorkerSeen]:
        """The live workers."""
        return self.run(self._app.workers)

    def moves(self, since: str | None = None, limit: int = 1000) -> Moves:
        """What jobs did since the cursor of an earlier answer."""
        return self.run(self._app.moves, since, limit)

    def minutes(self, since: timedelta | float) -> list[Minute]:
        """How claims ended, minute by minute, over this long until now."""
        return self.run(self._app.minutes, since)

    def search(self, wanted: Filter, *, limit: int = 50, cursor: str | None = None) -> Search:
        """The jobs that match, newest first; see `Overseeing.search`."""
        return self.run(self._app.search, wanted, limit=limit, cursor=cursor)

    def count(self, wanted: Filter) -> Count:
        """How many jobs match."""
        return self.run(self._app.count, wanted)

    def change_many(
        self,
        action: str,
        wanted: Filter | None = None,
        *,
        ids: Sequence[str] = (),
        all: bool = False,  # noqa: A002  # the field of the HTTP API
        cursor: str | None = None,
        dry_run: bool = False,
    ) -> Changed:
        """Cancel, retry or delete many jobs; see `Bulk.change_many`."""
        return self.run(self._app.change_many, action, wanted, ids=ids, all=all, cursor=cursor, dry_run=dry_run)

    def errors(self, *, dead: bool = False) -> Errors:
        """The last errors of jobs, in groups."""
        return self.run(self._app.errors, dead=dead)

    def rates(self, since: timedelta | float, step: timedelta | float = 60, *, by_queue: bool = False) -> list[Rate]:
        """How claims ended over this long until now."""
        return self.run(self._app.rates, since, step, by_queue=by_queue)

    def depths(self, since: timedelta | float, step: timedelta | float = 60) -> list[Depth]:
        """How many jobs stood queued over this long until now."""
        return self.run(self._app.depths, since, step)

    def note_depth(self) -> bool:
        """Note how many jobs stand queued in this minute."""
        return self.run(self._app.note_depth)

    def cancel(self, id: str) -> bool:
        """End a waiting job, ask a running one to stop."""
        return self.run(self._app.cancel, id)

    def retry(self, id: str) -> Job:
        """Run an ended job again, or a waiting one at once."""
        return self.run(self._app.retry, id)

    def retry_dead(self, *, queue: str | None = None, dry_run: bool = False, progress: OnProgress | None = None) -> int:
        """Run every dead job again; how many."""
        return self.run(self._app.retry_dead, queue=queue, dry_run=dry_run, progress=progress)

    def fail(self, id: str, error: str | BaseException) -> None:
        """A monitor's word about a lost job."""
        self.run(self._app.fail, id, error)

    def delete(self, id: str) -> None:
        """Remove a job that is not running."""
        self.run(self._app.delete, id)

    def annotate(self, id: str, /, **meta: Any) -> None:
        """Add to the meta of a job that lives."""
        self.run(self._app.annotate, id, **meta)

    def signal(self, name: str, value: Any = None) -> int:
        """Wake every job that waits for this signal; how many."""
        return self.run(self._app.signal, name, value)

    def pause(
        self, queue: str | None = None, *, task: str | None = None, where: Mapping[str, Any] | None = None
    ) -> bool:
        """Start no more jobs of a queue, or of a task; False where nothing has that name. See `Operating.pause`."""
        return self.run(self._app.pause, queue, task=task, where=where)

    def resume(
        self, queue: str | None = None, *, task: str | None = None, where: Mapping[str, Any] | None = None
    ) -> bool:
        """Start them again; False where nothing of that name was paused."""
        return self.run(self._app.resume, queue, task=task, where=where)

    def paused_tasks(self) -> list[Pause]:
        """The pauses of tasks that hold."""
        return self.run(self._app.paused_tasks)

    def purge(
        self,
        *,
        state: str | Sequence[str] = "dead",
        queue: str | None = None,
        task: str | None = None,
        tag: str | None = None,
        older_than: float | timedelta | None = None,
        dry_run: bool = False,
        progress: OnProgress | None = None,
    ) -> int:
        """Delete every job that matches; says how many."""
        return self.run(
            self._app.purge,
            state=state,
            queue=queue,
            task=task,
            tag=tag,
            older_than=older_than,
            dry_run=dry_run,
            progress=progress,
        )

    def enqueue_flow(self, flow: Flow, *, id: str | None = None) -> SyncFlowHandle:
        """Store all jobs of a flow, or none, and begin it. With an `id` it can be called again: the flow stays one."""
        from ..flows.service import Flows  # late: most programs that enqueue have none

        app = self._app
        return SyncFlowHandle(self, self.run(lambda: app.at_home(lambda: Flows(app).start(flow, id))))

    def flow(self, id: str) -> SyncFlowHandle:
        """A handle on a flow, from its id alone."""
        from ..flows.service import FlowHandle  # late, as above

        return SyncFlowHandle(self, FlowHandle(self._app, id))

    @property
    def flows(self) -> SyncFlows:
        """Jobs that wait for each other."""
        return SyncFlows(self, self._app)

    @property
    def schedules(self) -> SyncSchedules:
        """What is enqueued by the clock."""
        return SyncSchedules(self, self._app)

    @property
    def config(self) -> SyncConfig:
        """Settings kept in the store."""
        return SyncConfig(self, self._app)

    @property
    def webhooks(self) -> SyncWebhooks:
        """Who is told how jobs end."""
        return SyncWebhooks(self, self._app)


def _drive(coroutine: Coroutine[Any, Any, R]) -> R:
    """Run a coroutine that never really waits, in this thread."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value
    coroutine.close()
    raise InvalidJob("this connection (or a hook around enqueue) waits: enqueue with `await` instead of app.sync")
