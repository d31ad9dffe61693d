"""A planned flow: made, and how each job of it has to end where nobody interferes."""

from __future__ import annotations

from typing import Any

from holdfast import Flow
from holdfast.core.job import State
from holdfast.core.retry import Backoff
from holdfast.tasks.task import Task

from .plan import FlowJob, PlannedFlow


def made(planned: PlannedFlow, task: Task[..., Any], retries: Backoff, name: str = "planned") -> Flow:
    """The flow, not yet enqueued. Whatever does not compensate is given its parents' results."""
    flow = Flow(name)
    for job in planned.jobs:
        using = task.using(max_attempts=1 if job.kind == "dies" else 0, retry=retries)
        parents = [flow.nodes[number] for number in job.after]
        given = [] if job.on_dead == "compensate" else parents
        flow.add(using, job.kind, given).after(*parents, on_dead=job.on_dead)
    if planned.on_end:
        flow.on_end(task.using(max_attempts=0, retry=retries), "ok")
    return flow


def expected(planned: PlannedFlow) -> list[str]:
    """The states in which its jobs end, and behind them that of the flow."""
    states: list[str] = []
    spared: set[int] = set()
    """Those that were not run because there was no need to."""
    for number, job in enumerate(planned.jobs):
        bad = [each for each in job.after if states[each] != State.SUCCEEDED]
        if _runs(job, bad, spared):
            states.append(State.DEAD if job.kind == "dies" else State.SUCCEEDED)
            continue
        states.append(State.CANCELLED)
        if job.on_dead == "compensate" or spared.issuperset(bad):
            spared.add(number)
    strict = {each for job in planned.jobs if job.on_dead != "ignore" for each in job.after}
    tolerated = {each for job in planned.jobs for each in job.after} - strict
    failed = any(
        number not in spared and (state == State.CANCELLED or number not in tolerated)
        for number, state in enumerate(states)
        if state != State.SUCCEEDED
    )
    if planned.on_end:
        states.append(State.SUCCEEDED)
    return [*states, State.DEAD if failed else State.SUCCEEDED]


def _runs(job: FlowJob, bad: list[int], spared: set[int]) -> bool:
    if job.on_dead == "fail":
        return not bad
    return job.on_dead == "ignore" or not job.after or bool(set(bad) - spared)
