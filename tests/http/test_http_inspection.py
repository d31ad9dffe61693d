"""Statistics, queues, workers, settings and health over HTTP."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from holdfast.app import parts_of
from holdfast.http import limits
from holdfast.http import service as service_module
from support.eventually import eventually
from support.http import serving
from support.workers import work_off, working


async def test_health_and_readiness(http):
    assert (await http("GET", "/health")).json == {"status": "ok", "service": "holdfast"}
    assert (await http("GET", "/ready")).json == {"status": "ok", "service": "holdfast"}
    assert (await http("HEAD", "/health")).status == 200


async def test_stats_and_queues(http):
    await http.submit("t", queue="mail")
    await http.submit("t", queue="mail", delay=60)
    stats = (await http("GET", "/v1/stats")).json
    assert stats["counts"]["queued"] == 1
    assert stats["counts"]["dead"] == 0
    assert stats["workers"] == 0
    [queue] = (await http("GET", "/v1/queues")).json["queues"]
    assert queue == stats["queues"][0]
    assert (queue["name"], queue["paused"]) == ("mail", False)
    assert queue["counts"] == {"queued": 1, "scheduled": 1}
    assert queue["oldest"].endswith("Z")


async def test_refused_jobs_are_read_again_after_some_seconds(app, http, monkeypatch):
    clock = parts_of(app).runtime.clock
    await http.submit("unknown")
    await work_off(app)
    now = clock.monotonic()
    monkeypatch.setattr(clock, "monotonic", lambda: now)
    [refused] = (await http("GET", "/v1/stats")).json["refused"]
    assert (refused["queue"], refused["count"], refused["exact"]) == ("default", 1, True)
    await http("POST", "/v1/bulk", {"action": "cancel", "filter": {"state": ["scheduled"]}})
    assert (await http("GET", "/v1/stats")).json["refused"] == [refused], "cached: each may have a large payload"
    now += limits.REFUSED_AGE
    assert (await http("GET", "/v1/stats")).json["refused"] == []


async def test_a_queue_is_paused_and_resumed(http, app):
    await http.submit("t", queue="a/b")
    assert (await http("POST", "/v1/queues/a%2Fb/pause")).json == {"name": "a/b", "paused": True, "known": True}
    assert await app.claim("a/b") == []
    assert (await http("GET", "/v1/queues")).json["queues"][0]["paused"] is True
    assert (await http("POST", "/v1/queues/a%2Fb/resume")).json == {"name": "a/b", "paused": False, "known": True}
    assert len(await app.claim("a/b")) == 1
    assert (await http("POST", "/v1/queues/%20/pause")).status == 422


async def test_an_unknown_queue_can_be_paused(http, app):
    assert (await http("POST", "/v1/queues/mial/pause")).json == {"name": "mial", "paused": True, "known": False}
    assert (await http("POST", "/v1/tasks/sned/pause")).json["known"] is False
    [queue] = (await http("GET", "/v1/queues")).json["queues"]
    assert (queue["name"], queue["paused"]) == ("mial", True)
    assert [one["task"] for one in (await http("GET", "/v1/tasks/paused")).json["paused"]] == ["sned"]
    assert await app.resume("mial")


async def test_workers_are_listed(http, app):
    async with working(app):
        await eventually(lambda: _workers(http))
        [worker] = await _workers(http)
        [queue] = (await http("GET", "/v1/queues")).json["queues"]
    assert (queue["name"], queue["counts"], queue["listeners"]) == ("default", {}, 1)
    assert worker["kind"] == "worker"
    assert worker["queues"] == ["default"]
    assert worker["pid"] > 0


async def test_a_worker_is_controlled_and_its_state_listed(http, app):
    async with working(app):
        [worker] = await eventually(lambda: _workers(http))
        [reply] = (await http("POST", "/v1/workers/control", {"action": "quiet", "workers": [worker["id"]]})).json[
            "replies"
        ]
        assert reply == {"worker": worker["id"], "action": "quiet", "state": "quiet", "slots": worker["slots"]}
        assert [one["state"] for one in await _workers(http)] == ["quiet"]
        sized = {"action": "concurrency", "size": 3, "host": worker["node"]}
        assert (await http("POST", "/v1/workers/control", sized)).json["replies"][0]["slots"] == 3
        stacks = await http("POST", "/v1/workers/control", {"action": "stacks", "all_workers": True})
        assert stacks.json["replies"][0]["stacks"]


@pytest.mark.parametrize(
    ("body", "status", "problem"),
    [
        ({"action": "stop", "workers": ["nobody"]}, 404, "worker-not-found"),
        ({"action": "stop"}, 422, "invalid"),
        ({"action": "dance", "all_workers": True}, 422, "invalid"),
        ({"action": "concurrency", "all_workers": True}, 422, "invalid"),
        ({"action": "concurrency", "all_workers": True, "size": 0}, 422, "invalid"),
        ({"action": "quiet", "all_workers": True, "size": 3}, 422, "invalid"),
        ({"action": "quiet", "all_workers": True, "timeout": 3600}, 422, "invalid"),
    ],
)
async def test_an_invalid_request_to_workers_is_refused(http, app, body, status, problem):
    async with working(app):
        await eventually(lambda: _workers(http))
        reply = await http("POST", "/v1/workers/control", body)
        assert (reply.status, reply.problem) == (status, problem)
        assert [one["state"] for one in await _workers(http)] == ["active"]


async def _workers(http):
    return (await http("GET", "/v1/workers")).json["workers"]


async def test_settings_are_stored(http, app):
    assert (await http("GET", "/v1/config")).json == {"settings": {}}
    assert (await http("GET", "/v1/config/max_retries")).problem == "not-set"
    assert (await http("PUT", "/v1/config/max_retries", {"value": 2})).json == {"key": "max_retries", "value": 2}
    assert (await http("GET", "/v1/config/max-retries")).json["value"] == 2
    assert (await http("GET", "/v1/config")).json == {"settings": {"max_retries": 2}}
    assert await app.config.get("max_attempts") == 2
    assert (await http("DELETE", "/v1/config/max_retries")).status == 204
    assert (await http("GET", "/v1/config/max_retries")).status == 404


@pytest.mark.parametrize(
    ("key", "value"), [("max_retries", -1), ("max_retries", "many"), ("nonsense", 1), ("secret", "x"), ("url", "x")]
)
async def test_an_invalid_setting_is_refused(http, key, value):
    reply = await http("PUT", f"/v1/config/{key}", {"value": value})
    assert reply.status == 422
    assert reply.problem == "invalid"


async def test_requests_are_reported_by_the_route_s_template(http, app):
    received = []
    parts_of(app).events.on("http_request", received.append)
    await http("GET", "/v1/jobs/00000000-0000-7000-8000-000000000000")
    await http("GET", "/nothing/here")
    await http("PATCH", "/v1/jobs")
    requests = [(event.method, event.path_template, event.status_code) for event in received]
    assert requests == [("GET", "/v1/jobs/{id}", 404), ("GET", "", 404), ("PATCH", "/v1/jobs", 405)]
    assert all(event.ran >= 0 for event in received)


async def test_a_store_that_fails_at_first_open_is_swept_after_it_opens(app, monkeypatch, caplog):
    real, swept, tries = app.open, asyncio.Event(), iter([RuntimeError("broken"), OSError("also")])

    async def flaky() -> None:
        if (error := next(tries, None)) is not None:
            raise error
        await real()

    @asynccontextmanager
    async def sweeping(_: object):
        swept.set()
        yield

    monkeypatch.setattr(app, "open", flaky)
    monkeypatch.setattr(service_module, "sweeping", sweeping)
    monkeypatch.setattr(limits, "OPEN_EVERY", 0.01)
    async with serving(app):
        await asyncio.wait_for(swept.wait(), 90)
    assert "RuntimeError: broken" in caplog.text


@pytest.mark.parametrize("path", ["/", "/dashboard/main.js", "/health", "/ready", "/openapi.json"])
async def test_public_routes_ignore_the_query(http, path):
    assert (await http("GET", f"{path}?x=1&v=2")).content == (await http("GET", path)).content
    assert (await http("GET", f"{path}?x=1")).status == 200


async def test_metrics_ignore_the_query(http):
    page = await http("GET", "/metrics?format=prometheus")
    assert (page.status, "holdfast_store_up" in page.content.decode()) == (200, True)


async def test_other_routes_refuse_unknown_query_parameters(http):
    assert (await http("GET", "/v1/stats?x=1")).status == 422


async def test_a_trailing_slash_is_ignored(http):
    page = await http("GET", "/metrics/")
    assert (page.status, page.headers["content-type"]) == (200, (await http("GET", "/metrics")).headers["content-type"])
    assert "holdfast_store_up" in page.content.decode()
    id = (await http.submit()).json["id"]
    for path in ("/v1/jobs", f"/v1/jobs/{id}", "/health", "/v1/queues"):
        assert (await http("GET", f"{path}/")).content == (await http("GET", path)).content
    assert (await http("GET", "/v1/jobs//")).status == 404


async def test_long_answers_are_compressed_for_clients_that_accept_it(http):
    for _ in range(20):
        await http.submit("noop", {"text": "x" * 500})
    packed = await http("GET", "/v1/jobs", Accept_Encoding="gzip")
    plain = await http("GET", "/v1/jobs", Accept_Encoding="identity")
    assert packed.headers["content-encoding"] == "gzip"
    assert packed.headers["vary"] == plain.headers["vary"] == "accept-encoding"
    assert "content-encoding" not in plain.headers
    assert int(packed.headers["content-length"]) * 4 < int(plain.headers["content-length"])
    assert packed.json == plain.json
    short = await http("GET", "/health", Accept_Encoding="gzip")
    assert "content-encoding" not in short.headers
