"""Eight workers, a schedule of every second, and kill -9: each run is made once, none is missing."""

from __future__ import annotations

import os
import time

import pytest
from support.until import until

WORKERS = 8
SECONDS = int(os.environ.get("HOLDFAST_SECONDS", "5"))
"""60 is what the promise is held to."""


@pytest.mark.timeout(300 + 4 * SECONDS)
def test_every_run_of_a_schedule_is_made_once_when_workers_die(look, processes, chance):
    workers = [processes.worker(concurrency=2) for _ in range(WORKERS)]
    look.until_registered(*[worker.pid for worker in workers])
    first = look.sync.schedules.put("tick", look.app.call("work", 3, 0.0), every=1, catch_up=1000).next
    last = first + (SECONDS - 1) * 1_000_000
    kills = 0
    while not kills or look.sync.schedules.get("tick").next <= last:
        time.sleep(chance.uniform(0.2, 1.2))
        victim = chance.randrange(WORKERS)
        workers[victim].kill()
        workers[victim] = processes.worker(concurrency=2)
        kills += 1
    look.sync.schedules.delete("tick")
    due = [int(job.key.rpartition("/")[2]) for job in look.sync.jobs(limit=1000).jobs if job.key]
    print(f"{len(due)} runs under {kills} kills")
    wanted = set(range(first, last + 1, 1_000_000))
    assert wanted <= set(due), f"missing: {sorted(wanted - set(due))}"
    assert len(due) == len(set(due)), "a run was made twice"
    ids = [job.id for job in look.sync.jobs(limit=1000).jobs]
    look.until_ended(ids)
    assert kills
    until(lambda: all(job.state == "succeeded" for job in look.sync.jobs(limit=1000).jobs), "all runs have succeeded")
