"""kill -9 between every two steps of a job, and within each: what is remembered happened once, and is never redone."""

from __future__ import annotations

import pytest
from support.step_tasks import POINTS, SIGNAL, STEPS, Crashes
from support.stores import task_on_every_store
from support.until import until

from holdfast.app import parts_of
from holdfast.client.signals import SignalMaintenance
from support.inside import session_of

WRITES = 4
"""Of a signal that is waited for: that there is one, its value, its waiters, and that it was delivered."""


@pytest.mark.extended
@task_on_every_store("in_steps", in_thread="in_steps_in_thread")
def test_each_steps_effect_is_there_once_per_remembered_result(look, processes, journal, task):
    look.sync.config.set("max_crashes", 1000)  # it is not the job that is to blame here
    Crashes(journal).arm()
    id = look.sync.enqueue(parts_of(look.app).registry.tasks[task].using(max_attempts=0)).id
    worker = processes.worker()

    def dead() -> list[str]:
        return [entry["at_point"] for entry in journal.entries("dies")]

    for number, point in enumerate(POINTS, 1):
        if point == "behind the signal":
            look.sync.signal(SIGNAL, "sent")
        until(lambda number=number: len(dead()) >= number, f"it dies {point}", details=lambda: look.story(id))
        worker.ended()
        worker = processes.worker()
    look.until_ended([id])

    assert dead() == POINTS
    effects = [(entry["step"], entry["mark"]) for entry in journal.entries("effect", jobs=[id])]
    # A step that died before its result was remembered ran again, and only that; no other did.
    assert [step for step, _ in effects] == [n for n in range(STEPS) for _ in range(2)]
    remembered = [mark for _, mark in effects][1::2]
    job = look.job(id)
    look.demand(id, job.state == "succeeded" and job.result == [*remembered, "sent"], "it has not ended as it should")
    look.demand(id, [step.result for step in job.steps if step.kind == "step"] == remembered, "others are remembered")
    seen = {(entry["step"], entry["mark"]) for entry in journal.entries("got", jobs=[id])}
    assert seen == set(enumerate(remembered)), "a run saw a result that was not the remembered one"


def test_a_sender_that_is_killed_at_any_of_its_writes_has_not_sent_or_is_finished_by_others(look, processes):
    processes.worker()
    waiters = {n: look.enqueue_many("wait_for", [(f"go-{n}",)] * 3) for n in range(WRITES)}
    every = [id for ids in waiters.values() for id in ids]
    until(lambda: look.counts() == {"blocked": len(every)}, "all wait", details=lambda: look.stories(every))
    for n in waiters:
        sender = processes.start("signal_main", signal=f"go-{n}", dies_at=n)
        assert sender.ended() == -9, "it has not died where it should"
    look.sync_run(SignalMaintenance(session_of(look.app)).run)
    sent = [id for n in range(2, WRITES) for id in waiters[n]]
    look.until_ended(sent)
    look.demand_all(sent, lambda job: job.result == "sent", "what was sent arrives")
    assert look.counts() == {"blocked": len(every) - len(sent), "succeeded": len(sent)}
    for n in range(2):
        assert look.sync.signal(f"go-{n}", "again") == len(waiters[n])
    look.until_ended(every)
    look.demand_no_trouble()
