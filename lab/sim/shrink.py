"""A failing plan, made smaller for as long as it fails: fewer faults, jobs, workers, deeds, and a better network."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from .plan import Plan, Rates
from .schedule import Result, simulate


def shrink(plan: Plan, rules: set[str], attempts: int = 400) -> Result:
    """The smallest plan found that still breaks one of these rules, and its result."""
    best = simulate(plan)
    while attempts > 0:
        for smaller in candidates(best.plan):
            attempts -= 1
            tried = simulate(smaller)
            if rules & {one.rule for one in tried.verdict.violations}:
                best = tried
                break
            if attempts <= 0:
                break
        else:
            break
    return best


def candidates(plan: Plan) -> Iterator[Plan]:
    """Plans that are a little simpler, the simplest first."""
    if plan.rates != Rates():
        yield replace(plan, rates=Rates())
    for name in ("deeds", "faults", "flows", "signals", "jobs"):
        some = getattr(plan, name)
        if len(some) > 3:
            yield replace(plan, **{name: some[: len(some) // 2]})
            yield replace(plan, **{name: some[len(some) // 2 :]})
        for n in range(len(some)):
            yield replace(plan, **{name: some[:n] + some[n + 1 :]})
    for name in Rates.__struct_fields__:
        if getattr(plan.rates, name):
            yield replace(plan, rates=replace(plan.rates, **{name: 0.0}))
    if plan.workers > 1:
        yield _without_a_worker(plan)
    if any(plan.skews):
        yield replace(plan, skews=(0.0,) * len(plan.skews))
    if plan.deaf:
        yield replace(plan, deaf=False)
    if plan.slots > 1:
        yield replace(plan, slots=1)


def _without_a_worker(plan: Plan) -> Plan:
    last = plan.workers - 1
    faults = tuple(
        replace(fault, who=fault.who - 1) if fault.who > last else fault
        for fault in plan.faults
        if fault.who != last or fault.what == "restart"
    )
    return replace(plan, workers=last, skews=plan.skews[:last] + plan.skews[last + 1 :], faults=faults)
