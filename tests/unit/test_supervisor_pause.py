"""How long a supervisor waits before it starts the next worker."""

from __future__ import annotations

from holdfast.worker.supervisor import CRASHES_OF_ONE_JOB, FIRST_RESTART_PAUSE, LONGEST_RESTART_PAUSE, pause_after


def test_workers_that_die_with_nothing_to_do_are_started_after_longer_and_longer_pauses():
    assert [pause_after(crashes, 0) for crashes in (1, 2, 3)] == [
        FIRST_RESTART_PAUSE,
        2 * FIRST_RESTART_PAUSE,
        4 * FIRST_RESTART_PAUSE,
    ]
    assert pause_after(1000, 0) == LONGEST_RESTART_PAUSE


def test_the_crashes_that_one_poisonous_job_can_cause_do_not_lengthen_the_pause():
    assert {pause_after(crashes, 1) for crashes in range(1, CRASHES_OF_ONE_JOB + 1)} == {FIRST_RESTART_PAUSE}


def test_workers_that_go_on_to_die_with_jobs_are_started_after_longer_pauses_too():
    assert pause_after(CRASHES_OF_ONE_JOB + 3, 9) > FIRST_RESTART_PAUSE
    assert pause_after(1000, 9) == LONGEST_RESTART_PAUSE
