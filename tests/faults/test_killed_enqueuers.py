"""kill -9 in the middle of enqueueing: whatever was acknowledged is there, and the store is sound. (D)"""

from __future__ import annotations

import os
import sqlite3
import time

import pytest
from support.look import looking
from support.until import until

from holdfast.app import parts_of
from support.sizes import size

ROUNDS = int(os.environ.get("HOLDFAST_ROUNDS") or size(3))


@pytest.mark.sized
@pytest.mark.timeout(300 + 5 * ROUNDS)
def test_every_acknowledged_job_survives_kill_9_of_its_enqueuer(store_url, processes, journal, chance):
    for _ in range(ROUNDS):
        # Two at once: the other one must not be harmed by what the dead one left half done.
        pair = [processes.start("enqueue_main", seed=chance.randrange(2**31)) for _ in range(2)]
        goal = chance.randrange(1, 400)
        for process in pair:
            until(lambda pid=process.pid, goal=goal: journal.count("acked", pid=pid) >= goal, f"{goal} acknowledged")
        for process in pair:
            time.sleep(chance.uniform(0, 0.02))
            process.kill()
    acked = journal.per_job("acked")
    assert set(acked.values()) == {1}, "an id was given out twice"
    _demand_sound(store_url)
    with looking(store_url, journal) as look:
        stored = [job.id for job in look.jobs()]
        lost = acked.keys() - set(stored)
        print(f"{len(acked)} acknowledged, {len(stored)} stored")
        assert not lost, f"acknowledged, then lost: {look.stories(lost)}"
        assert len(stored) == len(set(stored)), "a job is there twice"
        # A server may still be storing what a dead client had sent it.
        until(lambda: look.counts() == {"queued": len(look.jobs())}, "every job is whole, and waits")
        # The store goes on: a job that is put before all of them is run at once.
        first = look.sync.enqueue(parts_of(look.app).registry.tasks["work"].using(priority=-1), 3)
        processes.worker(concurrency=1)
        look.until_ended([first.id])
        look.demand(first.id, look.job(first.id).result == 9, "it did not run")


def _demand_sound(url: str) -> None:
    """What the store's own checker says, where it has one."""
    if url.startswith("sqlite:///"):
        connection = sqlite3.connect(url.removeprefix("sqlite:///"))
        try:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        finally:
            connection.close()
