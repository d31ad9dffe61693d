"""The simulation: the same seed gives the same trace, every kind of fault is reached, and no promise is broken."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from lab.sim.command import many
from lab.sim.draw import draw
from lab.sim.plan import PLACES, Plan, Rates
from lab.sim.schedule import simulate
from lab.sim.shrink import shrink

from holdfast.client.pauses import TaskPauses
from holdfast.core.flow_rules import freed
from holdfast.core.limiter import Limiter
from holdfast.core.step_log import Memory
from holdfast.flows import completion as flow_completion
from holdfast.flows import members as flow_members
from holdfast.flows import release as flow_ends
from holdfast.store.reference.jobs import Jobs
from support import sizes

ROOT = Path(__file__).resolve().parents[2]
SCHEDULES = int(os.environ.get("HOLDFAST_SCHEDULES") or sizes.size(600))
"""`python -m lab sim` goes on for as long as it is let."""

REACHED = (
    "writes: refused",
    "writes: lost",
    "writes: unanswered",
    "writes: late",
    "slow messages",
    "server restarts",
    "requests lost in a restart",
    "answers lost in a restart",
    "killed at a step",
    "killed at a time",
    "stopped past its lease",
    "stopped",
    "loops blocked past the lease",
    "poison jobs started",
    "jobs that ran into their timeout",
    "listeners that never ring",
    "claims by hand that were forgotten",
    "claims that nobody received",
    "claims swept",
    "settlements refused",
    "settlements sent again",
    "enqueues with an unknown outcome",
    "operator: cancel",
    "operator: retry",
    "operator: delete",
    "operator: pause",
    "flows succeeded",
    "flows dead",
    "flows never begun",
    "jobs of flows that were not run",
    "jobs added to a flow that ran",
    "claims in limit keys",
    "jobs in fair order by weight",
    "jobs that waited for a signal",
    "signals that came too late for a job",
    "calls of one job for a while",
    "jobs deferred by a pause",
)

REGRESSIONS = {
    ("server", 1152): "a sweep whose answer was lost, sent again after its holder had beaten",
    ("bucket", 2680): "a worker that ended before it could write how a run had ended, and went on trying for ever",
    ("bucket", 7486): "a process that was stopped during a put, and then waited for others as if each put took as long",
    ("server", 49826): "three jobs in a row that blocked the loop of the one worker that looks for lost claims",
    ("server", 63126): "a checkpoint that was sent again, and whose first sending came after the next one",
    ("server", 107781): "a flow whose cancellation stopped half-way, and whose job failed at adding to it for ever",
    ("server", 53139): "a job of a flow that was never begun, cancelled: what waited for it ran",
    ("server", 1291): "a claim that was answered late: the worker released it for unknown, and then started it",
    ("server", 62544): "a limit key that had been served quickly, behind all of a newcomer's jobs",
    ("server", 581805): "a job behind one that was not needed and one that died: its end depended on which came first",
}
"""Seeds that once failed, and what they had met. A change of the core may lead a seed elsewhere: what is mended has a
test of its own besides, or a planted defect."""

SEEDS = (3, 7, 14, 23, 210, 648)
"""Of traces that must be the same: the last two were not, where stray claims were given back in a set's order; nor was
14 in a bucket, where the length of a process's id was part of what it wrote."""

RARE = {"flows never begun": 1974}
"""What about one schedule in 700 meets, with the seed of one that does."""


@pytest.mark.sized
@pytest.mark.timeout(600)
def test_no_schedule_breaks_a_promise_and_every_fault_is_reached(capsys):
    done, failed, counts = many(0, SCHEDULES)
    assert not failed, capsys.readouterr().out
    assert done == SCHEDULES
    for name, seed in RARE.items():
        counts[name] += simulate(draw(seed)).counts[name]
    missing = [name for name in REACHED if not counts[name]]
    assert not missing or not sizes.LONG, f"never met in {done} schedules: {missing}"


@pytest.mark.parametrize(("place", "seed"), REGRESSIONS)
def test_a_seed_that_once_failed(place, seed):
    verdict = simulate(draw(seed, place)).verdict
    assert verdict, verdict.explain()


