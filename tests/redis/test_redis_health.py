"""A server that may lose jobs is reported: by the doctor, and while apps are open, in logs and over HTTP."""

from __future__ import annotations

import logging

import pytest

from holdfast import Holdfast
from holdfast.core.clock import SystemClock
from holdfast.core.errors import ConfigError
from holdfast.observe.metrics import Metrics
from holdfast.store.open import open_store
from support.eventually import eventually
from support.http import serving
from support.redis import wait_for_replica
from support.workers import working

EVICTING = "maxmemory-policy is allkeys-lru"


async def look(url):
    """What the doctor finds wrong."""
    store = open_store(url, SystemClock())
    return [finding.what for finding in await store.examine() if not finding.fine]


@pytest.fixture
def quick_checks(monkeypatch):
    monkeypatch.setattr("holdfast.client.health.CHECK_EVERY", 0.0)
    monkeypatch.setattr("holdfast.client.session.CONFIG_MAX_AGE", 0.0)


async def test_the_doctor_finds_nothing_wrong_with_a_sound_server(start_server):
    assert await look(start_server(appendonly="yes").url()) == []
    assert await look(start_server().url(durability="none")) == []


async def test_the_doctor_finds_whatever_opening_refuses(start_server, open_at):
    evicting = start_server(appendonly="yes", maxmemory_policy="allkeys-lru")
    assert await look(evicting.url()) == [EVICTING]
    with pytest.raises(ConfigError, match=EVICTING):
        await open_at(evicting.url())
    plain = start_server()
    assert await look(plain.url(durability="fsync")) == ["the append-only file is off"]
    assert await look(plain.url(durability="replicated")) == ["no replica is connected"]
    replica = start_server(replicaof=f"127.0.0.1 {plain.port}")
    wait_for_replica(plain)
    assert await look(replica.url(durability="none")) == ["the server is a read-only replica"]
    assert await look(plain.url(durability="replicated")) == []


async def test_the_doctor_finds_what_opening_warns_of(start_server):
    assert await look(start_server().url()) == ["the append-only file is off"]


async def test_the_doctor_reports_that_info_is_not_permitted(start_server):
    server = start_server(appendonly="yes")
    server.call("ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all", "-info")
    [unknown] = await look(server.url().replace("//", "//app:pw@"))
    assert "INFO is not permitted" in unknown
    assert "pw" not in unknown


async def test_the_doctor_says_so_where_there_is_no_server():
    [gone] = await look("redis://127.0.0.1:1")
    assert "no connection" in gone


async def test_an_evicting_policy_is_reported_while_apps_are_open(start_server, quick_checks, caplog):
    server = start_server(appendonly="yes")
    caplog.set_level(logging.INFO, "holdfast")
    async with Holdfast(server.url(), poll=0.02) as app, working(app):
        assert (await app.stats()).warnings == ()
        server.call("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        await eventually(lambda: f"{EVICTING}; the server may evict jobs" in caplog.text)
        assert [one.what for one in (await app.stats()).warnings] == [EVICTING]
        assert b"holdfast_store_warnings 1.0" in Metrics().page(await app.queues())
        assert caplog.text.count(EVICTING) == 1
        server.call("CONFIG", "SET", "maxmemory-policy", "noeviction")
        await eventually(lambda: f"warning cleared: {EVICTING}" in caplog.text)
        assert b"holdfast_store_warnings 0.0" in Metrics().page(await app.queues())


async def test_an_app_that_only_enqueues_reports_of_it_too(start_server, quick_checks, caplog):
    server = start_server(appendonly="yes")
    async with Holdfast(server.url()) as app:
        server.call("CONFIG", "SET", "appendonly", "no")

        async def warned():
            await app.submit("t", b"{}")
            return "the append-only file is off" in caplog.text

        await eventually(warned)


async def test_it_is_reported_over_http_to_readers_and_to_remote_apps(start_server, quick_checks):
    server = start_server(appendonly="yes")
    async with Holdfast(server.url()) as app, serving(app) as http:
        assert (await http("GET", "/v1/stats")).json["warnings"] == []
        server.call("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        [warning] = (await http("GET", "/v1/stats")).json["warnings"]
        assert warning["what"] == EVICTING
        assert "noeviction" in warning["advice"]
        async with Holdfast(http.url) as remote:
            assert [one.what for one in (await remote.stats()).warnings] == [EVICTING]
        assert await look(http.url) == [EVICTING]


def test_status_and_doctor_commands_report_of_it(start_server, terminal):
    url = start_server().url()
    assert "Warning: the append-only file is off; a crash loses every job" in terminal("status", "--url", url)
    assert '"warnings":[{"what":"the append-only file is off",' in terminal("status", "--json", "--url", url)
    assert "warn  the append-only file is off" in terminal("doctor", "--url", url, code=1)
