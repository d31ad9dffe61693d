"""Unauthenticated connections do not use the capacity of authenticated clients."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import pytest

from holdfast import ConfigError
from holdfast.app import parts_of
from holdfast.core.hosts import subnet
from holdfast.http import failures, limits
from holdfast.http.connection_limits import KNOWN_SECONDS, ConnectionLimits
from support.eventually import eventually
from support.http import serving

TOKEN = "a-token-of-the-environment"
WITH_TOKEN = f"GET /v1/jobs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()
PUBLIC = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture
async def closed(app, monkeypatch):
    monkeypatch.setattr(limits, "SERVER_CONNECTIONS", 20)
    monkeypatch.setattr(limits, "UNAUTHENTICATED", 4)
    async with serving(app, "0.0.0.0", token=TOKEN) as client:
        client.url = client.url.replace("0.0.0.0", "127.0.0.1")
        yield client


class Connection:
    """A connection from a loopback address."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer

    async def ask(self, request):
        """The status of the response; None if the connection was closed."""
        try:
            self.writer.write(request)
            head = await self.reader.readuntil(b"\r\n\r\n")
        except (OSError, asyncio.IncompleteReadError):
            return None
        [length] = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        await self.reader.readexactly(int(length.split(b":")[1]))
        return int(head.split()[1])

    @property
    def open(self):
        return not self.reader.at_eof() and self.reader.exception() is None


@asynccontextmanager
async def connections(client, count, address="127.0.0.1"):
    made = []
    try:
        while len(made) < count:
            made.append(Connection(*await asyncio.open_connection(*client.address, local_addr=(address, 0))))
        yield made
    finally:
        for one in made:
            one.writer.close()
        for one in made:
            with suppress(OSError):
                await one.writer.wait_closed()


async def test_idle_unauthenticated_connections_do_not_block_clients(closed):
    async with connections(closed, 1) as [worker]:
        assert await worker.ask(WITH_TOKEN) == 200
        async with connections(closed, 60), connections(closed, 60, "127.0.0.2"), connections(closed, 9, "127.0.0.3"):
            assert await worker.ask(WITH_TOKEN) == 200, "it had its connection before"
            for address in ("127.0.0.1", "127.0.0.2", "127.0.0.4"):
                async with connections(closed, 1, address) as [newcomer]:
                    assert await newcomer.ask(WITH_TOKEN) == 200, address
            assert len(closed.server.server_state.connections) <= 11, "strangers have half of the rules"


async def test_an_address_without_a_token_keeps_its_newest_connections(closed):
    async with connections(closed, 10, "127.0.0.2") as strangers:
        assert await strangers[-1].ask(PUBLIC) == 200

        async def only_the_newest():
            return [one.open for one in strangers] == [False] * 6 + [True] * 4

        await eventually(only_the_newest)


async def test_delayed_wrong_tokens_do_not_block_their_address(closed, monkeypatch):
    monkeypatch.setattr(failures, "FREE", 0)
    monkeypatch.setattr(failures, "FIRST_DELAY", 3600.0)
    monkeypatch.setattr(failures, "LONGEST_DELAY", 3600.0)
    async with connections(closed, 4, "127.0.0.2") as guessing:
        asking = [asyncio.ensure_future(one.ask(WITH_TOKEN.replace(b"Bearer ", b"Bearer x"))) for one in guessing]

        async def all_wait():
            return closed.service.auth.failures._waiting == 4

        await eventually(all_wait)
        async with connections(closed, 1, "127.0.0.2") as [newcomer]:
            assert await newcomer.ask(WITH_TOKEN) == 200
        assert await asking[0] is None, "the oldest made rules for it"
        for one in asking:
            one.cancel()


async def test_an_address_with_a_valid_token_may_have_more_connections(closed):
    async with connections(closed, 1, "127.0.0.2") as [known]:
        assert await known.ask(WITH_TOKEN) == 200
        async with connections(closed, 8, "127.0.0.2") as others:
            for one in others:
                assert await one.ask(PUBLIC) == 200
            assert all(one.open for one in others)


async def test_authenticated_connections_may_use_all_capacity(closed):
    async with AsyncExitStack() as stack:
        workers = []
        for _ in range(20):
            [one] = await stack.enter_async_context(connections(closed, 1))
            assert await one.ask(WITH_TOKEN) == 200
            workers.append(one)
        async with connections(closed, 1, "127.0.0.2") as [late]:
            assert await late.ask(WITH_TOKEN) == 503
        for one in workers:
            assert await one.ask(WITH_TOKEN) == 200


