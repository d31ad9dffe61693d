"""A worker's lifetime: start, claim, run, settle, drain, stop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from ..claim import new_holder
from ..context import Context
from ..errors import ConfigError, HoldfastError
from ..heart import Heart
from ..job import Ask, Beat, Claims, Held, Record, Settlement
from ..lifecycle import Outcome
from ..store.protocol import Bell
from .run import Run, Runner
from .upkeep import Upkeep

if TYPE_CHECKING:
    from ..app import Holdfast

logger = logging.getLogger("holdfast")
Key = tuple[str, int]
"""A claim: job id and fence."""
DEFAULT_LEASE = 30.0
PROGRESS_PAUSE = 0.25
RESEND_PAUSE = 0.5
STUBBORN = 2.0
"""Seconds that an interrupted coroutine gets to end before its claim is given back without it."""


class Worker:
    """Runs an app's jobs inside this process.

    1. Claims as many jobs as it has free slots, woken by hints, polling without them.
    2. Runs each: async tasks on the loop, plain functions in threads.
    3. Settles each with its fence; a write that fails is repeated until the store answers.
    4. Keeps its lease from a thread of its own, and hears there of cancelled and lost jobs.
    5. Recovers what other workers lost, and removes what is past its retention.
    6. Runs a suspect (a job whose process died under it) only while it runs nothing else.
    7. Stops in order: no new claims, a grace period, then everything is given back uncharged.
    """

    def __init__(
        self,
        app: Holdfast,
        queues: Sequence[str] | None = None,
        concurrency: int | None = None,
        *,
        lease: float | None = None,
        poll: float | None = None,
        grace: float | None = None,
        until_idle: bool = False,
    ) -> None:
        self.app = app
        self._queues = None if queues is None else tuple(dict.fromkeys(queues))
        self._concurrency = concurrency
        self._lease = lease
        self._poll = poll
        self._grace = grace
        self._until_idle = until_idle
        self.runs: dict[Key, Run] = {}
        self._settling: set[Key] = set()
        self._owed = 0
        self._alone = 0
        self._stops = 0
        self._loop: asyncio.AbstractEventLoop | None = None

    # -- lifetime

    async def run(self) -> None:
        """Work until stopped (or, with `until_idle`, until nothing is ready any more)."""
        app = self.app
        await app.open()
        session = app.session
        self._loop = asyncio.get_running_loop()
        if session.loop is not self._loop:
            raise ConfigError("the app is open on another event loop: run the worker there, or with an app of its own")
        settings = session.settings
        self._commit = session.commit
        self._slots = self._concurrency or settings.concurrency
        self._poll_every = self._poll or settings.poll
        lease = self._lease or settings.lease or DEFAULT_LEASE
        queues = self._queues or served_queues(app)
        self._grace_for = settings.grace if self._grace is None else self._grace
        self.holder = new_holder(
            app, "worker", lease, queues, tasks=tuple(sorted(app.registry.tasks)), slots=self._slots
        )
        self._runner = Runner(app, self._slots, self._new_context)
        self._slot_freed = asyncio.Event()
        self._stopping = asyncio.Event()
        self._quiet = asyncio.Event()
        self._strays: dict[Key, float] = {}
        self._patience = 0.0
        self._bell = session.store.listen([f"queue/{name}" for name in queues])
        heart = Heart(session.store.sibling(), self.holder, self._before_beat, self._after_beat)
        heart.start()
        upkeep = Upkeep(app, self._poll_every)
        claiming = asyncio.create_task(self._claim_on(self._bell))
        stopped = asyncio.create_task(self._stopping.wait())
        if self._stops:
            self._stopping.set()
        logger.info("worker_started", extra={"event": "worker_started", "fields": {"worker_id": self.holder.id}})
        try:
            await asyncio.wait([claiming, stopped], return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._stops += 2  # whoever runs the worker has no patience: give everything back now
            raise
        finally:
            stopped.cancel()
            await self._stop_in_order(claiming)
            upkeep.stop()
            self._bell.close()
            self._runner.close()
            await asyncio.to_thread(heart.stop)
            await session.store.leave([self.holder.id])
            logger.info("worker_stopped", extra={"event": "worker_stopped", "fields": {"worker_id": self.holder.id}})
        await claiming if claiming.done() and not claiming.cancelled() else None

    def stop(self) -> None:
        """First call: take no more jobs, let those that run finish within the grace period. Second: give them back now.

        May be called from any thread, and from signal handlers.
        """
        if self._loop is None:
            self._stops += 1
        else:
            self._loop.call_soon_threadsafe(self._stop_now)

    def _stop_now(self) -> None:
        self._stops += 1
        self._stopping.set()
        self._slot_freed.set()
        if self._stops > 1:
            self._quiet.set()

    async def _stop_in_order(self, claiming: asyncio.Task[None]) -> None:
        claiming.cancel()
        await asyncio.wait([claiming])
        self._note_quiet()
        if self._stops < 2:
            await _wait(self._quiet, self._grace_for)
        for run in list(self.runs.values()):
            run.stop("release")
        await asyncio.sleep(0)
        self._quiet.clear()
        self._note_quiet()
        if any(not run.in_thread for run in self.runs.values()):
            await _wait(self._quiet, STUBBORN)
        for key, run in list(self.runs.items()):
            # A thread, or a coroutine that would not be interrupted: the job is given back without it.
            run.why = "lost"
            self._finish(key, run, Outcome.released())
        await self._commit.drain()
        if self._settling:
            # The store does not answer. Finished work is worth waiting for, within reason.
            self._quiet.clear()
            await _wait(self._quiet, max(self._grace_for, STUBBORN))

    def _note_quiet(self) -> None:
        if not self.runs:
            self._quiet.set()

    # -- claim

    async def _claim_on(self, bell: Bell) -> None:
        """Keep the slots filled."""
        faults = 0
        while not self._stopping.is_set():
            free = self._free_slots()
            if free <= 0:
                self._slot_freed.clear()
                await self._slot_freed.wait()
                continue
            queues = self._rotated()
            ask = Ask(self.holder, queues, free, self.app.entropy.token(), None, bool(self.runs))
            try:
                claims = await self._commit.claim(ask)
            except HoldfastError as error:
                faults += 1
                logger.warning("claiming failed, trying again: %s", error)
                await _wait(self._stopping, min(30.0, self._poll_every * 2 ** min(faults, 5)))
                continue
            faults = 0
            for record in claims.records:
                self._begin(record)
            self._mind_suspects(claims)
            if not claims.records:
                if self._until_idle and not self.runs and not self._settling:
                    return
                await self._idle(bell, claims)

    def _free_slots(self) -> int:
        """How many jobs may be claimed now; none while a suspect runs or waits for its turn to run alone."""
        if self._alone or (self._patience > self._now() and self.runs):
            return 0
        return self._slots - len(self.runs) - self._owed

    def _mind_suspects(self, claims: Claims) -> None:
        """Where a suspect waits for an idle process, let this one run empty; but not for longer than a lease."""
        if not claims.suspect_waiting or not self.runs:
            return
        now = self._now()
        if now > self._patience + self.holder.lease:
            self._patience = now + self.holder.lease
            self._loop.call_later(self.holder.lease, self._slot_freed.set)  # type: ignore[union-attr]

    async def _idle(self, bell: Bell, claims: Claims) -> None:
        pause = self._poll_every if claims.due_in is None else min(self._poll_every, claims.due_in + 0.001)
        if self._until_idle:
            pause = min(pause, 0.05)
        await bell.wait(pause)

    def _rotated(self) -> tuple[str, ...]:
        """The queues, a different one first each time, so that none starves."""
        queues = self.holder.queues
        if len(queues) < 2:
            return queues
        self._turn = (getattr(self, "_turn", -1) + 1) % len(queues)
        return queues[self._turn :] + queues[: self._turn]

    def _now(self) -> float:
        return self.app.clock.monotonic()

    # -- run

    def _begin(self, record: Record) -> None:
        run = Run(record)
        self.runs[record.id, record.fence] = run
        if record.suspect:
            self._alone += 1
        self.app.events.claimed(record)
        run.runner = asyncio.create_task(self._run(run))

    async def _run(self, run: Run) -> None:
        outcome = await self._runner.run(run)
        self._finish((run.record.id, run.record.fence), run, outcome)

    def _new_context(self, record: Record) -> Context:
        return Context(
            record,
            self._commit.note,
            loop=asyncio.get_running_loop(),
            max_payload=self.app.session.settings.max_payload,
            progress_soon=self._write_progress,
        )

    def _write_progress(self, context: Context) -> None:
        """Write the newest progress now, and then at most a few times a second."""
        if context.progress_busy:
            return
        note = context.progress_note()
        if note is None:
            return
        context.progress_busy = True
        loop = asyncio.get_running_loop()

        def ready() -> None:
            context.progress_busy = False
            self._write_progress(context)

        task = loop.create_task(self._commit.note(note))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        loop.call_later(PROGRESS_PAUSE, ready)

    # -- settle

    def _finish(self, key: Key, run: Run, outcome: Outcome) -> None:
        """A run has ended: free its slot, and write how, together with whatever else is being written."""
        if self.runs.pop(key, None) is None:
            return
        record = run.record
        if record.suspect:
            self._alone -= 1
        self._slot_freed.set()
        self._note_quiet()
        if run.why == "lost" and outcome.kind != "released":
            self.app.events.refused(record)
            return
        self._settling.add(key)
        end = self.app.settlement(record, outcome)
        self._commit.settle_soon(end, partial(self._settled, key, record, end))

    def _settled(self, key: Key, record: Record, end: Settlement, answer: bool | HoldfastError) -> None:
        if isinstance(answer, HoldfastError):
            # Finished work is never forgotten: the same end is written again until the store says yes or no.
            logger.warning("settling job %s failed, trying again: %s", record.id, answer)
            self._owed += 1
            self._loop.call_later(RESEND_PAUSE, self._settle_again, key, record, end)  # type: ignore[union-attr]
            return
        self._settling.discard(key)
        if not self._settling and not self.runs:
            self._quiet.set()
        if answer:
            self.app.events.settled(record, end)
        else:
            self.app.events.refused(record)

    def _settle_again(self, key: Key, record: Record, end: Settlement) -> None:
        self._owed -= 1
        self._slot_freed.set()
        self._commit.settle_soon(end, partial(self._settled, key, record, end))

    # -- leases

    def _before_beat(self) -> frozenset[Key]:
        """On the heart's thread: the claims that ran before the beat. (Copying a dict's keys is one step.)"""
        return frozenset(self.runs)

    def _after_beat(self, known: frozenset[Key], beat: Beat) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._compare, known, beat)

    def _compare(self, known: frozenset[Key], beat: Beat) -> None:
        """What the store says we hold, against what we run: stop what was lost or cancelled, give back strays."""
        held = {(one.id, one.fence): one for one in beat.held}
        for key in known - held.keys():
            if (run := self.runs.get(key)) is not None and run.why != "lost":
                run.stop("lost")
        for key, one in held.items():
            if one.cancel and (run := self.runs.get(key)) is not None:
                run.stop("cancel")
        self._give_back_strays(held)

    def _give_back_strays(self, held: dict[Key, Held]) -> None:
        """A claim whose answer never reached us is ours all the same. Seen for half a beat and longer: give it back."""
        strays = held.keys() - self.runs.keys() - self._settling
        now = self._now()
        self._strays = {key: self._strays.get(key, now) for key in strays}
        old = [key for key, since in self._strays.items() if now - since > self.holder.lease / 6]
        if old:
            asyncio.get_running_loop().create_task(self._release(old)).add_done_callback(_log_failure)

    async def _release(self, keys: list[Key]) -> None:
        records = await self.app.session.store.get([id for id, _ in keys])
        for key, record in zip(keys, records, strict=True):
            mine = record is not None and record.holder == self.holder.id and record.fence == key[1]
            if record is not None and mine and key not in self.runs and key not in self._settling:
                await self.app.settle(record, Outcome.released())


def served_queues(app: Holdfast) -> tuple[str, ...]:
    """The queues that an app's tasks name, and `default`."""
    named = {task.options.queue for task in app.registry.tasks.values() if task.options.queue}
    return ("default", *sorted(named - {"default"}))


async def _wait(event: asyncio.Event, timeout: float) -> None:
    try:
        async with asyncio.timeout(timeout):
            await event.wait()
    except TimeoutError:
        pass


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.warning("giving back a stray claim failed: %s", error)
