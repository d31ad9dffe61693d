"""kill -9 of a server under load: its workers wait for it, every job still ends once, and nothing runs twice. (N, F)"""

from __future__ import annotations

import os
import threading
import time

import pytest
from support.until import until

from holdfast import OutcomeUnknown, StoreUnavailable
from holdfast.app import parts_of
from support.served import Served

pytest.importorskip("uvicorn")
JOBS = 300
ROUNDS = int(os.environ.get("HOLDFAST_ROUNDS", "2"))


@pytest.fixture
def served(tmp_path):
    with Served(f"sqlite:///{tmp_path}/jobs.db", tmp_path) as served:
        yield served


@pytest.fixture
def store_url(served):
    return served.url


@pytest.mark.timeout(300 + 20 * ROUNDS)
def test_every_job_finishes_once_when_the_server_is_killed_at_a_random_moment(look, processes, journal, served, chance):
    workers = [processes.worker(concurrency=8, lease=6.0) for _ in range(2)]
    expected: dict[str, object] = {}
    for count in range(ROUNDS):
        look.until_registered(*[worker.pid for worker in workers])
        ids = look.enqueue_many("work", [(n, 0.02) for n in range(JOBS)])
        expected |= {id: n * n for n, id in enumerate(ids)}
        moment, phase = chance.randrange(JOBS - 50), chance.uniform(0, 0.03)
        until(lambda ids=ids, moment=moment: journal.count("end", jobs=ids) >= moment, f"{moment} jobs are done")
        time.sleep(phase)  # so that the blow falls anywhere within a request
        served.kill()
        served.start()
        look.until_ended(ids)
        starts = journal.per_job("start", ids)
        print(f"round {count}: the server was killed after {moment} ends")
        twice = [id for id, count in starts.items() if count != 1]
        assert not twice, f"no worker died, so nothing may start again: {look.stories(twice)}"
        assert starts.keys() == set(ids), f"never started: {look.stories(set(ids) - starts.keys())}"
    look.demand_finished_once(expected)


def test_jobs_enqueued_while_the_server_is_killed_repeatedly_are_stored_once(look, served, chance):
    done = threading.Event()
    made: dict[str, str] = {}

    def enqueue() -> None:
        number = 0
        while not done.is_set():
            try:
                handle = parts_of(look.app).registry.tasks["work"].using(key=f"key-{number}").sync.enqueue(number)
            except (OutcomeUnknown, StoreUnavailable):
                continue  # a repeat with the same key is the same job
            made[f"key-{number}"] = handle.id
            number += 1

    enqueuing = threading.Thread(target=enqueue)
    enqueuing.start()
    try:
        for _ in range(ROUNDS):
            goal = len(made) + chance.randrange(20, 60)
            until(lambda goal=goal: len(made) >= goal, "jobs are enqueued")
            served.kill()
            served.start()
    finally:
        done.set()
        enqueuing.join()
    jobs = look.jobs()
    by_key = {job.key: job.id for job in jobs}
    assert len(by_key) == len(jobs), "a key has two jobs"
    assert made.items() <= by_key.items(), "an acknowledged job is not there"
    assert len(jobs) <= len(made) + 1
