"""The worker: start, claim and run jobs, drain, stop."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..app import Holdfast, parts_of
from ..client.claims import new_holder
from ..client.heartbeat import Heartbeat
from ..client.process_identity import own_process
from ..client.session import RECOVERY_DELAY
from ..core.errors import ConfigError, HoldfastError
from ..core.job import SHELL_TASK, Record
from ..core.lifecycle import Outcome
from ..core.operations import Holder
from ..core.settings import ASYNC_CONCURRENCY, DEFAULT_CONCURRENCY, DEFAULT_LEASE, LONG_LEASE, parse
from ..core.validation import checked_names
from ..loading import address_of, refuse_while_loading
from ..observe import traces
from ..observe.outages import REFUSALS
from ..store.protocol import Transacting
from ..webhooks.delivery import allow_webhooks
from ..webhooks.service import QUEUE as WEBHOOKS
from .batch import Batches
from .claim import Claimer
from .dependency_release import DependencyRelease
from .lease import Leases
from .maintenance import Maintenance
from .progress_writer import ProgressWriter
from .queue_rotation import QueueRotation
from .run import Batch, Run, Runner
from .scheduler import Scheduler
from .settle import Settler, transacting
from .slots import Slots

if TYPE_CHECKING:
    from ..client.session import Session
    from ..tasks.registry import Registry

logger = logging.getLogger("holdfast")
CANCEL_GRACE = 2.0
"""Seconds that a cancelled coroutine gets to end before its claim is released without it."""
RELEASE_SECONDS = CANCEL_GRACE + 1.5
"""Seconds after the grace period in which jobs are released and the process ends, if the store answers."""


class Worker:
    """Runs an app's jobs inside this process.

    `isolate_quarantined`: a job whose process crashed runs next in a fresh process, which must be able to import the
    app; otherwise it waits until this process is idle. `supervised`: the supervisor recovers the claims of this process
    after a crash; otherwise any worker of this machine does that can prove its end.

    1. Claims as many jobs as it has free slots, woken by notifications or by polling (`claim.py`).
    2. Runs each: async tasks on the loop, functions in threads (`run/`); a batch task in one call (`batch.py`).
    3. Settles each with its fence, and repeats a failed write until the store answers (`settle.py`).
    4. Renews its lease from its own thread, which also learns of cancelled and lost jobs (`lease.py`).
    5. Recovers the claims of other workers and removes expired jobs (`maintenance.py`).
    6. Enqueues due schedules (`scheduler.py`) and releases dependents (`dependency_release.py`).
    7. Stops in order: no new claims, a grace period, then it releases its jobs without using an attempt.
    """

    heartbeat_class = Heartbeat
    """The class that sends heartbeats: a simulation without threads replaces it."""

    def __init__(
        self,
        app: Holdfast,
        queues: Sequence[str] | Mapping[str, int] | None = None,
        concurrency: int | None = None,
        *,
        lease: float | None = None,
        poll: float | None = None,
        grace: float | None = None,
        until_idle: bool = False,
        isolate_quarantined: bool = False,
        supervised: bool = False,
    ) -> None:
        self.app = app
        self._parts = parts_of(app)
        names = () if queues is None else checked_names(queues, "queue")
        self._weights = dict(queues) if isinstance(queues, Mapping) else dict.fromkeys(names, 1)
        self._concurrency: int | None = _given("concurrency", concurrency)
        self._lease: float | None = _given("lease", lease)
        self._poll: float | None = _given("poll", poll)
        self._grace: float | None = _given("grace", grace)
        self._until_idle = until_idle
        self._isolate_quarantined = isolate_quarantined
        self._supervised = supervised
        self.holder: Holder | None = None
        """The identity of this worker in the store, once it runs."""
        self._stops = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._session: Session

    async def run(self) -> None:
        """Run jobs until stopped (with `until_idle`: until no job is ready)."""
        refuse_while_loading()
        parts = self._parts
        runtime, registry, claims, events = parts.runtime, parts.registry, parts.claims, parts.events
        await runtime.open()
        if self._stops:
            return
        session, loop = await runtime.opened(), asyncio.get_running_loop()
        if session.loop is not loop:
            raise ConfigError("the app is open on another event loop: run the worker on that loop, or with its own app")
        self._session, settings = session, session.settings
        size = self._concurrency or settings.concurrency or _default_concurrency(registry)
        poll = self._poll or settings.poll
        default_lease = LONG_LEASE if "long_leases" in session.store.features else DEFAULT_LEASE
        lease = self._lease or settings.lease or default_lease
        grace = settings.grace if self._grace is None else self._grace
        _check_stop_timeout(grace, settings.stop_timeout)
        allow_webhooks(registry, session)
        weights = self._weights or dict.fromkeys(served_queues(registry), 1)
        rotation = QueueRotation(weights)
        if not self._weights:
            session.feed.on_first_webhook(lambda: rotation.add(WEBHOOKS))
        queues, tasks = tuple(weights), tuple(sorted(registry.tasks))
        process = "" if self._supervised else own_process(session.clock)
        holder = new_holder(session, "worker", lease, queues, tasks=tasks, slots=size, process=process)
        await self._register(holder)
        self.holder = holder
        # In a child process, a task could not complete its job in its own transaction.
        apart = self._isolate_quarantined and not isinstance(session.store, Transacting)
        self._slots = Slots(size, isolate_quarantined=apart)
        limits = lambda: (session.settings.max_payload, session.settings.max_output)  # noqa: E731  # as they are then
        progress = ProgressWriter(
            session.commit.note, limits, session.clock, transacting(session, claims, registry), parts.flows
        )
        self._runner = Runner(
            session,
            registry,
            parts.hooks,
            events,
            threads=size,
            new_context=progress.context,
            with_results=parts.flows.with_results,
            address=lambda: address_of(self.app),
            isolate_quarantined=apart,
        )
        self._settler = Settler(session, claims, events, self._slots)
        leases = Leases(session, claims, self._slots, holder)
        self._batches = Batches(session, leases, self._runner.call_together, self._begin, poll=poll)
        self._stopping = asyncio.Event()
        self._dependency_release = DependencyRelease(session, parts.flows.release(session), poll)
        claimer = Claimer(
            session,
            self._slots,
            leases,
            self._begin,
            poll=poll,
            rotation=rotation,
            until_idle=self._until_idle,
            dependency_release=self._dependency_release,
        )
        heartbeat = self.heartbeat_class(
            session.store.sibling(),
            holder,
            leases.before_heartbeat,
            leases.after_heartbeat,
            session.give_way,
            outages=session.outages,
        )
        listener = session.store.listen([f"queue/{name}" for name in queues])
        self._loop = loop
        if self._stops:
            self._stopping.set()
        self._ended = asyncio.Event()
        runtime.before_close.add(self._end)
        heartbeat.start()
        maintenance = Maintenance(session, claims, poll, min(RECOVERY_DELAY, 3 * poll))
        scheduler = Scheduler(parts.schedules, session, poll)
        claiming, stopped = asyncio.create_task(claimer.run(listener)), asyncio.create_task(self._stopping.wait())
        events.worker_started(holder.id, queues, size)
        try:
            await asyncio.wait([claiming, stopped], return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._stops += 2  # cancelled: release everything now
            raise
        finally:
            if not loop.is_closed():  # else the loop ended under the worker; its lease will expire
                stopped.cancel()
                claiming.cancel()
                listener.close()
                maintenance.stop()
                scheduler.stop()
                await self._finish_leaving(loop.create_task(self._leave(claiming, heartbeat, leases, grace)))
        if not claiming.cancelled():
            claiming.result()

    async def _register(self, holder: Holder) -> None:
        """Send the first heartbeat. If the store refuses it, this worker could keep no claim and ends."""
        try:
            await self._session.store.heartbeat([holder])
        except HoldfastError as error:
            if isinstance(error, REFUSALS):
                raise
            self._session.outages.failed("heartbeat", error)

    async def _finish_leaving(self, leaving: asyncio.Task[None]) -> None:
        """Wait for the clean-up, however often this is cancelled: an incomplete one would leave claims behind."""
        while not leaving.done():
            try:
                await asyncio.shield(leaving)
            except asyncio.CancelledError:
                self._stops += 2
                self._slots.quiet.set()
        leaving.result()

    async def _leave(self, claiming: asyncio.Task[None], heartbeat: Heartbeat, leases: Leases, grace: float) -> None:
        """Let running jobs end or release them, close everything, and deregister."""
        holder = leases.holder.id
        try:
            await asyncio.wait([claiming])
            self._batches.stop()
            await self._end_runs(grace)
            await self._dependency_release.stop()
            await self._runner.close()
            await heartbeat.stopped()
            await leases.close()
            await self._session.store.leave([holder])
        except HoldfastError as error:
            logger.warning("worker %s could not deregister; its lease will expire: %s", holder, error)
        finally:
            self._parts.runtime.before_close.discard(self._end)
            self._ended.set()
            self._parts.events.worker_stopped(holder)

    def stop(self) -> None:
        """First call: claim no more jobs, let running ones finish within the grace period. Second: release them now.

        May be called from any thread, and from signal handlers.
        """
        if self._loop is None:
            self._stops += 1
        else:
            self._loop.call_soon_threadsafe(self._stop)

    async def _end(self) -> None:
        """The app is being closed under this worker."""
        self.stop()
        await self._ended.wait()

    def finish(self) -> None:
        """Like `stop`, but running jobs finish without a time limit."""
        self._grace = math.inf
        self.stop()

    @property
    def active(self) -> int:
        """How many jobs run here now."""
        return 0 if self.holder is None else len(self._slots.runs)

    @property
    def idle(self) -> bool:
        """Whether nothing runs and no settlement is pending."""
        return not self._slots.runs and not self._slots.settling

    def _stop(self) -> None:
        self._stops += 1
        self._stopping.set()
        if self._stops > 1:
            self._slots.quiet.set()

    def _begin(self, record: Record, batch: Batch | None = None) -> None:
        run, starts = Run(record, self._session.clock.monotonic()), self._session.may_start(record)
        task = self._parts.registry.tasks.get(record.task)
        if task is not None and task.batch is not None and starts:
            (batch or self._batches.place(record, task)).add(run)
        self._slots.add(run)
        self._parts.events.claimed(record)
        run.runner = asyncio.create_task(self._run(run) if starts else self._refuse(run))

    async def _refuse(self, run: Run) -> None:
        self._settler.settle(run, await self._session.refusal(run.record))

    async def _run(self, run: Run) -> None:
        try:
            tracer = traces.tracer()
            if tracer is None:
                outcome = await self._runner.run(run)
            else:
                outcome = await traces.running(run.record, self._runner.run(run), tracer)
        except BaseException as error:  # an internal error must not keep a claim and its slot for ever
            logger.exception("internal error of Holdfast while running job %s; this attempt fails", run.record.id)
            outcome = Outcome.failed(f"{type(error).__name__}: {error}")
        if run.batch is not None:
            run.batch.leave(run)
        self._settler.settle(run, outcome)

    async def _end_runs(self, grace: float) -> None:
        """Let running jobs finish within the grace period, then release them."""
        slots, grace = self._slots, grace if self._grace is None else self._grace
        slots.quiet.clear()  # it has been set ever since the worker was first idle
        slots.note_quiet()
        if self._stops < 2:
            await _wait(slots.quiet, grace)
        for run in list(slots.runs.values()):
            run.stop("release")
        # Coroutines were cancelled. A thread with a context can see that it should stop, and save its state;
        # unless `stop` was called twice.
        patient = self._stops < 2
        stopping = [
            run.runner for run in slots.runs.values() if run.runner and (not run.in_thread or (patient and run.context))
        ]
        if stopping:
            await asyncio.wait(stopping, timeout=CANCEL_GRACE)
        for run in list(slots.runs.values()):
            # A thread, or a coroutine that ignored its cancellation: the job is released without it.
            run.why = "release"
            self._settler.settle(run, Outcome.released())
        await self._session.commit.drain()
        if slots.settling:
            # The store does not answer: wait for finished jobs, up to a limit.
            slots.quiet.clear()
            await _wait(slots.quiet, max(min(grace, 60.0), CANCEL_GRACE))
        self._settler.give_up()


def _check_stop_timeout(grace: float, stop_timeout: float | None) -> None:
    if stop_timeout is not None and grace + RELEASE_SECONDS > stop_timeout:
        logger.warning(
            "the grace period of %g s is too long: the platform kills this worker %g s after SIGTERM"
            " (HOLDFAST_STOP_TIMEOUT), and releasing its jobs takes %g s. Set HOLDFAST_GRACE or --grace to %g"
            " or less, or raise the platform's stop timeout",
            grace,
            stop_timeout,
            RELEASE_SECONDS,
            max(0.0, stop_timeout - RELEASE_SECONDS),
        )


def _given(name: str, value: float | None) -> Any:
    return None if value is None else parse(name, value)


def _default_concurrency(registry: Registry) -> int:
    """Jobs that wait on the loop cost little. Jobs with a thread or a process of their own, shell jobs too, do not."""
    own = [task for task in registry.tasks.values() if not task.built_in]
    light = own and SHELL_TASK not in registry.tasks and all(task.run_in == "loop" for task in own)
    return ASYNC_CONCURRENCY if light else DEFAULT_CONCURRENCY


def served_queues(registry: Registry) -> tuple[str, ...]:
    """The queues that an app's tasks name, and `default`."""
    named = {task.options.queue for task in registry.tasks.values() if task.options.queue}
    return ("default", *sorted(named - {"default"}))


async def _wait(event: asyncio.Event, timeout: float) -> None:
    try:
        async with asyncio.timeout(None if timeout == math.inf else timeout):
            await event.wait()
    except TimeoutError:
        pass
