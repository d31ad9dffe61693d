"""The service mounted in another application."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager

import aiohttp
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from holdfast import Holdfast
from holdfast.app import parts_of
from holdfast.http import asgi
from holdfast.http.serve import bind
from support.http import Client


@asynccontextmanager
async def running(application, http="auto"):
    with bind("127.0.0.1", 0) as bound:
        config = uvicorn.Config(application, http=http, access_log=False, log_level=logging.WARNING, log_config=None)
        server = uvicorn.Server(config)
        task = asyncio.create_task(server.serve([bound]))
        while not server.started:
            assert not task.done(), task.exception()
            await asyncio.sleep(0.01)
        async with aiohttp.ClientSession() as session:
            yield Client(f"http://127.0.0.1:{bound.getsockname()[1]}", session)
        server.should_exit = True
        await asyncio.wait_for(task, 90)


@pytest.mark.parametrize("http", ["httptools", "h11"])
async def test_mounted_below_a_path_with_the_host_lifespan(app, http):
    api = asgi(app, unguarded=True)

    @asynccontextmanager
    async def lifespan(_):
        async with api:
            yield

    async def mine(_):
        await app.enqueue("noop")
        return PlainTextResponse("mine")

    application = Starlette(routes=[Route("/", mine), Mount("/queue", api)], lifespan=lifespan)
    async with running(application, http) as client:
        assert (await client("GET", "/")).content == b"mine"
        reply = await client("POST", "/queue/v1/jobs", {"type": "t", "payload": {}}, Idempotency_Key="k")
        assert reply.status == 201
        assert (await client("GET", f"/queue/v1/jobs/{reply.json['id']}")).status == 200
        assert (await client("GET", "/queue/v1/stats")).json["counts"]["queued"] == 2
        assert (await client("GET", "/queue/nope")).problem == "not-found"
        assert (await client("GET", "/queue/health")).status == 200
    assert parts_of(app).runtime.live_loop() is None


async def test_the_app_opens_without_a_lifespan(app):
    async with running(Starlette(routes=[Mount("/queue", asgi(app, unguarded=True))])) as client:
        assert (await client("GET", "/queue/v1/stats")).status == 200


async def test_the_application_limits_the_roles_of_a_sender(app):
    api = asgi(app, unguarded=True)

    async def application(scope, receive, send):
        if scope["type"] == "http":
            asks = dict(scope["headers"]).get(b"x-user") == b"operator"
            scope["holdfast.roles"] = frozenset({"read", "operate"} if asks else {"read"})
        await api(scope, receive, send)

    async with running(application) as client:
        assert (await client("GET", "/v1/stats")).status == 200
        refused = await client("POST", "/v1/queues/mail/pause", {})
        assert (refused.status, refused.problem) == (403, "forbidden")
        assert "token" not in refused.json["detail"]
        assert (await client("GET", "/v1/me")).json["roles"] == ["read"]
        assert (await client("POST", "/v1/queues/mail/pause", {}, X_User="operator")).status == 200
        assert (await client("POST", "/v1/jobs", {"type": "t"}, X_User="operator")).problem == "forbidden"


async def test_a_token_is_required_by_default(app):
    async with running(asgi(app)) as client:
        assert (await client("GET", "/health")).status == 200
        assert (await client("GET", "/v1/stats")).status == 401


def test_importing_holdfast_does_not_import_a_web_framework():
    import subprocess
    import sys

    names = "[name for name in ('starlette', 'uvicorn', 'aiohttp') if name in sys.modules]"
    code = f"import sys, holdfast, holdfast.http, holdfast.http.tokens; print({names})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_missing_extra_is_named(monkeypatch):
    import sys

    from holdfast import MissingExtra

    for name in [name for name in sys.modules if name.split(".")[0] == "starlette" or name == "holdfast.http.service"]:
        monkeypatch.delitem(sys.modules, name)

    class NotInstalled:
        @staticmethod
        def find_spec(name, *_):
            if name == "starlette":
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(sys, "meta_path", [NotInstalled, *sys.meta_path])
    with pytest.raises(MissingExtra, match=r"holdfast\[server\]"):
        asgi(Holdfast("memory://"))
