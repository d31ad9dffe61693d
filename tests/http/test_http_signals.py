"""Signals and durable steps over HTTP."""

from __future__ import annotations

import pytest

from holdfast import Context
from holdfast.app import parts_of
from holdfast.http import tokens
from support.http import serving
from support.workers import work_off


async def test_a_signal_wakes_a_job_and_its_steps_are_shown(http, app):
    @app.task
    async def order(ctx: Context, number: int) -> object:
        await ctx.step("charge", lambda: {"paid": number})
        await ctx.checkpoint("mine")
        return await ctx.wait_for(f"approval/{number}", timeout=3600)

    handle = await order.enqueue(42)
    await work_off(app)
    job = (await http("GET", f"/v1/jobs/{handle.id}")).json
    assert (job["status"], job["waiting_for"], job["checkpoint"]) == (
        "scheduled",
        {"kind": "signal", "name": "approval/42"},
        "mine",
    )
    charge, wait = job["steps"]
    assert (charge["kind"], charge["name"], charge["result"]) == ("step", "charge", {"paid": 42})
    assert (wait["kind"], wait["name"], wait["at"], wait["late"]) == ("signal", "approval/42", None, False)
    assert wait["until"] <= job["run_at"]
    why = (await http("GET", f"/v1/jobs/{handle.id}/explain")).json
    assert why["reason"].startswith("it waits for signal 'approval/42', at most until ")
    assert "1 step is done: charge" in why["details"]
    sent = await http("POST", "/v1/signals/approval%2F42", {"value": {"by": "ann"}})
    assert (sent.status, sent.json) == (200, {"name": "approval/42", "woken": 1})
    await work_off(app)
    assert await handle.result(30) == {"by": "ann"}
    sent = await http("POST", "/v1/signals/approval%2F42", {})
    assert sent.json == {"name": "approval/42", "woken": 0}


@pytest.mark.parametrize("path", ["%20x", "x" * 129, "a%00b"])
async def test_an_invalid_name_is_refused(http, app, path):
    assert (await http("POST", f"/v1/signals/{path}", {"value": 1})).status == 422
    assert await parts_of(app).records.all("signal") == {}


async def test_unknown_fields_are_refused(http, app):
    assert (await http("POST", "/v1/signals/x", {"valeu": 1})).status == 422
    assert await parts_of(app).records.all("signal") == {}


async def test_a_value_that_is_too_large_is_refused(http, app):
    await app.config.set("max_payload", 1000)
    refused = await http("POST", "/v1/signals/x", {"value": "y" * 1000})
    assert (refused.status, refused.problem) == (413, "too-large")
    assert await parts_of(app).records.all("signal") == {}


async def test_the_submit_role_allows_signals(app):
    submit, read = (
        await tokens.create(parts_of(app).records, ["submit"]),
        await tokens.create(parts_of(app).records, ["read"]),
    )
    async with serving(app) as http:
        for token, status in ((submit, 200), (read, 403)):
            http.token = token
            assert (await http("POST", "/v1/signals/x", {"value": 1})).status == status
