"""The memory budget of request bodies: bodies over the budget or a token's share wait or get 503."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.app import parts_of
from holdfast.http import budget, tokens
from holdfast.http.budget import Budget
from holdfast.http.problems import Refused
from holdfast.store import rpc as wire
from support.eventually import eventually
from support.http import serving

TOKEN = "a-token-of-the-environment"
KIB, MIB = 1024, 1024**2


async def take(budget, token, size):
    """A reservation; done if there is capacity."""
    taking = asyncio.ensure_future(budget.take(token, size))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return taking


async def test_a_token_over_its_share_waits_and_others_do_not():
    bodies = Budget(lambda: 400)
    assert (await take(bodies, "a", 60)).done()
    second = await take(bodies, "a", 60)
    assert not second.done()
    assert (await take(bodies, "b", 60)).done()
    assert (await take(bodies, "a", 40)).done(), "what fits beside the first"
    bodies.release("a", 60)
    await second


async def test_bodies_are_admitted_in_order_of_arrival():
    bodies = Budget(lambda: 400)
    for token in "abcd":
        assert (await take(bodies, token, 90)).done()
    large, small = await take(bodies, "e", 100), await take(bodies, "f", 10)
    assert not large.done()
    assert not small.done()
    bodies.release("a", 90)
    await asyncio.gather(large, small)


async def test_a_token_over_its_share_does_not_block_others():
    bodies = Budget(lambda: 400)
    for token in "abc":
        assert (await take(bodies, token, 100)).done()
    second = await take(bodies, "a", 200)
    assert not second.done()
    assert (await take(bodies, "d", 60)).done()
    second.cancel()


async def test_a_cancelled_wait_at_the_time_of_a_release_is_safe():
    bodies = Budget(lambda: 400)
    await bodies.take("a", 400)
    gone, after = await take(bodies, "b", 400), await take(bodies, "c", 400)
    gone.cancel()  # before it runs again
    bodies.release("a", 400)
    await after
    assert (bodies._sum, bodies._held, bodies._waiting) == (400, {"c": 400}, [])


async def test_a_body_larger_than_the_budget_is_admitted_alone():
    bodies = Budget(lambda: 400)
    assert (await take(bodies, "a", 300)).done()
    bodies.release("a", 300)
    assert (await take(bodies, "a", 1000)).done()
    other = await take(bodies, "b", 1)
    assert not other.done()
    bodies.release("a", 1000)
    await other


async def test_a_cancelled_wait_releases_its_reservation(monkeypatch):
    bodies = Budget(lambda: 400)
    await bodies.take("a", 100)
    gone, next_one = await take(bodies, "a", 100), await take(bodies, "a", 50)
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    both = [await take(bodies, "a", 100) for _ in range(2)]
    bodies.release("a", 100)
    both[0].cancel()  # admitted, but not yet resumed
    await next_one
    bodies.release("a", 50)
    await both[1]
    monkeypatch.setattr(budget, "WAIT", 0.01)
    with pytest.raises(Refused, match="nothing was done, try again"):
        await bodies.take("a", 100)
    bodies.release("a", 100)
    assert (bodies._sum, bodies._held, bodies._waiting) == (0, {}, [])


async def test_waiting_bodies_per_token_are_limited(monkeypatch):
    monkeypatch.setattr(budget, "BODIES_WAITING", 2)
    bodies = Budget(lambda: 400)
    await bodies.take("a", 100)
    waiting = [await take(bodies, "a", 100) for _ in range(2)]
    with pytest.raises(Refused):
        await bodies.take("a", 100)
    assert (await take(bodies, "b", 100)).done()
    for one in waiting:
        one.cancel()


@pytest.fixture
async def closed(make_app):
    async with serving(make_app(request_memory="4MiB"), token=TOKEN) as client:
        yield client


class Unfinished:
    """Requests with unfinished bodies."""

    def __init__(self, client, token, size, path="/v1/jobs/batch", *, announced=True, **headers):
        length = f"Content-Length: {size}" if announced else "Transfer-Encoding: chunked"
        more = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        head = f"POST {path} HTTP/1.1\r\nHost: x.localhost\r\nAuthorization: Bearer {token}\r\n{more}{length}\r\n\r\n"
        sent = b" " * (size - 1)
        self._data = head.replace("x.localhost", "127.0.0.1").encode() + (
            sent if announced else b"%x\r\n%s\r\n" % (len(sent), sent)
        )
        self._address = client.address
        self.writers = []

    async def open(self, count):
        for _ in range(count):
            reader, writer = await asyncio.open_connection(*self._address)
            self.writers.append(writer)
            writer.write(self._data)
        return reader

    def close(self):
        for writer in self.writers:
            writer.close()


@pytest.mark.parametrize("announced", [True, False])
@pytest.mark.parametrize(
    ("path", "more"),
    [("/v1/jobs/batch", {}), ("/v1/store/write", {"Holdfast_Protocol": str(wire.PROTOCOL), "Holdfast_Request": "r"})],
)
async def test_unfinished_bodies_are_limited_to_a_share(closed, monkeypatch, path, more, announced):
    monkeypatch.setattr(budget, "WAIT", 0.05)
    flood = Unfinished(closed, TOKEN, 900 * KIB, path, announced=announced, **more)
    try:
        answer = await (await flood.open(6)).readuntil(b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: 1" in answer.lower()
        bodies = closed.service.bodies
        assert 0 < bodies._sum <= (MIB if announced else 64 * MIB), "one at a time"
        assert (await closed.submit()).status == 401
        closed.token = TOKEN
        assert (await closed.submit()).status == 201, "small ones are not counted"
    finally:
        flood.close()

    async def released():
        return bodies._sum == 0

    await eventually(released)


async def test_a_token_that_floods_the_server_does_not_block_others(closed, monkeypatch):
    app = closed.service.app
    one, other = (
        await tokens.create(parts_of(app).records, ["submit"]),
        await tokens.create(parts_of(app).records, ["submit"]),
    )
    flood = Unfinished(closed, one, 900 * KIB)
    try:
        await flood.open(20)

        async def full():
            return closed.service.bodies._held.get(one.split("_")[1]) == 900 * KIB

        await eventually(full)
        jobs = [{"type": "noop", "payload": {"x": "y" * 100 * KIB}, "key": f"{number}"} for number in range(5)]
        reply = await closed("POST", "/v1/jobs/batch", {"jobs": jobs}, token=other)
        assert [job["status"] for job in reply.json["jobs"]] == [201] * 5
    finally:
        flood.close()
