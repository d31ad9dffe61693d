"""Flows when several things happen at once, or stop half way: nothing is left waiting, and no end is lost."""

import asyncio

import msgspec
import pytest

from holdfast import Context, Flow, InvalidState, State
from holdfast.app import parts_of
from holdfast.core.lifecycle import Outcome
from holdfast.core.operations import Change, Patch
from holdfast.core.retry import Backoff
from holdfast.flows.completion import FEW, Completion
from holdfast.flows.creation import ENDED, Pending, pending
from holdfast.flows.members import FlowJobs, counting
from holdfast.flows.release import Release
from holdfast.flows.small_flows import SmallFlows
from support.eventually import eventually
from support.flowing import ByHand, Tasks, run
from support.inside import release_of, session_of
from support.workers import work_off, working


@pytest.fixture(params=[20, 0], ids=["small", "general"], autouse=True)
def small(request, monkeypatch):
    """Flows of so many jobs take the fast path for small flows: most of these, or none."""
    monkeypatch.setattr("holdfast.flows.small_flows.SMALL", request.param)


@pytest.fixture
def tasks(app):
    return Tasks(app)


# -- at the same time


async def test_a_parent_that_ends_while_its_child_is_made_to_wait_for_it_frees_it(app, tasks, monkeypatch):
    flow = Flow()
    parents = flow.group(tasks.note.using().call(word) for word in "ab")
    flow.add(tasks.note, "last").after(*parents)
    handle = await app.enqueue_flow(flow)
    other = ByHand(app)
    first, second = await other.claim()
    await other.end(second)
    decide = Release._decide

    async def and_the_other_ends(self, children):
        decided = await decide(self, children)
        if (await parts_of(app).handles.record(first.id)).state == State.RUNNING:
            await other.end(first)
            await app.flows.release(session_of(app)).free(
                [first.id]
            )  # by its own worker, which finds nobody waiting yet
        return decided

    with monkeypatch.context() as patched:
        patched.setattr(Release, "_decide", and_the_other_ends)
        await release_of(app).free([second.id])
    async with working(app, poll=0.05):
        assert (await handle.wait(90)).state == State.SUCCEEDED


class Killed(Exception):
    """A worker died here."""


async def left_by_a_dead_worker(app, tasks, monkeypatch):
    """A flow whose last job was made to wait for a parent that had just ended, and that parent's sibling."""
    flow = Flow()
    parents = flow.group(tasks.note.using().call(word) for word in "ab")
    flow.add(tasks.note, "last").after(*parents)
    handle = await app.enqueue_flow(flow)
    other = ByHand(app)
    first, second = await other.claim()
    await other.end(second)
    change = FlowJobs.change

    async def dies_behind_it(self, changes):
        if not changes:
            return []
        await other.end(first)
        await parts_of(app).records.put(ENDED, first.id, None)  # its own worker found nobody waiting yet
        await change(self, changes)
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(FlowJobs, "change", dies_behind_it)
        with pytest.raises(Killed):
            await release_of(app).free([second.id])
    return handle, second.id


async def test_the_same_if_the_worker_that_made_it_wait_dies(app, tasks, monkeypatch):
    handle, _ = await left_by_a_dead_worker(app, tasks, monkeypatch)
    async with working(app, poll=0.05):
        assert (await handle.wait(90)).state == State.SUCCEEDED


async def test_the_same_if_the_worker_of_the_first_parent_comes_later(app, tasks, monkeypatch):
    handle, sibling = await left_by_a_dead_worker(app, tasks, monkeypatch)
    await release_of(app).free([sibling])
    async with working(app, poll=0.05):
        assert (await handle.wait(30)).state == State.SUCCEEDED


async def test_the_same_if_the_first_parent_is_processed_because_of_another_end(app, tasks, monkeypatch):
    handle, sibling = await left_by_a_dead_worker(app, tasks, monkeypatch)
    await parts_of(app).records.put(ENDED, "other.0", msgspec.json.encode(Pending(also=(sibling,))))
    await release_of(app).repair({"other.0"})
    async with working(app, poll=0.05):
        assert (await handle.wait(30)).state == State.SUCCEEDED


