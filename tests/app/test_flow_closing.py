"""Flows of any size, near their end: which jobs are waited for, how long jobs are kept, and when a flow waits again."""

import msgspec
import pytest

from holdfast import Flow, State
from holdfast.app import parts_of
from holdfast.core import internal as extras
from holdfast.core.lifecycle import Outcome
from holdfast.core.operations import Change, Patch
from holdfast.flows.completion import Completion
from holdfast.flows.creation import ENDED
from holdfast.flows.members import FlowJobs
from support.flowing import ByHand, Tasks, states
from support.inside import release_of, session_of


@pytest.fixture(autouse=True)
def general(monkeypatch):
    """Small flows have a fast path, which leaves all of this to the general one."""
    monkeypatch.setattr("holdfast.flows.small_flows.SMALL", 0)


@pytest.fixture
def tasks(app):
    return Tasks(app)


async def claimed(app, *tasks):
    """A flow of these tasks, and another worker that has claimed all of its jobs."""
    flow, other = Flow(), ByHand(app)
    for task in tasks:
        flow.add(task, "word")
    handle = await app.enqueue_flow(flow)
    return handle, other, await other.claim()


async def end(app, other, records, outcomes=None):
    for record, outcome in zip(records, outcomes or [None] * len(records), strict=True):
        await other.end(record, outcome)
    await release_of(app).free([record.id for record in records])


async def kept(app, handle):
    """Whether each job of a flow is kept for good, for now."""
    return [record.expires_at is None for record in await app.flows.members(handle.id)]


async def changed(app, id, **fields):
    record = await parts_of(app).handles.record(id)
    assert await session_of(app).commit.change([Change(id, record.state, record.fence, Patch(**fields))]) == [True]


def completion_of(app):
    return Completion(session_of(app), parts_of(app).registry)


async def ended_and_no_more(app, tasks, monkeypatch):
    """A flow of a job that succeeded and one that died, whose worker died as the flow had ended."""
    handle, other, records = await claimed(app, tasks.note, tasks.fragile)

    async def dies(self, id):
        raise RuntimeError("the process died here")

    with monkeypatch.context() as patched:
        patched.setattr(Completion, "close", dies)
        with pytest.raises(RuntimeError):
            await end(app, other, records, [None, Outcome.dead("broke")])
    assert (await handle.status()).state == State.DEAD
    return handle


async def test_a_job_waits_while_more_jobs_are_unfinished_than_it_allows(app, tasks):
    flow, other = Flow(), ByHand(app)
    flow.group(tasks.note.using().call(word) for word in "abc")
    flow.on_end(tasks.note, "enough", allow_unfinished=1)
    handle = await app.enqueue_flow(flow)
    first, second, _ = await other.claim()
    await end(app, other, [first])
    assert await states(handle) == ["succeeded", "running", "running", "blocked"]
    await end(app, other, [second])
    assert await states(handle) == ["succeeded", "succeeded", "running", "queued"]


async def test_dead_jobs_of_an_ended_flow_are_kept_until_they_are_purged(app, tasks):
    handle, other, records = await claimed(app, tasks.note, tasks.fragile)
    await end(app, other, records, [None, Outcome.dead("broke")])
    assert (await handle.status()).state == State.DEAD
    assert await kept(app, handle) == [False, True]


async def test_a_flow_waits_again_if_a_job_is_not_as_it_was_at_the_end_of_the_flow(app, tasks, monkeypatch):
    handle = await ended_and_no_more(app, tasks, monkeypatch)
    await changed(app, f"{handle.id}.1", state=State.SUCCEEDED, error=None)
    assert not await completion_of(app).close(handle.id)
    assert (await handle.status()).state == State.BLOCKED
    await release_of(app).free([handle.id])
    assert (await handle.status()).state == State.SUCCEEDED
    assert await kept(app, handle) == [False, False]


async def test_a_flow_stays_ended_if_one_of_its_jobs_is_gone(app, tasks, monkeypatch):
    handle = await ended_and_no_more(app, tasks, monkeypatch)
    record = await parts_of(app).handles.record(f"{handle.id}.0")
    assert await session_of(app).commit.change([Change(record.id, record.state, record.fence, None)]) == [True]
    assert await completion_of(app).close(handle.id)
    assert (await handle.status()).state == State.DEAD


async def test_jobs_of_a_flow_that_waits_again_are_kept_though_its_retry_takes_several_commits(app, tasks, monkeypatch):
    handle, other, records = await claimed(app, tasks.note, tasks.note)
    await end(app, other, records)
    assert await kept(app, handle) == [False, False]
    record = await parts_of(app).handles.record(f"{handle.id}.0")
    monkeypatch.setattr("holdfast.flows.completion.PAGE", 1)
    await release_of(app).reopen(handle.id, [Change(record.id, record.state, record.fence, Patch(meta={"n": 1}))])
    assert (await handle.status()).state == State.BLOCKED
    assert await kept(app, handle) == [True, True]


