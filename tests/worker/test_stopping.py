"""A worker stops in order: no new claims, a grace period, then everything is given back uncharged."""

import asyncio
import math
import signal
import socket
import subprocess
import threading
import time
from types import SimpleNamespace

import pytest

from holdfast import Context, State, Worker
from holdfast.app import parts_of
from holdfast.core.operations import Ask, Holder
from holdfast.core.settings import Settings
from holdfast.store.protocol import Batch
from holdfast.store.reference.memory import MemoryStore
from holdfast.worker.service import Service, StatusMessage
from holdfast.worker.supervisor import Child, Supervisor
from holdfast.worker.unstarted import Unstarted, shared_memory
from holdfast.worker.worker import RELEASE_SECONDS
from support.eventually import eventually, still
from support.workers import working


@pytest.fixture
def start(app):
    """Starts workers; gives the worker and the task that runs it."""
    started = []

    def start(**options):
        worker = Worker(app, **options)
        running = asyncio.create_task(worker.run())
        started.append((worker, running))
        return worker, running

    return start


async def ended(running, limit=30):
    await asyncio.wait_for(running, limit)


async def test_a_stopping_worker_finishes_what_it_runs_and_takes_nothing_new(app, start):
    """A claim that was under way may bring a new job: the worker releases it."""
    entered, gate, ran = asyncio.Event(), asyncio.Event(), []

    @app.task
    async def slow() -> str:
        entered.set()
        await gate.wait()
        return "finished"

    @app.task
    async def late() -> None:
        ran.append("late")

    handle = await slow.enqueue()
    worker, running = start(grace=60)
    await asyncio.wait_for(entered.wait(), 90)
    worker.stop()
    left = await late.enqueue()
    await still(lambda: not running.done() and not ran)
    gate.set()
    await ended(running)
    assert await handle.result(timeout=30) == "finished"
    job = await left.job()
    assert (job.state, job.attempt, ran) == (State.QUEUED, 0, [])


async def test_after_the_grace_period_a_job_goes_back_uncharged(app, start):
    entered, interrupted = asyncio.Event(), []

    @app.task
    async def slow() -> None:
        entered.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            interrupted.append(1)
            raise

    handle = await slow.enqueue()
    worker, running = start(grace=0.1)
    await asyncio.wait_for(entered.wait(), 90)
    worker.stop()
    await ended(running)
    job = await handle.job()
    assert (job.state, job.attempt, interrupted) == (State.QUEUED, 0, [1])
    assert [line.outcome for line in job.history] == ["released"]


async def test_a_second_stop_gives_everything_back_now(app, start):
    entered = asyncio.Event()

    @app.task
    async def slow() -> None:
        entered.set()
        await asyncio.sleep(60)

    handle = await slow.enqueue()
    worker, running = start(grace=60)
    await asyncio.wait_for(entered.wait(), 90)
    worker.stop()
    await still(lambda: not running.done())
    worker.stop()
    await ended(running)
    assert (await handle.job()).state == State.QUEUED


async def test_cancelling_the_worker_itself_gives_everything_back(app, start):
    entered = asyncio.Event()

    @app.task
    async def slow() -> None:
        entered.set()
        await asyncio.sleep(60)

    handle = await slow.enqueue()
    _, running = start(grace=60)
    await asyncio.wait_for(entered.wait(), 90)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(running, 90)
    job = await handle.job()
    assert (job.state, job.attempt) == (State.QUEUED, 0)
    assert await app.workers() == []


async def test_a_thread_is_reported_and_its_job_goes_back_without_waiting_for_it(app, start):
    entered, cancelled = threading.Event(), threading.Event()

    @app.task
    def slow(ctx: Context) -> None:
        entered.set()
        while not ctx.cancelled:
            time.sleep(0.01)
        cancelled.set()

    handle = await slow.enqueue()
    worker, running = start(grace=0.1)
    await eventually(entered.is_set)
    worker.stop()
    await ended(running)
    await eventually(cancelled.is_set)
    job = await handle.job()
    assert job.state == State.QUEUED
    assert job.attempt == 0