async def test_a_late_worker_does_not_undo_what_another_has_decided_and_dies(app, tasks, monkeypatch):
    flow = Flow()
    parents = flow.group(tasks.note.using().call(word) for word in "abc")
    flow.add(tasks.note, "last").after(*parents)
    handle = await app.enqueue_flow(flow)
    other = ByHand(app)
    first, second, third = await other.claim()
    await other.end(third)
    change = FlowJobs.change

    async def late(self, changes):
        if not changes:
            return []
        patched.undo()
        await other.end(second)
        await release_of(app).repair()  # makes it wait for the first one
        await change(self, changes)
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(FlowJobs, "change", late)
        with pytest.raises(Killed):
            await release_of(app).free([third.id])
    await other.end(first)
    async with working(app, poll=0.05):
        assert (await handle.wait(30)).state == State.SUCCEEDED


async def test_an_end_stays_recorded_while_another_worker_releases_its_dependents_and_dies(app, tasks, monkeypatch):
    monkeypatch.setattr("holdfast.flows.small_flows.SMALL", 0)
    flow = Flow()
    parent = flow.add(tasks.note, "first")
    for word in "abcd":
        flow.add(tasks.note, word).after(parent)
    handle = await app.enqueue_flow(flow)
    other = ByHand(app)
    [first] = await other.claim()
    await other.end(first)
    change = FlowJobs.change

    async def another_does_and_dies(self, changes):
        await change(self, changes)
        return await change(self, changes)

    with monkeypatch.context() as patched:
        patched.setattr("holdfast.flows.release.PAGE", 2)
        patched.setattr(FlowJobs, "change", another_does_and_dies)
        await release_of(app).free([first.id])
    async with working(app, poll=0.05):
        assert (await handle.wait(30)).state == State.SUCCEEDED


async def test_a_flow_does_not_end_while_a_job_is_added_that_was_not_counted(app, tasks, monkeypatch):
    counted = asyncio.Event()

    @app.task
    async def grow(ctx: Context) -> None:
        await counted.wait()
        await ctx.add_to_flow(tasks.note.using(delay=3600), "late")

    flow = Flow()
    flow.add(tasks.note, "first")
    grows = flow.add(grow)
    handle = await app.enqueue_flow(flow)
    monkeypatch.setattr("holdfast.flows.small_flows.SMALL", 0)
    left = Completion._left

    async def and_it_grows(self, *args):
        counted.set()
        await handle.handle(grows).result(30)
        return await left(self, *args)

    monkeypatch.setattr(Completion, "_left", and_it_grows)
    async with working(app, poll=0.05):
        await handle.handle(grows).result(30)

        async def all_told():
            return await parts_of(app).records.all(ENDED) == {}

        await eventually(all_told)
    assert ((await handle.status()).state, (await handle.status()).jobs) == (State.BLOCKED, 3)


async def test_a_small_flow_does_not_end_while_a_job_is_added_that_was_not_read(app, tasks, monkeypatch):
    looked = asyncio.Event()

    @app.task
    async def grow(ctx: Context) -> None:
        await looked.wait()
        await ctx.add_to_flow(tasks.note.using(delay=3600), "late")

    flow = Flow()
    flow.add(tasks.note, "first")
    grows = flow.add(grow)
    handle = await app.enqueue_flow(flow)
    get = FlowJobs.get

    async def and_it_grows(self, ids):
        ids = list(ids)
        if handle.id in ids:
            looked.set()
            await handle.handle(grows).result(30)
        return await get(self, ids)

    monkeypatch.setattr(FlowJobs, "get", and_it_grows)
    async with working(app, poll=0.05):
        await handle.handle(grows).result(30)

        async def all_told():
            return await parts_of(app).records.all(ENDED) == {}

        await eventually(all_told)
    assert ((await handle.status()).state, (await handle.status()).jobs) == (State.BLOCKED, 3)
    assert (await parts_of(app).handles.record(handle.id)).reset_count == 0, "nor for a moment"


