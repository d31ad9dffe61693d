"""Unique jobs, expiry and pauses of tasks over HTTP."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from support.eventually import eventually
from support.workers import work_off


async def test_unique_and_key_identify_one_job(http, app):
    first = await http.submit("t", {"a": 1}, "k", unique="until_end")
    again = await http.submit("t", {"a": 2}, "k", unique="until_end")
    assert (first.status, again.status) == (201, 200)
    assert again.json["id"] == first.json["id"]
    [claim] = await app.claim()
    await claim.complete()
    assert (await http.submit("t", {"a": 3}, "k", unique="until_end")).status == 201


async def test_a_dead_job_is_not_retried_while_another_job_has_its_key(http, app):
    first = (await http.submit("t", {"a": 1}, "k", unique="until_end", max_attempts=1)).json
    await (await app.claim())[0].fail("boom")
    second = (await http.submit("t", {"a": 2}, "k", unique="until_end")).json
    for path in (f"/v1/jobs/{first['id']}/retry", f"/v1/dlq/{first['id']}/retry"):
        refused = await http("POST", path)
        assert (refused.status, refused.problem) == (409, "invalid-state")
        assert f"now belongs to job '{second['id']}'" in refused.json["detail"]
    assert (await http("POST", "/v1/dlq/retry")).json == {
        "matched": 1,
        "retried": 0,
        "skipped": 1,
        "reasons": {"key": 1},
    }


async def test_a_waiting_job_is_replaced_and_delayed(http):
    first = (await http.submit("t", {"a": 1}, "k", debounce=3600)).json
    again = await http.submit("t", {"a": 2}, "k", debounce=7200)
    assert (again.status, again.json["id"], again.json["payload"]) == (200, first["id"], {"a": 2})
    delayed = datetime.fromisoformat(again.json["run_at"]) - datetime.fromisoformat(first["run_at"])
    assert delayed > timedelta(minutes=30)
    now = await http.submit("t", {"a": 3}, "k", replace=True)
    assert (now.json["status"], now.json["payload"]) == ("queued", {"a": 3})


async def test_expiry_is_in_the_first_response(http, app):
    made = (await http.submit("t", {}, "k1", expires_in=60)).json
    read = (await http("GET", f"/v1/jobs/{made['id']}")).json
    one, other = (datetime.fromisoformat(job["expires_at"]) for job in (made, read))
    assert abs(one - other) < timedelta(seconds=5)
    late = (await http.submit("t", {}, "k2", expires_in=0.001)).json
    until = datetime.fromisoformat(late["expires_at"])
    await eventually(lambda: datetime.now(UTC) > until + timedelta(milliseconds=10))
    await work_off(app)
    job = (await http("GET", f"/v1/jobs/{late['id']}")).json
    assert (job["status"], job["attempts"]) == ("cancelled", 0)
    assert job["error"].startswith("expired: the job did not start before 20")


@pytest.mark.parametrize(
    "options",
    [
        {"unique": "ever"},
        {"unique": 0},
        {"unique": 10**9},
        {"replace": True, "unique": "until_end"},
        {"debounce": 5, "delay": 5},
        {"debounce_max": 5},
        {"expires_in": 5, "expires_at": "2030-01-01T00:00:00Z"},
        {"expires_in": 5, "delay": 10},
        {"expires_at": "2030-01-01T00:00:00"},
        {"expires_at": "2001-01-01T00:00:00Z"},
    ],
)
async def test_invalid_values_are_refused(http, app, options):
    assert (await http.submit("t", {}, "k", **options)).status == 422
    assert (await app.jobs()).jobs == []


async def test_a_task_is_paused_and_resumed(http, app):
    held = (await http.submit("t", {"customer": 42})).json["id"]
    free = (await http.submit("t", {"customer": 43})).json["id"]
    body = {"where": {"customer": 42}}
    assert (await http("POST", "/v1/tasks/t/pause", body)).json == {"task": "t", **body, "paused": True, "known": True}
    [paused] = (await http("GET", "/v1/tasks/paused")).json["paused"]
    assert (paused["task"], paused["where"]) == ("t", {"customer": 42})
    [claim] = await app.claim(limit=10)
    assert claim.job.id == free
    job = (await http("GET", f"/v1/jobs/{held}")).json
    assert (job["status"], job["waiting_for"]) == ("blocked", {"kind": "pause", "name": "t where customer=42"})
    assert "holdfast resume --task t" in (await http("GET", f"/v1/jobs/{held}/explain")).json["reason"]
    refused = await http("POST", "/v1/tasks/t/resume")
    assert (refused.status, refused.json["type"]) == (409, "urn:holdfast:problem:not-paused")
    not_resumed = "is not paused, so it was not resumed"
    assert refused.json["detail"] == f"task t {not_resumed}; these are paused: t where customer=42"
    assert (await http("POST", "/v1/tasks/t/resume", body)).json["paused"] is False
    assert (
        (await http("POST", "/v1/tasks/t/resume", body))
        .json["detail"]
        .endswith(f"{not_resumed}; no task that you may see is paused")
    )
    assert (await http("GET", f"/v1/jobs/{held}")).json["status"] == "queued"
    assert (await http("GET", "/v1/tasks/paused")).json == {"paused": []}
