"""When jobs start: at once, at their time, and again after their worker was lost."""

import asyncio
import time
from collections import defaultdict
from datetime import UTC, datetime, timedelta

import pytest

from holdfast import Holdfast, State
from holdfast.app import parts_of
from holdfast.client.claims import new_holder
from holdfast.core.operations import Ask
from holdfast.store.reference.memory import MemoryStore
from holdfast.testing import ManualClock
from support.eventually import eventually, still
from support.inside import session_of
from support.workers import work_off, working


@pytest.fixture
def patient(make_app):
    """An app whose workers would look once an hour only, if nothing woke them."""
    app = make_app(poll=3600)

    @app.task
    async def work() -> float:
        return time.time()

    return app


async def settled_down(app):
    """Wait until a worker is there and has found nothing."""

    async def idle():
        return (await app.stats()).workers == 1

    await eventually(idle)
    await still(idle, 0.05)


async def test_an_idle_worker_starts_a_new_job_at_once(patient):
    async with working(patient):
        await settled_down(patient)
        await (await patient.enqueue("work")).result(timeout=30)


async def test_a_worker_is_notified_of_a_job_that_another_connection_enqueued(patient, make_app):
    await patient.open()
    other = make_app(session_of(patient).store.sibling())
    async with working(patient):
        await settled_down(patient)
        await (await other.enqueue("work")).result(timeout=30)


async def test_a_scheduled_job_starts_on_time_and_not_at_the_next_poll(patient):
    async with working(patient):
        await settled_down(patient)
        handle = await parts_of(patient).registry.tasks["work"].using(delay=0.4).enqueue()
        ran_at = await handle.result(timeout=30)
    due = (await handle.job()).run_at.timestamp()
    assert 0 <= ran_at - due < 0.5


async def test_an_earlier_job_wakes_a_worker_that_waits_for_a_later_one(patient):
    task = parts_of(patient).registry.tasks["work"]
    async with working(patient):
        late = await task.using(delay=300).enqueue()
        await settled_down(patient)
        soon = await task.using(at=datetime.now(UTC) + timedelta(seconds=0.3)).enqueue()
        await soon.result(timeout=30)
        assert (await late.job()).state == State.SCHEDULED


async def test_a_failed_job_is_tried_again_on_time(patient):
    times = []

    @patient.task(retry=lambda error, attempt: 0.3)
    async def flaky() -> None:
        times.append(time.monotonic())
        if len(times) == 1:
            raise RuntimeError("unique")

    async with working(patient):
        await (await flaky.enqueue()).result(timeout=30)
    assert 0.25 < times[1] - times[0] < 1


async def test_a_resumed_queue_is_served_at_once(patient):
    await patient.pause("default")
    handle = await patient.enqueue("work")
    async with working(patient):
        await settled_down(patient)
        assert (await handle.job()).state == State.QUEUED
        await patient.resume("default")
        await handle.result(timeout=30)


async def test_a_job_that_an_operator_makes_due_starts_at_once(patient):
    handle = await parts_of(patient).registry.tasks["work"].using(delay=600).enqueue()
    async with working(patient):
        await settled_down(patient)
        await patient.retry(handle.id)
        await handle.result(timeout=30)


async def test_jobs_wait_for_a_clock_that_jumps():
    clock = ManualClock()
    async with Holdfast(MemoryStore(clock), clock=clock, poll=0.02) as app:
        handles = [
            await parts_of(app).registry.tasks["noop"].using(delay=hours * 3600).enqueue() for hours in (1, 2, 3)
        ]
        await work_off(app)
        assert (await app.stats()).counts["scheduled"] == 3
        clock.advance(2 * 3600)
        await work_off(app)
        assert [(await handle.job()).state for handle in handles] == [State.SUCCEEDED, State.SUCCEEDED, State.SCHEDULED]
        async with working(app):
            clock.advance(3600)
            await handles[2].result(timeout=30)


