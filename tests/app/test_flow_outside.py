"""Jobs of a flow that wait for jobs outside of it, which exist already."""

import msgspec
import pytest

from holdfast import Flow, InvalidJob, JobCancelled, JobFailed, JobNotFound, State
from holdfast.app import parts_of
from holdfast.core.lifecycle import Outcome
from holdfast.flows.creation import AWAITED, ENDED, Pending
from holdfast.flows.members import FlowJobs
from holdfast.flows.release import Release
from holdfast.store.protocol import records_of
from holdfast.worker import dependency_release
from support.eventually import eventually
from support.flowing import ByHand, Tasks
from support.inside import release_of, session_of
from support.workers import working


@pytest.fixture
def tasks(app):
    return Tasks(app)


async def awaited(app):
    return await records_of(session_of(app).store, AWAITED)


async def released(app):
    await release_of(app).release_awaited(await awaited(app))


def after(tasks, handle, on_dead="fail"):
    flow = Flow()
    flow.add(tasks.note, "after").after(handle, on_dead=on_dead)
    return flow


async def test_a_job_of_a_flow_waits_for_a_job_that_exists(app, tasks):
    handle = await tasks.note.enqueue("before")
    flow = Flow()
    first = flow.add(tasks.note, "first")
    flow.add(tasks.note, "last").after(first, handle)
    flow_handle = await app.enqueue_flow(flow)
    [waiting] = [job for job in await flow_handle.jobs() if job.state == State.BLOCKED]
    assert waiting.id == f"{flow_handle.id}.1"
    async with working(app, poll=0.05):
        assert await flow_handle.results(30) == ["first", "last"]
    assert tasks.ran.index("before") < tasks.ran.index("last")
    assert await awaited(app) == {}


async def test_it_waits_while_the_job_runs(app, tasks):
    handle = await tasks.note.enqueue("before")
    other = ByHand(app)
    [claim] = await other.claim()
    flow_handle = await app.enqueue_flow(after(tasks, handle))
    [job] = await flow_handle.jobs()
    assert str(job.waiting_for) == f"job {handle.id}"
    await released(app)
    assert (await flow_handle.handle(0).job()).state == State.BLOCKED
    await other.end(claim)
    await released(app)
    assert (await flow_handle.handle(0).job()).state == State.QUEUED
    assert await awaited(app) == {}


@pytest.mark.parametrize(
    ("died", "on_dead", "state"),
    [
        (False, "fail", State.QUEUED),
        (True, "fail", State.CANCELLED),
        (True, "ignore", State.QUEUED),
        (True, "compensate", State.QUEUED),
        (False, "compensate", State.CANCELLED),
    ],
)
async def test_the_end_of_a_job_that_ended_before_counts_at_once(app, tasks, died, on_dead, state):
    tasks.broken = died
    handle = await tasks.fragile.enqueue("before")
    async with working(app, poll=0.05):
        await handle.wait(90)
    flow_handle = await app.enqueue_flow(after(tasks, handle, on_dead))
    assert (await flow_handle.handle(0).job()).state == state
    assert await awaited(app) == {}


async def test_a_job_of_another_flow_is_waited_for(app, tasks):
    others = Flow()
    before = others.add(tasks.note, "before")
    flow_handle = await app.enqueue_flow(after(tasks, (await app.enqueue_flow(others)).handle(before)))
    async with working(app, poll=0.05):
        assert await flow_handle.results(30) == ["after"]


async def test_a_deleted_job_has_failed(app, tasks):
    handle = await tasks.note.using(delay=60).enqueue("before")
    flow_handle = await app.enqueue_flow(after(tasks, handle))
    await app.delete(handle.id)
    await released(app)
    assert "was deleted" in (await flow_handle.handle(0).job()).error
    with pytest.raises(JobCancelled, match="was deleted"):
        await flow_handle.results(1)


async def test_a_process_that_dies_before_its_job_waits_leaves_that_to_a_worker(app, tasks, monkeypatch):
    handle = await tasks.note.enqueue("before")
    change = FlowJobs.change

    async def dies(self, changes):
        raise RuntimeError("the process died here")

    with monkeypatch.context() as patched:
        patched.setattr(FlowJobs, "change", dies)
        flow_handle = await app.enqueue_flow(after(tasks, handle))
    assert FlowJobs.change is change
    [job] = await flow_handle.jobs()
    assert job.waiting_for.kind == "flow_start"
    async with working(app, poll=0.05):
        assert await flow_handle.results(30) == ["after"]


