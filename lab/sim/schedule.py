"""One schedule: a plan is carried out, calms down, drains, and its history is held to every rule."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from holdfast.app import parts_of
from holdfast.client.session import RECOVERY_DELAY
from holdfast.core.chunks import Chunks
from holdfast.core.clock import MICROS
from holdfast.core.internal import flow_of, is_flow
from holdfast.core.job import TERMINAL, Record
from holdfast.store.protocol import Store
from holdfast.testing.history import (
    Entry,
    MemoryJournal,
    Terms,
    Verdict,
    Violation,
    calm,
    check,
    dump,
    final,
    held_by_expired_holder,
    received,
)
from holdfast.testing.verbs import every

from .bucket import Bucket
from .fair_order import unfair, waited
from .network import LATE, PATIENCE
from .people import LEASE, POLL, Member, quiet
from .plan import Fault, Plan, Rates
from .server import Server
from .stage import staged
from .world import MAX_STEPS, Process, World

SWEEP = RECOVERY_DELAY + 1.5 * POLL + 4 * PATIENCE
"""Seconds within which a process looks for lost claims, including a slow look."""
DRAIN_LIMIT = 300.0
LOOK_EVERY = 0.25
"""Seconds between looks at whether everything is over."""
HOUR = 3600.0
AWAY = {"paused": "jobs deferred by a pause", "suspended": "jobs that waited for a signal"}
MADE_OF = {"server": Server, "bucket": Bucket}


@dataclass
class Result:
    """What came of a plan."""

    plan: Plan
    verdict: Verdict
    trace: bytes
    counts: Counter[str] = field(default_factory=Counter[str])
    steps: int = 0
    seconds: float = 0.0

    @property
    def digest(self) -> str:
        return hashlib.blake2s(self.trace, digest_size=16).hexdigest()


def simulate(plan: Plan) -> Result:
    """Carry out a plan."""
    quiet()
    with staged():
        schedule = Schedule(plan)
        try:
            return schedule.run()
        finally:
            schedule.world.bury()


class Schedule:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.counts: Counter[str] = Counter()
        self.entries: list[Entry] = []
        self.world = World(plan.chance)
        self.place = MADE_OF[plan.place](self.world, plan, self.counts)
        self.director = self.world.process("director")
        self.journal = MemoryJournal("director", self.director.clock, self.entries)
        self.everybody: list[Member] = []
        self.drained = True
        self.records: list[Record] = []
        """The jobs as they were last seen."""
        names = [f"worker-{n}" for n in range(plan.workers)] + [f"producer-{n}" for n in range(plan.producers)]
        self.members = [self._member(name, skew) for name, skew in zip(names, plan.skews, strict=True)]

    def _member(self, name: str, skew: float = 0.0) -> Member:
        made = Member(self.plan, self.world.process(name, skew), self.place, self.entries, self.counts)
        self.everybody.append(made)
        return made

    def run(self) -> Result:
        plan, world = self.plan, self.world
        workers, producers = self.members[: plan.workers], self.members[plan.workers :]
        for worker in workers:
            worker.process.start(worker.run_worker())
            worker.process.on_death.append(lambda n=worker: self._replace(n))
        for number, producer in enumerate(producers):
            producer.process.start(producer.produce(number))
        if plan.deeds:
            operator = self._member("operator")
            operator.process.start(operator.operate(plan.deeds))
        for fault in plan.faults:
            self._plant(fault)
        world.run(max([plan.calm_at, *(fault.at + fault.seconds for fault in plan.faults)]) + 0.1)
        self._calm()
        draining = self.director.start(self._drain(self.place.observer(self.director)))
        if not world.run(world.now / MICROS + DRAIN_LIMIT, draining.done):
            self.drained = False
        self.journal.write(*final(sorted(self.records, key=lambda record: record.seq)))
        terms = Terms(
            store_time=self.place.one_clock or not any(plan.skews),
            locks=False,
            deletes=any(deed.what == "delete" for deed in plan.deeds),
        )
        for member in self.everybody:
            parts_of(member.app).runtime.drop_quietly()
        verdict = check(self.entries, terms)
        self._count(verdict)
        verdict.violations.extend(self._broken_beside(verdict))
        return Result(plan, verdict, dump(self.entries), self.counts, world.steps, world.now / MICROS)

    def _broken_beside(self, verdict: Verdict) -> list[Violation]:
        """What a history does not show."""
        found = [Violation("nothing_is_raised_that_nobody_hears", "", error) for error in self.world.errors]
        if self.world.steps >= MAX_STEPS:
            found.append(Violation("nobody_goes_round_in_circles", "", f"it was not over after {MAX_STEPS:,} steps"))
        if not self.drained:
            busy = [member.process.name for member in self.everybody if member.busy]
            found.append(Violation("everything_is_over_in_time", "", f"still at work: {', '.join(busy) or 'nobody'}"))
            waiting = [record for record in self.records if record.waiting_for is not None]
            found += [Violation("nobody_waits_any_more", one.id, f"it waits for {one.waiting_for}") for one in waiting]
        if self._fair() and self.counts["claims swept"]:
            what = "a claim was called lost, though nothing had gone wrong"
            found.append(Violation("no_claim_is_lost_in_fair_weather", "", what))
        if self.place.one_clock and not self.plan.deeds:
            in_order = waited(verdict.history, self.records)
            self.counts["jobs in fair order by weight"] += len(in_order)
            found += [*unfair(in_order), *self._ended_too_soon()]
        for member in self.everybody:
            if not member.closed or member.process.dead:
                continue
            if parts_of(member.app).runtime.live_loop() is not None or self.place.left_running(member.process):
                found.append(
                    Violation("what_was_closed_stays_closed", "", f"the app of {member.process.name} lives on")
                )
        return found

    def _ended_too_soon(self) -> Iterator[Violation]:
        """A flow ends with the last of its jobs, also of those that were added while it ran."""
        flows = {record.id: record.finished_at for record in self.records if is_flow(record)}
        for record in self.records:
            ended, last = record.finished_at, flows.get(flow_of(record) or "")
            if ended is not None and last is not None and ended > last:
                what = f"it ended {ended - last} µs after its flow"
                yield Violation("a_flow_ends_with_its_last_job", record.id, what)

    # -- faults

    def _plant(self, fault: Fault) -> None:
        later = self.director.loop.call_later
        if fault.what == "restart":
            later(fault.at, self.place.restart, fault.seconds)
            return
        process = self.members[fault.who].process
        if fault.what == "kill" and fault.step >= 0:
            process.dies_at_step = fault.step
            process.on_death.append(lambda: process.steps == fault.step and self._report("killed at a step"))
        elif fault.what == "kill":
            later(fault.at, lambda: process.kill() and self._report("killed at a time"))
        elif fault.what == "stop":
            later(fault.at, self._stop, process, fault.seconds)
        elif fault.what == "term":
            later(fault.at, self._term, self.members[fault.who])

    def _report(self, what: str) -> None:
        self.counts[what] += 1

    def _stop(self, process: Process, seconds: float) -> None:
        if not process.dead:
            process.stop(seconds)
            self.counts["stopped past its lease" if seconds > LEASE else "stopped"] += 1

    def _term(self, member: Member) -> None:
        worker = member.worker
        if worker is not None and not member.process.dead:
            self.counts["asked to stop"] += 1
            member.process.loop.call_soon(worker.stop)

    def _replace(self, dead: Member) -> None:
        """Start another worker."""
        if not self.plan.poisonous and self.world.chance.random() < 0.5:
            return
        fresh = self._member(f"{dead.process.name}'", dead.process.skew)
        fresh.process.on_death.append(lambda: self._replace(fresh))
        self.director.loop.call_later(0.2, lambda: fresh.process.start(fresh.run_worker()))

    # -- the end

    def _calm(self) -> None:
        self.place.calm()
        for process in self.world.processes:
            process.dies_at_step = -1
            process.stop(0.0)
        self.journal.write(calm())
        # Where the processes' own clocks say what is due, a wrong one may have put a retry an hour off: be there then.
        late = any(self.plan.skews) and not self.place.one_clock
        rescuer = self._member("rescuer", HOUR + 600.0 if late else 0.0)
        rescuer.process.on_death.append(lambda: self._replace(rescuer))
        rescuer.process.start(rescuer.reopen(max(LATE, self.place.last_arrival - self.director.loop.time())))
        rescuer.process.start(rescuer.run_worker())

    async def _drain(self, store: Store) -> None:
        """Look until everything is over; on the way, whether the dead still hold something that they should not."""
        now = self.director.loop.time
        look_at = now() + LATE + LEASE + SWEEP
        await store.open()
        while True:
            self.records = await every(store)
            if now() > self.place.last_arrival and self._is_over():
                await self._read_streams(store)
                return
            # The process that looks for lost claims may be kept from it for as long as a job blocks its loop.
            blocked_until = max(loop.blocked_until for loop in self.world.loops) / MICROS
            if now() >= max(look_at, blocked_until + SWEEP):
                look_at += DRAIN_LIMIT
                for seen in await store.holders():
                    if not seen.alive and seen.age > seen.holder.lease + SWEEP:
                        self.journal.write(*(held_by_expired_holder(id, seen.holder.id) for id in seen.jobs))
            await asyncio.sleep(LOOK_EVERY)

    async def _read_streams(self, store: Store) -> None:
        """What is stored of the streams of jobs that have emitted chunks."""
        known = {record.id for record in self.records}
        for id in sorted({entry.job for entry in self.journal.entries if entry.event == "emitted"} & known):
            chunks = Chunks(id)
            for piece in await store.output(id, 0, 1 << 20, stream=True):
                self.journal.write(*(received(id, chunk) for chunk in chunks.add(piece, {})))

    def _is_over(self) -> bool:
        """Whether all jobs have ended, and nobody does anything any more that might still go wrong."""
        if any(one.busy for one in self.everybody):
            return False
        unbegun = self._never_begun()
        return all(record.state in TERMINAL or flow_of(record) in unbegun for record in self.records)

    def _never_begun(self) -> set[str]:
        """The flows whose making was given up: they have jobs, but none of their own."""
        flows = {flow for record in self.records if (flow := flow_of(record)) is not None}
        return flows.difference(record.id for record in self.records)

    def _fair(self) -> bool:
        """Whether this plan has nothing in it that could cost anybody a lease."""
        plan = self.plan
        forgetful = any(deed.what in ("by_hand", "vanish") for deed in plan.deeds)
        return not (plan.faults or plan.poisonous or forgetful) and plan.rates == Rates()

    def _count(self, verdict: Verdict) -> None:
        history, counts = verdict.history, self.counts
        counts["jobs"] += len(history.jobs)
        counts["acknowledged jobs"] += verdict.jobs
        counts["flows never begun"] += len(self._never_begun())
        for record in self.records:
            if is_flow(record):
                counts[f"flows {record.state}"] += 1
            elif flow_of(record):
                counts["jobs of flows that were not run"] += not record.fence
                counts["jobs added to a flow that ran"] += record.key is not None
        for job in history.jobs.values():
            counts["claims"] += len(job.claims)
            counts["claims in limit keys"] += sum(1 for claim in job.claims if claim.entry.limit_key)
            counts["removed while being enqueued, and made anew"] += job.recreated and len(job.claims) > 1
            for end in job.ends.values():
                if end.entry.sweep and end.accepted:
                    counts["claims swept"] += 1
                if end.entry.outcome in AWAY and end.accepted:
                    counts[AWAY[end.entry.outcome]] += 1
                if len(end.sent) > 1:
                    counts["settlements sent again"] += 1
                if any(one.says == "no" for one in end.sent):
                    counts["settlements refused"] += 1
                    counts["sweeps sent again after the holder had beaten"] += end.entry.sweep and len(end.sent) > 1
        counts["calls of one job for a while"] += sum(
            1 for job in history.jobs.values() for one in job.inserts if one.entry.unique and one.says == "no"
        )
        counts["claims that nobody received"] += sum(1 for _ in history.unanswered)
