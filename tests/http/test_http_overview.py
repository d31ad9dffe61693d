"""Search, count, bulk operations, error groups, time series, explain and /v1/me over HTTP."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from urllib.parse import quote

import pytest

from holdfast.app import parts_of
from holdfast.core.job import State
from holdfast.http import tokens


async def test_a_search_returns_short_rows(http):
    long = "x" * 5000
    id = (await http.submit("noop", {"text": long}, tags=["a"])).json["id"]
    found = (await http("GET", "/v1/search?text=xxx&state=pending")).json
    [row] = found["jobs"]
    assert row["id"] == id
    assert row["payload"].startswith('{"text":"xxx')
    assert len(row["payload"]) == 200
    assert "result" not in row
    assert (found["cursor"], found["looked"]) == (None, 1)
    assert (await http("GET", "/v1/search?text=yyy")).json["jobs"] == []
    assert (await http("GET", "/v1/search?tag=a&queue=default&type=noop")).json["jobs"] != []
    soon = quote((datetime.now(UTC) + timedelta(hours=1)).isoformat())
    assert (await http("GET", f"/v1/search?since={soon}")).json["jobs"] == []
    assert len((await http("GET", f"/v1/search?until={soon}")).json["jobs"]) == 1


@pytest.mark.parametrize(
    "query",
    ["state=none", "since=yesterday", "since=2026-01-01T00:00:00", "limit=0", "cursor=what", "text=" + "a" * 201],
)
async def test_an_invalid_search_is_refused(http, query):
    assert (await http("GET", f"/v1/search?{query}")).problem == "invalid"


async def test_bulk_count_then_change(http):
    for _ in range(3):
        await http.submit()
    counted = (await http("GET", "/v1/count?type=noop")).json
    assert (counted["count"], counted["exact"]) == (3, True)
    late = (await http.submit()).json["id"]
    body = {"action": "cancel", "filter": {"type": "noop", "until": counted["until"]}}
    done = (await http("POST", "/v1/bulk", body)).json
    assert (done["changed"], done["skipped"], done["cursor"]) == (3, 0, None)
    assert (await http("GET", f"/v1/jobs/{late}")).json["status"] == State.QUEUED
    assert (await http("POST", "/v1/bulk", {"action": "delete", "ids": [late]})).json["changed"] == 1
    for wrong in ({"action": "cancel"}, {"action": "pause", "ids": ["a"]}, {"action": "retry", "ids": []}):
        assert (await http("POST", "/v1/bulk", wrong)).problem == "invalid"


@pytest.mark.parametrize("everything", [{}, {"state": []}, {"text": ""}, {"until": "2100-01-01T00:00:00Z"}])
async def test_a_bulk_change_of_all_jobs_needs_all(http, everything):
    for _ in range(2):
        await http.submit()
    refused = await http("POST", "/v1/bulk", {"action": "delete", "filter": everything})
    assert refused.problem == "invalid"
    assert refused.json["detail"].endswith("to delete every job, set all to true")
    tried = (
        await http("POST", "/v1/bulk", {"action": "delete", "filter": everything, "all": True, "dry_run": True})
    ).json
    assert (tried["matched"], tried["changed"]) == (2, 0)
    done = (await http("POST", "/v1/bulk", {"action": "delete", "filter": everything, "all": True})).json
    assert (done["matched"], done["changed"]) == (2, 2)


async def test_dead_jobs_are_counted_in_a_dry_run(app, http):
    await http.submit("no_such_task")
    [claim] = await app.claim()
    await claim.fail("no", dead=True)
    assert (await http("POST", "/v1/dlq/retry", {"dry_run": True})).json == {
        "matched": 1,
        "retried": 0,
        "skipped": 0,
        "reasons": {},
    }
    done = (await http("POST", "/v1/dlq/retry", {})).json
    assert (done["matched"], done["retried"], done["reasons"]) == (1, 1, {})


async def test_errors_rates_and_depths(app, http):
    await http.submit("no_such_task")
    [claim] = await app.claim()
    await claim.fail("order 17 has no address", dead=True)
    errors = (await http("GET", "/v1/errors?dead=true")).json
    assert errors["groups"][0]["pattern"] == "order … has no address"
    rates = (await http("GET", "/v1/rates?since=3600&step=3600&queues=true")).json["rates"]
    assert [(one["queue"], one["outcome"], one["count"]) for one in rates] == [("default", "dead", 1)]
    assert (await http("GET", "/v1/rates?since=59")).problem == "invalid"
    await app.timeseries.record_depth()
    [depth] = (await http("GET", "/v1/depths?step=86400")).json["depths"]
    assert depth["queued"] in (0, 1), "the server may have noted it before"


async def test_an_incident_and_an_error_group(app, http):
    await http.submit("no_such_task")
    [claim] = await app.claim()
    await claim.fail("order 17 has no address", dead=True)
    [queue] = (await http("GET", "/v1/latency?since=3600&step=3600")).json["queues"]
    assert (queue["name"], queue["activity"]["outcomes"]) == ("default", {"dead": 1})
    assert queue["activity"]["run"]["p99"] > 0
    now = datetime.now(UTC)
    start, end = (quote((now + timedelta(minutes=by)).isoformat()) for by in (-5, 1))
    found = (await http("GET", f"/v1/incident?start={start}&end={end}")).json
    assert found["stats"]["total"]["within"]["count"] == found["failures"]["groups"][0]["within"] == 1
    assert (await http("GET", f"/v1/incident?start={end}&end={start}")).problem == "invalid"
    assert (await http("GET", "/v1/incident?start=2026-01-01T00:00:00")).problem == "invalid"
    group = found["failures"]["groups"][0]["fingerprint"]
    history = (await http("GET", f"/v1/errors/{group}?since=3600&step=60")).json
    assert (history["pattern"], history["attempts"], len(history["steps"])) == ("order … has no address", 1, 1)
    assert (await http("GET", "/v1/errors/unknown")).problem == "not-found"
    assert (await http("GET", "/v1/workers")).json["ended"] == []


async def test_an_explanation(http):
    id = (await http.submit()).json["id"]
    explanation = (await http("GET", f"/v1/jobs/{id}/explain")).json
    assert explanation["reason"] == "no worker is alive"
    assert (await http("GET", "/v1/jobs/00000000-0000-7000-8000-000000000000/explain")).problem == "job-not-found"


async def test_explain_a_queue_and_the_store(http):
    await http.submit("noop", {}, queue="mail")
    await http.submit("noop", {}, queue="money")
    found = (await http("GET", "/v1/explain")).json
    assert found["reason"] == "2 jobs wait: 2 in 2 queues that no live worker serves (mail, money)"
    [part] = found["parts"]
    assert (part["kind"], part["count"], part["exact"], part["total"]) == ("no_worker", 2, True, 2)
    assert part["action"] == "start a worker for them: `holdfast worker start --queues mail,money`"
    mail = (await http("GET", "/v1/queues/mail/explain")).json
    assert (mail["queue"], mail["waiting"]) == ("mail", 1)
    assert (await http("GET", "/v1/queues/none/explain")).status == 422


async def test_me_returns_the_roles_of_the_caller(app, http):
    me = (await http("GET", "/v1/me")).json
    assert me["roles"] == ["read", "submit", "work", "operate"]
    assert (me["store"], me["extras"]) == ("sqlite", [])
    reader = await tokens.create(parts_of(app).records, ["read"])
    http.service.auth.keyring._read_at = None
    assert (await http("GET", "/v1/me")).problem == "unauthorized"
    assert (await http("GET", "/v1/me", token="hf_wrong")).problem == "unauthorized"
    assert (await http("GET", "/v1/me", token=reader)).json["roles"] == ["read"]
    assert (await http("GET", "/v1/search", token=reader)).status == 200
    assert (await http("POST", "/v1/bulk", {"action": "delete", "ids": ["a"]}, token=reader)).problem == "forbidden"


async def test_only_the_demo_server_has_kill_worker(http):
    assert (await http("POST", "/v1/demo/kill_worker")).problem == "not-found"