async def test_a_parent_that_ends_while_its_child_is_made_to_wait_frees_it(app, tasks, monkeypatch):
    handle = await tasks.note.enqueue("before")
    other = ByHand(app)
    [claim] = await other.claim()
    decide = Release._decide

    async def and_the_parent_ends(self, children):
        decided = await decide(self, children)
        if (await parts_of(app).handles.record(handle.id)).state == State.RUNNING:
            await other.end(claim)
            await released(app)
        return decided

    with monkeypatch.context() as patched:
        patched.setattr(Release, "_decide", and_the_parent_ends)
        flow_handle = await app.enqueue_flow(after(tasks, handle))
    assert (await flow_handle.handle(0).job()).state == State.QUEUED


async def after_a_dead_job(app, tasks):
    """Handles of a dead job, and of a flow that waits for it; its end was not processed yet."""
    tasks.broken = True
    handle = await tasks.fragile.enqueue("before")
    flow_handle = await app.enqueue_flow(after(tasks, handle))
    other = ByHand(app)
    [claim] = await other.claim()
    await other.end(claim, Outcome.dead("broke"))
    return handle, flow_handle


async def test_a_parent_that_is_retried_meanwhile_is_waited_for_again(app, tasks, monkeypatch):
    handle, flow_handle = await after_a_dead_job(app, tasks)
    change = FlowJobs.change

    async def and_it_is_retried(self, changes):
        if (await parts_of(app).handles.record(handle.id)).state == State.DEAD:
            await app.retry(handle.id)
        return await change(self, changes)

    with monkeypatch.context() as patched:
        patched.setattr(FlowJobs, "change", and_it_is_retried)
        await released(app)
    assert (await flow_handle.handle(0).job()).state == State.BLOCKED
    assert set(await awaited(app)) == {handle.id}
    tasks.broken = False
    async with working(app, poll=0.05):
        assert await flow_handle.results(30) == ["after"]


async def test_a_parent_that_is_retried_before_its_end_is_processed_stays_awaited(app, tasks, monkeypatch):
    handle = await tasks.fragile.enqueue("before")
    flow_handle = await app.enqueue_flow(after(tasks, handle))
    other = ByHand(app)
    [claim] = await other.claim()
    await other.end(claim, Outcome.dead("broke"))
    free = Release._free

    async def as_it_is_retried(self, *args):
        await app.retry(handle.id)
        await free(self, *args)

    with monkeypatch.context() as patched:
        patched.setattr(Release, "_free", as_it_is_retried)
        await released(app)
    assert (await flow_handle.handle(0).job()).state == State.BLOCKED
    assert set(await awaited(app)) == {handle.id}


async def test_a_parent_that_is_retried_before_it_is_checked_again_stays_awaited(app, tasks, monkeypatch):
    handle = await tasks.fragile.enqueue("before")
    other = ByHand(app)
    [claim] = await other.claim()
    change, before = FlowJobs.change, [1]

    async def as_it_ends_and_is_retried(self, changes):
        if not before or not changes:
            return await change(self, changes)
        before.clear()
        await other.end(claim, Outcome.dead("broke"))
        await released(app)  # which finds no waiting job
        assert await awaited(app) == {}
        done = await change(self, changes)
        await app.retry(handle.id)
        return done

    with monkeypatch.context() as patched:
        patched.setattr(FlowJobs, "change", as_it_ends_and_is_retried)
        flow_handle = await app.enqueue_flow(after(tasks, handle))
    assert str((await flow_handle.handle(0).job()).waiting_for) == f"job {handle.id}"
    assert set(await awaited(app)) == {handle.id}


async def test_a_worker_that_takes_over_awaits_the_parent_again(app, tasks):
    handle = await tasks.note.enqueue("before")
    flow_handle = await app.enqueue_flow(after(tasks, handle))
    store = session_of(app).store
    await store.put_record(AWAITED, handle.id, None)
    await store.put_record(ENDED, flow_handle.id, msgspec.json.encode(Pending(also=(handle.id,))))  # as before a crash
    await release_of(app).repair()
    assert set(await awaited(app)) == {handle.id}


