"""A flow in the making: started once, or never; given up only where nobody can start it any more."""

import asyncio

import pytest

from holdfast import Flow, InvalidJob, InvalidState, JobExists, QueueFull, State
from holdfast.app import parts_of
from holdfast.flows.creation import ENDED, LONGEST_GAP, MakingWatch
from holdfast.store.reference.memory import MemoryStore
from holdfast.testing.clock import ManualClock
from support.flowing import Tasks
from support.inside import release_of, session_of
from support.workers import work_off

LOOKS = 61
"""At one a minute, they are an hour."""


class Maker:
    """An app that stops before it starts a flow, for as long as the test says."""

    def __init__(self, app):
        self.app, self.stopped, self.goes_on = app, asyncio.Event(), asyncio.Event()

    async def enqueue(self, flow, id="made-slowly"):
        """Enqueue a flow in the background, up to its last write; it takes several, as it has an id of its own."""
        await self.app.open()
        write, store = session_of(self.app).store.write, session_of(self.app).store

        async def stops(batch):
            if any(job.task == "flow" for job in batch.inserts):
                self.stopped.set()
                await self.goes_on.wait()
            return await write(batch)

        store.write = stops
        enqueuing = asyncio.create_task(self.app.enqueue_flow(flow, id=id))
        await asyncio.wait([enqueuing, asyncio.create_task(self.stopped.wait())], return_when="FIRST_COMPLETED")
        return enqueuing


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def app(make_app, app_url, clock):
    return make_app(MemoryStore(clock) if app_url == "memory://" else None, clock=clock)


@pytest.fixture
def maker(make_app, app, app_url, clock):
    """Another process, as far as the store can tell."""
    return Maker(make_app(parts_of(app).runtime._store.sibling() if app_url == "memory://" else None, clock=clock))


@pytest.fixture
def tasks(app):
    return Tasks(app)


@pytest.fixture
def flow(tasks):
    flow = Flow("report")
    first = flow.add(tasks.note, "first")
    flow.add(tasks.note, "second").after(first, on_dead="ignore")
    return flow


async def look(app, looks, *, every=60.0, jump=0.0):
    """What a worker does on the side, over some time. After its first look its wall clock may jump."""
    await app.open()
    watch, seen = MakingWatch(parts_of(app).runtime.clock), None
    for _ in range(looks):
        seen = await release_of(app).repair(seen, watch)
        parts_of(app).runtime.clock.advance(every)
        parts_of(app).runtime.clock.jump_wall(jump)
        jump = 0.0
    return await release_of(app).repair(seen, watch)


async def test_nothing_of_a_flow_runs_before_it_is_started(app, maker, flow, tasks):
    enqueuing = await maker.enqueue(flow)
    await look(app, 3)
    await work_off(app)
    assert tasks.ran == []
    maker.goes_on.set()
    handle = await enqueuing
    await work_off(app)
    assert (tasks.ran, (await handle.status()).state) == (["first", "second"], State.SUCCEEDED)


@pytest.mark.parametrize("seconds", [-3660, 3660, 26 * 3600], ids=["-61 min", "+61 min", "+26 h"])
async def test_a_wall_clock_that_is_off_gives_up_no_flow(app, maker, flow, tasks, seconds):
    enqueuing = await maker.enqueue(flow)
    await look(app, 3, jump=seconds)
    maker.goes_on.set()
    handle = await enqueuing
    await work_off(app)
    assert (tasks.ran, (await handle.status()).state) == (["first", "second"], State.SUCCEEDED)


async def test_a_process_that_was_stopped_for_hours_has_watched_nothing(app, maker, flow, tasks):
    enqueuing = await maker.enqueue(flow)
    await look(app, 5, every=2 * 3600.0)
    maker.goes_on.set()
    await (await enqueuing).status()
    await work_off(app)
    assert tasks.ran == ["first", "second"]


async def test_a_flow_that_is_not_started_for_a_watched_hour_ends_cancelled(app, maker, flow, tasks):
    enqueuing = await maker.enqueue(flow)
    await look(app, LOOKS)
    [status] = (await app.flows.list()).flows
    assert (status.name, status.state, status.jobs) == ("report", State.CANCELLED, 2)
    assert "never started" in status.error
    assert status.ended == "abandoned"
    assert {str(job.state) for job in await app.flows.handle(status.id).jobs()} == {"cancelled"}
    assert await parts_of(app).records.all(ENDED) == {}
    enqueuing.cancel()


async def test_starting_an_abandoned_flow_raises_that_nothing_of_it_ran(app, maker, flow, tasks):
    enqueuing = await maker.enqueue(flow)
    await look(app, LOOKS)
    maker.goes_on.set()
    with pytest.raises(InvalidState, match=r"abandoned: .* none of its jobs ran"):
        await enqueuing
    await work_off(app)
    assert tasks.ran == []
    assert {str(job.state) for job in (await app.jobs()).jobs} == {"cancelled"}


async def test_the_id_of_a_flow_that_was_given_up_stays_taken_where_nothing_is_kept(app, maker, flow):
    await app.open()
    await app.config.set("retention", 0)
    enqueuing = await maker.enqueue(flow)
    await look(app, LOOKS)
    await session_of(app).store.tidy(1000)
    maker.goes_on.set()
    with pytest.raises(InvalidState, match="abandoned"):
        await enqueuing


