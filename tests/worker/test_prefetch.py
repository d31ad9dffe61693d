"""Workers claim short functions ahead of free slots: no job waits long, and none is charged before it starts."""

import asyncio
import os
import threading

import pytest

from holdfast import State, Worker
from holdfast.app import parts_of
from holdfast.worker.prefetch import Prefetch
from holdfast.worker.service import Service
from holdfast.worker.supervisor import Child, Supervisor
from holdfast.worker.unstarted import Unstarted, shared_memory
from support.eventually import eventually
from support.workers import working


@pytest.fixture
def memory():
    fd = shared_memory()
    yield Unstarted(fd)
    os.close(fd)


@pytest.fixture
def eager(monkeypatch):
    """Every plain function counts as short, and five jobs are claimed ahead."""

    def adapt(self):
        self._limit = 0 if self._clock.monotonic() < self._rest_until else 5

    monkeypatch.setattr(Prefetch, "_adapt", adapt)
    monkeypatch.setattr(Prefetch, "ran", lambda self, run: None)
    made = Prefetch.__init__

    def known(self, *args):
        made(self, *args)
        self._short = dict.fromkeys(("note", "block"), (1 << 32) - 1)

    monkeypatch.setattr(Prefetch, "__init__", known)


class Notes:
    """A task that notes its argument, and one that blocks its thread until `gate`."""

    def __init__(self, app):
        self.made, self.entered, self.gate = [], threading.Event(), threading.Event()

        @app.task
        def note(n: int) -> int:
            self.made.append(n)
            return n

        @app.task
        def block() -> None:
            self.entered.set()
            assert self.gate.wait(60)

        self.note, self.block = note, block


async def test_short_functions_are_claimed_ahead_and_each_runs_once(app, memory, monkeypatch):
    notes, ahead, keep = Notes(app), [], Prefetch.keep

    def seen(self, run, task):
        ahead.append(keep(self, run, task))
        return ahead[-1]

    monkeypatch.setattr(Prefetch, "keep", seen)
    wanted = 0
    async with working(app, concurrency=2, unstarted=memory):
        while True not in ahead:  # until the worker has measured enough
            handles = await app.enqueue_many([notes.note.call(n) for n in range(wanted, wanted + 500)])
            wanted += 500
            await asyncio.gather(*(handle.result(60) for handle in handles))
    assert sorted(notes.made) == list(range(wanted))
    assert memory.read() == set()


@pytest.mark.usefixtures("eager")
async def test_jobs_that_wait_behind_a_long_one_are_released_uncharged_for_other_workers(app, memory):
    notes = Notes(app)
    blocked = await notes.block.enqueue()
    async with working(app, concurrency=1, unstarted=memory, poll=0.05):
        await asyncio.to_thread(notes.entered.wait, 60)
        handles = await app.enqueue_many([notes.note.call(n) for n in range(3)])
        async with working(app, concurrency=1, poll=0.05):
            assert [await handle.result(60) for handle in handles] == [0, 1, 2]
        notes.gate.set()
        await blocked.result(60)
    assert sorted(notes.made) == [0, 1, 2]
    assert {(await handle.job()).attempt for handle in handles} == {1}


@pytest.mark.usefixtures("eager")
async def test_a_job_that_waits_is_not_run_once_it_is_cancelled(app, memory, monkeypatch):
    monkeypatch.setattr("holdfast.worker.prefetch.START_DEADLINE", 60.0)
    notes = Notes(app)
    blocked = await notes.block.enqueue()
    async with working(app, concurrency=1, unstarted=memory, poll=0.05, lease=3.0):
        await asyncio.to_thread(notes.entered.wait, 60)
        handles = await app.enqueue_many([notes.note.call(n) for n in range(2)])
        await eventually(lambda: len(memory.read()) == 2)
        await handles[0].cancel()
        await eventually(lambda: len(memory.read()) == 1)
        notes.gate.set()
        assert await handles[1].result(60) == 1
        await blocked.result(60)
        await eventually(lambda: in_state(handles[0], State.CANCELLED))
    assert notes.made == [1]


@pytest.mark.usefixtures("eager")
async def test_a_job_that_waits_is_not_run_once_its_claim_is_lost(app, memory, monkeypatch):
    monkeypatch.setattr("holdfast.worker.prefetch.START_DEADLINE", 60.0)
    notes = Notes(app)
    await notes.block.enqueue()
    async with working(app, concurrency=1, unstarted=memory, poll=0.05, lease=3.0) as worker:
        await asyncio.to_thread(notes.entered.wait, 60)
        handle = await notes.note.enqueue(1)
        await eventually(lambda: len(memory.read()) == 1)
        await app.pause("default")
        assert await parts_of(app).claims.recover(holder=worker.holder.id) == 2
        await eventually(lambda: not memory.read())
        notes.gate.set()
        await eventually(lambda: worker.idle)
        assert (notes.made, (await handle.job()).state) == ([], State.QUEUED)


@pytest.mark.usefixtures("eager")
async def test_a_stopped_worker_releases_the_jobs_that_wait(app, memory, monkeypatch):
    monkeypatch.setattr("holdfast.worker.prefetch.START_DEADLINE", 60.0)
    notes = Notes(app)
    await notes.block.enqueue()
    worker = Worker(app, concurrency=1, grace=0, unstarted=memory)
    running = asyncio.create_task(worker.run())
    await asyncio.to_thread(notes.entered.wait, 60)
    handle = await notes.note.enqueue(1)
    await eventually(lambda: len(memory.read()) == 1)
    worker.stop()
    await asyncio.wait_for(running, 60)
    notes.gate.set()
    job = await handle.job()
    assert (job.state, job.attempt, notes.made, memory.read()) == (State.QUEUED, 0, [], set())


@pytest.mark.usefixtures("eager")
async def test_after_a_crash_the_supervisor_charges_only_what_had_started(app, memory, monkeypatch):
    monkeypatch.setattr("holdfast.worker.prefetch.START_DEADLINE", 60.0)
    notes = Notes(app)
    blocked = await notes.block.enqueue()
    async with working(app, concurrency=1, unstarted=memory, poll=0.05) as worker:
        await asyncio.to_thread(notes.entered.wait, 60)
        handle = await notes.note.enqueue(1)
        await eventually(lambda: len(memory.read()) == 1)
        await app.pause("default")
        supervisor = Supervisor(Service(), lambda pids: None)
        supervisor._app = app
        child = Child((None, None, memory), 0.0)
        child.holder = worker.holder
        assert await supervisor._recover(child) == 2
        started, waited = await blocked.job(), await handle.job()
        assert (started.attempt, started.state) == (1, State.QUEUED)
        assert (waited.attempt, waited.state) == (0, State.QUEUED)
        records = await parts_of(app).session.store.get([blocked.id, handle.id])
        assert [record.quarantined for record in records] == [True, False]
        notes.gate.set()


async def in_state(handle, state):
    return (await handle.job()).state == state
