"""The bucket's own code in simulated schedules of every fault that a bucket, a machine or an operator can think of.

`python -m lab sim --on bucket` goes on for as long as it is let; HOLDFAST_SCHEDULES makes this run longer.
"""

from __future__ import annotations

import os

import pytest
from lab.sim.command import many
from lab.sim.draw import draw
from lab.sim.schedule import simulate

from holdfast.store.bucket.log import Log

SCHEDULES = int(os.environ.get("HOLDFAST_SCHEDULES", "150"))

REACHED = (
    *(f"{kind}: {fate}" for kind in ("gets", "puts", "lists", "deletes") for fate in ("lost", "unanswered", "late")),
    "gets: refused",
    "gets: cut",
    "puts: refused",
    "puts: conflict",
    "puts: exists",
    "puts that came late, and created",
    "slow messages",
    "server restarts",
    "requests lost in a restart",
    "killed at a step",
    "killed at a time",
    "stopped past its lease",
    "asked to stop",
    "loops blocked past the lease",
    "poison jobs started",
    "snapshots taken",
    "log entries cleaned away",
    "batches handed in for others to write",
    "segments of ended jobs written",
    "joined the log again",
    "claims swept",
    "settlements refused",
)

REGRESSIONS = {
    4: "an app whose store could be opened, but not read, left the store's engine running",
    29: "the same, in a worker that was asked to stop",
}
"""Seeds that once failed, and what they had met."""


@pytest.mark.extended
@pytest.mark.timeout(3600)
def test_nothing_is_lost_and_nothing_is_finished_twice_and_every_fault_is_reached(capsys):
    done, failed, counts = many(0, SCHEDULES, place="bucket")
    assert not failed, capsys.readouterr().out
    missing = [name for name in REACHED if not counts[name]]
    assert not missing, f"never met in {done} schedules: {missing}"


@pytest.mark.parametrize("seed", REGRESSIONS)
def test_a_seed_that_once_failed(seed):
    verdict = simulate(draw(seed, "bucket")).verdict
    assert verdict, verdict.explain()


@pytest.mark.extended
def test_without_the_guard_jobs_are_lost(monkeypatch):
    """The test above can fail: without the proof of head, a writer that slept wins a number that was cleaned away."""

    async def believe(self, *_):
        return None

    monkeypatch.setattr(Log, "believable", True)
    monkeypatch.setattr(Log, "verify", believe)
    for seed in range(200):
        broken = {one.rule for one in simulate(draw(seed, "bucket")).verdict.violations}
        if "no_acknowledged_job_is_lost" in broken:
            return
    pytest.fail("200 schedules without a guard, and nothing was lost")
