"""Flows taken up again, undone and operated on: by whomever, and whatever of them has ended how."""

import asyncio
import pickle

import pytest

from holdfast import Context, Flow, InvalidJob, InvalidState, State
from holdfast.app import parts_of
from holdfast.core import internal as extras
from holdfast.core.operations import Change, Patch
from holdfast.core.waiting import end_of
from holdfast.flows.completion import Completion
from holdfast.flows.creation import ENDED
from holdfast.flows.members import FlowJobs
from holdfast.flows.service import Flows
from support.flowing import ByHand, Tasks, run, states
from support.inside import release_of, session_of
from support.workers import work_off, working


@pytest.fixture(params=[20, 0], ids=["small", "general"], autouse=True)
def small(request, monkeypatch):
    """Flows of so many jobs take the fast path for small flows: most of these, or none."""
    monkeypatch.setattr("holdfast.flows.small_flows.SMALL", request.param)


@pytest.fixture
def tasks(app):
    return Tasks(app)


# -- retry


async def test_two_who_retry_at_once_retry_once(app, tasks):
    flow = Flow()
    flow.add(tasks.note, flow.add(tasks.fragile, "bad"))
    handle, _ = await run(app, flow)
    tasks.broken = False
    assert sum(await asyncio.gather(handle.retry(), handle.retry(), return_exceptions=False)) == 2
    async with working(app, poll=0.05):
        assert (await handle.wait(90)).counts == {"succeeded": 2}
    assert tasks.ran == ["bad", "mended"]


async def test_a_flow_of_which_all_went_well_after_all_can_be_retried(app, tasks):
    flow = Flow()
    flow.add(tasks.note, "a")
    handle = await app.enqueue_flow(flow)
    other = ByHand(app)
    [record] = await other.claim()
    await handle.cancel()
    await other.end(record)
    await release_of(app).free([record.id])
    assert (await handle.status()).state == State.CANCELLED
    assert await handle.retry() == 0
    assert (await handle.status()).state == State.SUCCEEDED


async def test_a_dead_job_after_another_dead_one_waits_for_it_again(app, tasks):
    flow = Flow()
    first = flow.add(tasks.fragile, "first")
    flow.add(tasks.fragile, first).after(first, on_dead="ignore")
    first.compensate(tasks.fragile, "undo")
    handle, _ = await run(app, flow)
    tasks.broken = False
    assert await handle.retry() == 3
    async with working(app, poll=0.05):
        assert (await handle.wait(90)).state == State.SUCCEEDED
    assert (tasks.ran, await states(handle)) == (["first", "mended"], ["succeeded", "succeeded", "cancelled"])


async def test_retrying_one_job_leaves_others_cancelled_that_do_not_come_after_it(app, tasks):
    flow = Flow()
    nodes = flow.group(tasks.note.using(delay=3600).call(word) for word in "ab")
    flow.add(tasks.note, nodes[0])
    handle = await app.enqueue_flow(flow)
    await handle.cancel()
    await app.retry(handle.handle(nodes[0]).id)
    assert await states(handle) == ["queued", "cancelled", "blocked"]
    with pytest.raises(InvalidState, match="nothing to retry"):
        await app.flows.retry(handle.id, [])


async def test_a_retry_that_stopped_half_way_leaves_nothing_waiting(app, tasks, monkeypatch):
    flow = Flow()
    bad, good = flow.add(tasks.fragile, "bad"), flow.add(tasks.note, "good")
    flow.add(tasks.note, "child").after(bad, good)
    handle, _ = await run(app, flow)
    tasks.broken = False
    change = FlowJobs.change

    async def dies_behind_it(self, changes):
        written = await change(self, changes)
        if any(change.patch.waiting_for == end_of(f"{handle.id}.1") for change in changes):
            raise RuntimeError("the process died here")
        return written

    with monkeypatch.context() as patched:
        patched.setattr(FlowJobs, "change", dies_behind_it)
        with pytest.raises(RuntimeError):
            await handle.retry()
    async with working(app, poll=0.05):
        assert (await handle.wait(90)).counts == {"succeeded": 3}


async def test_a_flow_is_not_ended_by_a_process_that_read_its_jobs_before_a_retry(app, tasks, monkeypatch):
    flow = Flow()
    flow.group(tasks.fragile.using().call(word) for word in "ab")
    handle = await app.enqueue_flow(flow)
    change, states, tried = FlowJobs.change, [], asyncio.Event()

    async def retried_first(self, changes):
        if not tasks.broken or not any(one.id == handle.id and one.patch.state == State.DEAD for one in changes):
            return await change(self, changes)
        tasks.broken = False
        await app.pause("default")
        assert await app.flows.retry(handle.id) == 2
        written = await change(self, changes)
        states.append((await handle.status()).state)
        tried.set()
        return written

    monkeypatch.setattr(FlowJobs, "change", retried_first)
    async with working(app, poll=0.05):
        await tried.wait()
        await app.resume("default")
        assert (await handle.wait(90)).state == State.SUCCEEDED
    assert (states, sorted(tasks.ran)) == ([State.BLOCKED], ["a", "b"])


