"""Webhooks over HTTP: created, replaced, listed and removed; their signing keys are not shown."""

from __future__ import annotations

import pytest

from support.http import serving

HOOK = {"url": "https://example.com/hook?a=1", "events": ["job_dead"], "queues": ["mail"], "tasks": []}


@pytest.fixture
async def client(make_app):
    async with serving(make_app(secret="a-secret-of-all-processes-of-this-store")) as client:
        yield client


async def test_a_webhook_is_created_replaced_and_removed(client):
    made = await client("PUT", "/v1/webhooks/billing", HOOK)
    assert (made.status, made.json["name"], made.json["events"]) == (200, "billing", ["job_dead"])
    assert "whsec_" not in made.content.decode()
    assert (await client("PUT", "/v1/webhooks/billing", {"url": "https://example.com/other"})).status == 200
    [hook] = (await client("GET", "/v1/webhooks")).json["webhooks"]
    assert (hook["url"], hook["queues"], len(hook["events"])) == ("https://example.com/other", [], 5)
    entry = (await client("GET", "/v1/audit?action=webhook&limit=1")).json["entries"][0]
    assert (entry["action"], entry["before"]["webhook"]["events"]) == ("webhook.add", ["job_dead"])
    assert (await client("DELETE", "/v1/webhooks/billing")).status == 204
    assert (await client("GET", "/v1/webhooks")).json == {"webhooks": []}


async def test_an_invalid_webhook_is_refused_before_it_is_stored(client, make_app):
    for body in ({}, {"url": "ftp://x"}, {"url": "https://u:p@x/"}, HOOK | {"events": []}, HOOK | {"events": ["x"]}):
        assert (await client("PUT", "/v1/webhooks/billing", body)).status == 422, body
    assert (await client("GET", "/v1/webhooks")).json == {"webhooks": []}
    async with serving(make_app()) as without_secret:
        reply = await without_secret("PUT", "/v1/webhooks/billing", HOOK)
        assert (reply.status, "HOLDFAST_SECRET" in reply.json["detail"]) == (422, True)
