"""A worker's lifetime: start, work, drain, stop."""

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
from ..core.job import Record
from ..core.lifecycle import Outcome
from ..core.operations import Holder
from ..core.settings import DEFAULT_LEASE, LONG_LEASE, parse
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
STUBBORN = 2.0
"""Seconds that an interrupted coroutine gets to end before its claim is given back without it."""
HAND_BACK = STUBBORN + 1.5
"""Seconds behind the grace period in which jobs are given back and the process ends, if the store answers."""


class Worker:
    """Runs an app's jobs inside this process.

    `isolate_quarantined`: a job whose process died under it is next run in a fresh process, which must be able to import the
    app; otherwise it waits until this process runs nothing else. `supervised`: a process that outlives this one gives
    its claims back if it dies; otherwise any worker of this machine does that can prove its end.

    1. Claims as many jobs as it has free slots, woken by hints, polling without them (`claim.py`).
    2. Runs each: async tasks on the loop, plain functions in threads (`run.py`); or several by one call (`batch.py`).
    3. Settles each with its fence, and repeats a write that failed until the store answers (`settle.py`).
    4. Keeps its lease from a thread of its own, and hears there of cancelled and lost jobs (`lease.py`).
    5. Recovers what other workers lost, and removes what is past its retention (`maintenance.py`).
    6. Enqueues what is due by the clock (`scheduler.py`), and frees what waits for jobs that ended (`freeing.py`).
    7. Stops in order: no new claims, a grace period, then everything is given back uncharged.
    """

    heartbeat_class = Heartbeat
    """What beats: a simulation, in which there are no threads, has another."""

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
        """Who this worker is to the store, once it runs."""
        self._stops = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._session: Session

    async def run(self) -> None:
        """Work until stopped (or, with `until_idle`, until nothing is ready any more)."""
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
        size, poll = self._concurrency or settings.concurrency, self._poll or settings.poll
        by_itself = LONG_LEASE if "long_leases" in session.store.features else DEFAULT_LEASE
        lease = self._lease or settings.lease or by_itself
        grace = settings.grace if self._grace is None else self._grace
        _check_stop_timeout(grace, settings.stop_timeout)
        allow_webhooks(registry, session)
        weights = self._weights or dict.fromkeys(served_queues(registry), 1)
        turns = QueueRotation(weights)
        if not self._weights:
            session.feed.once_there_are_any(lambda: turns.add(WEBHOOKS))
        queues, tasks = tuple(weights), tuple(sorted(registry.tasks))
        process = "" if self._supervised else own_process(session.clock)
        holder = new_holder(session, "worker", lease, queues, tasks=tasks, slots=size, process=process)
        await self._register(holder)
        self.holder = holder
        # In a child, a task could not complete its job in a transaction of its own.
        apart = self._isolate_quarantined and not isinstance(session.store, Transacting)
        self._slots = Slots(size, isolate_quarantined=apart)
        limits = lambda: (session.settings.max_payload, session.settings.max_output)  # noqa: E731  # as they are then
        notes = ProgressWriter(
            session.commit.note, limits, session.clock, transacting(session, claims, registry), parts.flows
        )
        self._runner = Runner(
            session,
            registry,
            parts.hooks,
            events,
            threads=size,
            new_context=notes.context,
            with_results=parts.flows.with_results,
            address=lambda: address_of(self.app),
            isolate_quarantined=apart,
        )
        self._settler = Settler(session, claims, events, self._slots)
        leases = Leases(session, claims, self._slots, holder)
        self._batches = Batches(session, leases, self._runner.call_together, self._begin, poll=poll)
        self._stopping = asyncio.Event()
        self._freeing = DependencyRelease(session, parts.flows.release(session), poll)
        claimer = Claimer(
            session,
            self._slots,
            leases,
            self._begin,
            poll=poll,
            turns=turns,
            until_idle=self._until_idle,
            freeing=self._freeing,
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
            self._stops += 2  # whoever runs the worker has no patience: give everything back now
            raise
        finally:
            if (
                not loop.is_closed()
            ):  # else it ended under the worker, which is only now let go; its lease ends by itself
                stopped.cancel()
                claiming.cancel()
                listener.close()
                maintenance.stop()
                scheduler.stop()
                await self._to_the_end(loop.create_task(self._leave(claiming, heartbeat, leases, grace)))
        if not claiming.cancelled():
            claiming.result()

    async def _register(self, holder: Holder) -> None:
        """The first heartbeat. Where the store refuses it, no claim could be kept: this worker cannot work."""
        try:
            await self._session.store.heartbeat([holder])
        except HoldfastError as error:
            if isinstance(error, REFUSALS):
                raise
            self._session.outages.failed("heartbeat", error)

    async def _to_the_end(self, leaving: asyncio.Task[None]) -> None:
        """Wait for the clean-up, however often this is cancelled: half of it would strand claims."""
        while not leaving.done():
            try:
                await asyncio.shield(leaving)
            except asyncio.CancelledError:
                self._stops += 2
                self._slots.quiet.set()
        leaving.result()

    async def _leave(self, claiming: asyncio.Task[None], heartbeat: Heartbeat, leases: Leases, grace: float) -> None:
        """Let what runs end or give it back, let go of everything, and say good-bye."""
        holder = leases.holder.id
        try:
            await asyncio.wait([claiming])
            self._batches.stop()
            await self._end_runs(grace)
            await self._freeing.stop()
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
        """First call: take no more jobs, let those that run finish within the grace period. Second: give them back now.

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
        """Like `stop`, but jobs that run may take as long as they need."""
        self._grace = math.inf
        self.stop()

    @property
    def active(self) -> int:
        """How many jobs run here now."""
        return 0 if self.holder is None else len(self._slots.runs)

    @property
    def idle(self) -> bool:
        """Whether nothing runs, and nothing waits to be written."""
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
        except BaseException as error:  # a defect of ours must not keep a claim and its slot for ever
            logger.exception("internal error while running job %s; this attempt fails", run.record.id)
            outcome = Outcome.failed(f"{type(error).__name__}: {error}")
        if run.batch is not None:
            run.batch.leave(run)
        self._settler.settle(run, outcome)

    async def _end_runs(self, grace: float) -> None:
        """Let what runs finish in its time, then give it back."""
        slots, grace = self._slots, grace if self._grace is None else self._grace
        slots.quiet.clear()  # it has been set ever since the worker was first idle
        slots.note_quiet()
        if self._stops < 2:
            await _wait(slots.quiet, grace)
        for run in list(slots.runs.values()):
            run.stop("release")
        # A coroutine was interrupted. A thread that has a context can see that it should stop, and save what it has;
        # unless somebody asked twice, and so for now.
        patient = self._stops < 2
        told = [
            run.runner for run in slots.runs.values() if run.runner and (not run.in_thread or (patient and run.context))
        ]
        if told:
            await asyncio.wait(told, timeout=STUBBORN)
        for run in list(slots.runs.values()):
            # A thread, or a coroutine that would not be interrupted: the job is given back without it.
            run.why = "release"
            self._settler.settle(run, Outcome.released())
        await self._session.commit.drain()
        if slots.settling:
            # The store does not answer. Finished work is worth waiting for, within reason.
            slots.quiet.clear()
            await _wait(slots.quiet, max(min(grace, 60.0), STUBBORN))
        self._settler.give_up()


def _check_stop_timeout(grace: float, stop_timeout: float | None) -> None:
    if stop_timeout is not None and grace + HAND_BACK > stop_timeout:
        logger.warning(
            "the grace period of %g s is too long: the platform kills this worker %g s after SIGTERM"
            " (HOLDFAST_STOP_TIMEOUT), and releasing its jobs takes %g s. Set HOLDFAST_GRACE or --grace to %g"
            " or less, or raise the platform's stop timeout",
            grace,
            stop_timeout,
            HAND_BACK,
            max(0.0, stop_timeout - HAND_BACK),
        )


def _given(name: str, value: float | None) -> Any:
    return None if value is None else parse(name, value)


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
