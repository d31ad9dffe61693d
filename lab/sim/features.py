"""What only some schedules have, so that each stays small: one of these, beside a few plain jobs at the most."""

from __future__ import annotations

from random import Random

from msgspec.structs import replace

from .plan import ONCE, Deed, FlowJob, Plan, PlannedFlow, PlannedJob, PlannedLimit, PlannedSignal, Rates

PLAIN = 3
"""Jobs of the plan that stay, at the most."""
ROOM = 50
"""Jobs of a limit key that may run at one time, where only the fair order is of interest."""


def with_feature(chance: Random, plan: Plan) -> Plan:
    """A plan with one more thing in it."""
    return chance.choice(FEATURES)(chance, replace(plan, jobs=plan.jobs[:PLAIN]))


def flows(chance: Random, plan: Plan) -> Plan:
    """One or two flows of a few jobs."""
    return replace(plan, flows=tuple(_flow(chance, plan) for _ in range(chance.randint(1, 2))))


def _flow(chance: Random, plan: Plan) -> PlannedFlow:
    drawn = planned_flow(chance, ("ok", "ok", "slow", "fails", "dies", "grows"))
    at, by = _when(chance, plan)
    return replace(drawn, at=at, by=by, on_end=chance.random() < 0.5)


def planned_flow(chance: Random, kinds: tuple[str, ...]) -> PlannedFlow:
    """A flow of three to eight jobs of these kinds, with edges and ways to end drawn by chance."""
    jobs: list[FlowJob] = []
    for number in range(chance.randint(3, 8)):
        kind = chance.choice(kinds)
        parents = chance.sample(range(number), min(number, chance.randint(0, 3)))
        on_dead = chance.choice(("fail", "fail", "ignore", "compensate"))
        jobs.append(FlowJob(kind, tuple(sorted(parents)), on_dead))
    return PlannedFlow(0.0, 0, tuple(jobs))


def limit_keys(chance: Random, plan: Plan) -> Plan:
    """A few limit keys, and jobs that have to wait for them."""
    limits = [_limit(chance, f"limit_key-{n}") for n in range(chance.randint(1, 3))]
    return replace(
        plan, jobs=plan.jobs + tuple(_in_limit_key(chance, plan, limits) for _ in range(chance.randint(4, 8)))
    )


def _limit(chance: Random, name: str) -> PlannedLimit:
    running = chance.choice((0, 1, 1, 2))
    rate = chance.choice(("", "1/s", "2/s")) if running else chance.choice(("1/s", "3/s"))
    return PlannedLimit(name, running, rate, chance.randint(1, 2) if rate else 1, chance.choice((0, 1, 3)))


def _in_limit_key(chance: Random, plan: Plan, limits: list[PlannedLimit]) -> PlannedJob:
    kind = chance.choice(("ok", "slow", "slow", "fails", "snoozes", "blocks", "times_out"))
    return PlannedJob(*_when(chance, plan), kind, many=chance.choice((1, 1, 2)), limit=chance.choice(limits))


def fair_order(chance: Random, plan: Plan) -> Plan:
    """Limit keys in fair order by weight; half of these without faults, where all of it can be checked."""
    limit_keys = [
        PlannedLimit(f"weighted-{n}", ROOM, weight=chance.choice((1, 1, 2, 3))) for n in range(chance.randint(2, 3))
    ]
    jobs = tuple(_in_turn(chance, plan, limit_keys) for _ in range(chance.randint(4, 8)))
    if chance.random() < 0.5:
        plan = replace(plan, rates=Rates(), faults=(), deeds=())
    return replace(plan, jobs=jobs)


def _in_turn(chance: Random, plan: Plan, limit_keys: list[PlannedLimit]) -> PlannedJob:
    at, by = chance.uniform(0.0, plan.calm_at * 0.3), chance.randrange(plan.producers)
    return PlannedJob(at, by, chance.choice(("ok", "slow")), many=chance.randint(1, 6), limit=chance.choice(limit_keys))


def steps(chance: Random, plan: Plan) -> Plan:
    """Jobs in steps that sleep, and wait for signals, of which some come before and some after."""
    signals = tuple(PlannedSignal(*_when(chance, plan), f"signal-{n}") for n in range(chance.randint(1, 2)))
    names = [signal.name for signal in signals]
    jobs = tuple(_in_steps(chance, plan, names) for _ in range(chance.randint(2, 5)))
    return replace(plan, jobs=plan.jobs + jobs, signals=signals)


def _in_steps(chance: Random, plan: Plan, names: list[str]) -> PlannedJob:
    if chance.random() < 0.4:  # it has little time, and may wait for what nobody sends
        return PlannedJob(*_when(chance, plan), "hurried steps", signal=chance.choice([*names, "never sent"]))
    return PlannedJob(*_when(chance, plan), "steps", signal=chance.choice(names))


def unique(chance: Random, plan: Plan) -> Plan:
    """Many calls that are to be one job, for a while: each key in its own way."""
    keys = [(f"unique-{n}", chance.choice(ONCE)) for n in range(chance.randint(1, 2))]
    calls = tuple(_once(chance, plan, keys) for _ in range(chance.randint(4, 8)))
    return replace(plan, jobs=plan.jobs + calls)


def _once(chance: Random, plan: Plan, keys: list[tuple[str, str]]) -> PlannedJob:
    key, how = chance.choice(keys)
    return PlannedJob(*_when(chance, plan), "slow", key=key, unique=how)


def pauses(chance: Random, plan: Plan) -> Plan:
    """Pauses of the task, or of some of its jobs, that are lifted a while later."""
    deeds = tuple(
        Deed(chance.choice(("hold", "hold_some")), chance.uniform(0.0, plan.calm_at * 0.6))
        for _ in range(chance.randint(1, 2))
    )
    more = tuple(PlannedJob(*_when(chance, plan), chance.choice(("ok", "slow", "fails"))) for _ in range(3))
    return replace(plan, jobs=plan.jobs + more, deeds=plan.deeds + deeds)


def _when(chance: Random, plan: Plan) -> tuple[float, int]:
    """When something is done, and by which producer."""
    return chance.uniform(0.0, plan.calm_at * 0.8), chance.randrange(plan.producers)


FEATURES = (flows, limit_keys, fair_order, steps, unique, pauses)
