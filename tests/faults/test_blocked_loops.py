"""A job that blocks its loop, or sits in a thread, for three leases keeps its lease and runs once. (L)"""

from __future__ import annotations

from support.stores import task_on_every_store

LEASE = 1.0


@task_on_every_store("block_the_loop", in_thread="work_in_thread")
def test_a_job_that_blocks_for_three_leases_runs_once(look, processes, journal, task):
    id = look.enqueue(task, 5, 3 * LEASE + 0.3)
    busy = processes.worker(lease=LEASE, concurrency=1)
    look.until_started(id)
    other = processes.worker(lease=LEASE, concurrency=1)
    look.until_registered(other.pid)
    # The second worker is well and would take the job over: until the end, it takes whatever else there is.
    meanwhile = 0
    while not look.job(id).finished_at:
        canary = look.enqueue("work", 2)
        look.until_ended([canary])
        meanwhile += 1
    assert journal.count("start", pid=other.pid) >= min(meanwhile - 1, 5), "the second worker was not around"
    look.demand_finished_once({id: 25})
    look.demand(id, journal.per_job("start")[id] == 1, "it ran more than once")
    look.demand(id, look.job(id).fence == 1, "it was claimed more than once")
    assert busy.running
    look.demand_no_trouble(but="a task blocks the event loop")