async def test_an_early_job_that_is_retried_is_waited_for_though_all_before_it_had_ended(app, tasks):
    flow = Flow()
    bad = flow.add(tasks.fragile, "early")
    flow.group(parts_of(app).registry.tasks["noop"].using().call() for _ in range(2 * FEW))
    late = flow.add(tasks.note.using(delay=3600), "late")
    flow.add(tasks.note, "last")
    done = flow.on_end(tasks.note, "done")
    handle = await app.enqueue_flow(flow)
    await work_off(app)
    await app.pause("default")
    await app.retry(handle.handle(bad).id)
    await app.cancel(handle.handle(late).id)
    assert (await handle.handle(done).job()).state == State.BLOCKED
    tasks.broken = False
    await app.resume("default")
    async with working(app, poll=0.05):
        assert (await handle.wait(90)).counts == {"succeeded": 2 * FEW + 3, "cancelled": 1}


async def test_a_flow_that_is_cancelled_before_its_first_jobs_are_freed_ends(app, tasks, monkeypatch):
    flow = Flow()
    flow.add(tasks.note, "a")

    with monkeypatch.context() as patched:

        async def cancelled_first(self, ids):
            patched.undo()
            await app.cancel(ids[0])
            await self.process_now(ids)

        patched.setattr(Release, "process_now", cancelled_first)
        handle = await app.enqueue_flow(flow, id="step-by-step")
    assert (await handle.wait(90)).state == State.CANCELLED


async def test_a_cancellation_that_stops_half_way_is_carried_on_by_a_worker(app, tasks, monkeypatch):
    flow = Flow()
    flow.add(tasks.note, flow.add(tasks.note, "never"))
    handle = await app.enqueue_flow(flow)

    async def dies(*_):
        raise ConnectionError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(Release, "_cancel_jobs", dies)
        assert await handle.cancel()
    async with working(app, queues="elsewhere", poll=0.05):
        assert (await handle.wait(90)).state == State.CANCELLED
    assert tasks.ran == []


async def test_ends_that_others_left_are_found_while_jobs_end_here_all_the_time(app, tasks):
    left = Flow()
    left.add(tasks.note, left.add(tasks.note, "left"))
    handle = await app.enqueue_flow(left)
    other = ByHand(app)
    [record] = await other.claim()
    stop = False

    @app.task
    async def busy(ctx: Context) -> None:
        if not stop:
            await ctx.add_to_flow(busy)

    flow = Flow()
    flow.add(busy)
    async with working(app, poll=0.1):
        await app.enqueue_flow(flow)
        session_of(app).commit.end_callbacks, received = (
            set(),
            session_of(app).commit.end_callbacks,
        )
        await other.end(record)  # and its worker dies before it frees anything
        session_of(app).commit.end_callbacks = received
        assert (await handle.wait(90)).state == State.SUCCEEDED
        stop = True


async def test_a_worker_that_ends_once_idle_first_frees_what_others_left(app, tasks):
    flow = Flow()
    flow.add(tasks.note, flow.add(tasks.note, "a"))
    handle = await app.enqueue_flow(flow)
    other = ByHand(app)
    [record] = await other.claim()
    await other.end(record)
    await work_off(app)
    assert (await handle.status()).state == State.SUCCEEDED


async def test_an_attempt_that_failed_does_not_unsay_the_end_of_the_next(app, tasks):
    flow = Flow()
    flow.add(tasks.note, flow.add(tasks.note, "a"))
    await app.enqueue_flow(flow)
    other = ByHand(app)
    [record] = await other.claim()
    await parts_of(app).records.put(ENDED, record.id, b"{}")  # as if it ended right after the look below
    await release_of(app).free([record.id])
    assert list(await parts_of(app).records.all(ENDED)) == [record.id]