async def test_proxied_requests_are_counted_by_forwarded_address(app, monkeypatch, caplog):
    monkeypatch.setattr(limits, "UNAUTHENTICATED", 2)
    monkeypatch.setattr(limits, "READY_SECONDS", 3600.0)
    asked, answered = [], asyncio.Event()

    async def slow(kind):
        asked.append(kind)
        await answered.wait()
        return {}

    async with serving(app, token=TOKEN, proxies=["127.0.0.1", "10.0.0.0/8"]) as http:
        forwarded = {"X_Forwarded_For": "6.6.6.6, 192.0.2.1, 10.1.1.1"}
        assert (await http("GET", "/v1/jobs", token="wrong", **forwarded)).status == 401
        assert "request from 192.0.2.1 refused: wrong token" in caplog.text
        monkeypatch.setattr(parts_of(app).records, "all", slow)
        asking = [asyncio.create_task(http("GET", "/ready", **forwarded)) for _ in range(2)]

        async def waiting():
            return len(asked) == 2

        await eventually(waiting)
        assert (await http("GET", "/health", X_Forwarded_For="192.0.2.1")).status == 503
        assert (await http("GET", "/health", X_Forwarded_For="192.0.2.2")).status == 200
        assert (await http("GET", "/v1/jobs", token=TOKEN, X_Forwarded_For="192.0.2.2")).status == 200
        answered.set()
        assert [one.status for one in await asyncio.gather(*asking)] == [200, 200]
        assert (await http("GET", "/health", X_Forwarded_For="192.0.2.1")).status == 200


async def test_an_untrusted_x_forwarded_for_is_ignored(app, caplog):
    async with serving(app, token=TOKEN) as http:
        assert (await http("GET", "/v1/jobs", token="wrong", X_Forwarded_For="192.0.2.1")).status == 401
    assert "request from 127.0.0.1 refused: wrong token" in caplog.text


class Fake:
    idle = True

    def __init__(self):
        self.gone = False

    def abort(self):
        self.gone = True


def test_a_busy_unauthenticated_connection_is_not_closed(monkeypatch):
    monkeypatch.setattr(limits, "UNAUTHENTICATED", 2)
    rules, first, second = ConnectionLimits(), Fake(), Fake()
    first.idle = second.idle = False
    assert rules.enter(first, "192.0.2.1", 0.0)
    assert rules.enter(second, "192.0.2.1", 0.0)
    assert not rules.enter(Fake(), "192.0.2.1", 0.0)
    assert rules.enter(Fake(), "192.0.2.2", 0.0)
    first.idle = True
    assert rules.enter(Fake(), "192.0.2.1", 0.0)
    assert (first.gone, second.gone) == (True, False)


def test_a_known_address_expires(monkeypatch):
    monkeypatch.setattr(limits, "UNAUTHENTICATED", 1)
    rules, fakes = ConnectionLimits(), [Fake() for _ in range(4)]
    rules.admitted(Fake(), "192.0.2.1", 0.0)
    for fake in fakes[:3]:
        assert rules.enter(fake, "192.0.2.1", KNOWN_SECONDS - 1)
    assert not any(fake.gone for fake in fakes)
    assert rules.enter(fakes[3], "192.0.2.1", KNOWN_SECONDS + 1)
    assert fakes[0].gone


def test_closed_connections_are_not_counted():
    rules, fake = ConnectionLimits(), Fake()
    rules.enter(fake, "192.0.2.1", 0.0)
    rules.leave(fake)
    rules.leave(fake)
    assert (rules._anonymous, rules._by_address) == ({}, {})


@pytest.mark.parametrize(
    ("address", "counted"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("no address", "no address"),
    ],
)
def test_ipv6_addresses_are_counted_by_subnet(address, counted):
    assert subnet(address) == counted


@pytest.mark.parametrize(
    ("header", "address"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("192.0.2.1, 10.0.0.9", "192.0.2.1"),
        ("1.1.1.1, 192.0.2.1", "192.0.2.1"),
        ("192.0.2.1, unknown", "10.0.0.1"),
        ("10.0.0.2", "10.0.0.1"),
        ("", "10.0.0.1"),
    ],
)
def test_the_last_untrusted_forwarded_address_is_the_client(header, address):
    rules = ConnectionLimits(["10.0.0.0/24"])
    assert rules.trusts("10.0.0.1")
    assert not rules.trusts("10.0.1.1")
    assert rules.forwarded([(b"x-forwarded-for", header.encode())], "10.0.0.1") == address


def test_an_invalid_proxy_address_is_refused():
    with pytest.raises(ConfigError, match="takes an address or a network"):
        ConnectionLimits(["proxy.example.com"])