async def test_a_stubborn_thread_does_not_keep_the_worker(app, start):
    entered, gate = threading.Event(), threading.Event()

    @app.task
    def stubborn() -> str:
        entered.set()
        gate.wait(3600)
        return "too late"

    handle = await stubborn.enqueue()
    worker, running = start(grace=0.1)
    await eventually(entered.is_set)
    worker.stop()
    await ended(running)
    assert (await handle.job()).state == State.QUEUED
    gate.set()

    async def queued():
        return (await handle.job()).state == State.QUEUED

    await still(queued)  # what it returns then does not count


async def test_a_coroutine_that_will_not_be_interrupted_does_not_keep_the_worker(app, start):
    entered, gate = asyncio.Event(), asyncio.Event()

    @app.task
    async def stubborn() -> None:
        entered.set()
        while not gate.is_set():
            try:
                await gate.wait()
            except asyncio.CancelledError:
                continue

    handle = await stubborn.enqueue()
    worker, running = start(grace=0.1)
    await asyncio.wait_for(entered.wait(), 90)
    worker.stop()
    await ended(running)
    assert (await handle.job()).state == State.QUEUED
    gate.set()


async def test_stop_may_be_called_from_any_thread(app, start):
    worker, running = start()
    await eventually(lambda: worker.holder is not None)
    threading.Thread(target=worker.stop).start()
    await ended(running)


async def test_a_worker_that_was_stopped_before_it_ran_takes_nothing(app):
    handle = await app.enqueue("noop")
    worker = Worker(app)
    worker.stop()
    await asyncio.wait_for(worker.run(), 90)
    assert (await handle.job()).state == State.QUEUED


async def test_an_idle_worker_stops_at_once(app, start):
    worker, running = start(poll=3600)
    await eventually(lambda: worker.holder is not None)
    worker.stop()
    await ended(running)


async def test_stopping_while_a_claim_is_under_way_strands_nothing(app, start):
    """Whenever it is stopped, a job has either been run or is waiting uncharged."""

    @app.task
    async def quick() -> None: ...

    for steps in range(15):
        handle = await quick.enqueue()
        worker, running = start(grace=1)
        for _ in range(steps):
            await asyncio.sleep(0.001)
        worker.stop()
        worker.stop()
        await ended(running)
        job = await handle.job()
        assert (job.state, job.attempt) in ((State.QUEUED, 0), (State.SUCCEEDED, 1)), f"stopped after {steps} ms"
        assert not job.quarantined
        await app.bulk.purge(state=["queued", "succeeded"])


async def test_a_stopped_worker_is_not_listed_any_more(app, start):
    worker, running = start()

    async def listed():
        return (await app.stats()).workers == 1

    await eventually(listed)
    worker.stop()
    await ended(running)
    assert await app.workers() == []


async def test_a_given_back_job_is_run_by_the_next_worker_as_if_nothing_had_happened(app, start):
    entered, runs = asyncio.Event(), []

    @app.task(max_attempts=1)
    async def slow(ctx: Context) -> int:
        runs.append(ctx.fence)
        if len(runs) == 1:
            entered.set()
            await asyncio.sleep(60)
        return ctx.attempt

    handle = await slow.enqueue()
    worker, running = start(grace=0.05)
    await asyncio.wait_for(entered.wait(), 90)
    worker.stop()
    await ended(running)
    async with working(app):
        assert await handle.result(timeout=30) == 1
    assert runs == [1, 2]


async def test_finish_waits_for_as_long_as_it_takes(app, start):
    entered, gate = asyncio.Event(), asyncio.Event()

    @app.task
    async def slow() -> str:
        entered.set()
        await gate.wait()
        return "finished"

    handle = await slow.enqueue()
    worker, running = start(grace=0.01)
    await asyncio.wait_for(entered.wait(), 90)
    worker.finish()
    await still(lambda: not running.done())
    gate.set()
    await ended(running)
    assert await handle.result(timeout=30) == "finished"