@pytest.mark.parametrize("by", [SmallFlows, Completion], ids=["small", "general"])
async def test_an_end_that_is_reported_again_while_it_is_dealt_with_stays_reported(app, tasks, monkeypatch, by):
    flow = Flow()
    flow.add(tasks.note, flow.add(tasks.note, "a"))
    await app.enqueue_flow(flow)
    other = ByHand(app)
    [record] = await other.claim()
    await other.end(record)
    step = "free" if by is SmallFlows else "gather"
    monkeypatch.setattr("holdfast.flows.small_flows.SMALL", 20 if by is SmallFlows else 0)
    goes_on = getattr(by, step)

    # The fast path takes only jobs that have succeeded. Such a job is not retried, and another that has got its id has
    # another `seq`, by which stores refuse (conformance, TestRecordedEnds): so its record can only be added to.
    value = b'{"also":["x.0"]}' if by is SmallFlows else b"{}"

    async def recorded_again(self, *given):
        await parts_of(app).records.put(ENDED, record.id, value)  # as if it was retried and has ended once more
        return await goes_on(self, *given)

    monkeypatch.setattr(by, step, recorded_again)
    await release_of(app).free([record.id])
    assert list(await parts_of(app).records.all(ENDED)) == [record.id]


async def test_what_others_say_of_an_end_while_it_is_dealt_with_is_not_lost(app, tasks, monkeypatch):
    flow = Flow()
    parents = flow.group(tasks.note.using().call(word) for word in "ab")
    flow.add(tasks.note, "last").after(*parents)
    handle = await app.enqueue_flow(flow)
    other = ByHand(app)
    first, second = await other.claim()
    await other.end(second)
    decide = Release._decide

    async def and_another_mentions(self, children):
        await parts_of(app).records.put(ENDED, second.id, msgspec.json.encode(Pending(also=("another",))))
        return await decide(self, children)

    with monkeypatch.context() as patched:
        patched.setattr(Release, "_decide", and_another_mentions)
        await release_of(app).free([second.id])
    [kept] = (await parts_of(app).records.all(ENDED)).values()
    assert set(pending(kept).also) == {"another", first.id}
    await other.end(first)
    async with working(app, poll=0.05):
        assert (await handle.wait(90)).state == State.SUCCEEDED


# -- all of them


async def test_a_job_may_be_added_behind_one_that_waits_for_all(app, tasks):
    @app.task
    async def grow(ctx: Context) -> None:
        flow = app.flows.handle(ctx.job.id.rpartition(".")[0])
        behind = await ctx.add_to_flow(tasks.note, "behind", after=[flow.handle(last)])
        await ctx.add_to_flow(tasks.note, "behind that", after=[behind])
        await ctx.add_to_flow(tasks.note, "beside")

    flow = Flow()
    flow.add(grow)
    flow.on_end(tasks.note, "done")
    middle = flow.on_end(tasks.fragile, "done too")
    last = flow.add(tasks.note, "after all").after(middle)
    handle, status = await run(app, flow)
    assert (status.state, status.counts) == (State.DEAD, {"succeeded": 3, "dead": 1, "cancelled": 3})
    tasks.broken = False
    assert await handle.retry() == 4
    async with working(app, poll=0.05):
        assert (await handle.wait(90)).state == State.SUCCEEDED
    assert tasks.ran == ["beside", "done", "done too", "after all", "behind", "behind that"]


async def test_a_job_that_waits_for_all_needs_no_other(app, tasks):
    flow = Flow()
    flow.on_end(tasks.note, "alone")
    _, status = await run(app, flow)
    assert (status.state, tasks.ran) == (State.SUCCEEDED, ["alone"])