async def test_a_wall_clock_set_back_does_not_delay_due_jobs():
    clock = ManualClock()
    async with Holdfast(MemoryStore(clock), clock=clock, poll=0.02) as app, working(app):
        await app.enqueue("noop")
        clock.jump_wall(-3600)
        handle = await app.enqueue("noop")
        assert await handle.result(timeout=30) is None


# -- lost leases


async def left_behind(app, *ids, lease=0.2):
    """Jobs that a worker held which then died without a word."""
    await app.open()
    for id in ids:
        await app.submit("noop", b"{}", json=True, id=id)
    dead = new_holder(session_of(app), "worker", lease, ("default",))
    records = (
        await session_of(app).commit.claim(Ask(dead, ("default",), len(ids), parts_of(app).runtime.entropy.token()))
    ).records
    assert [record.id for record in records] == list(ids)
    return records


async def test_a_worker_takes_over_the_claims_of_a_dead_one(make_app):
    app = make_app(poll=0.05)
    await left_behind(app, "a", "b")
    async with working(app):
        for id in ("a", "b"):
            job = await app.handle(id).wait(timeout=30)
            assert (job.state, job.attempt) == (State.SUCCEEDED, 2)
            assert [line.outcome for line in job.history] == ["lost", "succeeded"]
            assert "stopped without reporting a result" in job.history[0].error


@pytest.fixture
def watched(make_app):
    """An app whose task `work` notes who runs beside it, and goes on when its limiter opens."""
    app = make_app(poll=0.02, lease=0.9)
    app.running, app.together, app.gates = set(), [], defaultdict(asyncio.Event)

    @app.task
    async def work(name: str) -> None:
        app.running.add(name)
        app.together.append(frozenset(app.running))
        await app.gates[name].wait()
        app.running.discard(name)

    return app


async def quarantined(app, *names, queue="default"):
    """Jobs of the task `work` that were in flight when a process died."""
    await app.open()
    work = parts_of(app).registry.tasks["work"].using(queue=queue)
    await app.enqueue_many([work.call(name) for name in names])
    dead = new_holder(session_of(app), "worker", 0.01, (queue,))
    taken = (
        await session_of(app).commit.claim(Ask(dead, (queue,), len(names), parts_of(app).runtime.entropy.token()))
    ).records
    assert len(taken) == len(names)

    async def swept():
        await app.bulk.recover()
        return (await app.stats()).counts["queued"] == len(names)

    await eventually(swept)


async def ended(app, count):
    async def all_done():
        return (await app.stats()).counts["succeeded"] == count

    await eventually(all_done)


async def test_what_was_in_flight_when_a_process_died_is_next_run_together_and_apart_from_the_rest(watched):
    await quarantined(watched, "quarantined 1", "quarantined 2")
    await watched.enqueue_many([("work", f"sound {n}") for n in range(4)])
    async with working(watched, concurrency=4):
        await eventually(lambda: watched.running == {"quarantined 1", "quarantined 2"})
        await still(lambda: watched.running == {"quarantined 1", "quarantined 2"})  # though two slots are free
        watched.gates["quarantined 1"].set()
        await eventually(lambda: watched.running == {"quarantined 2"})
        await still(lambda: watched.running == {"quarantined 2"}, 0.05)
        watched.gates["quarantined 2"].set()
        await eventually(lambda: len(watched.running) == 4)
        for n in range(4):
            watched.gates[f"sound {n}"].set()
        await ended(watched, 6)
    for seen in watched.together:
        assert len({"quarantined" in name for name in seen}) == 1


async def test_what_died_beside_other_quarantined_twice_is_next_run_alone(watched):
    names = ["quarantined 1", "quarantined 2"]
    await quarantined(watched, *names)
    for _ in range(2):
        claims = await watched.claim(limit=2, lease=60.0)
        assert await parts_of(watched).claims.recover(holder=claims[0].holder.id) == 2
    async with working(watched, concurrency=4):
        for name in names:
            await eventually(lambda name=name: watched.running == {name})
            await still(lambda name=name: watched.running == {name}, 0.05)
            watched.gates[name].set()
        await ended(watched, 2)
    assert all(len(seen) == 1 for seen in watched.together)