async def test_a_maker_that_goes_on_slowly_is_not_given_up(app, maker, flow, tasks, monkeypatch):
    """It stores a job, is slow for most of an hour, and stores the next."""
    monkeypatch.setattr("holdfast.flows.creation.PAGE", 1)
    await maker.app.open()
    watch, insert = MakingWatch(parts_of(app).runtime.clock), parts_of(maker.app).enqueue.insert_all

    async def slowly(jobs):
        for _ in range(LOOKS - 5 if jobs[0].task != "flow" else 0):
            await release_of(app).repair(None, watch)
            parts_of(app).runtime.clock.advance(LONGEST_GAP)
        return await insert(jobs)

    await app.open()
    monkeypatch.setattr(parts_of(maker.app).enqueue, "insert_all", slowly)
    handle = await maker.app.enqueue_flow(flow, id="slow")
    await work_off(app)
    assert (await handle.status()).state == State.SUCCEEDED


async def test_what_is_cancelled_in_a_flow_that_is_not_started_sets_nothing_going(app, maker, flow, tasks):
    enqueuing = await maker.enqueue(flow)
    [first] = [job for job in (await app.jobs()).jobs if job.id.endswith(".0")]
    await app.cancel(first.id)
    await look(app, 3)
    await work_off(app)
    assert tasks.ran == []
    assert {str(job.state) for job in (await app.jobs()).jobs} == {"blocked", "cancelled"}
    maker.goes_on.set()
    await enqueuing
    await look(app, 3)
    await work_off(app)
    assert tasks.ran == ["second"]


async def test_jobs_of_a_flow_that_is_not_started_are_not_deleted(app, maker, flow, tasks):
    enqueuing = await maker.enqueue(flow)
    [first] = [job for job in (await app.jobs()).jobs if job.id.endswith(".0")]
    with pytest.raises(InvalidState, match="has not ended"):
        await app.delete(first.id)
    assert await app.bulk.purge(state="blocked") == 0
    maker.goes_on.set()
    await enqueuing
    await work_off(app)
    assert tasks.ran == ["first", "second"]


# -- the id of a flow


async def test_the_same_id_and_jobs_are_the_same_flow(app, flow, tasks):
    first = await app.enqueue_flow(flow, id="report-1")
    assert (await app.enqueue_flow(flow, id="report-1")).id == first.id == "report-1"
    await work_off(app)
    again = await app.enqueue_flow(flow, id="report-1")
    await work_off(app)
    assert (tasks.ran, (await again.status()).state) == (["first", "second"], State.SUCCEEDED)


async def test_two_who_enqueue_the_same_flow_at_once_start_it_once(app, maker, flow, tasks):
    enqueuing = await maker.enqueue(flow, id="report-1")
    other = asyncio.create_task(app.enqueue_flow(flow, id="report-1"))
    maker.goes_on.set()
    assert (await enqueuing).id == (await other).id
    await work_off(app)
    assert tasks.ran == ["first", "second"]


async def test_the_same_id_with_other_jobs_is_refused(app, flow, tasks):
    await app.enqueue_flow(flow, id="report-1")
    other = Flow("report")
    other.add(tasks.note, "other")
    with pytest.raises(JobExists):
        await app.enqueue_flow(other, id="report-1")
    await work_off(app)
    assert tasks.ran == ["first", "second"]


async def test_the_id_of_a_plain_job_is_refused(app, flow, tasks):
    await tasks.note.using(id="taken").enqueue("plain")
    with pytest.raises(JobExists):
        await app.enqueue_flow(flow, id="taken")


@pytest.mark.parametrize("id", ["a.b", "", "x" * 501, 7], ids=["with a dot", "empty", "long", "no text"])
async def test_an_id_that_no_flow_can_have_is_refused(app, flow, id):
    with pytest.raises(InvalidJob):
        await app.enqueue_flow(flow, id=id)
    assert (await app.jobs()).jobs == []


async def test_a_flow_that_did_not_fit_is_enqueued_under_its_id_once_it_does(make_app, clock):
    app = make_app(clock=clock, max_depth=1)
    tasks = Tasks(app)
    await tasks.note.enqueue("in the way")
    flow = Flow()
    flow.add(tasks.note, "now")
    with pytest.raises(QueueFull):
        await app.enqueue_flow(flow, id="patient")
    await work_off(app)
    await app.enqueue_flow(flow, id="patient")
    await work_off(app)
    assert tasks.ran == ["in the way", "now"]


async def test_a_flow_that_did_not_fit_leaves_nothing_behind(make_app, clock):
    app = make_app(clock=clock, max_depth=1)
    tasks = Tasks(app)
    waiting = await tasks.note.enqueue("in the way")
    flow = Flow()
    flow.add(tasks.note, "now")
    with pytest.raises(QueueFull):
        await app.enqueue_flow(flow)
    assert [job.id for job in (await app.jobs()).jobs] == [waiting.id]
    assert await parts_of(app).records.all(ENDED) == {}