async def test_a_job_that_waits_again_after_a_retry_is_awaited(app, tasks, monkeypatch):
    handle, flow_handle = await after_a_dead_job(app, tasks)
    taken_back = Release._taken_back

    async def and_it_is_retried(self, unrun):
        await session_of(app).store.put_record(AWAITED, handle.id, None)  # as another worker that saw the same end
        await app.retry(handle.id)
        return await taken_back(self, unrun)

    with monkeypatch.context() as patched:
        patched.setattr(Release, "_taken_back", and_it_is_retried)
        await released(app)
    assert (await flow_handle.handle(0).job()).state == State.BLOCKED
    assert set(await awaited(app)) == {handle.id}


async def test_a_worker_checks_some_awaited_jobs_at_a_time(app, tasks, monkeypatch):
    handles = [await tasks.note.using(delay=1000).enqueue(word) for word in "abcde"]
    ids = {handle.id for handle in handles}
    for id in ids:
        await session_of(app).store.put_record(AWAITED, id, b"{}")
    monkeypatch.setattr(dependency_release, "AWAITED_AT_ONCE", 2)
    release, checked, unneeded = release_of(app), [], set()

    async def checks(some):
        checked.append(set(some))

    async def drops(id, kept):
        unneeded.add(id)

    monkeypatch.setattr(release, "release_awaited", checks)
    monkeypatch.setattr(release, "drop_unawaited", drops)
    part = dependency_release.DependencyRelease(session_of(app), release, 0.01)
    await eventually(lambda: set().union(*checked) == unneeded == ids)
    await part.stop()
    assert max(len(some) for some in checked) == 2


async def test_the_record_of_a_parent_is_dropped_when_nothing_waits_for_it(app, tasks):
    needed, unneeded = [await tasks.note.using(delay=1000).enqueue(word) for word in "ab"]
    await app.enqueue_flow(after(tasks, needed))
    await (await app.enqueue_flow(after(tasks, unneeded))).cancel()
    for id, kept in (await awaited(app)).items():
        await release_of(app).drop_unawaited(id, kept)
    assert set(await awaited(app)) == {needed.id}


async def test_only_stored_jobs_can_be_waited_for(app, tasks):
    with pytest.raises(JobNotFound):
        await app.enqueue_flow(after(tasks, app.handle("unknown")))
    flow_handle = await app.enqueue_flow(after(tasks, await tasks.note.enqueue("before")))
    with pytest.raises(InvalidJob, match="only for jobs"):
        await app.enqueue_flow(after(tasks, flow_handle))
    with pytest.raises(InvalidJob, match=r"after\(\) takes jobs of the same flow and handles of jobs, not 7"):
        Flow().add(tasks.note, "x").after(7)
    assert len((await app.flows.list()).flows) == 1


async def test_results_are_in_the_order_of_the_jobs_and_raise_the_first_failure(app, tasks):
    tasks.broken = True
    flow = Flow()
    first = flow.add(tasks.note, "first")
    first.compensate(tasks.note, "never")
    tolerated = flow.add(tasks.fragile, "x")
    flow.add(tasks.note, "last").after(tolerated, on_dead="ignore")
    handle = await app.enqueue_flow(flow)
    failing = Flow()
    failing.add(tasks.note, "fine")
    broken = failing.add(tasks.fragile, "broken")
    failing.add(tasks.note, "unrun").after(broken)
    failed = await app.enqueue_flow(failing)
    async with working(app, poll=0.05):
        assert await handle.results(30) == ["first", None, None, "last"]
        assert await app.flows.handle(handle.id).results(30) == ["first", None, None, "last"]
        with pytest.raises(JobFailed, match="broken broke") as error:
            await failed.results(30)
    assert error.value.job_id == f"{failed.id}.1"


def test_blocking_code_reads_results_and_waits_for_its_handles(app_url):
    from holdfast import Holdfast
    from holdfast.testing import on_memory

    app = Holdfast(app_url)

    @app.task
    def note(word: str) -> str:
        return word

    with on_memory(app) as bench:
        before = app.sync.enqueue(note, "before")
        flow = Flow()
        flow.add(note, "after").after(before)
        handle = app.sync.enqueue_flow(flow)
        bench.work()
        assert handle.results(30) == ["after"]
