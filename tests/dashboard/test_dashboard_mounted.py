"""The dashboard inside a FastAPI and a Flask application, behind the login of each."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import uvicorn
from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.responses import HTMLResponse, RedirectResponse
from flask import Flask, redirect, request, session
from playwright.sync_api import expect
from werkzeug.serving import make_server

from holdfast import Holdfast
from holdfast.contrib import fastapi, flask
from holdfast.http.serve import bind

FORM = '<link rel="icon" href="data:,"><form method="post"><button>Log in</button></form>'


@contextmanager
def in_fastapi(queue: Holdfast):
    def admins_only(request: Request) -> None:
        if request.cookies.get("session") != "admin":
            raise HTTPException(303, headers={"Location": "/login"})

    web = FastAPI(lifespan=fastapi.lifespan(queue))
    web.include_router(fastapi.dashboard(queue, dependencies=[Depends(admins_only)]), prefix="/queue")

    @web.get("/login")
    async def form() -> HTMLResponse:
        return HTMLResponse(FORM)

    @web.post("/login")
    async def login() -> RedirectResponse:
        answer = RedirectResponse("/queue/", 303)
        answer.set_cookie("session", "admin", httponly=True, samesite="lax")
        return answer

    server = uvicorn.Server(uvicorn.Config(web, log_config=None, access_log=False))
    with bind("127.0.0.1", 0) as bound:
        bound.listen()  # connections wait for the server
        thread = threading.Thread(target=asyncio.run, args=[server.serve([bound])])
        thread.start()
        try:
            yield f"http://127.0.0.1:{bound.getsockname()[1]}"
        finally:
            server.should_exit = server.force_exit = True  # a stream may be open
            thread.join()


@contextmanager
def in_flask(queue: Holdfast):
    application = Flask("shop")
    application.secret_key = "of a test"
    flask.init_app(application, queue)
    board = flask.dashboard(queue, lambda: None if session.get("admin") else redirect("/login"))
    application.register_blueprint(board, url_prefix="/queue")

    @application.route("/login", methods=["GET", "POST"])
    def login():
        if request.method == "GET":
            return FORM
        session["admin"] = True
        return redirect("/queue/")

    server = make_server("127.0.0.1", 0, application, threaded=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        server.shutdown()
        thread.join()


@contextmanager
def evil_site(target: str):
    """A site of another origin, whose page posts to the target by itself."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(f'<form method="post" action="{target}"><button>Win a prize</button></form>'.encode())

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def apart():
    """Calls a blocking function: Playwright runs an event loop in this thread."""
    with ThreadPoolExecutor(1) as thread:
        yield lambda function, *args: thread.submit(function, *args).result()


@pytest.mark.parametrize("host", [in_flask, pytest.param(in_fastapi, marks=pytest.mark.extended)])
def test_the_dashboard_is_behind_the_login_of_the_application(make_page, tmp_path, apart, host):
    queue = Holdfast(f"sqlite:///{tmp_path}/jobs.db?synchronous=normal")
    handle = apart(queue.sync.using(delay=3600).enqueue, "noop")
    page = make_page()
    with host(queue) as address:
        page.goto(f"{address}/queue/")
        page.get_by_role("button", name="Log in").click()  # of the application, which redirects to the dashboard
        expect(page.locator(".connection")).to_have_text("Live")
        page.goto(f"{address}/queue/#/jobs/{handle.id}")
        page.get_by_role("button", name="Cancel").first.click()
        page.get_by_role("dialog").get_by_role("button", name="Cancel job").click()
        expect(page.locator("main")).to_contain_text("cancelled")
        assert apart(handle.job).state == "cancelled"

        with evil_site(f"{address}/queue/v1/queues/default/pause") as evil:  # the same host: it has the cookie
            other = page.context.new_page()
            other.goto(evil)
            with other.expect_response("**/pause") as refused:
                other.get_by_role("button", name="Win a prize").click()
            assert "session=" in refused.value.request.all_headers()["cookie"]
            assert refused.value.json()["type"] == "urn:holdfast:problem:wrong-origin"
            assert not apart(queue.sync.stats).queues[0].paused
            other.close()

        page.get_by_role("link", name="Queues").click()  # which is refreshed every 5 s
        page.get_by_role("heading", name="Queues").wait_for()
        page.context.clear_cookies()
        expect(page.get_by_role("button", name="Log in")).to_be_visible()  # the page has noticed the end of the session
    apart(queue.sync.close)
