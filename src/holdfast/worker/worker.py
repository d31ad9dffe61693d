"""The worker: start, claim and run jobs, drain, stop."""

from __future__ import annotations

import asyncio
import logging
import math
import signal
import threading
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
from ..core.operations import Holder, Note, Settlement
from ..core.settings import ASYNC_CONCURRENCY, DEFAULT_CONCURRENCY, DEFAULT_LEASE, LONG_LEASE, parse
from ..core.url import redact
from ..core.validation import checked_names
from ..loading import address_of, import_tasks, refuse_while_loading
from ..observe import meters, task_output, traces
from ..observe.outages import REFUSALS
from ..store.protocol import Transacting
from ..tasks.completion import Completion
from ..webhooks.delivery import allow_webhooks
from ..webhooks.service import QUEUE as WEBHOOKS
from .batch import Batches
from .claim import Claimer
from .control import RemoteControl, Supervised
from .dependency_release import DependencyRelease
from .lease import Leases
from .loop_guard import LoopGuard
from .maintenance import Maintenance
from .prefetch import Prefetch
from .progress_writer import ProgressWriter
from .queue_rotation import QueueRotation
from .run import Batch, Run, Runner
from .run.thread import Threads
from .scheduler import Scheduler
from .settle import Settler
from .slots import Slots
from .unserved_queues import UnservedQueues
from .unstarted import Unstarted

if TYPE_CHECKING:
    from ..client.claims import ManualClaims
    from ..client.session import Session
    from ..tasks.registry import Registry

logger = logging.getLogger("holdfast")
CANCEL_GRACE = 2.0
"""Seconds that a cancelled coroutine gets to end before its claim is released without it."""
MAX_CLEAN_UP = 60.0
"""Seconds after the stop in which dependencies are cleaned up, if the grace period is longer."""
RELEASE_SECONDS = CANCEL_GRACE + 1.5
"""Seconds after the grace period until the process has ended, if the store answers and no cleanup hangs."""


