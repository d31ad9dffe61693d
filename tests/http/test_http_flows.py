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
    assert "counts" not in listed
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