async def test_a_retried_flow_waits_for_its_jobs_from_the_commit_that_resets_them(app, tasks, monkeypatch):
    flow = Flow()
    flow.add(tasks.fragile, "bad")
    handle, _ = await run(app, flow)
    tasks.broken = False
    change, seen = FlowJobs.change, []

    async def observed(self, changes):
        written = await change(self, changes)
        seen.append([record.state for record in await FlowJobs(session_of(app)).get([handle.id, f"{handle.id}.0"])])
        return written

    monkeypatch.setattr(FlowJobs, "change", observed)
    assert await handle.retry() == 1
    assert {tuple(sorted(states)) for states in seen} == {(State.BLOCKED, State.QUEUED)}


async def test_a_job_is_not_left_unrun_by_a_process_that_saw_its_parent_before_a_retry(app, tasks, monkeypatch):
    flow = Flow()
    bad = flow.add(tasks.fragile, "bad")
    flow.add(tasks.note, flow.add(tasks.note, bad))
    handle = await app.enqueue_flow(flow)
    change = FlowJobs.change

    async def overtaken(self, changes):
        if not tasks.broken or not any(one.patch.state == State.CANCELLED for one in changes):
            return await change(self, changes)
        tasks.broken = False
        await app.pause("default")
        assert await change(self, changes) == [True]  # by another, who was faster
        assert await app.flows.retry(handle.id) == 2
        written = await change(self, changes)
        await app.resume("default")
        assert written == [False]
        return written

    monkeypatch.setattr(FlowJobs, "change", overtaken)
    async with working(app, poll=0.05):
        assert (await handle.wait(90)).counts == {"succeeded": 3}
    assert tasks.ran == ["bad", "mended", "mended"]
    assert [
        extras.read((await parts_of(app).handles.record(f"{handle.id}.{number}")).extra).not_run for number in (1, 2)
    ] == [None, None]


async def test_a_job_that_was_blocked_when_its_parent_was_retried_is_not_left_unrun(app, tasks, monkeypatch):
    flow = Flow()
    flow.add(tasks.note, flow.add(tasks.fragile, "bad"))
    handle = await app.enqueue_flow(flow)
    change = FlowJobs.change

    async def retried_first(self, changes):
        if not tasks.broken or not any(one.patch.state == State.CANCELLED for one in changes):
            return await change(self, changes)
        tasks.broken = False
        assert await app.flows.retry(handle.id) == 1
        return await change(self, changes)

    monkeypatch.setattr(FlowJobs, "change", retried_first)
    async with working(app, poll=0.05):
        assert (await handle.wait(90)).counts == {"succeeded": 2}


async def test_a_flow_whose_end_was_reported_and_no_more_is_closed_by_the_next_worker(app, tasks, monkeypatch):
    @app.task(retention=0)
    async def brief() -> None: ...

    flow = Flow()
    flow.add(brief)
    handle = await app.enqueue_flow(flow)

    async def dies(self, id):
        raise RuntimeError("the process died here")

    with monkeypatch.context() as patched:
        patched.setattr(Completion, "close", dies)
        other = ByHand(app)
        [record] = await other.claim()
        await other.end(record)
        with pytest.raises(RuntimeError):
            await release_of(app).free([record.id])
    assert ((await handle.status()).state, len(await handle.jobs())) == (State.SUCCEEDED, 1)
    await work_off(app)
    await session_of(app).store.tidy(100)
    assert (await handle.jobs(), await parts_of(app).records.all(ENDED)) == ([], {})


async def test_all_dead_jobs_of_a_flow_are_retried_in_one_look_at_it(app, tasks, monkeypatch):
    flow = Flow()
    flow.group(tasks.fragile.using().call(word) for word in "abcd")
    handle, _ = await run(app, flow)
    tasks.broken = False
    looks, retry = [], Flows.retry_jobs

    async def counted(self, *args):
        looks.append(args)
        return await retry(self, *args)

    monkeypatch.setattr(Flows, "retry_jobs", counted)
    assert await app.bulk.retry_dead(queue="default") == 4
    assert len(looks) == 1
    async with working(app, poll=0.05):
        assert (await handle.wait(90)).state == State.SUCCEEDED


async def test_a_dead_job_whose_flow_is_gone_is_retried_alone(app, tasks):
    flow = Flow()
    bad = flow.add(tasks.fragile, "bad")
    flow.add(tasks.note, "after").after(bad, on_dead="ignore")
    handle, _ = await run(app, flow)
    own = await parts_of(app).handles.record(handle.id)
    await session_of(app).commit.change([Change(own.id, own.state, own.fence, None)])  # as its retention does
    tasks.broken = False
    assert (await app.retry(f"{handle.id}.0")).state == State.QUEUED
    await app.cancel(f"{handle.id}.0")
    assert await app.bulk.retry_dead() == 0


# -- compensation


async def test_what_comes_after_a_compensation_that_was_not_needed_is_not_needed(app, tasks):
    flow = Flow()
    undo = flow.add(tasks.note, "good").compensate(tasks.note, "undo")
    flow.add(tasks.note, "tell").after(undo)
    undo.compensate(tasks.note, "undo the undoing")
    handle, status = await run(app, flow)
    assert (status.state, tasks.ran) == (State.SUCCEEDED, ["good"])
    assert await states(handle) == ["succeeded", *["cancelled"] * 3]