class Worker:
    """Runs an app's jobs inside this process.

    `isolate_quarantined`: a job whose process crashed runs next in a fresh process, which must be able to import the
    app; otherwise it waits until this process is idle. `supervised`: the supervisor recovers the claims of this process
    after a crash; otherwise any worker of this machine does that can prove its end. `unstarted`: shared with the
    supervisor, so that jobs can be claimed ahead of free slots (`prefetch.py`). `supervisor`: the connection to it.

    1. Claims as many jobs as it has free slots, woken by notifications or by polling (`claim.py`).
    2. Runs each: async tasks on the loop, functions in threads (`run/`); a batch task in one call (`batch.py`).
    3. Settles each with its fence, and repeats a failed write until the store answers (`settle.py`).
    4. Renews its lease from its own thread, which also learns of cancelled and lost jobs (`lease.py`), and serves the
       requests of operators (`control.py`).
    5. Recovers the claims of other workers and removes expired jobs (`maintenance.py`).
    6. Enqueues due schedules (`scheduler.py`) and releases dependents (`dependency_release.py`).
    7. Stops in order: no new claims, a grace period, then it releases its jobs without using an attempt.
    """

    heartbeat_class = Heartbeat
    """The class that sends heartbeats: a simulation without threads replaces it."""
    guard_class = LoopGuard
    """The class that warns of a blocked loop; replaced likewise."""
    threads_class = Threads
    """The class that calls plain functions: tests call them in their own thread."""

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
        unstarted: Unstarted | None = None,
        supervisor: Supervised | None = None,
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
        self._unstarted = unstarted
        self._supervisor = supervisor
        self.holder: Holder | None = None
        """The identity of this worker in the store, once it runs."""
        self._stops = 0
        self._requested = False
        """An operator has stopped it, and no signal has come since."""
        self._hurry = asyncio.Event()
        """Set by the second stop."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._session: Session

    async def run(self) -> None:
        """Run jobs until stopped (with `until_idle`: until no job is ready)."""
        refuse_while_loading()
        import_tasks(self.app)
        parts = self._parts
        await parts.runtime.open()
        if self._stops:
            return
        async with parts.hooks.life() as state:
            with task_output.captured():
                await self._work(state)

    async def _work(self, state: Any) -> None:
        """Run jobs until stopped. `state`: what the app's lifespan has yielded."""
        parts = self._parts
        runtime, registry, claims, events = parts.runtime, parts.registry, parts.claims, parts.events
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
        self._slots = Slots(size, isolate_quarantined=self._isolate_quarantined)
        limits = lambda: (session.settings.max_payload, session.settings.max_output)  # noqa: E731  # as they are then
        progress = ProgressWriter(
            self._write_note,
            limits,
            session.clock,
            _completion(session, claims, registry),
            parts.flows,
            state=state,
        )
        self._runner = Runner(
            session,
            registry,
            parts.hooks,
            events,
            threads=self.threads_class(size, session.clock),
            new_context=progress.context,
            write_note=self._write_note,
            with_results=parts.flows.with_results,
            address=lambda: (address_of(self.app), parts.imports),
            isolate_quarantined=self._isolate_quarantined,
        )
        plain = not parts.hooks.around_run and not traces.watched()  # both begin on the loop, before the thread
        self._prefetch = Prefetch(session.clock, self._runner.threads, self._slots, self._unstarted if plain else None)
        self._settler = Settler(session, claims, events, self._slots, self._prefetch.enough)
        leases = Leases(session, claims, self._slots, holder, self._unstarted)
        self._batches = Batches(session, leases, self._runner.call_together, self._begin, poll=poll)
        self._stopping = asyncio.Event()
        self._dependency_release = DependencyRelease(session, parts.flows.release(session), poll)
        claimer = Claimer(
            session,
            self._slots,
            leases,
            self._begin,
            begin_ahead=self._begin_ahead,
            prefetch=self._prefetch,
            poll=poll,
            rotation=rotation,
            until_idle=self._until_idle,
            dependency_release=self._dependency_release,
        )
        self._control = control = RemoteControl(
            leases,
            self._slots,
            self._runner.threads,
            frames_in_processes=self._runner.frames_in_processes,
            stop=self._stop_by_request,
            changed=self._describe,
            supervisor=self._supervisor,
        )
        control.heartbeat = heartbeat = self.heartbeat_class(
            session.store.sibling(),
            holder,
            leases.before_heartbeat,
            leases.after_heartbeat,
            session.give_way,
            outages=session.outages,
            serve=control.serve,
        )
        later = () if self._weights else (WEBHOOKS,)  # in the rotation from the first webhook on
        listener = session.store.listen([f"queue/{name}" for name in (*queues, *later)])
        self._loop = loop
        if self._stops:
            self._stopping.set()
        self._ended = asyncio.Event()
        runtime.before_close.add(self._end)
        heartbeat.start()
        leases.watch(heartbeat.soon)
        maintenance = Maintenance(session, claims, poll, min(RECOVERY_DELAY, 3 * poll), lease=lease)
        scheduler = Scheduler(parts.schedules, session, poll)
        unserved = UnservedQueues(parts.inspection, session)
        self._guard = self.guard_class(lambda: bool(self._slots))
        end_gauges = meters.observe_queues(parts.inspection.queues, session.clock)
        claiming, stopped = asyncio.create_task(claimer.run(listener)), asyncio.create_task(self._stopping.wait())
        own = tuple(sorted(name for name, task in registry.tasks.items() if not task.built_in))
        if not own:
            logger.warning(
                "%r has no tasks, so this worker runs only functions of trusted modules; import the modules that define"
                " its tasks: Holdfast(imports=[…]), -I MODULE or --discover PACKAGE",
                self.app,
            )
        events.worker_started(holder, redact(parts.url), own)
        try:
            await asyncio.wait([claiming, stopped], return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._stops += 2  # cancelled: release everything now
            raise
        finally:
            end_gauges()
            if not loop.is_closed():  # else the loop ended under the worker; its lease will expire
                stopped.cancel()
                claiming.cancel()
                listener.close()
                maintenance.stop()
                scheduler.stop()
                unserved.stop()
                self._guard.stop()
                control.close()
                await self._finish_leaving(loop.create_task(self._leave(claiming, heartbeat, leases, grace)))
        if not claiming.cancelled():
            claiming.result()

    def run_sync(self) -> None:
        """Run jobs until stopped, for blocking programs. In the main thread, SIGINT and SIGTERM stop it gracefully."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            raise ConfigError("run_sync() was called on a running event loop: await worker.run() instead")
        asyncio.run(self._run_until_signal())

    async def _run_until_signal(self) -> None:
        loop, signals = asyncio.get_running_loop(), (signal.SIGINT, signal.SIGTERM)
        own = signals if threading.current_thread() is threading.main_thread() else ()
        for number in own:
            loop.add_signal_handler(number, self.stop)
        try:
            async with self.app:
                await self.run()
        finally:
            for number in own:
                loop.remove_signal_handler(number)

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
                self._hurry.set()
                self._slots.quiet.set()
        leaving.result()

    async def _leave(self, claiming: asyncio.Task[None], heartbeat: Heartbeat, leases: Leases, grace: float) -> None:
        """Let running jobs end or release them, close everything, and deregister."""
        holder, deadline = leases.holder.id, asyncio.get_running_loop().time() + min(grace, MAX_CLEAN_UP)
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
            try:
                await self._clean_up(deadline)
            finally:
                self._parts.runtime.before_close.discard(self._end)
                self._ended.set()
                self._parts.events.worker_stopped(holder)

    async def _clean_up(self, deadline: float) -> None:
        """Clean up dependencies in the rest of the grace period, or until a second stop; then cancel what is left."""
        loop = asyncio.get_running_loop()
        cleaning, hurry = loop.create_task(self._runner.clean_up()), loop.create_task(self._hurry.wait())
        if self._stops < 2:
            rest = max(0.0, deadline - loop.time() - CANCEL_GRACE)
            await asyncio.wait([cleaning, hurry], timeout=rest, return_when=asyncio.FIRST_COMPLETED)
        hurry.cancel()
        await asyncio.wait([cleaning], timeout=CANCEL_GRACE)
        if not cleaning.done():
            self._runner.interrupt_clean_up()
            await asyncio.wait([cleaning], timeout=CANCEL_GRACE)
        if not cleaning.cancel():  # else it ignores its cancellation
            cleaning.result()

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
        return 0 if self.holder is None else sum(run.started for run in list(self._slots.runs.values()))

    @property
    def idle(self) -> bool:
        """Whether nothing runs and no settlement is pending."""
        return self.holder is None or (not self._slots.runs and not self._slots.settling)

    def _stop(self) -> None:
        if self._requested:  # the first signal after an operator's stop changes nothing
            self._requested = False
            return
        self._stops += 1
        self._stopping.set()
        self._control.stopping()
        if self._stops > 1:
            self._hurry.set()
            self._slots.quiet.set()

    def _stop_by_request(self, now: bool) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._stop_requested, now)

    def _stop_requested(self, now: bool) -> None:
        """An operator's stop does not count as a signal, so that neither shortens the grace period of the other."""
        self._requested = False
        if now:
            self._stops = max(1, self._stops)
            self._stop()
        elif not self._stops:
            self._stop()
            self._requested = True

    def _describe(self, holder: Holder) -> None:
        self.holder = holder

    def _begin_ahead(self, record: Record) -> None:
        """Begin a job of a claim for more jobs than slots: if none is free, it waits for a thread."""
        self._begin(record, ahead=self._slots.free() <= 0)

    def _begin(self, record: Record, batch: Batch | None = None, *, ahead: bool = False) -> None:
        run, starts = Run(record, self._session.clock.monotonic()), self._session.may_start(record)
        task = self._parts.registry.tasks.get(record.task)
        unwanted = ahead and starts and not self._prefetch.keep(run, task)
        if task is not None and task.batch is not None and starts and not unwanted:
            (batch or self._batches.place(record, task)).add(run)
        self._slots.add(run)
        self._parts.events.claimed(record)
        if unwanted:
            self._settler.settle(run, Outcome.released())
            return
        if task is not None and task.run_in == "loop":
            self._guard.watch()
        run.runner = asyncio.create_task(self._run(run) if starts else self._refuse(run))

    async def _refuse(self, run: Run) -> None:
        self._settler.settle(run, await self._session.refusal(run.record))

    async def _write_note(self, note: Note) -> bool:
        """Write what a running job reports; it is not stalled."""
        run = self._slots.runs.get((note.id, note.fence))
        if run is None:
            return await self._session.commit.note(note)
        run.writing += 1
        try:
            return await self._session.commit.note(note)
        finally:
            run.writing -= 1
            run.active_at = asyncio.get_running_loop().time()

    async def _run(self, run: Run) -> None:
        try:
            running = self._runner.run(run)
            outcome = await (traces.running(run.record, running) if traces.watched() else running)
        except BaseException as error:  # an internal error must not keep a claim and its slot for ever
            logger.exception(
                "internal error of Holdfast while running job %s; this attempt fails: report the traceback",
                run.record.id,
            )
            outcome = Outcome.failed(f"{type(error).__name__}: {error}")
        self._prefetch.ran(run)
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
        self._settler.flush()
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


def _completion(session: Session, claims: ManualClaims, registry: Registry) -> Completion | None:
    """How tasks complete their jobs in their own transactions; None if the store does not support it."""
    if not isinstance(session.store, Transacting):
        return None

    def success(record: Record) -> Settlement:
        return claims.settlement(session, record, Outcome.succeeded(None))

    return Completion(session.store, success, registry.encode_result, lambda: session.settings.max_payload)


def _default_concurrency(registry: Registry) -> int:
    """Jobs that wait on the loop cost little. Jobs with a separate thread or process, such as shell jobs, cost more."""
    own = [task for task in registry.tasks.values() if not task.built_in]
    light = own and SHELL_TASK not in registry.tasks and all(task.run_in == "loop" for task in own)
    return ASYNC_CONCURRENCY if light else DEFAULT_CONCURRENCY


def served_queues(registry: Registry) -> tuple[str, ...]:
    """The queues that an app's tasks name, and `default`."""
    named = {task.options.queue for task in registry.tasks.values() if task.options.queue}
    return ("default", *sorted((named | registry.queues) - {"default"}))


async def _wait(event: asyncio.Event, timeout: float) -> None:
    try:
        async with asyncio.timeout(None if timeout == math.inf else timeout):
            await event.wait()
    except TimeoutError:
        pass
