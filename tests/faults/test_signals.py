"""SIGTERM: no more claims, a grace period, then everything is given back uncharged; nothing stays held. (B, N)"""

from __future__ import annotations

import os
import signal
import time

import pytest
from support.until import until

from holdfast import State

REPEATS = int(os.environ.get("HOLDFAST_ROUNDS", "2")) * 2


def test_a_worker_that_is_reported_to_stop_finishes_what_runs_and_starts_nothing_more(look, processes, journal, gates):
    worker = processes.worker(concurrency=4, grace=30.0)
    look.until_ended([look.enqueue("work", 0)])  # it has been idle before: that must not count as being done later
    running = [look.enqueue("gated", 1), look.enqueue("gated_in_thread", 2)]
    short = look.enqueue_many("work", [(n, 0.01) for n in range(300)])
    look.until_started(*running)
    until(lambda: journal.count("end") >= 10, "the other two slots are busy with short jobs")
    worker.send(signal.SIGTERM)
    until(lambda: look.held_by(worker.pid) == set(running), "only the two long jobs are left in its hands")
    taken = journal.entries("start", "claimed")
    look.until_renewed(3, worker.pid)  # in its grace period it keeps its lease, and takes nothing from the full queue
    gates.open(1)
    gates.open(2)
    assert worker.ended() == 0, worker.output()
    late = journal.entries("start", "claimed")[len(taken) :]
    assert not late, f"claimed or started after it had stopped to: {late}"
    look.demand_finished_once(dict.fromkeys(running, 1))
    started = journal.per_job("start")
    for id in short:
        job = look.job(id)
        fine = job.state == State.SUCCEEDED if id in started else (job.state, job.attempt) == (State.QUEUED, 0)
        look.demand(id, fine, "neither finished nor untouched")
    assert look.holders() == [], "a worker is still registered"
    look.demand_no_trouble()


@pytest.mark.parametrize("signals", [1, 2])
def test_what_does_not_finish_is_released_uncharged_and_another_worker_finishes_it(
    look, processes, journal, gates, signals
):
    """Once its grace period is over; or, signalled twice, at once."""
    ids = [look.enqueue("gated", 1), look.enqueue("gated_in_thread", 2), look.enqueue("gated", 3)]
    worker = processes.worker(concurrency=4, grace=0.5 if signals == 1 else 120.0)
    look.until_started(*ids)
    worker.send(signal.SIGTERM)
    if signals == 2:
        until(lambda: journal.count("signalled", pid=worker.pid) == 1, "the first signal was received")
        look.until_renewed(2, worker.pid)
        assert look.held_by(worker.pid) == set(ids), f"given back although there was grace left: {look.stories(ids)}"
        worker.send(signal.SIGTERM)
    assert worker.ended() == 0, worker.output()
    signalled = [entry["at"] for entry in journal.entries("signalled")]
    released = [entry["at"] - signalled[-1] for entry in journal.entries("settled")]
    if signals == 1:
        assert min(released) > 0.5, f"there was more grace than that: {released}"
    assert look.holders() == [], "a worker is still registered"
    for id in ids:
        job = look.job(id)
        look.demand(id, (job.state, job.attempt) == (State.QUEUED, 0), "not given back uncharged")
        look.demand(id, [line.outcome for line in job.history] == ["released"], "released, and nothing else")
        look.demand(id, not job.quarantined, "a released job is under no suspicion")
    broken = {entry["job"]: entry["why"] for entry in journal.entries("broken")}
    assert broken == {ids[0]: "CancelledError", ids[2]: "CancelledError"}, "coroutines are interrupted"
    for n in (1, 2, 3):
        gates.open(n, fence=2)
    processes.worker(concurrency=4)
    look.until_ended(ids)
    look.demand_finished_once(dict.fromkeys(ids, 2))
    look.demand_all(ids, lambda job: job.attempt == 1, "the released start was not charged")
    look.demand_no_trouble()


def test_a_second_signal_gives_everything_back_at_once(look, processes, journal):
    ids = [look.enqueue("gated", 1), look.enqueue("gated_in_thread", 2)]
    worker = processes.worker(concurrency=4, grace=120.0)
    look.until_started(*ids)
    for count in (1, 2):
        worker.send(signal.SIGTERM)
        until(lambda count=count: journal.count("signalled") == count, "the signal was received")
    assert worker.ended(60.0) == 0, worker.output()
    assert {entry["job"] for entry in journal.entries("settled")} == set(ids)


@pytest.mark.timeout(300 + 10 * REPEATS)
def test_a_worker_stopped_at_any_moment_leaves_no_claim_behind(look, processes, journal, chance):
    expected: dict[str, object] = {}
    for repeat in range(REPEATS):
        ids = look.enqueue_many("work", [(n, 0.002) for n in range(400)])
        expected |= {id: n * n for n, id in enumerate(ids)}
        # With such a lease, a stranded claim cannot come free by itself while the test looks.
        worker = processes.worker(concurrency=chance.choice([1, 3, 16]), lease=600.0)
        moment = chance.randrange(0, 150)
        look.until_registered(worker.pid)
        until(lambda worker=worker, moment=moment: journal.count("start", pid=worker.pid) >= moment, f"{moment} starts")
        time.sleep(chance.uniform(0, 0.01))
        worker.send(signal.SIGTERM)
        assert worker.ended() == 0, worker.output()
        held = look.held_by(worker.pid)
        assert not held, f"repeat {repeat}, stopped after {moment} starts: still held are {look.stories(held)}"
        assert look.holders() == [], f"repeat {repeat}: a worker is still registered"
        stranded = [job.id for job in look.sync.jobs(state="running").jobs]
        assert not stranded, f"repeat {repeat}: running without a holder: {look.stories(stranded)}"
    processes.worker(concurrency=16)
    look.until_ended(expected)
    look.demand_finished_once(expected)
    twice = [id for id, count in journal.per_job("start").items() if count != 1]
    assert not twice, f"there was time to finish, so each job starts once: {look.stories(twice)}"
    look.demand_all(expected, lambda job: job.attempt == 1, "a claim given back is not charged")
    look.demand_no_trouble()
