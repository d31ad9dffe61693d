"""Holdfast in a Starlette application, and how a server with an open dashboard stops."""

from __future__ import annotations

import http.client
import re
import signal
import subprocess
import sys

import pytest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse
from starlette.routing import Mount, Route
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from holdfast import ConfigError, Holdfast, Worker
from holdfast.contrib.starlette import Dashboard, lifespan, stream_response
from holdfast.testing import on_memory

PROGRAM = """
from fastapi import Depends, FastAPI
from holdfast import Holdfast
from holdfast.contrib.fastapi import dashboard, lifespan

queue = Holdfast("memory://")
web = FastAPI(lifespan=lifespan(queue))
web.include_router(dashboard(queue, dependencies=[Depends(lambda: None)]), prefix="/queue")
"""


def to_login(request):
    return None if request.cookies.get("session") == "admin" else RedirectResponse("/login", 303)


async def refuse(request):
    if request.cookies.get("session") != "admin":
        raise HTTPException(403)


@pytest.mark.parametrize(("guard", "refusal"), [(to_login, 303), (refuse, 403)])
def test_the_dashboard_is_mounted_behind_a_guard(guard, refusal):
    queue = Holdfast("memory://")
    board = Dashboard(queue, guard)
    web = Starlette(routes=[Mount("/queue", board)], lifespan=lifespan(queue, board.lifespan))
    with on_memory(queue), TestClient(web, follow_redirects=False) as client:
        for path in ("/", "/dashboard/main.js", "/health", "/v1/stats", "/nope"):
            assert client.get(f"/queue{path}").status_code == refusal, path
        with pytest.raises(WebSocketDisconnect), client.websocket_connect("/queue/v1/events"):
            pass
        client.cookies.set("session", "admin")
        assert "dashboard/main.js" in client.get("/queue/").text
        assert client.get("/queue/v1/stats").json()["counts"]["queued"] == 0
        evil = client.post("/queue/v1/queues/default/pause", headers={"Origin": "http://evil.example"})
        assert evil.json()["type"] == "urn:holdfast:problem:wrong-origin"


def test_the_guard_names_the_user_for_the_audit_log():
    def guard(request):
        request.scope["holdfast.actor"] = "ann"

    queue = Holdfast("memory://")
    board = Dashboard(queue, guard)
    web = Starlette(routes=[Mount("/queue", board)], lifespan=lifespan(queue, board.lifespan))
    with on_memory(queue), TestClient(web) as client:
        assert client.post("/queue/v1/queues/default/pause").status_code == 200
        assert client.get("/queue/v1/audit").json()["entries"][0]["actor"] == "ann"


@pytest.mark.parametrize("last", ["no-position", "-1", "9" * 18])
def test_a_stream_with_a_wrong_last_event_id_is_refused(last):
    queue = Holdfast("memory://")

    async def read(request):
        return await stream_response(await queue.enqueue("noop"), request)

    web = Starlette(routes=[Route("/answer", read)], lifespan=lifespan(queue))
    with on_memory(queue), TestClient(web) as client:
        refused = client.get("/answer", headers={"Last-Event-ID": last})
    assert (refused.status_code, "omit the header" in refused.text) == (422, True)


@pytest.mark.parametrize("worker", [True, "Worker", Worker(Holdfast("memory://"))])
def test_a_worker_instead_of_its_class_is_refused(worker):
    with pytest.raises(ConfigError, match="write worker=Worker"):
        lifespan(Holdfast("memory://"), worker=worker)


def test_a_lifespan_without_its_app_is_refused():
    web = TestClient(Starlette(lifespan=lifespan))
    with pytest.raises(ConfigError, match=r"write lifespan=lifespan\(queue\)"), web:
        pass


def test_a_guard_that_returns_no_response_refuses():
    board = Dashboard(Holdfast("memory://"), lambda request: request.cookies.get("session") == "admin")
    client = TestClient(Starlette(routes=[Mount("/queue", board)]), headers={"Host": "localhost"})
    for cookies in ({}, {"session": "admin"}):
        client.cookies = cookies
        with pytest.raises(ConfigError, match="return None to allow"):
            client.get("/queue/v1/stats")


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.extended)])
def test_a_server_with_an_open_dashboard_stops(tmp_path, number):
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "uvicorn", "program:web", "--port", "0"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as server:
        try:
            said = ""
            while (found := re.search(r"http://127\.0\.0\.1:(\d+)", said)) is None:
                said = server.stderr.readline()
                assert said, "the server did not start"
            connection = http.client.HTTPConnection("127.0.0.1", int(found[1]))
            connection.request("GET", "/queue/v1/events")
            stream = connection.getresponse()
            assert stream.readline().startswith(b"retry:")
            server.send_signal(number)
            stream.read()  # to its end
            assert "Application shutdown complete" in server.stderr.read()
            connection.close()
        finally:
            server.kill()