@pytest.fixture
def before_next_change(monkeypatch):
    """Calls a function before the next change of jobs of flows, once."""
    change = FlowJobs.change

    def call(function):
        async def first(self, changes):
            monkeypatch.setattr(FlowJobs, "change", change)
            await function()
            return await change(self, changes)

        monkeypatch.setattr(FlowJobs, "change", first)

    return call


async def test_jobs_of_a_flow_that_ends_while_it_is_reopened_are_kept(app, tasks, before_next_change):
    handle, other, records = await claimed(app, tasks.note)
    before_next_change(lambda: end(app, other, records))
    await release_of(app).reopen(handle.id)
    assert (await handle.status()).state == State.BLOCKED
    assert await kept(app, handle) == [True]


async def test_a_flow_that_ends_before_it_is_cancelled_has_ended_as_its_jobs_did(app, tasks, before_next_change):
    handle, other, records = await claimed(app, tasks.note)
    await release_of(app).write_pending(handle.id, lambda left: msgspec.structs.replace(left, cancel=True))
    before_next_change(lambda: end(app, other, records))
    await release_of(app).free([handle.id])
    assert (await handle.status()).state == State.SUCCEEDED
    assert await parts_of(app).records.all(ENDED) == {}


async def test_a_flow_that_is_gone_needs_no_more_work(app, tasks):
    handle, _, _ = await claimed(app, tasks.note)
    assert not await completion_of(app).close(handle.id)
    assert await completion_of(app).close("gone")


async def test_a_flow_that_waits_again_while_its_retention_begins_keeps_its_jobs(
    app, tasks, before_next_change, monkeypatch
):
    handle = await ended_and_no_more(app, tasks, monkeypatch)
    before_next_change(lambda: release_of(app).reopen(handle.id))
    assert not await completion_of(app).close(handle.id)
    assert await kept(app, handle) == [True, True]


async def test_a_flow_whose_counts_are_damaged_stays_ended(app, tasks, monkeypatch):
    handle = await ended_and_no_more(app, tasks, monkeypatch)
    await changed(app, handle.id, result=b"damaged")
    assert await completion_of(app).close(handle.id)


async def test_a_job_with_damaged_metadata_that_waits_for_all_waits_for_all(app, tasks):
    flow, other = Flow(), ByHand(app)
    flow.add(tasks.note, "first")
    flow.on_end(tasks.note, "last")
    handle = await app.enqueue_flow(flow)
    await changed(app, f"{handle.id}.1", extra=b"damaged")
    assert await states(handle) == ["queued", "blocked"]
    await end(app, other, await other.claim())
    assert await states(handle) == ["succeeded", "queued"]


# -- what a look at a flow reads


@pytest.fixture
def reads(app, monkeypatch):
    """Calls a step of the release; returns the ids of the jobs and the kinds of the records that it read."""

    async def count(step):
        jobs, kinds, store = [], [], session_of(app).store
        get, records = store.get, store.records

        async def get_jobs(ids):
            jobs.extend(ids)
            return await get(ids)

        async def get_records(wanted):
            kinds.extend(wanted)
            return await records(wanted)

        with monkeypatch.context() as patched:
            patched.setattr(store, "get", get_jobs)
            patched.setattr(store, "records", get_records)
            await step()
        return jobs, kinds

    return count


async def test_while_the_last_job_of_a_flow_has_not_ended_no_other_is_looked_at(app, tasks, reads):
    handle, other, records = await claimed(app, *[tasks.note] * 30)
    await other.end(records[0])
    jobs, _ = await reads(lambda: release_of(app).free([records[0].id]))
    assert set(jobs) == {handle.id, f"{handle.id}.0", f"{handle.id}.29"}


async def test_the_records_of_ends_are_read_once_to_process_them_all(app, tasks, reads):
    _, other, records = await claimed(app, *[tasks.note] * 3)
    for record in records[:2]:
        await other.end(record)
    _, kinds = await reads(lambda: release_of(app).repair())
    assert kinds.count(ENDED) == 1


async def test_a_flow_that_has_not_ended_is_not_looked_at_as_if_it_had(app, tasks, reads):
    handle, _, _ = await claimed(app, tasks.note)
    jobs, _ = await reads(lambda: release_of(app).free([handle.id]))
    assert jobs.count(handle.id) <= 2


async def test_the_next_look_at_a_flow_begins_where_all_jobs_before_have_ended(app, tasks, monkeypatch):
    monkeypatch.setattr("holdfast.flows.completion.FEW", 2)
    handle, other, records = await claimed(app, *[tasks.note] * 6)
    await end(app, other, [*records[:4], records[5]])
    own = await parts_of(app).handles.record(handle.id)
    assert extras.read(own.extra).upto == 4