def test_ctrl_c_in_a_program_of_ones_own_gives_jobs_back(tmp_path):
    import signal
    import subprocess
    import sys
    import textwrap

    from holdfast import Holdfast

    url = f"sqlite:///{tmp_path}/jobs.db"
    program = textwrap.dedent("""
        import asyncio, sys
        from holdfast import Holdfast, Worker
        app = Holdfast(sys.argv[1])

        @app.task
        async def slow() -> None:
            print("entered", flush=True)
            await asyncio.sleep(60)

        asyncio.run(Worker(app).run())
    """)
    app = Holdfast(url)
    with app.sync as sync:
        handle = sync.enqueue("slow")
        command = [sys.executable, "-W", "ignore", "-c", program, url]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            assert process.stdout.readline() == "entered\n"
            process.send_signal(signal.SIGINT)
            process.wait(90)
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
        job = handle.job()
        assert (job.state, job.attempt) == (State.QUEUED, 0)


class Gated(MemoryStore):
    """A store whose reads of jobs wait."""

    def __init__(self):
        super().__init__()
        self.asked, self.gate = asyncio.Event(), asyncio.Event()

    async def get(self, ids):
        self.asked.set()
        await self.gate.wait()
        return await super().get(ids)


async def test_what_is_being_given_back_when_a_worker_ends_does_not_open_the_app_again(make_app):
    store = Gated()
    app = make_app(store)

    @app.task(queue="elsewhere")
    async def never() -> None: ...

    worker = Worker(app, ["default"], lease=0.3)
    running = asyncio.create_task(worker.run())
    await eventually(lambda: worker.holder)
    await never.enqueue()
    await store.write(Batch(asks=[Ask(worker.holder, ("elsewhere",), 1, 1)]))  # an answer that it never sees
    await asyncio.wait_for(store.asked.wait(), 90)
    worker.stop()
    await ended(running)
    await app.close()
    store.gate.set()
    await still(lambda: parts_of(app).runtime.live_loop() is None)


def test_the_default_grace_and_the_hand_back_fit_in_ten_seconds():
    assert Settings().grace + RELEASE_SECONDS < 10


@pytest.mark.parametrize(("grace", "fits"), [(6.0, True), (7.0, False)])
async def test_a_worker_warns_when_its_grace_does_not_fit(make_app, caplog, grace, fits):
    app = make_app(stop_timeout=10, grace=grace)
    await Worker(app, until_idle=True).run()
    warned = [line for line in caplog.messages if "is too long: the platform kills this worker 10 s" in line]
    assert (warned == []) is fits


@pytest.fixture
def process():
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


async def test_a_supervisor_sends_heartbeats_while_it_loads_the_jobs_of_its_store():
    class Light:
        sent = 0

        async def heartbeat(self, holders):
            assert [one.id for one in holders] == ["w"]
            self.sent += 1

    supervisor, loading = Supervisor(Service(), lambda _: None), asyncio.Event()
    silent = SimpleNamespace(holder=Holder("w", 0.1), leaving=None, responsive=lambda: True, last_message=-math.inf)
    supervisor._light, supervisor._app = light, _ = Light(), SimpleNamespace(open=loading.wait)
    supervisor._children = [silent]
    beating = asyncio.create_task(supervisor._heartbeat())
    try:
        await eventually(lambda: light.sent > 2)
    finally:
        beating.cancel()
        loading.set()
        await asyncio.wait([beating, supervisor._opening])


async def test_a_supervisor_waits_for_the_grace_that_its_workers_have(process):
    supervisor = Supervisor(Service(), lambda _: None)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        child = Child((process, ours, Unstarted(shared_memory())), 0.0)
        supervisor._children.append(child)
        supervisor._apply(child, StatusMessage(holder=Holder("w", 1.0), url="memory://", grace=300.0))
        before = time.monotonic()
        supervisor._stop(signal.SIGTERM)
        assert supervisor._kill_at is not None
        assert supervisor._kill_at >= before + 300
