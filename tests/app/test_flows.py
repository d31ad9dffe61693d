"""Flows: jobs that wait for each other, hand on their results, and end as one."""

import asyncio
from dataclasses import dataclass
from typing import ClassVar

import msgspec
import pytest

from holdfast import Context, Flow, InvalidJob, InvalidState, State
from holdfast.app import parts_of
from holdfast.core.operations import Change
from holdfast.testing.verbs import apply
from support.eventually import eventually
from support.inside import release_of, session_of
from support.workers import work_off, working


@dataclass
class Page:
    url: str
    words: int


@pytest.fixture
def tasks(app):
    class Tasks:
        ran: ClassVar[list[str]] = []
        broken = True

        @staticmethod
        @app.task
        async def fetch(url: str) -> Page:
            Tasks.ran.append(url)
            return Page(url, len(url))

        @staticmethod
        @app.task
        def count(page: Page) -> int:
            return page.words

        @staticmethod
        @app.task
        async def total(numbers: list[int | None]) -> int:
            return sum(number or 0 for number in numbers)

        @staticmethod
        @app.task
        async def note(word: str) -> str:
            Tasks.ran.append(word)
            return word

        @staticmethod
        @app.task(max_attempts=1)
        async def fragile(word: str) -> str:
            if Tasks.broken:
                raise ValueError(f"{word} broke")
            Tasks.ran.append(word)
            return word

    Tasks.ran = []
    return Tasks


async def run(app, flow):
    handle = await app.enqueue_flow(flow)
    async with working(app, poll=0.05):
        return handle, await handle.wait(90)


def states(jobs):
    return [str(job.state) for job in jobs]


# -- results and order


async def test_results_are_passed_on_as_typed_arguments(app, tasks):
    flow = Flow("crawl")
    pages = [flow.add(tasks.fetch, url) for url in ("a", "bb", "ccc")]
    counts = [flow.add(tasks.count, page.result) for page in pages]
    total = flow.add(tasks.total, counts)
    handle, status = await run(app, flow)
    assert (status.state, status.jobs, status.counts) == (State.SUCCEEDED, 7, {"succeeded": 7})
    assert await handle.handle(total).result(30) == 6
    assert await handle.handle(pages[2]).result(30) == Page("ccc", 3)


async def test_a_chain_hands_each_result_to_the_next(app, tasks):
    flow = Flow()
    last = flow.chain(tasks.fetch.using().call("abcd"), tasks.count)
    handle, _ = await run(app, flow)
    assert await handle.handle(last).result(30) == 4


async def test_a_job_starts_only_once_those_before_it_have_ended(app, tasks):
    flow = Flow()
    first = flow.group(tasks.note.using(delay=0.2).call(word) for word in ("a", "b"))
    flow.add(tasks.note, "c").after(*first)
    await run(app, flow)
    assert tasks.ran[2] == "c"
    assert set(tasks.ran) == {"a", "b", "c"}


async def test_nothing_runs_before_all_of_it_is_stored(app, tasks):
    flow = Flow()
    flow.add(tasks.note, "a")
    flow.add(tasks.note, "b" * 2_000_000)
    with pytest.raises(Exception, match="max_payload"):
        await app.enqueue_flow(flow)
    await work_off(app)
    assert (tasks.ran, (await app.jobs()).jobs) == ([], [])


# -- when a job dies


async def test_what_comes_after_a_dead_job_is_not_run(app, tasks):
    flow = Flow()
    child = flow.add(tasks.note, flow.add(tasks.fragile, "x"))
    flow.add(tasks.note, "after").after(child)
    handle, status = await run(app, flow)
    jobs = await handle.jobs()
    assert (status.state, states(jobs), tasks.ran) == (State.DEAD, ["dead", "cancelled", "cancelled"], [])
    assert jobs[1].error == f"not run: job {handle.id}.0 (fragile) is dead"
    assert "fragile" in status.error
    assert "x broke" in status.error


async def test_a_death_can_be_ignored(app, tasks):
    flow = Flow()
    bad = flow.add(tasks.fragile, "x")
    fine = flow.add(tasks.note, "y").after(bad, on_dead="ignore")
    handle, status = await run(app, flow)
    assert (status.state, await handle.handle(fine).result(30)) == (State.SUCCEEDED, "y")


