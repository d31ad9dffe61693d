"""A job that kills its process again and again ends dead; those that died with it are not blamed. (Q, B)"""

from __future__ import annotations

import signal
import time

from support.journal import spans

from holdfast import State
from holdfast.app import parts_of

NEIGHBOURS = 9


def enqueue_poison(look, n, company):
    """With no limit of attempts: only the rule about poison ends it."""
    return look.enqueue(parts_of(look.app).registry.tasks["poison"].using(max_attempts=0), n, company)


def test_a_job_that_kills_its_process_ends_dead_and_its_neighbours_succeed(look, processes, journal, gates):
    poison = enqueue_poison(look, 0, NEIGHBOURS)
    neighbours = [look.enqueue("gated", n) for n in range(1, NEIGHBOURS + 1)]
    for n in range(1, NEIGHBOURS + 1):
        for fence in range(2, 6):
            gates.open(n, fence)  # the first run never ends by itself: it dies with the poisonous one
    crashes, deadline = [], time.monotonic() + 60
    while {look.job(id).state for id in [poison, *neighbours]} - {State.DEAD, State.SUCCEEDED}:
        assert len(crashes) < 10, f"{crashes}\n{look.stories([poison, *neighbours], 10)}"
        worker = processes.worker(concurrency=NEIGHBOURS + 1, lease=1.0)
        while worker.running and look.counts().keys() - {"succeeded", "dead"}:
            assert time.monotonic() < deadline, look.stories([poison, *neighbours], 10)
            time.sleep(0.01)
        if not worker.running:
            assert worker.ended() == -signal.SIGKILL, worker.output()
            crashes.append(worker.pid)

    job = look.job(poison)
    look.demand(poison, job.state == State.DEAD and "quarantined" in (job.error or ""), "not dead as quarantined")
    look.demand(
        poison, 4 <= len(job.history) <= 6, "one death among others, two at most beside quarantined jobs, three alone"
    )
    assert len(crashes) == len(job.history), f"each of its runs killed one process: {crashes}\n{look.story(poison)}"
    runs = spans(journal)
    for start in journal.entries("start", jobs=[poison])[-3:]:
        company = [
            run["job"]
            for begin, end, run in runs
            if run["pid"] == start["pid"] and run["job"] != poison and end > start["at"]
        ]
        look.demand(poison, not company, f"it was counted, and yet it ran beside others: {company}")
    look.demand_finished_once({id: look.job(id).fence for id in neighbours})
    for id in neighbours:
        job = look.job(id)
        ends = [line.outcome for line in job.history]
        look.demand(id, 1 <= ends.count("lost") <= 3 and len(ends) <= 4, "it died with others three times at most")
        look.demand(
            id,
            look.sync_run(parts_of(look.app).handles.record, id).crashes == 0 and not job.quarantined,
            "a neighbour was blamed",
        )


def test_two_poisonous_jobs_do_not_blame_each_other(look, processes, journal):
    ids = [enqueue_poison(look, n, 1) for n in range(2)]
    deadline = time.monotonic() + 60
    crashes = 0
    while {look.job(id).state for id in ids} != {State.DEAD}:
        assert time.monotonic() < deadline, look.stories(ids)
        worker = processes.worker(concurrency=2, lease=1.0)
        while worker.running and look.counts().keys() != {"dead"}:
            assert time.monotonic() < deadline, look.stories(ids)
            time.sleep(0.01)
        crashes += not worker.running
    for id in ids:
        job = look.job(id)
        look.demand(id, "quarantined" in (job.error or "") and len(job.history) == 6, "three in company, three alone")
    assert crashes == 9, "the first three together, then three each"