@pytest.mark.extended
def test_the_same_seed_gives_the_same_trace_to_the_byte_in_any_process():
    program = (
        "import os, sys; os.getpid = lambda: int(sys.argv[1])\n"
        "from lab.sim.draw import draw; from lab.sim.schedule import simulate\n"
        f"seeds = [(seed, place) for place in {PLACES} for seed in {SEEDS}]\n"
        "sys.stdout.buffer.write(b''.join(simulate(draw(*seed)).trace for seed in seeds))"
    )
    traces = [
        subprocess.run(
            [sys.executable, "-c", program, pid],
            cwd=ROOT,
            env=os.environ | {"PYTHONHASHSEED": hash_seed, "HOLDFAST_POLL": poll},
            capture_output=True,
            check=True,
        ).stdout
        for hash_seed, pid, poll in (("1", "7", "1"), ("2", "7777777", "9"))
    ]
    here = b"".join(simulate(draw(seed, place)).trace for place in PLACES for seed in SEEDS)
    assert traces[0] == traces[1] == here
    assert len(here) > 10_000


def test_another_seed_gives_another_trace():
    assert len({simulate(draw(seed)).digest for seed in range(10)}) == 10


def decide_nothing(child, extra, parents, now):
    return freed(child, now)


async def free_nothing(self, pause):
    return None


async def count_as_planned(self, own):
    return msgspec.json.decode(own.payload)["jobs"]


PLANTED = {
    "nothing_runs_before_its_parents": (flow_ends, "decide", decide_nothing),
    "no_limit_key_runs_more_than_it_may": (Limiter, "starts", lambda *_: 100),
    "no_limit_key_starts_more_often_than_it_may": (Limiter, "starts", lambda *_: 100),
    "a_flow_ends_with_its_last_job": (flow_members.FlowJobs, "count", count_as_planned),
    "limit_keys_are_served_by_their_weights": (Limiter, "position", lambda self, limit_key, ends, now: now),
    "a_step_is_remembered": (Memory, "find", lambda *_: None),
    "one_job_at_a_time_per_key": (Jobs, "_is_taken", lambda *_: False),
    "nobody_waits_any_more": (TaskPauses, "_free", free_nothing),
}
"""By the rule that must catch it: a defect in what only some schedules have."""


@pytest.mark.extended
@pytest.mark.parametrize("rule", PLANTED)
def test_a_defect_in_what_some_schedules_have_is_met(rule, monkeypatch):
    monkeypatch.setattr(*PLANTED[rule])
    if rule == "a_flow_ends_with_its_last_job":  # else it would see that it has grown, and wait again
        monkeypatch.setattr(flow_completion, "number_kept", lambda _: None)
    for seed in range(0, 1500, 3):
        if rule in {broken.rule for broken in simulate(draw(seed)).verdict.violations}:
            return
    pytest.fail("500 schedules, and none has met the planted defect")


def forgetful_sweeper(self, end, now, settle=Jobs.settle):
    """A planted defect: whatever the fence, an end is written."""
    record = self.jobs.get(end.id)
    if record is not None and record.state == "running":
        record.fence, record.token = end.fence, end.token
    return settle(self, end, now)


def failing_plan() -> Plan:
    for seed in range(1000):
        if size(draw(seed)) > 14 and not simulate(draw(seed)).verdict:
            return draw(seed)
    raise AssertionError("no schedule has met the planted defect")


@pytest.mark.extended
def test_a_failing_plan_is_shrunk_to_one_that_still_fails_for_the_same_reason(monkeypatch):
    monkeypatch.setattr(Jobs, "settle", forgetful_sweeper)
    plan = failing_plan()
    rules = {broken.rule for broken in simulate(plan).verdict.violations}
    smallest = shrink(plan, rules, attempts=80)
    assert {broken.rule for broken in smallest.verdict.violations} & rules
    assert size(smallest.plan) < size(plan)


def size(plan: Plan) -> int:
    return len(plan.jobs) + len(plan.faults) + len(plan.deeds) + plan.workers + (plan.rates != Rates())


def test_figures_add_up():
    done, _, counts = many(5, 3)
    alone = sum((simulate(draw(seed)).counts for seed in (5, 6, 7)), Counter())
    assert (done, counts) == (3, alone)
