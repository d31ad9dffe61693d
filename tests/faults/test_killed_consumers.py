"""A process that is killed loses its jobs soon, as its end can be proven; one that lives keeps them."""

from __future__ import annotations

import sys

import pytest
from support.until import until

from holdfast import State

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are identified by /proc")
LONG = 3600.0


def test_a_killed_consumer_does_not_keep_its_job_for_the_rest_of_its_lease(look, processes, journal):
    job = look.sync.submit("by_hand", b"{}", json=True).id
    first = processes.start("hand_main", lease=LONG, limit=1)
    until(lambda: journal.count("claimed", pid=first.pid) == 1, "the consumer has its job")
    first.kill()
    [claim] = until(look.sync.claim, "its job can be claimed again")
    assert (claim.job.id, claim.fence) == (job, 2)
    claim.complete(9)
    assert [line.outcome for line in look.job(job).history] == ["lost", "succeeded"]


def test_the_jobs_of_a_killed_program_do_not_wait_for_the_end_of_its_lease(look, processes, journal, gates):
    job = look.enqueue("gated", 1)
    first = processes.worker(lease=LONG)
    until(lambda: journal.count("start", pid=first.pid) == 1, "the worker in the program runs its job")
    first.kill()
    gates.open(1, 2)
    processes.worker(lease=LONG)
    until(lambda: look.job(job).state == State.SUCCEEDED, "the next program runs it again")
    assert [line.outcome for line in look.job(job).history] == ["lost", "succeeded"]


def test_a_consumer_that_only_sleeps_keeps_its_job(look, processes, journal, monkeypatch):
    monkeypatch.setattr("holdfast.client.session.ABANDONED_EVERY", 0.0)
    job = look.sync.submit("by_hand", b"{}", json=True).id
    first = processes.start("hand_main", lease=LONG, limit=1)
    until(lambda: journal.count("claimed", pid=first.pid) == 1, "the consumer has its job")
    look.freeze(first)
    assert look.sync.bulk.recover() == 0
    first.thaw()
    first.say(f"{job}=complete")
    assert first.ended() == 0, first.output()
    look.demand_finished_once({job: f"complete by {first.pid} under fence 1"})
