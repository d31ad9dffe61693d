"""Who takes part in a schedule: producers that enqueue, workers that run, operators that interfere."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from holdfast import (
    Context,
    Discard,
    Handle,
    Holdfast,
    HoldfastError,
    JobExists,
    KeyConflict,
    OutcomeUnknown,
    Snooze,
    Worker,
    limit,
)
from holdfast.app import parts_of
from holdfast.client.heartbeat import Heartbeat
from holdfast.core.clock import Entropy
from holdfast.core.errors import PartialEnqueue, StoreUnavailable
from holdfast.core.job import State
from holdfast.core.retry import Backoff
from holdfast.tasks.limits import Limit
from holdfast.testing.history import Entry, MemoryJournal, acknowledged, began, denied, emitted, got, ran, recorded
from holdfast.worker.loop_guard import LoopGuard

from .bucket import Bucket
from .flows import expected, made
from .plan import Deed, Plan, PlannedFlow, PlannedJob, PlannedLimit, PlannedSignal
from .server import Server
from .world import Loop, Process

Place = Server | Bucket

LEASE, POLL, GRACE = 3.0, 1.0, 2.0
RETRIES = Backoff(base=0.3, factor=1.5, jitter=0.2, cap=1.0)
FLOW_TRIES = 3
ONCE: dict[str, dict[str, Any]] = {
    "": {},
    "queued": {"unique": "until_start"},
    "live": {"unique": "until_end"},
    "window": {"unique": 2.0},
    "debounce": {"debounce": 0.8, "debounce_max": 2.0},
}
HELD: dict[str, dict[str, Any]] = {"hold": {"task": "work"}, "hold_some": {"task": "work", "where": {"kind": "slow"}}}
HOLD = 3.0
"""Seconds for which a task is held: so long that all workers hear of it."""


class LoopHeartbeat(Heartbeat):
    """A heartbeat on a loop of its own instead of a thread: it goes on while the worker's loop is blocked."""

    def start(self) -> None:
        here = asyncio.get_running_loop()
        assert isinstance(here, Loop)
        self._beating = here.process.start(self._live(), Loop(here.process))

    async def stopped(self) -> None:
        self._stopping = True
        if self._loop is not None:
            self.soon()
        else:
            self._beating.cancel()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        here = asyncio.get_running_loop()
        self._beating.add_done_callback(lambda _: here.call_soon_threadsafe(_set, done))
        await done


def _set(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)


class NoGuard(LoopGuard):
    """Watches nothing: a simulation has no threads, and its loop blocks whenever the machine does."""

    def watch(self) -> None: ...


class SimWorker(Worker):
    heartbeat_class = LoopHeartbeat
    guard_class = NoGuard


