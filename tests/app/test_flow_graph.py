"""Graph and progress of flows: bounded pages with parents, states and times."""

import pytest

from holdfast import Flow, InvalidJob, JobNotFound
from holdfast.flows import graph
from support.workers import work_off


@pytest.fixture
def one(app):
    @app.task(max_attempts=1)
    async def one(number: int) -> int:
        if number == 13:
            raise ValueError("x" * 500)
        return number

    return one


def test_numbers_become_ranges():
    assert graph.ranges([7, 1, 3, 2, 2]) == ((1, 3), (7, 7))
    assert graph.ranges([]) == ()


async def test_a_graph_has_parents_states_and_times(app, one):
    outside = await one.enqueue(1)
    flow = Flow("shapes")
    first = [flow.add(one, number) for number in (1, 2, 13)]
    flow.add(one, 4).after(first[0], first[1])
    flow.add(one, 5).after(first[2], outside)
    flow.on_end(one, 6)
    handle = await app.enqueue_flow(flow)
    found = await app.flows.graph(handle.id)
    assert [(node.number, node.after) for node in found.nodes] == [
        (0, ()), (1, ()), (2, ()), (3, ((0, 1),)), (4, ((2, 2),)), (5, ((0, 4),)),
    ]  # fmt: skip
    assert found.nodes[4].outside == (outside.id,)
    assert (found.flow.id, found.flow.jobs, found.flow.state, found.next) == (handle.id, 6, "blocked", None)
    assert {node.started_at for node in found.nodes} == {None}
    await work_off(app)
    found = await app.flows.graph(handle.id)
    states = [node.state for node in found.nodes]
    assert states == ["succeeded", "succeeded", "dead", "succeeded", "cancelled", "succeeded"]
    dead = found.nodes[2]
    assert (dead.task, dead.attempt, len(dead.error)) == ("one", 1, graph.ERROR_TEXT)
    assert dead.started_at <= dead.finished_at
    assert found.nodes[4].error.startswith("not run: ")
    assert found.flow.ended == "failed"


async def test_pages_are_bounded_by_jobs_and_by_edges(app, one, monkeypatch):
    flow = Flow("pages")
    many = [flow.add(one, number) for number in range(7)]
    for _ in range(3):
        flow.add(one, 0).after(many[0], many[2], many[4])
    id = (await app.enqueue_flow(flow)).id

    async def pages(limit):
        found, start = [], 0
        while start is not None:
            page = await app.flows.graph(id, start=start, limit=limit)
            found.append([node.number for node in page.nodes])
            start = page.next
        return found

    assert await pages(4) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    monkeypatch.setattr(graph, "EDGES", 4)
    monkeypatch.setattr(graph, "GRAPH_READ", 3)
    assert await pages(1000) == [[0, 1, 2, 3, 4, 5, 6, 7, 8], [9]]
    assert (await app.flows.graph(id, start=500)).nodes == []


async def test_progress_counts_small_flows_and_estimates_large_ones(app, one, monkeypatch):
    def made(jobs):
        flow = Flow("some")
        first = [flow.add(one, number + 100) for number in range(jobs // 2)]
        for _ in range(jobs - jobs // 2):
            flow.add(one.using(queue="later"), 0).after(first[0])
        return flow

    small, large = [await app.enqueue_flow(made(jobs)) for jobs in (6, 40)]
    await work_off(app, queues=["default"])
    monkeypatch.setattr(graph, "COUNTED_EXACTLY", 10)
    monkeypatch.setattr(graph, "SAMPLED", 8)
    found = await app.flows.progress([small.id, "none", large.id])
    assert found[small.id] == graph.FlowProgress(3, True, {"succeeded": 3, "queued": 3})
    assert found[large.id] == graph.FlowProgress(20, False, {})
    assert len(found) == 2
    monkeypatch.setattr(graph, "PROGRESS_JOBS", 9)
    assert list(await app.flows.progress([large.id, small.id])) == [large.id]  # the budget is spent
    monkeypatch.undo()
    await large.cancel()
    assert (await app.flows.progress([large.id]))[large.id] == graph.FlowProgress(40, True, {})


async def test_wrong_arguments_are_refused(app, one):
    job = await one.enqueue(1)
    with pytest.raises(InvalidJob, match="is not a flow"):
        await app.flows.graph(job.id)
    with pytest.raises(JobNotFound):
        await app.flows.graph("none")
    for wrong in (-1, True, "0"):
        with pytest.raises(InvalidJob, match="start must be"):
            await app.flows.graph(job.id, start=wrong)
    with pytest.raises(InvalidJob, match="at most 1000 flows"):
        await app.flows.progress(["x"] * 1001)
    assert await app.flows.progress([job.id]) == {}