async def test_a_death_can_be_compensated_for(app, tasks):
    flow = Flow()
    good = flow.add(tasks.note, "good")
    good.compensate(tasks.note, "undo good")
    bad = flow.add(tasks.fragile, "bad")
    bad.compensate(tasks.note, "undo bad")
    handle, status = await run(app, flow)
    assert sorted(tasks.ran) == ["good", "undo bad"]
    assert status.state == State.DEAD
    assert "not needed" in (await handle.jobs())[1].error


@pytest.mark.parametrize("first", ["spared", "dead"])
async def test_the_end_of_a_flow_does_not_depend_on_which_job_ended_first(app, tasks, first):
    flow = Flow()
    undo = flow.add(tasks.note.using(queue="spared"), "good").compensate(tasks.note, "undo")
    bad = flow.add(tasks.fragile.using(queue="dead"), "bad")
    both = flow.add(tasks.note, "both").after(undo, bad)
    both.compensate(tasks.note, "instead of both")
    handle = await app.enqueue_flow(flow)
    await work_off(app, queues=[first, "default"])
    assert (await handle.jobs())[3].state == {"spared": State.BLOCKED, "dead": State.CANCELLED}[first]
    await work_off(app, queues=["spared", "dead", "default"])
    assert sorted(tasks.ran) == ["good", "instead of both"]
    assert (await handle.status()).state == State.DEAD


async def test_a_broken_flow_goes_on_from_the_failed_job(app, tasks):
    flow = Flow()
    before = flow.add(tasks.note, "before")
    child = flow.add(tasks.note, flow.add(tasks.fragile, before))
    flow.add(tasks.note, "last").after(child)
    handle, status = await run(app, flow)
    assert status.state == State.DEAD
    tasks.broken = False
    async with working(app, poll=0.05):
        assert await handle.retry() == 3
        status = await handle.wait(90)
    assert (status.state, status.counts) == (State.SUCCEEDED, {"succeeded": 4})
    assert tasks.ran == ["before", "before", "before", "last"]  # run once each, with the first one's result


async def test_retrying_one_of_its_jobs_takes_along_what_waited_for_it(app, tasks):
    flow = Flow()
    bad = flow.add(tasks.fragile, "x")
    flow.add(tasks.note, bad)
    handle, _ = await run(app, flow)
    tasks.broken = False
    await app.retry(handle.handle(bad).id)
    async with working(app, poll=0.05):
        assert (await handle.wait(90)).state == State.SUCCEEDED


async def test_a_flow_that_ended_well_has_nothing_to_retry(app, tasks):
    flow = Flow()
    flow.add(tasks.note, "a")
    handle, _ = await run(app, flow)
    with pytest.raises(InvalidState, match="nothing to retry"):
        await handle.retry()


# -- all of them


async def test_a_job_can_run_once_all_have_ended_however_they_did(app, tasks):
    flow = Flow()
    flow.group(tasks.fragile.using().call(word) for word in "abc")
    flow.add(tasks.note, "fine")
    flow.on_end(tasks.note, "done")
    await run(app, flow)
    assert tasks.ran == ["fine", "done"]


async def test_a_job_can_run_once_all_but_a_few_have_ended(app, tasks):
    flow = Flow()
    flow.group([tasks.note.using(delay=3600).call("late"), *(tasks.note.using().call(str(n)) for n in range(5))])
    last = flow.on_end(tasks.note, "enough", allow_unfinished=1)
    handle = await app.enqueue_flow(flow)
    async with working(app, poll=0.05):
        assert await handle.handle(last).result(30) == "enough"
    assert len(tasks.ran) == 6
    assert (await handle.status()).state == State.BLOCKED


async def test_a_job_may_add_to_its_own_flow(app, tasks):
    @app.task
    async def fan_out(ctx: Context, words: list[str]) -> int:
        made = [await ctx.add_to_flow(tasks.note.using(key=f"{ctx.job.id}-{word}"), word) for word in words]
        await ctx.add_to_flow(tasks.total, [len(word) for word in words], after=made)
        return len(words)

    flow = Flow()
    flow.add(fan_out, ["x", "yy"])
    flow.on_end(tasks.note, "done")
    _, status = await run(app, flow)
    assert (status.state, status.jobs) == (State.SUCCEEDED, 5)
    assert (set(tasks.ran[:2]), tasks.ran[2]) == ({"x", "yy"}, "done")


