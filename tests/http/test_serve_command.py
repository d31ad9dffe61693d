"""`holdfast serve` and `holdfast token` in a terminal."""

from __future__ import annotations

import resource

import pytest

from holdfast.http import connection_limits, limits
from support.http import Client, Served, served
from support.terminal import Terminal, terminal

__all__ = ["terminal"]


@pytest.fixture
def url(tmp_path) -> str:
    return f"sqlite:///{tmp_path}/holdfast.db"


async def test_serve_prints_its_address_and_serves_the_store(terminal: Terminal, url, session):
    with served(terminal.folder, url) as server:
        client = Client(server.address(), session)
        assert client.url.startswith("http://127.0.0.1:")
        id = (await client.submit("t", {"a": 1})).json["id"]
        assert terminal.json("show", id)["payload"] == {"a": 1}
        terminal("config", "set", "max_retries", "2")
        assert (await client("GET", "/v1/config/max_retries")).json["value"] == 2
        assert server.stop() == 0


async def test_tokens_are_created_listed_and_revoked(terminal: Terminal, url, session):
    assert "no tokens" in terminal("token", "list")
    token = terminal("token", "create", "--role", "read", "-r", "submit", "--label", "ci").strip()
    assert token.startswith("hf_")
    made = terminal.json("token", "create", "--role", "work")
    assert made["roles"] == ["work"]
    listed = terminal.json("token", "list")
    assert [one["roles"] for one in listed] == [["read", "submit"], ["work"]]
    assert listed[0]["label"] == "ci"
    assert token.split("_", 2)[2] not in terminal("token", "list")
    with served(terminal.folder, url) as server:
        client = Client(server.address(), session)
        assert (await client("GET", "/v1/stats")).status == 401
        assert (await client("GET", "/v1/stats", token=token)).status == 200
        assert token not in server.output()
    assert "revoked" in terminal("token", "revoke", listed[0]["id"])
    assert len(terminal.json("token", "list")) == 1


async def test_a_token_with_scope_and_expiry(terminal: Terminal, url, session):
    words = ("--expires", "90d", "--queue", "mail", "--queue", "post", "--task", "report_*")
    made = terminal.json("token", "create", "--role", "read", *words)
    assert (made["queues"], made["tasks"], made["expires_in"]) == (["mail", "post"], ["report_*"], 90 * 86400)
    [listed] = terminal.json("token", "list")
    assert (listed["queues"], listed["tasks"], listed["expired"]) == (["mail", "post"], ["report_*"], False)
    assert "queue mail or post" in " ".join(terminal("token", "list").replace("│", " ").split())
    with served(terminal.folder, url) as server:
        client = Client(server.address(), session, made["token"])
        assert (await client("GET", "/v1/jobs?queue=mail")).status == 200
        assert (await client("GET", "/v1/jobs?queue=money")).problem == "forbidden"
        assert (await client("GET", "/v1/me")).json["expires_at"] == listed["expires_at"]


@pytest.mark.parametrize(
    ("words", "output"),
    [
        (("token", "create"), "--role"),
        (("token", "create", "--role", "admin"), "one or more of the roles"),
        (("token", "create", "--role", "read", "--label", "x" * 200), "label"),
        (("token", "create", "--role", "read", "--expires", "soon"), "--expires takes a duration such as 12h or 90d"),
        (("token", "create", "--role", "read", "--expires", "0"), "a number of seconds above 0"),
        (("token", "create", "--role", "read", "--queue", " "), "queue name"),
        (("serve", "--port", "0", "--trust-proxy", "nginx"), "--trust-proxy takes an address or a network"),
        (("serve", "--host", "0.0.0.0", "--port", "0"), "there is no token"),
        (
            ("serve", "--url", "http://127.0.0.1:1", "--port", "0"),
            "cannot read the tokens of a store behind another server",
        ),
        (("serve", "--host", "256.1.1.1"), "cannot serve"),
        (("serve", "--port", "70000"), "--port"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, tuple) else "",
)
def test_errors_are_one_line(terminal: Terminal, words, output):
    assert output in terminal(*words, code=2)


def test_a_port_in_use_is_reported(terminal: Terminal, url):
    with served(terminal.folder, url) as server:
        port = server.address().rpartition(":")[2]
        assert "in use" in terminal("serve", "--port", port, code=2)


def test_holdfast_token_allows_a_public_address(terminal: Terminal, url):
    server = Served(terminal.folder, url, "--host", "0.0.0.0", HOLDFAST_TOKEN="a-token-that-is-long-enough")
    try:
        assert server.address().startswith("http://0.0.0.0:")
        assert "a-token" not in server.output()
    finally:
        server.kill()


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="only Linux can read the limits of another process")
def test_serve_raises_the_open_file_limit(tmp_path, url):
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(512, before[0]), before[1]))
    try:
        server = Served(tmp_path, url)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    try:
        server.address()
        soft, hard = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
        wanted = limits.SERVER_CONNECTIONS + limits.FILES
        assert soft == (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard))
    finally:
        server.kill()


@pytest.mark.parametrize(("files", "most"), [(100_000, 4096), (1024, 896), (100, 1)])
def test_connections_leave_files_for_the_store(monkeypatch, files, most):
    monkeypatch.setattr(connection_limits, "files", lambda: files)
    assert connection_limits.ConnectionLimits().max_connections == most


async def test_unauthenticated_errors_do_not_reveal_the_store(tmp_path, session):
    url = "postgresql://127.0.0.1:1/nothing"
    with served(tmp_path, url, HOLDFAST_TOKEN="a-token-that-is-long-enough") as server:
        client = Client(server.address(), session)
        for path, token in (("/ready", None), ("/v1/stats", "hf_some_body")):
            reply = await client("GET", path, token=token)
            assert reply.problem == "store-unavailable"
            assert "127.0.0.1" not in reply.content.decode()
            assert "nothing" not in reply.content.decode()
        assert '"event":"outage_began"' in server.output()


async def test_secrets_of_a_url_are_not_shown(tmp_path, session):
    url = "postgresql://user:hunter2@127.0.0.1:1/nothing"
    with served(tmp_path, url) as server:
        assert "hunter2" not in server.output()
        client = Client(server.address(), session)
        assert (await client("GET", "/health")).status == 200
        assert "hunter2" not in (await client("GET", "/ready")).content.decode()
