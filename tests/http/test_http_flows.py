"""Flows over HTTP."""

from __future__ import annotations

from holdfast import Flow
from support.workers import work_off


async def test_a_flow_is_listed_shown_cancelled_and_retried(http, app):
    @app.task
    async def one(number: int) -> int:
        return number

    flow = Flow("numbers")
    flow.add(one, flow.add(one, 1))
    handle = await app.enqueue_flow(flow)
    [listed] = (await http("GET", "/v1/flows?state=blocked")).json["flows"]
    assert (listed["jobs_ended"], listed["counts"]) == (None, {})
    assert (listed["id"], listed["name"], listed["status"], listed["jobs"]) == (handle.id, "numbers", "blocked", 2)
    seen = (await http("GET", f"/v1/flows/{handle.id}")).json
    assert seen["counts"] == {"queued": 1, "blocked": 1}
    why = (await http("GET", f"/v1/jobs/{handle.id}.1/explain")).json
    assert why["reason"] == f"it waits for job {handle.id}.0 to end, which comes before it in flow {handle.id}"
    assert "holdfast flow show" in (await http("GET", f"/v1/jobs/{handle.id}/explain")).json["reason"]
    assert (await http("POST", f"/v1/jobs/{handle.id}/cancel")).json["cancelled"] is True
    assert (await http("GET", f"/v1/flows/{handle.id}")).json["counts"] == {"cancelled": 2}
    assert (await http("POST", f"/v1/jobs/{handle.id}/retry")).status == 200
    await work_off(app)
    seen = (await http("GET", f"/v1/flows/{handle.id}")).json
    assert (seen["status"], seen["counts"], seen["error"]) == ("succeeded", {"succeeded": 2}, None)
    assert (await http("GET", "/v1/flows?state=blocked")).json == {"flows": [], "cursor": None}


async def test_an_id_that_is_not_a_flow_is_refused(http, app):
    @app.task
    async def one() -> None: ...

    assert (await http("GET", "/v1/flows/00000000-0000-7000-8000-000000000000")).status == 404
    refused = await http("GET", "/v1/flows?state=queued")
    assert refused.status == 422
    assert "one of the states blocked, cancelled, dead, succeeded" in refused.json["detail"]
    assert (await http("GET", f"/v1/flows/{(await one.enqueue()).id}")).status == 422


async def test_a_list_has_the_progress_that_is_asked_for(http, app):
    @app.task
    async def one(number: int) -> int:
        return number

    flow = Flow("numbers")
    flow.add(one.using(queue="later"), flow.add(one, 1))
    await app.enqueue_flow(flow)
    await work_off(app, queues=["default"])
    [listed] = (await http("GET", "/v1/flows?progress=true")).json["flows"]
    assert (listed["jobs_ended"], listed["exact"], listed["counts"]) == (1, True, {"succeeded": 1, "queued": 1})


async def test_the_graph_of_a_flow_comes_in_pages(http, app):
    @app.task
    async def one(number: int) -> int:
        return number

    flow = Flow("numbers")
    flow.add(one, [flow.add(one, 1), flow.add(one, 2)][0])
    id = (await app.enqueue_flow(flow)).id
    await work_off(app)
    first = (await http("GET", f"/v1/flows/{id}/graph?limit=2")).json
    assert (first["flow"]["id"], first["flow"]["jobs"], first["next"]) == (id, 3, 2)
    assert [(node["number"], node["type"], node["status"]) for node in first["nodes"]] == [
        (0, "one", "succeeded"),
        (1, "one", "succeeded"),
    ]
    [last] = (await http("GET", f"/v1/flows/{id}/graph?start=2")).json["nodes"]
    assert (last["number"], last["after"], last["attempts"]) == (2, [[0, 0]], 1)
    assert last["started_at"] < last["finished_at"]
    for wrong in ("start=-1", "limit=0", "limit=1001", "start=x"):
        assert (await http("GET", f"/v1/flows/{id}/graph?{wrong}")).status == 422, wrong
    assert (await http("GET", "/v1/flows/00000000-0000-7000-8000-000000000000/graph")).status == 404