async def test_a_quarantined_waits_until_its_process_runs_nothing_else_but_not_everybody_waits_with_it(watched):
    await quarantined(watched, "quarantined")
    sound = parts_of(watched).registry.tasks["work"].using(priority=-5)
    await sound.enqueue("long")
    async with working(watched, concurrency=4):
        await eventually(lambda: watched.running == {"long"})
        await sound.enqueue("other")
        await eventually(lambda: watched.running == {"long", "other"})  # once a lease has passed
        await still(lambda: watched.running == {"long", "other"}, 0.7)  # another lease, and free slots
        watched.gates["long"].set()
        watched.gates["other"].set()
        await eventually(lambda: watched.running == {"quarantined"})
        watched.gates["quarantined"].set()
        await ended(watched, 3)


async def test_a_quarantined_does_not_starve_beside_a_stream_of_sound_jobs(make_app):
    app = make_app(poll=0.02, lease=0.9)
    ran = []

    @app.task
    async def work(name: str) -> None:
        await asyncio.sleep(0.01)
        ran.append(name)
        if name != "quarantined" and "quarantined" not in ran:
            await work.enqueue(name)

    await quarantined(app, "quarantined", queue="hand")
    await app.pause("hand")
    for n in range(8):
        await work.enqueue(f"sound {n}")
    async with working(app, queues=["default", "hand"], concurrency=4):
        await eventually(lambda: len(ran) > 4)
        await app.resume("hand")  # from here on it is next, but this process is never idle by itself
        await eventually(lambda: "quarantined" in ran)


async def test_a_job_that_kills_its_process_again_and_again_is_dead_as_poisonous(make_app):
    app = make_app(poll=0.02, max_attempts=100)
    await app.submit("killer", b"{}", json=True, id="killer")
    for _ in range(4):
        dead = new_holder(session_of(app), "worker", 0.05, ("default",))
        [record] = (
            await session_of(app).commit.claim(Ask(dead, ("default",), 1, parts_of(app).runtime.entropy.token()))
        ).records

        async def lost(fence=record.fence):
            await app.bulk.recover()
            job = await app.job("killer")
            return job.state != State.RUNNING or job.fence != fence

        await eventually(lost)
    job = await app.job("killer")
    assert (job.state, job.attempt) == (State.DEAD, 4)
    assert job.error.startswith("quarantined: its process crashed 3 times in a row while no other job ran in it;")


async def test_a_cancelled_job_of_a_dead_worker_is_not_run_again(make_app):
    app = make_app(poll=0.05)
    await left_behind(app, "a")
    assert await app.cancel("a") is True
    async with working(app):
        job = await app.handle("a").wait(timeout=30)
    assert (job.state, job.error) == (State.CANCELLED, "cancelled while running; its worker stopped without a result")


async def test_a_worker_does_not_sweep_its_own_running_jobs(make_app):
    app = make_app(poll=0.02, lease=0.9)
    runs = []

    @app.task
    async def slow() -> None:
        runs.append(1)
        await asyncio.sleep(2.5)

    async with working(app), working(app):
        handle = await slow.enqueue()
        assert (await handle.wait(timeout=30)).attempt == 1
    assert runs == [1]


async def test_jobs_past_their_retention_are_removed_by_any_worker():
    clock = ManualClock()
    async with Holdfast(MemoryStore(clock), clock=clock, poll=0.02, retention=60) as app:
        await app.enqueue("noop")
        async with working(app):

            async def done():
                return (await app.stats()).counts["succeeded"] == 1

            await eventually(done)
            clock.advance(120)

            async def gone():
                return (await app.stats()).counts["succeeded"] == 0

            await eventually(gone)
