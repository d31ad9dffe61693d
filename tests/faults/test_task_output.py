"""What jobs print and log is read live, and what was read survives kill -9 of their worker. (D, F)"""

from __future__ import annotations

import pytest
from support.until import until

JOBS, KILLED = 100, 16


def lines(n: int) -> list[str]:
    return [f"{n} {word} {number}" for number in range(3) for word in ("printed", "logged")]


@pytest.mark.extended
@pytest.mark.timeout(300)
def test_a_hundred_jobs_print_at_once_and_what_was_shown_survives_kill_9(look, processes, gates):
    def shown(id):
        return [(line.attempt, line.text) for line in look.sync.handle(id).logs()]

    worker = processes.worker(concurrency=JOBS, lease=3.0)
    calls = [("talk_on_loop" if n % 2 else "talk_in_thread", n) for n in range(JOBS)]
    ids = [handle.id for handle in look.sync.enqueue_many(calls)]
    for n, id in enumerate(ids):  # while all of them run
        expected = [(1, text) for text in lines(n)]
        until(lambda id=id, expected=expected: shown(id) == expected, f"the lines of job {n} are shown")
    assert len(look.held_by(worker.pid)) == JOBS
    for n in range(KILLED, JOBS):
        gates.open(n)
    look.until_ended(ids[KILLED:])
    worker.kill()
    for n in range(KILLED):
        assert shown(ids[n]) == [(1, text) for text in lines(n)]
        gates.open(n)
    processes.worker(concurrency=JOBS)
    look.until_ended(ids)
    for n, id in enumerate(ids):
        attempts = range(1, 3 if n < KILLED else 2)
        assert shown(id) == [(attempt, text) for attempt in attempts for text in lines(n)], look.story(id)