async def test_a_job_that_waits_for_all_also_waits_for_its_time(app, tasks):
    flow = Flow()
    flow.add(tasks.note, "a")
    last = flow.on_end(tasks.note.using(delay=3600), "late")
    handle = await app.enqueue_flow(flow)
    await work_off(app)
    assert ((await handle.handle(last).job()).state, tasks.ran) == (State.SCHEDULED, ["a"])


async def test_a_job_that_waits_for_all_waits_for_those_that_were_added_before_a_cancellation(app, tasks):
    @app.task
    async def grow(ctx: Context) -> None:
        await ctx.add_to_flow(tasks.note.using(delay=3600), "grown")

    flow = Flow()
    flow.add(grow)
    flow.on_end(tasks.note, "done")
    handle = await app.enqueue_flow(flow)
    await work_off(app)
    await handle.cancel()
    assert (await handle.status()).jobs == 3
    await handle.retry()
    async with working(app, poll=0.05):
        assert (await handle.wait(90)).state == State.SUCCEEDED
    assert tasks.ran == ["grown", "done"]


async def test_what_is_added_again_by_another_attempt_counts_once(app, tasks):
    @app.task(max_attempts=2, retry=Backoff(base=0, jitter=0))
    async def grow(ctx: Context) -> None:
        for word in "abc":
            await ctx.add_to_flow(tasks.note.using(key=f"{ctx.job.id}-{word}"), word)
        if ctx.job.attempt == 1:
            raise ValueError("once more")

    flow = Flow()
    flow.add(grow)
    _, status = await run(app, flow)
    assert (status.state, status.jobs, status.counts) == (State.SUCCEEDED, 4, {"succeeded": 4})


async def test_ends_that_follow_from_an_end_leave_nothing_behind(app, tasks):
    await parts_of(app).records.put("another", "record", b"{}")  # so that an end's own record has not the first version
    flow = Flow()
    bad, good = flow.add(tasks.fragile, "bad"), flow.add(tasks.note, "good")
    flow.add(tasks.note, "both").after(bad, good)
    later = flow.add(tasks.note, "later").after(bad)
    flow.add(tasks.note, "last").after(later)
    await app.enqueue_flow(flow)
    other = ByHand(app)
    claims = await other.claim()
    for claim in reversed(claims):  # so that what waits for both is made to wait for the other one
        await other.end(claim, Outcome.dead("broke") if claim.task == "fragile" else None)
        await release_of(app).free([claim.id])
    assert await parts_of(app).records.all(ENDED) == {}


# -- by values, whatever the errors say


async def reworded(app, id, words):
    """Replace what the error of a job says to people."""
    record = await parts_of(app).handles.record(id)
    assert await session_of(app).commit.change([Change(id, record.state, record.fence, Patch(error=words))]) == [True]


async def ended_by(app, handle, *numbers):
    """How a flow ended, now that the last jobs of it have run."""
    other = ByHand(app)
    for record in await other.claim():
        await other.end(record)
    await release_of(app).free([f"{handle.id}.{number}" for number in numbers])
    return await handle.status()


@pytest.mark.parametrize("words", [None, "it was a fine day", "not run: not needed, because you say so"])
async def test_a_flow_has_failed_by_a_job_that_was_not_run_whatever_its_error_says(app, tasks, words):
    flow = Flow()
    first = flow.add(tasks.note, "first")
    flow.add(tasks.note, "behind").after(first)
    flow.add(tasks.note, "last")
    handle = await app.enqueue_flow(flow)
    await app.cancel(f"{handle.id}.0")
    await release_of(app).free([f"{handle.id}.0"])
    await reworded(app, f"{handle.id}.1", words)
    status = await ended_by(app, handle, 2)
    assert (status.state, status.ended) == (State.DEAD, "failed")
    assert await handle.retry() == 2