class Member:
    """A process of the schedule, with its app."""

    def __init__(self, plan: Plan, process: Process, place: Place, entries: list[Entry], counts: Counter[str]):
        self.plan = plan
        self.process = process
        self.counts = counts
        self.worker: SimWorker | None = None
        self.closed = False
        """Its app was closed, and is to stay so."""
        self.journal = MemoryJournal(process.name, place.server.clock, entries)
        seed = plan.chance * 1000 + len(process.world.processes)
        self.app = Holdfast(
            recorded(place.store(process), self.journal, process.name),
            clock=process.clock,
            entropy=Entropy(seed),
            lease=LEASE,
            poll=POLL,
            grace=GRACE,
            retry_base=0.3,
            retry_factor=1.5,
            retry_jitter=0.2,
            retry_cap=1.0,
            max_crashes=3 if plan.poisonous else 1000,
        )
        parts_of(self.app).runtime.stay_here(process.loop)  # in a simulation there are no threads
        self.app.task(self.work, name="work", timeout=2.0)

    # -- the one task

    async def work(self, ctx: Context, kind: str, given: list[int | None] | None = None, signal: str = "") -> int:
        job, fence = ctx.job.id, ctx.fence
        self.journal.write(began(job, fence))
        loop = asyncio.get_running_loop()
        assert isinstance(loop, Loop)
        chance = self.process.world.chance
        if kind == "poison":
            self.counts["poison jobs started"] += 1
            self.process.kill()
            await loop.create_future()
        if kind == "slow":
            await asyncio.sleep(chance.random() * 1.5)
        elif kind == "times_out" and ctx.attempt == 1:
            self.counts["jobs that ran into their timeout"] += 1
            await asyncio.sleep(10.0)
        elif kind == "dies" or (kind == "fails" and fence < 3):
            await asyncio.sleep(0.05)
            raise ValueError("no luck")
        elif kind == "snoozes" and fence < 2:
            raise Snooze(0.5)
        elif kind == "discards":
            raise Discard("pointless")
        elif kind == "checkpoints":
            await ctx.checkpoint({"at": fence})
            for number in range(3):
                self.journal.write(emitted(job, fence, f"{fence}-{number}"))
                await ctx.emit(f"{fence}-{number}")
            await asyncio.sleep(0.2)
            ctx.progress(1, 2)
        elif kind == "blocks":
            self.counts["loops blocked past the lease"] += 1
            loop.block(LEASE + 1.0)
            await asyncio.sleep(0)
        elif kind in ("steps", "hurried steps"):
            await self._in_steps(ctx, signal, hurried=kind == "hurried steps")
        elif kind == "grows":
            await self._grow(ctx)
        else:
            await asyncio.sleep(chance.random() * 0.1)
        self.journal.write(ran(job, fence))
        return fence

    async def _in_steps(self, ctx: Context, signal: str, *, hurried: bool) -> None:
        async def drawn() -> int:
            await asyncio.sleep(0.1)
            return self.process.world.chance.getrandbits(32)

        def keep(name: str, value: object) -> None:
            self.journal.write(got(ctx.job.id, ctx.fence, name, value))

        chance = self.process.world.chance
        keep("first", await ctx.step("first", drawn))
        await ctx.sleep(0.7)
        if chance.random() < 0.3:
            raise ValueError("no luck between two steps")
        try:
            keep("signal", await ctx.wait_for(signal, 2.0 if hurried else None))
        except TimeoutError:
            self.counts["signals that came too late for a job"] += 1
            keep("signal", "too late")
        keep("last", await ctx.step("last", drawn))
        if chance.random() < 0.3:
            raise ValueError("no luck behind the last step")

    async def _grow(self, ctx: Context) -> None:
        """Add two jobs to the flow, of which the second is given what the first returns; each attempt adds the same."""
        given: list[Handle[Any]] = []
        for number, kind in enumerate(("fails", "ok")):
            key = f"{ctx.job.id}-{number}"
            using = parts_of(self.app).registry.tasks["work"].using(key=key, max_attempts=0, retry=RETRIES)
            handle = await ctx.add_to_flow(using, kind, given)
            self.journal.write(acknowledged(handle.id, key=key, expect="" if self._meddled else "succeeded"))
            given = [handle]
        if self.process.world.chance.random() < 0.3:
            raise ValueError("no luck after it was added to")

    # -- producers

    async def produce(self, number: int) -> None:
        jobs = [job for job in self.plan.jobs if job.by == number]
        flows = [flow for flow in self.plan.flows if flow.by == number]
        signals = [signal for signal in self.plan.signals if signal.by == number]
        await asyncio.gather(
            *(self._enqueue(n, job) for n, job in enumerate(jobs)),
            *(self._enqueue_flow(flow) for flow in flows),
            *(self._signal(signal) for signal in signals),
        )

    async def _enqueue(self, number: int, job: PlannedJob) -> None:
        await asyncio.sleep(job.at)
        using = parts_of(self.app).registry.tasks["work"].using(
            priority=job.priority, delay=job.delay or None, max_attempts=job.max_attempts, key=job.key or None,
            id=f"own-{self.process.name}-{number}" if job.own_id else None, retry=RETRIES,
            limit=None if job.limit is None else _limit(job.limit), **ONCE[job.unique],
        )  # fmt: skip
        # The jobs of one key are one job: whatever they do must be the same.
        kind = "slow" if job.key else job.kind
        expect = self._expected(job, kind)
        key = "" if job.unique else job.key  # the checker knows of it from the store's answers alone
        unknown = False
        while True:
            try:
                if job.many > 1:
                    handles = await self.app.enqueue_many([(using, kind)] * job.many)
                else:
                    handles = [await using.enqueue(kind, signal=job.signal)]
            except PartialEnqueue as error:
                handles = [handle for handle in error.handles if handle is not None]
            except JobExists as error:  # an earlier try of ours: nobody else uses these ids
                self.journal.write(acknowledged(error.job_id, expect=expect))
                if not unknown:
                    self.journal.write(denied(error.job_id))
                return
            except KeyConflict:
                return
            except OutcomeUnknown as error:
                unknown = True
                self.counts["enqueues with an unknown outcome"] += 1
                if not error.retry_safe:
                    return
                await asyncio.sleep(0.3)
                continue
            except StoreUnavailable:
                await asyncio.sleep(0.3)
                continue
            self.journal.write(*(acknowledged(handle.id, key=key, expect=expect) for handle in handles))
            return

    def _expected(self, job: PlannedJob, kind: str) -> str:
        if kind == "poison":
            return "dead"
        if self._meddled or job.max_attempts or kind == "discards" or job.key:
            return ""
        return "succeeded"

    @property
    def _meddled(self) -> bool:
        return any(deed.what in ("cancel", "delete", "by_hand", "vanish") for deed in self.plan.deeds)

    async def _enqueue_flow(self, planned: PlannedFlow) -> None:
        await asyncio.sleep(planned.at)
        flow = made(planned, parts_of(self.app).registry.tasks["work"], RETRIES)
        by_steps = len(flow.nodes) % 4  # with an id of its own, it takes several writes; else one
        for _ in range(FLOW_TRIES):  # each is another flow: one that is not begun comes to nothing
            id = f"flow-{parts_of(self.app).runtime.entropy.token()}" if by_steps else None
            try:
                handle = await self.app.enqueue_flow(flow, id=id)
            except HoldfastError:
                self.counts["flows that could not be enqueued"] += 1
                await asyncio.sleep(0.3)
                continue
            ids = [*(handle.handle(node).id for node in flow.nodes), handle.id]
            ends = [""] * len(ids) if self._meddled else expected(planned)
            self.journal.write(*(acknowledged(id, expect=end) for id, end in zip(ids, ends, strict=True)))
            return

    async def _signal(self, signal: PlannedSignal) -> None:
        await asyncio.sleep(signal.at)
        await self._surely(lambda: self.app.signal(signal.name, signal.name))
        self.counts["signals sent"] += 1

    # -- workers

    async def run_worker(self) -> None:
        self.worker = SimWorker(self.app, concurrency=self.plan.slots)
        while True:
            try:
                await self.worker.run()
            except HoldfastError:  # the store could not be reached at the start: its starter tries again
                await asyncio.sleep(0.5)
                continue
            break
        await self.app.close()
        self.closed = True

    @property
    def busy(self) -> bool:
        """Whether it still does something that the history could record."""
        if self.process.dead:
            return False
        if self.worker is not None:
            return self.worker.holder is not None and not self.worker.idle
        return any(not task.done() for task in self.process.loop.tasks)

    # -- operators, and consumers by hand

    async def operate(self, deeds: tuple[Deed, ...]) -> None:
        await asyncio.gather(*(self._do(deed) for deed in deeds))

    async def _do(self, deed: Deed) -> None:
        await asyncio.sleep(deed.at)
        try:
            if deed.what in ("by_hand", "vanish"):
                await self._by_hand(deed.what)
            elif deed.what in HELD:
                await self.app.pause(**HELD[deed.what])
                await asyncio.sleep(HOLD)
                await self.app.resume(**HELD[deed.what])
            elif deed.what == "pause":
                await self.app.pause("default")
                await asyncio.sleep(1.0)
                await self.app.resume("default")
            else:
                await self._to_a_job(deed.what)
        except HoldfastError:
            return
        self.counts[f"operator: {deed.what}"] += 1

    async def _to_a_job(self, what: str) -> None:
        page = await self.app.jobs(limit=100)
        if not page.jobs:
            return
        job = page.jobs[self.process.world.chance.randrange(len(page.jobs))]
        if what == "cancel":
            await self.app.cancel(job.id)
        elif what == "retry" and job.state != State.RUNNING:
            await self.app.retry(job.id)
        elif what == "delete":
            await self.app.delete(job.id)

    async def _by_hand(self, what: str) -> None:
        claims = await self.app.claim(limit=2, lease=LEASE, wait=1.0)
        for claim in claims:
            job, fence = claim.job.id, claim.fence
            self.journal.write(began(job, fence))
            if what == "vanish":
                self.counts["claims by hand that were forgotten"] += 1
                continue
            await asyncio.sleep(self.process.world.chance.random() * 2 * LEASE)  # perhaps past its lease
            self.journal.write(ran(job, fence))
            try:
                await claim.complete(fence)
            except HoldfastError as error:
                self.counts[f"by hand: {type(error).__name__}"] += 1

    async def reopen(self, after: float) -> None:
        """Nothing may stay paused, not even by a pause that was long on its way, and no signal unsent."""
        await asyncio.sleep(after)
        await self._surely(lambda: self.app.resume("default"))
        for what in sorted({deed.what for deed in self.plan.deeds} & HELD.keys()):
            await self._surely(lambda what=what: self.app.resume(**HELD[what]))
        for signal in self.plan.signals:
            await self._surely(lambda name=signal.name: self.app.signal(name, name))

    async def _surely(self, do: Callable[[], Awaitable[object]]) -> None:
        """Try until it is done."""
        while True:
            try:
                await do()
            except HoldfastError:
                await asyncio.sleep(0.2)
            else:
                return


def _limit(planned: PlannedLimit) -> Limit:
    return limit(
        name=planned.name, concurrency=planned.running or None, rate=planned.rate or None,
        burst=planned.burst if planned.rate else None, weight=planned.weight or None,
    )  # fmt: skip


def quiet() -> None:
    """What the core warns of, a simulation counts."""
    logging.getLogger("holdfast").setLevel(logging.CRITICAL + 1)
    logging.getLogger("asyncio").setLevel(logging.CRITICAL + 1)
