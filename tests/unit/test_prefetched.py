"""Prefetch: which jobs may wait for a thread, how many, and who starts them or takes them back."""

import asyncio
import os
import threading

import pytest

from holdfast.core.clock import SystemClock
from holdfast.core.job import Record
from holdfast.testing import ManualClock
from holdfast.worker.prefetch import PREFETCH_REST, START_DEADLINE, START_WITHIN, Prefetch
from holdfast.worker.run import Run
from holdfast.worker.run.ahead import Ahead, NotStarted
from holdfast.worker.run.thread import Threads
from holdfast.worker.slots import Slots
from holdfast.worker.unstarted import ENTRIES, Unstarted, shared_memory


def run(number: int = 1, payload_of: int = 2, **fields: object) -> Run:
    payload = b"x" * payload_of
    return Run(
        Record(number, f"job{number}", "default", "work", "running", 0, 0, payload, "json", 5, None, None, 0, **fields)
    )


class Task:
    name, batch, run_in = "work", None, "thread"


class Calls:
    """The threads of a worker, as far as prefetch looks at them."""

    waiting = answered = 0


class Scene:
    """A worker of two slots, whose time the test sets."""

    def __init__(self):
        self.clock, self.calls, self.slots = ManualClock(), Calls(), Slots(2)
        self.memory = shared_memory()
        self.unstarted = Unstarted(self.memory)
        self.prefetch = Prefetch(self.clock, self.calls, self.slots, self.unstarted)

    def answer(self, calls, seconds=START_WITHIN):
        self.clock.advance(seconds + 1e-6)
        self.calls.answered += calls
        return self.prefetch.room()

    def ran(self, took, times):
        for _ in range(times):
            one = run()
            one.took = took
            self.prefetch.ran(one)

    def claim(self, number=1, task=Task, **fields):
        one = run(number, **fields)
        self.slots.add(one)
        return one, self.prefetch.keep(one, task)


@pytest.fixture
async def scene():
    made = Scene()
    yield made
    os.close(made.memory)


async def test_as_many_are_claimed_ahead_as_start_within_20_ms(scene):
    assert scene.answer(30) == 2, "no task is known to be short"
    scene.ran(0.001, 17)
    assert scene.prefetch.room() == 2
    assert scene.answer(30) == 2 + 30
    assert scene.answer(30, 2 * START_WITHIN) == 2 + 15
    assert scene.answer(10_000) == 2 + ENTRIES
    assert scene.answer(0, 1.0) == 2


async def test_nothing_is_claimed_while_enough_jobs_wait_for_threads(scene):
    scene.ran(0.001, 17)
    scene.answer(30)
    scene.calls.waiting = 16
    assert (scene.prefetch.room(), scene.prefetch.enough()) == (0, True)
    scene.calls.waiting = 15
    assert (scene.prefetch.room(), scene.prefetch.enough()) == (32, False)


async def test_a_worker_without_a_supervisor_does_not_prefetch(scene):
    alone = Prefetch(scene.clock, scene.calls, scene.slots, None)
    scene.clock.advance(START_WITHIN)
    scene.calls.answered = 1000
    assert (alone.room(), alone.keep(run(), Task)) == (2, False)


async def test_a_job_waits_only_if_more_than_half_of_the_last_runs_of_its_task_were_short(scene):
    assert scene.claim()[1] is False, "nothing is known of its task"
    scene.ran(0.001, 16)
    assert scene.claim()[1] is False
    scene.ran(0.001, 1)
    assert scene.claim()[1] is True
    scene.ran(0.006, 16)
    assert scene.claim()[1] is False


@pytest.mark.parametrize(
    "change",
    [{"extra": b"{}"}, {"limit_key": object()}, {"quarantined": True}, {"batch": object()}, {"run_in": "process"}],
    ids=lambda change: next(iter(change)),
)
async def test_a_job_of_another_kind_never_waits_and_ends_the_prefetch_for_a_while(scene, change):
    scene.ran(0.001, 32)
    scene.answer(30)
    task = type("Other", (Task,), {name: value for name, value in change.items() if hasattr(Task, name)})
    fields = {name: value for name, value in change.items() if not hasattr(Task, name)}
    one, kept = scene.claim(task=task, **fields)
    assert (kept, one.ahead, scene.unstarted.read()) == (False, None, set())
    scene.slots.remove(one)
    assert scene.answer(30) == 2
    assert scene.answer(30, PREFETCH_REST) == 2
    assert scene.answer(30) == 2 + 30