@pytest.mark.parametrize("words", [None, "it was a fine day", "not run: job f.0 (note) is dead"])
async def test_a_compensation_is_not_needed_whatever_its_error_says(app, tasks, words):
    flow = Flow()
    undo = flow.add(tasks.note, "first").compensate(tasks.note, "undo")
    flow.add(tasks.note, "tell").after(undo)
    flow.on_end(tasks.note, "last")
    handle = await app.enqueue_flow(flow)
    other = ByHand(app)
    [first] = await other.claim()
    await other.end(first)
    await release_of(app).free([first.id])
    for number in (1, 2):
        await reworded(app, f"{handle.id}.{number}", words)
    status = await ended_by(app, handle, 3)
    assert (status.state, status.ended, status.error) == (State.SUCCEEDED, "succeeded", None)
    with pytest.raises(InvalidState, match="nothing to retry"):
        await handle.retry()


async def test_a_job_that_was_retried_and_then_cancelled_does_not_fail_its_flow(app, tasks):
    flow = Flow()
    first = flow.add(tasks.note, "first")
    flow.add(tasks.note, "behind").after(first)
    handle = await app.enqueue_flow(flow)
    await app.cancel(f"{handle.id}.0")
    await release_of(app).free([f"{handle.id}.0"])
    assert (await handle.status()).ended == "failed"
    await handle.retry()
    assert (await handle.status()).ended is None
    await app.cancel(f"{handle.id}.1")
    assert (await ended_by(app, handle, 0, 1)).ended == "succeeded"


async def test_a_flow_says_that_it_is_being_cancelled_and_then_that_it_was(app, tasks):
    flow = Flow()
    flow.add(tasks.note, "first")
    handle = await app.enqueue_flow(flow)
    other = ByHand(app)
    [first] = await other.claim()
    await handle.cancel()
    status = await handle.status()
    assert (status.state, status.cancelling, status.ended) == (State.BLOCKED, True, None)
    await other.end(first, Outcome.cancelled())
    await release_of(app).free([first.id])
    status = await handle.status()
    assert (status.state, status.cancelling, status.ended) == (State.CANCELLED, False, "cancelled")


# -- a job that is added by a worker whose claim was lost


async def added_late(app, tasks):
    """A flow whose only job has succeeded; and what a worker adds that ran the job before, and has lost its claim."""
    flow = Flow()
    flow.add(tasks.note, "first")
    handle = await app.enqueue_flow(flow)
    other = ByHand(app)
    [record] = await other.claim()
    await other.end(record)
    return handle, lambda: app.flows.add(record, tasks.note, ("late",), {}, after=())


async def kept_with_its_flow(app, handle):
    await work_off(app)
    status = await handle.status()
    assert (status.state, status.jobs, status.counts) == (State.SUCCEEDED, 2, {"succeeded": 2})
    assert all(record.expires_at is not None for record in await app.flows.members(handle.id))
    assert await parts_of(app).records.all(counting(handle.id)) == {}


async def test_a_flow_waits_again_for_a_job_that_was_added_just_before_it_ended(app, tasks, monkeypatch):
    handle, add = await added_late(app, tasks)
    change = FlowJobs.change

    async def added_first(self, changes):
        patched.undo()
        await add()
        return await change(self, changes)

    with monkeypatch.context() as patched:
        patched.setattr(FlowJobs, "change", added_first)
        await release_of(app).free([f"{handle.id}.0"])
    await kept_with_its_flow(app, handle)


async def test_a_flow_waits_again_for_a_job_whose_number_was_taken_before_it_ended(app, tasks, monkeypatch):
    handle, add = await added_late(app, tasks)
    enqueue = parts_of(app).enqueue
    insert = enqueue.insert_all

    async def ended_first(jobs):
        patched.undo()
        with monkeypatch.context() as unseen:
            records = session_of(app).store.records

            async def before(kinds):
                return await records(kinds) | {counting(handle.id): {}}

            unseen.setattr(session_of(app).store, "records", before)  # read before the number was taken
            await release_of(app).free([f"{handle.id}.0"])
        return await insert(jobs)

    with monkeypatch.context() as patched:
        patched.setattr(enqueue, "insert_all", ended_first)
        await add()
    await kept_with_its_flow(app, handle)