async def test_a_thread_may_add_to_its_flow_and_take_results(app, tasks):
    @app.task
    def fan_out(ctx: Context) -> None:
        first = ctx.add_to_flow(tasks.note, "one")
        ctx.add_to_flow(tasks.note, first)

    flow = Flow()
    flow.add(fan_out)
    _, status = await run(app, flow)
    assert (status.counts, tasks.ran) == ({"succeeded": 3}, ["one", "one"])


async def test_one_parent_has_many_children(app, tasks):
    flow = Flow()
    parent = flow.add(tasks.note, "parent")
    for _ in range(2500):
        flow.add(parts_of(app).registry.tasks["noop"]).after(parent)
    handle = await app.enqueue_flow(flow)

    async def nothing_is_left_to_tell():
        return await parts_of(app).records.all("ended") == {}

    async with working(app, poll=0.05, concurrency=100):
        status = await handle.wait(60)
        await eventually(nothing_is_left_to_tell)
    assert (status.state, status.counts) == (State.SUCCEEDED, {"succeeded": 2501})


# -- operate


async def test_a_whole_flow_is_cancelled(app, tasks):
    flow = Flow()
    first = flow.add(tasks.note.using(delay=3600), "a")
    flow.add(tasks.note, first)
    handle = await app.enqueue_flow(flow)
    assert await app.cancel(handle.id)
    assert await handle.wait(90)
    status = await handle.status()
    assert (status.state, status.counts) == (State.CANCELLED, {"cancelled": 2})
    assert not await handle.cancel()


async def test_a_cancelled_flow_can_be_taken_up_again(app, tasks):
    flow = Flow()
    flow.add(tasks.note, flow.add(tasks.note, "a"))
    handle = await app.enqueue_flow(flow)
    await handle.cancel()
    assert (await handle.status()).state == State.CANCELLED
    await app.retry(handle.id)
    async with working(app, poll=0.05):
        assert (await handle.wait(90)).state == State.SUCCEEDED
    assert tasks.ran == ["a", "a"]


async def test_a_running_job_of_a_cancelled_flow_stops(app):
    started = asyncio.Event()

    @app.task
    async def long() -> None:
        started.set()
        await asyncio.sleep(60)

    flow = Flow()
    flow.add(long)
    handle = await app.enqueue_flow(flow)
    async with working(app, poll=0.05, lease=0.6):
        await asyncio.wait_for(started.wait(), 90)
        await handle.cancel()
        assert (await handle.wait(90)).state == State.CANCELLED


async def test_no_job_is_removed_while_its_flow_needs_it(make_app, tasks):
    app = make_app(retention=0)

    @app.task
    async def one() -> int:
        return 1

    flow = Flow()
    first = flow.add(one)
    flow.add(one.using(delay=3600)).after(first)
    handle = await app.enqueue_flow(flow)
    await work_off(app)
    assert (await handle.handle(first).job()).state == State.SUCCEEDED
    await session_of(app).store.tidy(100)
    assert await app.bulk.purge(state="succeeded") == 0
    with pytest.raises(InvalidState, match="has not ended"):
        await app.delete(f"{handle.id}.0")
    with pytest.raises(InvalidState, match="cancel the flow or wait until it ends"):
        await app.delete(handle.id)
    await handle.cancel()

    async def all_gone():
        await session_of(app).store.tidy(100)
        return not (await app.jobs()).jobs

    await eventually(all_gone)


async def test_an_ended_flow_and_its_jobs_can_be_deleted(app, tasks):
    flow = Flow()
    flow.add(tasks.note, "a")
    await run(app, flow)
    assert await app.bulk.purge(state="succeeded") == 2


async def test_a_flow_is_used_from_blocking_code(make_app, app_url):
    app = make_app()

    @app.task
    def one() -> int:
        return 1

    def blocking():
        flow = Flow()
        node = flow.add(one)
        handle = app.sync.enqueue_flow(flow)
        status = handle.wait(timeout=30)
        return status.state, handle.handle(node).result(timeout=30), len(handle.jobs())

    await app.open()  # here, and not on the loop of app.sync
    async with working(app, poll=0.05):
        assert await asyncio.to_thread(blocking) == (State.SUCCEEDED, 1, 1)


