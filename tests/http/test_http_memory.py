"""Bodies of requests are bounded in sum: those beyond the budget, or beyond a token's share of it, wait or get 503."""

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


async def let_in(budget, token, size):
    """Whether there is room at once."""
    taking = asyncio.ensure_future(budget.take(token, size))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return taking


async def test_a_token_beyond_its_share_waits_and_others_do_not():
    bodies = Budget(lambda: 400)
    assert (await let_in(bodies, "a", 60)).done()
    second = await let_in(bodies, "a", 60)
    assert not second.done()
    assert (await let_in(bodies, "b", 60)).done()
    assert (await let_in(bodies, "a", 40)).done(), "what fits beside the first"
    bodies.release("a", 60)
    await second


async def test_nobody_overtakes_a_body_that_waits_for_the_sum():
    bodies = Budget(lambda: 400)
    for token in "abcd":
        assert (await let_in(bodies, token, 90)).done()
    large, small = await let_in(bodies, "e", 100), await let_in(bodies, "f", 10)
    assert not large.done()
    assert not small.done()
    bodies.release("a", 90)
    await asyncio.gather(large, small)


async def test_a_token_beyond_its_share_holds_up_nobody_where_the_sum_is_short_too():
    bodies = Budget(lambda: 400)
    for token in "abc":
        assert (await let_in(bodies, token, 100)).done()
    second = await let_in(bodies, "a", 200)
    assert not second.done()
    assert (await let_in(bodies, "d", 60)).done()
    second.cancel()


async def test_who_gives_up_as_another_body_ends_harms_nobody():
    bodies = Budget(lambda: 400)
    await bodies.take("a", 400)
    gone, after = await let_in(bodies, "b", 400), await let_in(bodies, "c", 400)
    gone.cancel()  # and has not run since
    bodies.release("a", 400)
    await after
    assert (bodies._sum, bodies._held, bodies._waiting) == (400, {"c": 400}, [])


async def test_a_body_larger_than_its_share_or_the_budget_is_let_in_alone():
    bodies = Budget(lambda: 400)
    assert (await let_in(bodies, "a", 300)).done()
    bodies.release("a", 300)
    assert (await let_in(bodies, "a", 1000)).done()
    other = await let_in(bodies, "b", 1)
    assert not other.done()
    bodies.release("a", 1000)
    await other


async def test_who_gives_up_leaves_no_trace(monkeypatch):
    bodies = Budget(lambda: 400)
    await bodies.take("a", 100)
    gone, next_one = await let_in(bodies, "a", 100), await let_in(bodies, "a", 50)
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    both = [await let_in(bodies, "a", 100) for _ in range(2)]
    bodies.release("a", 100)
    both[0].cancel()  # it was let in, and has not heard of it
    await next_one
    bodies.release("a", 50)
    await both[1]
    monkeypatch.setattr(budget, "WAIT", 0.01)
    with pytest.raises(Refused, match="send it again"):
        await bodies.take("a", 100)
    bodies.release("a", 100)
    assert (bodies._sum, bodies._held, bodies._waiting) == (0, {}, [])


async def test_so_many_of_one_token_wait_and_no_more(monkeypatch):
    monkeypatch.setattr(budget, "BODIES_WAITING", 2)
    bodies = Budget(lambda: 400)
    await bodies.take("a", 100)
    waiting = [await let_in(bodies, "a", 100) for _ in range(2)]
    with pytest.raises(Refused):
        await bodies.take("a", 100)
    assert (await let_in(bodies, "b", 100)).done()
    for one in waiting:
        one.cancel()


@pytest.fixture
async def closed(make_app):
    async with serving(make_app(request_memory="4MiB"), token=TOKEN) as client:
        yield client


class Unfinished:
    """Requests whose bodies never come to their end."""

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
async def test_unfinished_bodies_hold_no_more_than_a_share(closed, monkeypatch, path, more, announced):
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


async def test_a_token_that_floods_the_server_holds_up_no_other(closed, monkeypatch):
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
