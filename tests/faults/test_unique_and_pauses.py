"""Once-ness and pauses of tasks with many processes on every store, and kill -9 between any two of their steps."""

from __future__ import annotations

import asyncio
import os
import time

import pytest
from support.tasks import build
from support.until import until

from holdfast import Job, State
from holdfast.app import parts_of
from holdfast.client.pauses import KIND as PAUSES

ROUNDS = int(os.environ.get("HOLDFAST_ROUNDS", "2"))
MANY = 200


async def _enqueue_from_many_places(url, journal, places, options):
    apps = [build(url, journal) for _ in range(4)]
    try:
        calls = [
            parts_of(app).registry.tasks["work"].using(**options).enqueue(n) for app in apps for n in range(places // 4)
        ]
        return {handle.id for handle in await asyncio.gather(*calls)}
    finally:
        for app in apps:
            await app.close()


@pytest.mark.parametrize("options", [{"unique": "until_end"}, {"unique": 3600}, {"debounce": 3600}, {"replace": True}])
def test_calls_from_many_places_at_once_leave_one_job(look, store_url, journal, options):
    ids = asyncio.run(_enqueue_from_many_places(store_url, journal, 16, {"key": "k", **options}))
    [job] = look.jobs()
    assert ids == {job.id}
    assert job.payload["n"] in range(4)


@pytest.mark.timeout(300 + 10 * ROUNDS)
def test_an_acknowledged_replacement_survives_kill_9_of_its_caller(look, processes, journal, chance):
    for number in range(ROUNDS):
        first = number * 1_000_000
        process = processes.start("debounce_main", first=first)
        goal = chance.randrange(1, 30)
        until(lambda pid=process.pid, goal=goal: journal.count("acked", pid=pid) >= goal, f"{goal} acknowledged")
        time.sleep(chance.uniform(0, 0.02))
        process.kill()
        acked = max(entry["n"] for entry in journal.entries("acked"))
        sent = max(entry["n"] for entry in journal.entries("sent"))
        [job] = look.jobs()
        look.demand(job.id, acked <= job.payload["n"] <= sent, f"{acked} was acknowledged, and {sent} sent last")
        look.demand(job.id, job.state == State.SCHEDULED, "it is put off")


def test_paused_jobs_are_deferred_and_released_when_workers_die(look, processes):
    look.sync.pause(task="work", where={"seconds": 0.001})
    held = look.enqueue_many("work", [(n, 0.001) for n in range(MANY)])
    free = look.enqueue_many("work", [(n, 0.0) for n in range(20)])
    workers = [processes.worker() for _ in range(3)]
    until(lambda: look.counts().get("blocked", 0) > MANY // 10, "some are deferred")
    workers.pop().kill()
    look.until_ended(free)
    until(lambda: look.counts().get("blocked", 0) == MANY, "all are deferred, and nothing is lost")
    assert look.journal.count("start", jobs=held) == 0, "none has run"
    look.sync.resume(task="work", where={"seconds": 0.001})
    workers.pop().kill()
    look.until_ended(held)
    look.demand_all(held, _ran_once, "each ran once after all")


@pytest.mark.timeout(300 + 10 * ROUNDS)
def test_no_job_stays_deferred_for_a_lifted_pause_though_clocks_are_wrong(look, processes):
    # Those whose clocks are ahead hear of everything first: the others go on to defer jobs for a lifted pause.
    for skew, poll in ((0.0, 2.0), (-61 * 60.0, 2.0), (61 * 60.0, 0.05), (26 * 3600.0, 0.05)):
        processes.worker(concurrency=16, wall_skew=skew, poll=poll)
    look.until_registered(*[process.pid for process in processes])
    jobs: list[str] = []

    def all_workers_have_heard() -> bool:
        before = look.counts().get("blocked", 0)
        jobs.extend(look.enqueue_many("work", [(n,) for n in range(MANY)]))
        until(lambda: not {"queued", "running"} & look.counts().keys(), "all are taken")
        return look.counts().get("blocked", 0) == before + MANY

    for _ in range(1 + ROUNDS):
        look.sync.pause(task="work")
        until(all_workers_have_heard, "no worker runs what is paused", limit=90)
        look.sync.resume(task="work")
    look.until_ended(jobs, limit=120)
    look.demand_all(jobs, _ran_once, "each ran once after all")
    until(lambda: not look.sync_run(parts_of(look.app).records.all, PAUSES), "the lifted pause is forgotten")


def _ran_once(job: Job) -> bool:
    ends = [line.outcome for line in job.history]
    return job.state == State.SUCCEEDED and ends.count("succeeded") == 1 and "failed" not in ends


def test_a_worker_sees_a_pause_and_its_end(look, processes):
    worker = processes.worker()
    look.until_registered(worker.pid)
    look.until_ended([look.enqueue("work", 1)])
    look.sync.pause(task="work")
    # Within about a poll interval: those that come up before it still run.
    until(lambda: _is_put_aside(look, look.enqueue("work", 2)), "it knows of the pause")
    held = [job.id for job in look.jobs() if job.state == State.BLOCKED]
    look.sync.resume(task="work")
    look.until_ended(held)


def _is_put_aside(look, id: str) -> bool:
    until(lambda: look.job(id).state in (State.BLOCKED, State.SUCCEEDED), "it is taken")
    return look.job(id).state == State.BLOCKED


def test_expired_jobs_are_discarded_by_the_worker_that_claims_them(look, processes):
    late = look.sync.enqueue(parts_of(look.app).registry.tasks["work"].using(expires=0.001), 1)
    fine = look.sync.enqueue(parts_of(look.app).registry.tasks["work"].using(expires=3600), 2)
    until(
        lambda: look.sync_run(parts_of(look.app).records.now) > look.job(late.id).expires_at.timestamp() * 1_000_000,
        "it is too late",
    )
    processes.worker()
    look.until_ended([late.id, fine.id])
    job = look.job(late.id)
    look.demand(late.id, job.state == State.CANCELLED and job.error.startswith("expired:"), "it was to be discarded")
    look.demand(late.id, look.journal.count("start", jobs=[late.id]) == 0, "its code was not to run")
    look.demand(fine.id, look.job(fine.id).state == State.SUCCEEDED, "this one was in time")
