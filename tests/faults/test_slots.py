"""Concurrency bounds what runs and what is held: nothing is claimed that cannot start at once."""

from __future__ import annotations

from support.journal import most_at_once
from support.stores import task_on_every_store
from support.until import until

JOBS, SLOTS = 60, 2


@task_on_every_store("work", in_thread="work_in_thread")
def test_sixty_sleeping_jobs_on_two_slots_are_never_more_than_two_running_or_claimed(look, processes, journal, task):
    ids = look.enqueue_many(task, [(n, 0.05) for n in range(JOBS)])
    worker = processes.worker(concurrency=SLOTS)
    seen: list[tuple[int, int]] = []

    def done() -> bool:
        seen.append((look.counts().get("running", 0), len(look.held_by(worker.pid))))
        return look.counts().get("succeeded") == JOBS

    until(done, "all have succeeded", details=lambda: look.stories(ids))
    assert max(running for running, _ in seen) == SLOTS, f"running, by the store: {seen}"
    assert max(held for _, held in seen) == SLOTS, f"held, by the store: {seen}"
    assert most_at_once(journal) == SLOTS, "running, by the journal"
    look.demand_finished_once({id: n * n for n, id in enumerate(ids)})
    assert journal.count("start") == JOBS
    look.demand_no_trouble()