async def test_a_job_that_waits_is_known_to_the_supervisor_until_it_starts_or_is_taken_back(scene):
    scene.ran(0.001, 32)
    (first, _), (second, _) = scene.claim(7, fence=3), scene.claim(8, fence=1)
    supervisor = Unstarted(scene.memory)
    assert supervisor.read() == {(7, 3), (8, 1)}
    assert first.ahead.start()
    assert supervisor.read() == {(8, 1)}
    second.stop("cancel")
    assert supervisor.read() == set()
    assert (second.ahead.start(), second.why, first.ahead.take_back()) == (False, "cancel", False)


async def test_entries_are_used_again_and_no_job_waits_without_one(scene):
    scene.ran(0.001, 32)
    kept = [scene.claim(number)[0] for number in range(1, ENTRIES + 1)]
    assert scene.unstarted.full
    assert scene.claim(1000)[1] is False
    for one in kept:
        assert one.ahead.take()
    assert scene.claim(1001)[1] is True


async def test_no_thread_starts_a_job_after_its_deadline(scene):
    scene.ran(0.001, 32)
    one, _ = scene.claim()
    scene.clock.advance(START_DEADLINE + 0.001)
    assert not one.ahead.start()
    assert (one.ahead.began, scene.unstarted.read()) == (None, set())


async def test_a_job_that_does_not_start_in_time_is_released_and_one_that_has_is_reported(scene):
    scene.ran(0.001, 32)
    scene.answer(30)
    (started, _), (late, _) = scene.claim(1), scene.claim(2)
    reported = []
    started.ahead.announce = lambda: reported.append(started)
    late.ahead.future = asyncio.get_running_loop().create_future()
    assert started.ahead.start()
    scene.clock.advance(START_DEADLINE + 0.001)
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(late.ahead.future, 90)
    assert (late.why, started.why, reported) == ("release", None, [started])
    assert scene.answer(30) == 0, "two runs take its slots, and nothing is claimed ahead"


async def test_a_call_that_was_taken_back_or_is_late_is_not_made():
    threads, made, gate, clock = Threads(1, SystemClock()), [], threading.Event(), ManualClock()
    try:
        blocked = threads.call(gate.wait, (30,), {})
        runs = [run(number) for number in range(3)]
        for one in runs:
            one.ahead, one.in_thread = Ahead(clock, clock.boot() + 1_000_000, lambda: None), True
        calls = [threads.call(made.append, (one.record.seq,), {}, one) for one in runs]
        runs[0].stop("cancel")
        runs[1].ahead.deadline = clock.boot() - 1
        gate.set()
        assert await blocked
        assert calls[0].cancelled()
        with pytest.raises(NotStarted):
            await asyncio.wait_for(calls[1], 90)
        await asyncio.wait_for(calls[2], 90)
        assert made == [2]
        assert runs[2].took is not None
    finally:
        threads.close()


async def test_jobs_of_a_request_that_is_not_answered_have_not_started(scene):
    supervisor, record = Unstarted(scene.memory), run(3, token=77).record
    assert not supervisor.covers(record)
    with scene.unstarted.requesting(77), scene.unstarted.requesting(78):
        assert supervisor.covers(record)
        assert not supervisor.covers(run(3, token=79).record)
    assert not supervisor.covers(record)
    for _ in range(100):
        with scene.unstarted.requesting(77):
            assert supervisor.covers(record)


async def test_large_payloads_are_not_claimed_ahead_in_numbers(scene):
    scene.ran(0.001, 17)
    assert scene.answer(200) == 2 + 200
    large = run(payload_of=1024**2)
    large.took = 0.001
    scene.prefetch.ran(large)
    assert scene.answer(200) == 2 + 4
    scene.ran(0.001, 200)
    assert scene.answer(200) == 2 + 200
