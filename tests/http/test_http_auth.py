"""Authentication: tokens and roles, Host and Origin, and every route without a token."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest

from holdfast import ConfigError, Holdfast, HoldfastError
from holdfast.app import parts_of
from holdfast.core.clock import SystemClock
from holdfast.http import asgi, tokens
from holdfast.http.auth import Auth, is_loopback
from holdfast.http.problems import Refused
from holdfast.http.tokens import Keyring
from holdfast.store.protocol import Versioned
from holdfast.testing import ManualClock
from support.eventually import eventually
from support.http import serving

TOKEN = "a-token-of-the-environment"
PUBLIC = {"/health": 200, "/ready": 200, "/openapi.json": 200, "/": 200, "/docs": 200, "/dashboard/{name}": 404}
"""Public routes and their status; none reveals a job."""


@pytest.fixture
async def closed(app):
    async with serving(app, token=TOKEN) as client:
        yield client


def concrete(path: str) -> str:
    return path.replace("{", "").replace("}", "")


async def test_every_route_but_the_public_few_is_denied_without_a_token(closed):
    table = closed.service.endpoints
    assert len(table) > 25
    for endpoint in table:
        reply = await closed(endpoint.method, concrete(endpoint.path))
        if endpoint.path in PUBLIC:
            assert reply.status == PUBLIC[endpoint.path], endpoint.path
            continue
        assert endpoint.role in tokens.ROLES or endpoint.path == "/v1/me", endpoint.path
        assert reply.status == 401, (endpoint.method, endpoint.path)
        assert reply.problem == "unauthorized"
        assert reply.headers["www-authenticate"] == "Bearer"


async def test_every_route_is_denied_with_a_token_of_the_other_roles(closed, app):
    others = {}
    for role in tokens.ROLES:
        others[role] = await tokens.create(parts_of(app).records, set(tokens.ROLES) - {role})
    for endpoint in closed.service.endpoints:
        if endpoint.role is not None:
            reply = await closed(endpoint.method, concrete(endpoint.path), token=others[endpoint.role])
            assert reply.status == 403, (endpoint.method, endpoint.path)
            assert reply.problem == "forbidden"


async def test_unknown_paths_are_401_without_a_token(closed):
    assert (await closed("GET", "/nope")).status == 401
    assert (await closed("PATCH", "/v1/jobs")).status == 401
    assert (await closed("GET", "/nope", token=TOKEN)).problem == "not-found"
    refused = await closed("PATCH", "/v1/jobs", token=TOKEN)
    assert refused.problem == "method-not-allowed"
    assert refused.headers["allow"] == "GET, HEAD, POST"


@pytest.mark.parametrize(
    "authorization",
    ["", "Bearer", "Bearer ", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", "Bearer hf__",
     "Bearer hf_x", "Bearer hf_x_y", f"Bearer x {TOKEN}", f"Bearer {TOKEN} {TOKEN}", "Bearer \xff\xfe",
     "Bearer " + "x" * 5000],
    ids=lambda text: repr(text)[:40],
)  # fmt: skip
async def test_a_wrong_authorization_is_401(closed, authorization):
    reply = await closed("GET", "/v1/stats", token=None, Authorization=authorization)
    assert reply.status == 401
    assert TOKEN not in reply.content.decode()


async def test_a_token_is_accepted_only_in_the_header(closed):
    for query in (f"token={TOKEN}", f"access_token={TOKEN}"):
        assert (await closed("GET", f"/v1/jobs?{query}")).status == 401
    assert (await closed("GET", "/v1/jobs", Cookie=f"token={TOKEN}")).status == 401
    assert (await closed("GET", "/v1/jobs", Authorization=f"bearer   {TOKEN} ")).status == 200


async def test_two_authorizations_are_refused(closed):
    one = f"Authorization: Bearer {TOKEN}\r\n".encode()
    answer = await closed.raw(b"GET /v1/stats HTTP/1.1\r\nHost: 127.0.0.1\r\n" + one + one + b"\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")


async def test_a_stored_token_allows_its_roles(closed, app):
    reading = await tokens.create(parts_of(app).records, ["read"], "grafana")
    submitting = await tokens.create(parts_of(app).records, ["submit", "read"])
    body = {"type": "t", "payload": {}}
    assert (await closed("GET", "/v1/stats", token=reading)).status == 200
    assert (await closed("POST", "/v1/jobs", body, token=reading, Idempotency_Key="k")).status == 403
    assert (await closed("POST", "/v1/jobs", body, token=submitting, Idempotency_Key="k")).status == 201
    assert (await closed("POST", "/v1/claims", {}, token=submitting)).status == 403


async def test_a_token_is_stored_only_as_a_digest(app):
    token = await tokens.create(parts_of(app).records, ["read"], "grafana")
    _, id, secret = token.split("_", 2)
    [(name, kept)] = (await parts_of(app).records.all("token")).items()
    assert name == id
    assert len(id) == 12
    assert secret.encode() not in kept.value
    [seen] = await tokens.tokens(parts_of(app).records)
    assert (seen.id, seen.label, seen.roles) == (id, "grafana", ("read",))
    assert secret not in repr(seen)
    assert len(secret) >= 40


async def test_a_revoked_token_is_refused_within_seconds(closed, app, monkeypatch):
    monkeypatch.setattr(tokens, "TOKENS_MAX_AGE", 0.05)
    token = await tokens.create(parts_of(app).records, ["read"])
    assert (await closed("GET", "/v1/stats", token=token)).status == 200
    await tokens.revoke(parts_of(app).records, token.split("_")[1])

    async def refused():
        return (await closed("GET", "/v1/stats", token=token)).status == 401

    await eventually(refused)
    with pytest.raises(HoldfastError, match="there is no token"):
        await tokens.revoke(parts_of(app).records, token.split("_")[1])
    with pytest.raises(ConfigError, match="not the token"):
        await tokens.revoke(parts_of(app).records, token)


async def test_the_id_and_secret_of_a_token_are_refused_behind_another_prefix(closed, app):
    token = await tokens.create(parts_of(app).records, ["read"])
    assert (await closed("GET", "/v1/stats", token=token)).status == 200
    assert (await closed("GET", "/v1/stats", token=f"x{token}")).status == 401


async def test_tokens_are_read_again_when_they_are_older_than_their_maximum_age(app, monkeypatch):
    records, clock, reads = parts_of(app).records, ManualClock(), []
    stored = tokens._stored

    async def counted(records):
        reads.append(clock.monotonic())
        return await stored(records)

    monkeypatch.setattr(tokens, "_stored", counted)
    known = Keyring(records, clock, None)
    token = await tokens.create(records, ["read"])
    for seconds in (0.0, tokens.TOKENS_MAX_AGE - 0.5, 0.5, 0.5):
        clock.advance(seconds)
        assert (await known.access(token)).roles == {"read"}
    assert len(reads) == 2


async def test_an_invalid_token_record_is_ignored(closed, app):
    await parts_of(app).records.put("token", "broken", b"{}")
    token = await tokens.create(parts_of(app).records, ["read"])
    assert (await closed("GET", "/v1/stats", token=token)).status == 200
    assert (await closed("GET", "/v1/stats", token="hf_broken_")).status == 401


async def test_loopback_is_open_until_the_first_token_exists(http, app, monkeypatch):
    monkeypatch.setattr(tokens, "TOKENS_MAX_AGE", 0.05)
    assert (await http("GET", "/v1/stats")).status == 200
    assert (await http("GET", "/v1/stats", token="of-another-server")).status == 200
    token = await tokens.create(parts_of(app).records, ["read"])

    async def closed():
        return (await http("GET", "/v1/stats")).status == 401

    await eventually(closed)
    assert (await http("GET", "/v1/stats", token=token)).status == 200
    await tokens.revoke(parts_of(app).records, token.split("_")[1])
    await eventually(lambda: _refused(http, token))
    assert (await http("GET", "/v1/stats")).status == 401


async def _refused(http, token):
    return (await http("GET", "/v1/stats", token=token)).status == 401


async def test_a_public_address_does_not_start_without_a_token(app):
    with pytest.raises(ConfigError, match="there is no token"):
        async with serving(app, host="0.0.0.0"):
            pass


async def test_a_public_address_starts_with_a_token_and_requires_it(app):
    token = await tokens.create(parts_of(app).records, ["read"])
    async with serving(app, host="0.0.0.0") as client:
        client.url = client.url.replace("0.0.0.0", "127.0.0.1")
        assert (await client("GET", "/v1/stats")).status == 401
        assert (await client("GET", "/v1/stats", token=token)).status == 200
        await tokens.revoke(parts_of(app).records, token.split("_")[1])


@pytest.mark.parametrize("token", ["short", "ümlaut-ümlaut-ümlaut", "new\nline-new\nline-new"])
def test_holdfast_token_must_be_long_printable_ascii(monkeypatch, token):
    monkeypatch.setenv("HOLDFAST_TOKEN", token)
    with pytest.raises(ConfigError, match="HOLDFAST_TOKEN") as raised:
        asgi(Holdfast("memory://"))
    assert token not in str(raised.value)


# -- Host


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.0.0.1:1", "[::1]:8000", "10.0.0.7", "LOCALHOST:80"])
async def test_ip_addresses_and_localhost_are_accepted_hosts(http, host):
    assert (await http("GET", "/v1/stats", Host=host)).status == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "testserver", "127.0.0.1.evil.example", "localhost.evil.example", "evil.example:8000",
     "localhost@evil.example", "127.0.0.1:x", "[::1", "localhost/evil", "evil.example#localhost", "0x7f.1", "a b"],
)  # fmt: skip
@pytest.mark.parametrize("path", ["/v1/stats", "/health"])
async def test_an_unknown_host_is_refused_against_dns_rebinding(http, host, path):
    reply = await http("GET", path, Host=host)
    assert reply.status == 421
    assert reply.problem == "wrong-host"


async def test_a_missing_or_duplicate_host_is_refused(http):
    assert (await http.raw(b"GET /health HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 400 ")
    two = b"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n"
    assert (await http.raw(two)).startswith(b"HTTP/1.1 400 ")


async def test_additional_hosts_are_accepted(app):
    async with serving(app, hosts=["Jobs.Example"]) as client:
        assert (await client("GET", "/v1/stats", Host="jobs.example:8000")).status == 200
        assert (await client("GET", "/v1/stats", Host="evil.example")).status == 421
    async with serving(app, hosts=["*"]) as client:
        assert (await client("GET", "/v1/stats", Host="any.example")).status == 200


# -- Origin


@pytest.mark.parametrize(
    "origin",
    ["https://evil.example", "null", "http://127.0.0.1.evil.example", "http://127.0.0.1:1", "file://", "localhost"],
)
async def test_another_origin_is_refused(http, origin):
    for method, path in (("POST", "/v1/jobs"), ("GET", "/v1/stats"), ("GET", "/health")):
        reply = await http(method, path, Origin=origin)
        assert reply.status == 403
        assert reply.problem == "wrong-origin"
        assert "access-control-allow-origin" not in reply.headers


@pytest.mark.parametrize("scheme", ["ftp", "chrome-extension", "ws"])
async def test_the_own_host_with_another_scheme_is_another_origin(http, scheme):
    host = http.url.partition("://")[2]
    assert (await http("GET", "/v1/stats", Origin=f"{scheme}://{host}")).status == 403


async def test_the_own_origin_is_accepted(http):
    assert (await http("GET", "/v1/stats", Origin=http.url)).status == 200
    assert (await http("GET", "/v1/stats", Host="localhost:80", Origin="http://localhost")).status == 200
    assert (await http("GET", "/v1/stats", Host="localhost", Origin="https://localhost")).status == 200


async def test_additional_origins_are_accepted_without_a_wildcard(app):
    async with serving(app, origins=["https://desk.example/"]) as client:
        reply = await client("GET", "/v1/stats", Origin="https://desk.example")
        assert reply.status == 200
        assert (await client("GET", "/v1/stats", Origin="https://evil.example")).status == 403
        preflight = await client("OPTIONS", "/v1/jobs", Origin="https://evil.example")
        assert preflight.status == 403
        assert "access-control-allow-origin" not in preflight.headers


# -- Auth without a server


def door(*hosts):
    parts = SimpleNamespace(records=None, runtime=SimpleNamespace(clock=SystemClock()))
    return Auth(parts, token=None, unguarded=False, hosts=hosts, origins=())


def test_a_wildcard_host_still_refuses_invalid_names():
    every = door("*")
    assert every.check_host_and_origin([(b"host", b"jobs.example.com:8080")]) is None
    for broken in (b"example.com:port", b"[::1", b"example.com/", b"me@example.com"):
        with pytest.raises(Refused, match="is not accepted by this server"):
            every.check_host_and_origin([(b"host", broken)])


def test_at_most_a_thousand_hosts_are_cached():
    one = door()
    for number in range(1500):
        with pytest.raises(Refused):
            one.check_host_and_origin([(b"host", b"name-%d.example.com" % number)])
    assert len(one._accepted) == 1000
    assert one.check_host_and_origin([(b"host", b"127.0.0.1")]) is None


@pytest.mark.parametrize(
    ("address", "only_here"),
    [("127.0.0.1", True), ("::1", True), ("192.0.2.1", False), ("0.0.0.0", False), ("localhost", False), ("", False)],
)
def test_is_loopback(address, only_here):
    assert is_loopback(address) is only_here


@pytest.mark.parametrize("token", ["x" * 15, "", "x" * 16 + "\n", "\xe9" * 16])
def test_a_short_or_non_ascii_holdfast_token_is_refused(token):
    with pytest.raises(ConfigError, match="at least 16 printable ASCII characters"):
        Keyring(None, SystemClock(), token)
    assert Keyring(None, SystemClock(), "x" * 16).seen


async def test_a_token_is_valid_until_its_exact_expiry():
    clock = ManualClock()
    stored = tokens.Stored(tokens._digest("secret"), ("read",), "", 0, expires_at=clock.now() + 2_000_000)

    class Records:
        async def all(self, kind):
            return {"id": Versioned(msgspec.json.encode(stored), 1)}

        async def now(self):
            return clock.now()

    keyring = Keyring(Records(), clock, None)
    assert (await keyring.access("hf_id_secret")).roles == {"read"}
    clock.advance(1.5)
    assert await keyring.access("hf_id_secret") is not None
    assert await keyring.access("hf_id_other") is None
    clock.advance(0.5)
    assert await keyring.access("hf_id_secret") is None