# -- bad input


async def test_what_cannot_be_a_flow_is_refused(app, tasks):
    flow, other = Flow(), Flow()
    node = flow.add(tasks.note, "a")
    stranger = other.add(tasks.note, "b")
    with pytest.raises(InvalidJob, match="another flow"):
        node.after(stranger)
    with pytest.raises(InvalidJob, match="on_dead must be one of"):
        flow.add(tasks.note, "c").after(node, on_dead="explode")
    with pytest.raises(InvalidJob, match="added before it"):
        node.after(flow.nodes[1])
    with pytest.raises(InvalidJob, match="cannot have key="):
        flow.add(tasks.note.using(key="k"), "d")
    with pytest.raises(InvalidJob, match="takes tasks"):
        flow.add(print, "e")
    with pytest.raises(InvalidJob, match="allow_unfinished must be a whole number"):
        flow.on_end(tasks.note, "f", allow_unfinished=-1)
    with pytest.raises(InvalidJob, match="flow 'flow' has no job"):
        await app.enqueue_flow(Flow())
    broken = Flow()
    broken.add(tasks.total, [broken.add(tasks.note, "a"), {"$result": 1}])
    with pytest.raises(InvalidJob, match=r"total\(\) cannot contain a dict with the key '\$result'"):
        await app.enqueue_flow(broken)
    with pytest.raises(InvalidJob, match="not a flow"):
        await app.flows.handle((await tasks.note.enqueue("x")).id).status()


async def test_wrong_arguments_beside_results_are_named_before_anything_is_stored(app, tasks):
    @app.task
    async def pair(left: str, right: int) -> None: ...

    flow = Flow()
    flow.add(pair, flow.add(tasks.note, "a"), "not a number")
    with pytest.raises(InvalidJob, match="right"):
        await app.enqueue_flow(flow)
    assert (await app.jobs()).jobs == []


# -- mistakes


async def test_a_handle_gives_jobs_of_its_own_flow_alone(app, tasks):
    flow, other = Flow("one"), Flow("two")
    node, stranger = flow.add(tasks.note, "a"), other.add(tasks.note, "b")
    handle = await app.enqueue_flow(flow)
    assert handle.handle(node).id == handle.handle(0).id == f"{handle.id}.0"
    for wrong in (stranger, "x", -1, None):
        with pytest.raises(InvalidJob):
            handle.handle(wrong)


async def test_a_flow_is_deleted_with_its_jobs(app, tasks):
    flow = Flow()
    flow.add(tasks.note, "a")
    handle = await app.enqueue_flow(flow)
    with pytest.raises(InvalidState, match="cancel"):
        await app.delete(handle.id)
    await work_off(app)
    await app.delete(handle.id)
    assert (await app.jobs()).jobs == []


async def test_the_rest_of_a_flow_is_deleted_though_another_process_has_deleted_its_own_job(app, tasks):
    flow = Flow()
    flow.add(tasks.note, "a")
    handle, _ = await run(app, flow)
    session = session_of(app)
    [own] = await session.store.get([handle.id])
    await apply(session.store, Change(own.id, own.state, own.fence, None))
    assert await release_of(app)._deleted(own, handle.id, 1)
    assert (await app.jobs()).jobs == []


async def test_a_flow_that_was_retried_since_is_not_deleted(app, tasks):
    flow = Flow()
    flow.add(tasks.note, "a")
    handle, _ = await run(app, flow)
    session = session_of(app)
    [own] = await session.store.get([handle.id])
    seen = msgspec.structs.replace(own, fence=own.fence - 1)
    assert not await release_of(app)._deleted(seen, handle.id, 1)
    assert len((await app.jobs()).jobs) == 2


async def test_what_has_not_failed_is_not_retried(app, tasks):
    flow = Flow()
    flow.add(tasks.fragile, "x")
    fine = flow.add(tasks.note, "y")
    handle, _ = await run(app, flow)
    with pytest.raises(InvalidState, match=f"{handle.handle(fine).id}' is succeeded: it has not failed"):
        await app.retry(handle.handle(fine).id)
