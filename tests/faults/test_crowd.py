"""Sixteen processes enqueue and claim on one store: no error, nothing lost, nothing held by two. (D, L, F, N)"""

from __future__ import annotations

import os
import signal
from collections import Counter

import pytest
from support.journal import spans
from support.until import until

from holdfast import State

SECONDS = float(os.environ.get("HOLDFAST_SECONDS", "3"))
"""60 is what the promise is held to."""
BY = ["hand"] * 12 + ["worker"] * 4


@pytest.mark.timeout(300 + 4 * SECONDS)
def test_sixteen_processes_on_one_store_lose_nothing_and_claim_nothing_twice(look, processes, journal, chance):
    seed = chance.randrange(2**31)
    crowd = [processes.start("crowd_main", by=by, seconds=SECONDS, seed=seed + n) for n, by in enumerate(BY)]
    until(
        lambda: journal.count("enqueued") == len(crowd) or not all(member.running for member in crowd),
        "every process has enqueued its jobs",
        60 + 2 * SECONDS,
    )
    until(
        lambda: look.counts().keys() <= {State.SUCCEEDED} or not all(member.running for member in crowd),
        "nothing waits or runs any more",
        60 + 2 * SECONDS,
        lambda: f"{look.counts()}, held: {look.holders()}",
    )
    look.demand_no_trouble()
    for member in crowd:
        member.send(signal.SIGTERM)
    for member in crowd:
        assert member.ended() == 0, member.output()
    look.demand_no_trouble()

    acked = journal.per_job("acked")
    jobs = {job.id: job for job in look.jobs()}
    print(f"{len(jobs)} jobs, {journal.count('start')} claims in {SECONDS:g} s")
    assert set(acked.values()) == {1}, "an id was given out twice"
    assert not acked.keys() - jobs.keys(), f"lost: {look.stories(acked.keys() - jobs.keys())}"
    assert not jobs.keys() - acked.keys(), f"nobody's: {look.stories(jobs.keys() - acked.keys())}"
    assert look.counts() == {"succeeded": len(acked)}
    assert len({entry["pid"] for entry in journal.entries("start")}) == len(crowd), "some process never got a job"

    claims = Counter((entry["job"], entry["fence"]) for entry in journal.entries("start"))
    twice = {job for (job, _), count in claims.items() if count > 1}
    assert not twice, f"claimed twice under one fence: {look.stories(twice)}"
    fences = Counter(job for job, _ in claims)
    unseen = [job.id for job in jobs.values() if job.fence != fences[job.id]]
    assert not unseen, f"claims that nobody received: {look.stories(unseen)}"
    assert not (overlapping := _overlapping(journal)), f"held by two at a time: {look.stories(overlapping)}"
    done = Counter(entry["job"] for entry in journal.entries("settled") if entry["about"] == "complete")
    assert not done or max(done.values()) == 1, f"completed twice: {look.stories(id for id in done if done[id] > 1)}"
    look.demand_finished_once({id: job.fence for id, job in jobs.items()})


def _overlapping(journal) -> set[str]:
    """Jobs of which two runs were under way at one moment."""
    found, last = set(), dict[str, float]()
    for begin, end, start in sorted(spans(journal), key=lambda span: span[0]):
        if begin < last.get(start["job"], 0.0):
            found.add(start["job"])
        last[start["job"]] = max(end, last.get(start["job"], 0.0))
    return found
