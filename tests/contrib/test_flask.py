"""Holdfast in a Flask application."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache

import pytest
from flask import Flask, abort, current_app, request

from holdfast import ConfigError, Holdfast
from holdfast.app import parts_of
from holdfast.client.loop_calls import BackgroundLoop
from holdfast.contrib import bridge
from holdfast.contrib.flask import AppContext, dashboard, init_app
from holdfast.http.service import Service
from holdfast.testing import on_memory

PROGRAM = """
from flask import Flask, current_app
from holdfast import Holdfast
from holdfast.contrib.flask import init_app

queue = Holdfast()


@queue.task
def in_thread() -> str:
    return current_app.config["GREETING"]


@queue.task
async def on_loop() -> str:
    return current_app.config["GREETING"]


@queue.task(run_in="process")
def in_process() -> str:
    return current_app.config["GREETING"]


def create_app(greeting):
    app = Flask(__name__)
    app.config.update(GREETING=greeting, HOLDFAST_URL="sqlite:///jobs.db?synchronous=normal")
    init_app(app, queue)
    return app
"""


@pytest.fixture(autouse=True)
def forget_applications(monkeypatch):
    monkeypatch.setattr(AppContext, "latest", None)


@pytest.fixture
def queue() -> Holdfast:
    return Holdfast()


def admins_only():
    if request.cookies.get("session") != "admin":
        abort(401)


@pytest.fixture
def application(queue) -> Flask:
    application = Flask("shop")
    init_app(application, queue)
    application.register_blueprint(dashboard(queue, admins_only), url_prefix="/queue")
    return application


@pytest.fixture
def bench(queue, application):
    with on_memory(queue) as bench:
        yield bench


@pytest.fixture
def client(bench, application):
    client = application.test_client()
    client.set_cookie("session", "admin")
    return client


# -- extension


def test_settings_come_from_the_configuration(queue, tmp_path):
    application = Flask("shop")
    application.config.update(HOLDFAST_URL=f"sqlite:///{tmp_path}/jobs.db", HOLDFAST_MAX_ATTEMPTS=2)
    init_app(application, queue)
    assert application.extensions["holdfast"] is queue
    handle = queue.sync.enqueue("noop")
    assert handle.job().max_attempts == 2
    assert (tmp_path / "jobs.db").exists()
    queue.sync.close()


def test_an_unknown_setting_is_refused(queue):
    application = Flask("shop")
    application.config["HOLDFAST_ATTEMPTS"] = 2
    with pytest.raises(ConfigError, match="unknown setting 'attempts'"):
        init_app(application, queue)


def test_tasks_run_in_the_context_of_the_last_application(queue):
    @queue.task
    def name() -> str:
        return current_app.name

    with on_memory(queue) as bench:
        for number in range(2):
            init_app(Flask(f"shop{number}"), queue)  # sets up on the bench, whose store stays
        handle = name.sync.enqueue()
        bench.work()
        assert handle.result() == "shop1"
    assert len(queue.around_call) == 1
    assert parts_of(queue).url == "sqlite:///holdfast.db"


def test_other_settings_for_an_app_in_use_are_refused(queue, tmp_path):
    first, second = Flask("shop"), Flask("shop")
    first.config["HOLDFAST_URL"] = f"sqlite:///{tmp_path}/one.db"
    second.config["HOLDFAST_URL"] = f"sqlite:///{tmp_path}/two.db"
    init_app(first, queue)
    queue.sync.enqueue("noop")
    with pytest.raises(ConfigError, match="before its first use"):
        init_app(second, queue)
    queue.sync.close()
    init_app(second, queue)
    assert parts_of(queue).url.endswith("two.db")


# -- command line


def test_a_worker_of_the_command_runs_every_kind_of_task_in_the_context(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    client = Holdfast(f"sqlite:///{tmp_path}/jobs.db?synchronous=normal").sync
    ids = {kind: client.submit(kind, b"{}").id for kind in ("in_thread", "on_loop", "in_process")}
    words = ["--app", "program:create_app('Hello')", "holdfast", "worker", "start", "--foreground", "--drain"]
    subprocess.run([sys.executable, "-m", "flask", *words], cwd=tmp_path, check=True)
    assert {kind: client.job(id).result for kind, id in ids.items()} == dict.fromkeys(ids, "Hello")
    client.close()


def test_errors_of_the_command_have_no_traceback(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "flask", "--app", "program:create_app(1)", "holdfast", "show", "nope"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode in (1, 2)
    assert done.stderr.startswith("holdfast: ")
    assert "Traceback" not in done.stderr


def test_a_worker_without_the_application_says_what_to_set(tmp_path):
    command = [sys.executable, "-m", "holdfast", "-A", "holdfast.contrib.flask_app", "status"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "FLASK_APP" in done.stderr
    assert "Traceback" not in done.stderr


# -- dashboard


def test_every_route_is_behind_the_guard(queue, bench, application):
    client = application.test_client()
    paths = [(one.method, one.path) for one in Service(queue).endpoints]
    assert len(paths) > 50
    for method, path in [*paths, ("GET", "/nope"), ("HEAD", "/")]:
        for given in (f"/queue{path}", f"/queue//{path}"):
            assert client.open(given, method=method, follow_redirects=True).status_code == 401, (method, given)


def test_the_user_who_passes_sees_and_changes_jobs(queue, client):
    handle = queue.sync.using(delay=3600).enqueue("noop")
    page = client.get("/queue", follow_redirects=True)
    assert page.request.path == "/queue/"
    assert b"dashboard/main.js" in page.data
    assert page.headers.getlist("Content-Type") == ["text/html; charset=utf-8"]
    assert "Content-Security-Policy" in page.headers
    assert client.get("/queue/", headers={"If-None-Match": page.headers["ETag"]}).status_code == 304
    cancelled = client.post(f"/queue/v1/jobs/{handle.id}/cancel", headers={"Origin": "http://localhost"})
    assert cancelled.status_code == 200
    assert handle.job().state == "cancelled"
    submitted = client.post("/queue/v1/jobs", json={"type": "noop", "payload": {}}, headers={"Idempotency-Key": "k"})
    assert submitted.status_code == 201
    assert client.get("/queue/v1/jobs?state=cancelled").json["jobs"][0]["id"] == handle.id


@pytest.mark.parametrize("origin", ["http://evil.example", "null"])
def test_a_page_of_another_site_cannot_use_the_login(queue, client, origin):
    handle = queue.sync.enqueue("noop")
    refused = client.post(f"/queue/v1/jobs/{handle.id}/cancel", headers={"Origin": origin})
    assert refused.json["type"] == "urn:holdfast:problem:wrong-origin"
    assert handle.job().state == "queued"


def test_another_host_name_is_refused(bench, application):
    client = application.test_client(use_cookies=False)
    refused = client.get("/queue/v1/stats", headers={"Host": "evil.example", "Cookie": "session=admin"})
    assert refused.status_code == 421


def test_first_requests_at_once_use_one_loop(bench, application, monkeypatch):
    """The state that the service shares between requests belongs to one loop."""
    started: list[BackgroundLoop] = []
    second = threading.Barrier(2)

    def start() -> BackgroundLoop:
        started.append(BackgroundLoop())
        with suppress(threading.BrokenBarrierError):
            second.wait(0.5)  # for another thread that starts one too
        return started[-1]

    def ask() -> int:
        client = application.test_client(use_cookies=False)
        return client.get("/queue/health", headers={"Cookie": "session=admin"}).status_code

    monkeypatch.setattr(bridge, "_background", cache(start))
    with ThreadPoolExecutor(2) as threads:
        assert [one.result() for one in [threads.submit(ask), threads.submit(ask)]] == [200, 200]
    for loop in started:
        loop.stop()
    assert len(started) == 1


def test_a_stream_ends_with_its_first_events(queue, client):
    """The page asks again from the last id, every second or two."""
    first = client.get("/queue/v1/events")
    assert first.headers["Content-Type"].startswith("text/event-stream")
    last = re.findall(r"^id: (.+)$", first.text, flags=re.MULTILINE)[-1]
    handle = queue.sync.enqueue("noop")
    assert handle.id in client.get("/queue/v1/events", headers={"Last-Event-ID": last}).text


def test_a_body_that_is_too_large_is_refused(client):
    body = b'{"type": "noop", "payload": "' + b"x" * 3_000_000 + b'"}'
    for length in ({}, {"content_length": len(body)}):
        refused = client.post("/queue/v1/jobs", data=body, content_type="application/json", **length)
        assert refused.status_code == 413


def test_the_guard_names_the_user_for_the_audit_log(queue):
    def guard():
        request.environ["holdfast.actor"] = "ann"

    application = Flask("shop")
    init_app(application, queue)
    application.register_blueprint(dashboard(queue, guard), url_prefix="/queue")
    with on_memory(queue):
        client = application.test_client()
        assert client.post("/queue/v1/queues/default/pause").status_code == 200
        assert client.get("/queue/v1/audit").json["entries"][0]["actor"] == "ann"
