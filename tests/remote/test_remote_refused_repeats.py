"""An answer was lost, and a proxy refuses the query for it: the outcome of the write stays unknown."""

import pytest
from aiohttp import web

from holdfast.core.clock import SystemClock
from holdfast.core.errors import OutcomeUnknown, StoreUnavailable
from holdfast.store import rpc as wire
from holdfast.store.open import open_store
from holdfast.testing.build import new_job
from holdfast.testing.verbs import insert


@pytest.fixture
async def between():
    """A proxy that drops the answer to a write, and answers the query for it itself."""
    said = {"status": 429, "body": b""}
    hello = {"version": "1", "store": "sqlite", "features": [], "roles": []}

    async def answer(request: web.Request) -> web.StreamResponse:
        name = request.path.rpartition("/")[2]
        if name == wire.HELLO.name:
            return web.json_response(hello, headers={wire.PROTOCOL_HEADER: str(wire.PROTOCOL)})
        if name == wire.RECALL:
            return web.Response(status=said["status"], body=said["body"])
        assert request.transport is not None
        await request.read()
        request.transport.close()
        return web.Response()

    app = web.Application()
    app.router.add_post(wire.PATH + "/{name}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    said["url"] = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield said
    await runner.cleanup()


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (429, b""),
        (408, b""),
        (401, b""),
        (503, b'{"type": "urn:holdfast:problem:store-unavailable"}'),
        (503, b'{"type": "urn:holdfast:problem:busy"}'),
        (502, b"a proxy's page"),
    ],
)
async def test_a_refused_query_leaves_the_write_unknown(between, status, body):
    between |= {"status": status, "body": body}
    store = open_store(between["url"], SystemClock())
    await store.open()
    try:
        with pytest.raises(OutcomeUnknown) as raised:
            await insert(store, new_job("a"))
        assert not isinstance(raised.value, StoreUnavailable)
    finally:
        await store.close()