@pytest.mark.parametrize("order", [("good", "bad"), ("bad", "good"), ("good", "bad", "good")], ids="-".join)
async def test_one_compensation_for_several_runs_if_one_of_them_died(app, tasks, order):
    flow = Flow()
    before = [flow.add(tasks.fragile if name == "bad" else tasks.note, name) for name in order]
    flow.add(tasks.note, "undo").after(*before, on_dead="compensate")
    flow.add(tasks.note, "unneeded").after(before[order.index("good")], on_dead="compensate")
    handle, status = await run(app, flow)
    assert tasks.ran == [*(name for name in order if name == "good"), "undo"]
    ended = ["dead" if name == "bad" else "succeeded" for name in order]
    assert (status.state, await states(handle)) == (State.DEAD, [*ended, "succeeded", "cancelled"])


async def test_a_death_that_only_some_ignore_counts(app, tasks):
    flow = Flow()
    bad = flow.add(tasks.fragile, "bad")
    flow.add(tasks.note, "all the same").after(bad, on_dead="ignore")
    bad.compensate(tasks.note, "undo")
    assert (await run(app, flow))[1].state == State.DEAD


# -- operate on many


async def test_changes_of_many_go_by_the_rules_of_flows(app, tasks):
    flow = Flow()
    first = flow.add(tasks.note.using(delay=3600), "a")
    flow.add(tasks.note, first)
    handle = await app.enqueue_flow(flow)
    assert (await app.bulk.change("delete", ids=[handle.id, f"{handle.id}.0"])).changed == 0
    assert (await app.bulk.change("cancel", ids=[handle.id])).changed == 1
    assert await states(handle) == ["cancelled", "cancelled"]
    assert (await app.bulk.change("retry", ids=[handle.id, f"{handle.id}.0"])).changed == 2
    assert await states(handle) == ["queued", "blocked"]


async def test_a_cancelled_job_takes_along_what_waited_for_it_at_once(app, tasks):
    flow = Flow()
    first = flow.add(tasks.note.using(delay=3600), "a")
    flow.add(tasks.note, first)
    handle = await app.enqueue_flow(flow)
    await app.cancel(handle.handle(first).id)
    assert (await states(handle), (await handle.status()).state) == (["cancelled", "cancelled"], State.DEAD)


async def test_the_retention_of_a_task_begins_when_its_flow_has_ended(app, tasks):
    @app.task(retention=0)
    async def brief() -> str:
        return "brief"

    flow = Flow()
    flow.add(tasks.note, flow.add(brief))
    handle, status = await run(app, flow)
    assert (status.state, tasks.ran) == (State.SUCCEEDED, ["brief"])
    await session_of(app).store.tidy(100)
    assert [job.task for job in await handle.jobs()] == ["note"]


async def test_a_task_of_ones_own_may_be_called_flow(app):
    @app.task(name="flow")
    async def own(word: str) -> None: ...

    handle = await own.using(delay=3600).enqueue("x")
    assert await app.cancel(handle.id)
    assert (await app.retry(handle.id)).state == State.QUEUED


# -- bad input


async def test_a_key_of_a_job_elsewhere_is_not_taken_for_one_of_the_flow(app, tasks):
    await tasks.note.using(key="taken", delay=3600).enqueue("w")

    @app.task(max_attempts=1)
    async def grow(ctx: Context) -> None:
        await ctx.add_to_flow(tasks.note.using(key="taken"), "w")

    flow = Flow()
    flow.add(grow)
    _, status = await run(app, flow)
    assert "'taken' belongs to job" in status.error


async def test_what_a_flow_cannot_do_is_refused_while_it_is_made(app, tasks):
    class Pickled:
        name = "pickled"
        dumps, loads = staticmethod(pickle.dumps), staticmethod(pickle.loads)

    @app.task(codec=Pickled())
    async def pickled() -> str: ...

    flow = Flow()
    first = flow.add(pickled)
    with pytest.raises(InvalidJob, match="has its own codec"):
        flow.add(tasks.note, first)
    with pytest.raises(InvalidJob, match="was added by on_end and waits for all other jobs"):
        flow.on_end(tasks.note, "x", allow_unfinished=1).after(first)


async def test_a_flow_that_ends_while_it_is_reopened_waits_again(app, tasks, monkeypatch):
    flow = Flow()
    flow.add(tasks.note, "a")
    handle = await app.enqueue_flow(flow)
    change = FlowJobs.change

    with monkeypatch.context() as patched:

        async def ends_first(self, changes):
            patched.undo()
            ended = Patch(state=State.DEAD, result=b"{}", keep=None)
            assert await change(self, [Change(handle.id, State.BLOCKED, 0, ended)]) == [True]
            return await change(self, changes)

        patched.setattr(FlowJobs, "change", ends_first)
        await release_of(app).reopen(handle.id)
    assert (await parts_of(app).handles.record(handle.id)).state == State.BLOCKED
