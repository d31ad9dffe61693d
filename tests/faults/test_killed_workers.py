"""kill -9 of a worker: every job still ends once, and only what the dead one had in flight starts again. (N, F, B)"""

from __future__ import annotations

import os
import time
from collections import Counter

import pytest
from support.until import until

from holdfast.app import parts_of
from support.sizes import size

JOBS = 500
SLOTS = 8
ROUNDS = int(os.environ.get("HOLDFAST_ROUNDS") or size(3))
"""20 is what the promise is held to."""
LEASE = 3.0
"""Seconds: the worker that lives must renew its lease in time on a busy machine, too."""


@pytest.mark.sized
@pytest.mark.timeout(300 + 10 * ROUNDS)
def test_every_job_finishes_once_when_a_worker_is_killed_at_a_random_moment(look, processes, journal, chance):
    workers = [processes.worker(concurrency=SLOTS, lease=LEASE) for _ in range(2)]
    struck = count = 0
    while count < ROUNDS or (not struck and count < ROUNDS + 5):  # a kill may fall between two jobs
        count += 1
        look.until_registered(*[worker.pid for worker in workers])
        ids = look.enqueue_many("work", [(n, 0.03) for n in range(JOBS)])
        victim, moment, phase = chance.randrange(2), chance.randrange(JOBS - 50), chance.uniform(0, 0.03)
        until(lambda ids=ids, moment=moment: journal.count("end", jobs=ids) >= moment, f"{moment} jobs are done")
        time.sleep(phase)  # so that the blow falls anywhere within a job, not just after an end
        in_flight = look.kill(workers[victim]) & set(ids)
        workers[victim] = processes.worker(concurrency=SLOTS, lease=LEASE)
        look.until_ended(ids)

        starts = journal.per_job("start", ids)
        again = {id for id, count in starts.items() if count > 1}
        print(
            f"round {count}: worker {victim} killed after {moment} ends; {len(in_flight)} in flight, {len(again)} again"
        )
        assert len(in_flight) <= SLOTS, f"the dead worker held more than its slots: {look.stories(in_flight)}"
        assert starts.keys() == set(ids), f"never started: {look.stories(set(ids) - starts.keys())}"
        assert not again - in_flight, f"started again without having been in flight: {look.stories(again - in_flight)}"
        thrice = [id for id, count in starts.items() if count > 2]
        assert not thrice, f"one death, but started more than twice: {look.stories(thrice)}"
        look.demand_finished_once({id: n * n for n, id in enumerate(ids)})
        look.demand_all(in_flight, lambda job: job.attempt <= 2, "a lost start is charged once")
        struck += bool(in_flight)
    assert struck, "no kill met a job in flight: this run has shown nothing"
    look.demand_no_trouble()


@pytest.mark.sized
@pytest.mark.timeout(300 + 10 * ROUNDS)
def test_kills_one_after_another_lose_nothing_even_while_the_last_one_is_being_recovered_from(
    look, processes, journal, chance
):
    # Blame is not the point here, so nothing may end dead for having been unlucky.
    look.sync.config.set("max_crashes", 1000)
    work = parts_of(look.app).registry.tasks["work"].using(max_attempts=0)
    workers = [processes.worker(concurrency=SLOTS, lease=LEASE) for _ in range(2)]
    expected: dict[str, object] = {}
    may_start_again: Counter[str] = Counter()
    for count in range(ROUNDS * 2):
        expected |= {handle.id: 9 for handle in look.sync.enqueue_many([(work, 3, 0.2)] * 40)}
        # Alternately at any moment, and in the middle of a run that an earlier kill had made necessary.
        number, fence = (chance.randrange(1, 6), 1) if count % 2 == 0 else (1, 2)
        seen = len(journal.entries("start"))

        def next_starts(seen=seen, fence=fence) -> list[int]:
            return [entry["pid"] for entry in journal.entries("start")[seen:] if entry["fence"] >= fence]

        until(
            lambda number=number, starts=next_starts: len(starts()) >= number or look.counts().keys() <= {"succeeded"},
            "the jobs that are to be hit have started",
        )
        pid = (next_starts() or [chance.choice(workers).pid])[-1]
        victim = next(worker for worker in workers if worker.pid == pid)
        may_start_again.update(look.kill(victim))
        workers[workers.index(victim)] = processes.worker(concurrency=SLOTS, lease=LEASE)
    look.until_ended(expected)
    print(f"in flight at a kill: {len(may_start_again)} jobs, up to {max(may_start_again.values())} times")
    assert max(may_start_again.values()) > 1, "no kill met a job that was being recovered: nothing was shown"
    too_often = [id for id, count in journal.per_job("start").items() if count > 1 + may_start_again[id]]
    assert not too_often, f"started more often than they were in flight at a kill: {look.stories(too_often)}"
    look.demand_finished_once(expected)
    look.demand_no_trouble()
