"""One schedule: a plan is carried out, calms down, drains, and its history is held to every rule."""

from __future__ import annotations

import hashlib
import os
import socket
from collections import Counter
from dataclasses import dataclass, field

from holdfast.clock import MICROS
from holdfast.job import TERMINAL
from holdfast.testing.history import Broken, Entry, Pages, Verdict, calm, check, dump, final, held_by_the_dead

from .network import LATE, PATIENCE, Network
from .people import LEASE, POLL, Member, quiet
from .plan import Fault, Plan, Rates
from .world import Process, World

SWEEP = 1.5 * POLL + 4 * PATIENCE
"""Seconds within which somebody looks for lost claims, a look that was slow included."""
DRAIN_LIMIT = 300.0


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
        self.network = Network(self.world, plan.rates, self.counts)
        self.network.deaf = plan.deaf
        self.director = self.world.process("director")
        self.journal = Pages("director", self.director.clock, self.entries)
        names = [f"worker-{n}" for n in range(plan.workers)] + [f"producer-{n}" for n in range(plan.producers)]
        self.members = [self._member(name, skew) for name, skew in zip(names, plan.skews, strict=True)]

    def _member(self, name: str, skew: float = 0.0) -> Member:
        return Member(self.plan, self.world.process(name, skew), self.network, self.entries, self.counts)

    def run(self) -> Result:
        plan, world = self.plan, self.world
        workers, producers = self.members[: plan.workers], self.members[plan.workers :]
        for worker in workers:
            worker.process.start(worker.run_worker())
            worker.process.on_death.append(lambda n=worker: self._replace(n))
        for number, producer in enumerate(producers):
            producer.process.start(producer.produce([job for job in plan.jobs if job.by == number]))
        if plan.deeds:
            operator = self._member("operator")
            operator.process.start(operator.operate(plan.deeds))
        for fault in plan.faults:
            self._plant(fault)
        calm_at = max([plan.calm_at, *(fault.at + fault.seconds for fault in plan.faults)]) + 0.1
        world.run(lambda: False, calm_at)
        self._calm()
        drained = self._drain()
        records = list(self.network.store._data.jobs.jobs.values())  # the truth itself, not by way of the network
        self.journal.write(*final(sorted(records, key=lambda record: record.seq)))
        verdict = check(self.entries)
        for error in world.errors:
            verdict.broken.append(Broken("nothing_is_raised_that_nobody_hears", "", error))
        if not drained:
            self.counts["not drained in time"] += 1
        self._count(verdict)
        if self._fair() and self.counts["claims swept"]:
            what = "a claim was called lost, though nothing had gone wrong"
            verdict.broken.append(Broken("no_claim_is_lost_in_fair_weather", "", what))
        return Result(plan, verdict, trace(self.entries), self.counts, world.steps, world.now / MICROS)

    # -- faults

    def _plant(self, fault: Fault) -> None:
        later = self.director.loop.call_later
        if fault.what == "restart":
            later(fault.at, self.network.restart, fault.seconds)
            return
        process = self.members[fault.who].process
        if fault.what == "kill" and fault.step >= 0:
            process.dies_at_step = fault.step
            process.on_death.append(lambda: process.steps == fault.step and self._tell("killed at a step"))
        elif fault.what == "kill":
            later(fault.at, lambda: process.kill() and self._tell("killed at a time"))
        elif fault.what == "stop":
            later(fault.at, self._stop, process, fault.seconds)
        elif fault.what == "term":
            later(fault.at, self._term, self.members[fault.who])

    def _tell(self, what: str) -> None:
        self.counts[what] += 1

    def _stop(self, process: Process, seconds: float) -> None:
        if not process.dead:
            process.stop(seconds)
            self.counts["stopped past its lease" if seconds > LEASE else "stopped"] += 1

    def _term(self, member: Member) -> None:
        worker = getattr(member, "worker", None)
        if worker is not None and not member.process.dead:
            self.counts["told to stop"] += 1
            member.process.loop.call_soon(worker.stop)

    def _replace(self, dead: Member) -> None:
        """Whoever starts workers starts another one."""
        if not self.plan.poisonous and self.world.chance.random() < 0.5:
            return
        fresh = self._member(f"{dead.process.name}'")
        fresh.process.on_death.append(lambda: self._replace(fresh))
        self.director.loop.call_later(0.2, lambda: fresh.process.start(fresh.run_worker()))

    # -- the end

    def _calm(self) -> None:
        self.network.calm()
        for process in self.world.processes:
            process.dies_at_step = -1
            process.stopped_until = min(process.stopped_until, self.world.now)
        self.journal.write(calm())
        rescuer = self._member("rescuer")
        rescuer.process.on_death.append(lambda: self._replace(rescuer))
        rescuer.process.start(rescuer.reopen())
        rescuer.process.start(rescuer.run_worker())

    def _drain(self) -> bool:
        world, jobs = self.world, self.network.store._data.jobs
        bound = world.now / MICROS + LATE + LEASE + SWEEP
        world.run(lambda: False, bound)
        for known in jobs.holders.values():
            if self.network.store._data.ended(known) and self._long_gone(known.holder.id):
                self.journal.write(*(held_by_the_dead(id, known.holder.id) for id in known.jobs))
        waiting = [producer.process for producer in self.members[self.plan.workers :]]

        def over() -> bool:
            if world.steps % 16 and not all(process.dead for process in waiting):
                return False
            return all(record.state in TERMINAL for record in jobs.jobs.values()) and not any(
                task for process in waiting if not process.dead for task in process.loop.tasks if not task.done()
            )

        return world.run(over, bound + DRAIN_LIMIT)

    def _long_gone(self, holder: str) -> bool:
        """Whether a lease ended so long ago that somebody must have seen it."""
        data = self.network.store._data
        known = data.jobs.holders[holder]
        return known.left or data.silent(holder) >= (known.lease + SWEEP) * MICROS

    def _fair(self) -> bool:
        """Whether this plan has nothing in it that could cost anybody a lease."""
        plan = self.plan
        forgetful = any(deed.what in ("by_hand", "vanish") for deed in plan.deeds)
        return not (plan.faults or plan.poisonous or forgetful) and plan.rates == Rates()

    def _count(self, verdict: Verdict) -> None:
        history, counts = verdict.history, self.counts
        counts["jobs"] += len(history.lives)
        counts["acknowledged jobs"] += verdict.jobs
        for life in history.lives.values():
            counts["claims"] += len(life.claims)
            counts["removed while being enqueued, and made anew"] += life.reborn and len(life.claims) > 1
            for end in life.ends.values():
                if end.entry.sweep and end.accepted:
                    counts["claims swept"] += 1
                if len(end.sent) > 1:
                    counts["settlements sent again"] += 1
                if any(one.says == "no" for one in end.sent):
                    counts["settlements refused"] += 1
        counts["claims that nobody received"] += sum(1 for _ in history.unanswered)


def trace(entries: list[Entry]) -> bytes:
    """The whole history, without what names this machine."""
    here = f"{socket.gethostname()}:{os.getpid()}:".encode()
    return dump(entries).replace(here, b"")
