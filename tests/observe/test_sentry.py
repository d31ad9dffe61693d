"""Jobs in Sentry: the real SDK, with a transport that keeps the envelopes, or with a server of its own."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import threading
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import sentry_sdk
from sentry_sdk.transport import Transport

from holdfast import ConfigError, Context, Discard, Retry, Snooze
from holdfast.contrib import sentry
from holdfast.contrib.sentry import instrument
from holdfast.testing.clock import ManualClock
from support.workers import work_off


class Kept(Transport):
    """Keeps what would be sent."""

    def __init__(self, options=None):
        super().__init__(options)
        self.items = []

    def capture_envelope(self, envelope):
        self.items += [item.payload.json for item in envelope.items if item.payload.json is not None]

    def errors(self):
        return [item for item in self.items if item.get("type") != "check_in"]

    def check_ins(self):
        return [item for item in self.items if item.get("type") == "check_in"]


@pytest.fixture
def sent(monkeypatch):
    """Sentry configured for one test."""
    monkeypatch.setattr(sentry_sdk.scope, "global_event_processors", [])
    monkeypatch.setattr(sentry, "_instrumented", [])
    kept = Kept()
    with sentry_sdk.isolation_scope(), sentry_sdk.new_scope():
        sentry_sdk.init("http://key@127.0.0.1/1", transport=kept, release="1.0")
        yield kept
    sentry_sdk.get_client().close(timeout=0)
    sentry_sdk.get_global_scope().set_client(None)


def crumbs(event):
    return [crumb["message"] for crumb in event["breadcrumbs"]["values"]]


@pytest.mark.parametrize("kind", ["loop", "thread"])
async def test_each_attempt_that_fails_is_reported_with_its_own_scope(app, sent, kind):
    instrument(app)

    def fail(name: str) -> None:
        logging.getLogger("shop").warning("about to fail %s", name)
        sentry_sdk.set_tag("shop", name)
        raise ValueError(name)

    if kind == "loop":

        async def work(name: str) -> None:
            fail(name)

    else:
        work = fail
    task = app.task(work, name="work", queue="mail", max_attempts=1)
    handles = [await task.enqueue(name) for name in ("a", "b")]
    await work_off(app)
    events = {event["tags"]["shop"]: event for event in sent.errors()}
    assert len(sent.errors()) == 2
    for name, handle in zip(("a", "b"), handles, strict=True):
        event = events[name]
        assert event["exception"]["values"][-1]["type"] == "ValueError"
        assert event["exception"]["values"][-1]["mechanism"]["type"] == "holdfast"
        assert event["transaction"] == "work"
        assert event["tags"] == {
            "holdfast.task": "work", "holdfast.queue": "mail", "holdfast.job": handle.id, "shop": name,
        }  # fmt: skip
        assert event["contexts"]["holdfast"]["attempt"] == 1
        assert [line for line in crumbs(event) if line.startswith("about")] == [f"about to fail {name}"]


async def test_every_failed_attempt_is_reported_and_what_is_no_failure_is_not(app, sent):
    instrument(app)
    ways = iter([Snooze(0), Retry(after=0), ValueError("once"), None])

    @app.task(max_attempts=5, retry=lambda error, attempt: 0)
    async def work() -> None:
        if (way := next(ways)) is not None:
            raise way

    handle = await work.enqueue()
    await work_off(app)
    assert (await handle.job()).state == "succeeded"
    [event] = sent.errors()
    assert event["exception"]["values"][-1]["value"] == "once"


async def test_a_job_that_dies_without_an_exception_is_reported_as_a_message(app, sent):
    instrument(app)

    @app.task
    async def work() -> None:
        raise Discard("not wanted")

    handle = await work.enqueue()
    await work_off(app)
    [event] = sent.errors()
    assert event["message"] == "job of task work is dead: Discard: not wanted"
    assert event["level"] == "error"
    assert event["tags"]["holdfast.job"] == handle.id


async def test_a_timeout_is_reported(app, sent):
    instrument(app)

    @app.task(max_attempts=1, timeout=0.05)
    async def work() -> None:
        logging.getLogger("shop").warning("waits")
        await asyncio.Event().wait()

    await work.enqueue()
    await work_off(app)
    [event] = sent.errors()
    assert event["exception"]["values"][-1]["type"] == "TimeoutError"
    assert "waits" in crumbs(event)


async def test_an_enqueue_is_a_breadcrumb(app, sent):
    instrument(app)
    logging.getLogger("holdfast").setLevel(logging.WARNING)
    handle = await app.enqueue("noop")
    sentry_sdk.capture_message("after")
    [event] = sent.errors()
    [crumb] = [crumb for crumb in event["breadcrumbs"]["values"] if crumb["category"] == "holdfast"]
    assert crumb["message"] == "job_created noop"
    assert crumb["data"]["job"] == handle.id
    assert "holdfast" not in event["contexts"], "outside of a job there is no job"


async def test_other_error_lines_of_holdfast_are_reported(app, sent):
    instrument(app)
    logging.getLogger("holdfast").error("the store is broken")
    [event] = sent.errors()
    assert event["logentry"]["message"] == "the store is broken"


async def test_a_scheduled_run_checks_in_and_out(make_app, sent):
    clock = ManualClock()
    app = make_app(clock=clock)
    instrument(app)

    @app.cron("0 3 * * *", tz="Europe/Berlin", name="Nightly Report!")
    @app.task(name="report", max_attempts=2, timeout=90, retry=lambda error, attempt: 0)
    async def report(ctx: Context) -> None:
        if ctx.job.attempt == 1 and "schedule" in ctx.job.meta:
            raise ValueError("first attempt")

    await app.open()
    await work_off(app)  # stores the schedule
    assert sent.check_ins() == []
    clock.advance(timedelta(days=1).total_seconds())
    await app.schedules.run_now("Nightly Report!")  # no check-in: Sentry does not expect it
    await work_off(app)
    first, again, last = sent.check_ins()
    assert {one["monitor_slug"] for one in sent.check_ins()} == {"nightly-report"}
    assert len({one["check_in_id"] for one in sent.check_ins()}) == 1
    assert [one["status"] for one in (first, again, last)] == ["in_progress", "in_progress", "ok"]
    assert first["monitor_config"] == {
        "schedule": {"type": "crontab", "value": "0 3 * * *"}, "timezone": "Europe/Berlin", "max_runtime": 3,
    }  # fmt: skip
    assert last["duration"] >= 0


async def test_the_check_in_of_a_dead_job_is_an_error(make_app, sent):
    clock = ManualClock()
    app = make_app(clock=clock)
    instrument(app)

    @app.cron(every=90)
    @app.task(name="report", max_attempts=1)
    async def report() -> None:
        raise ValueError("no")

    await app.open()
    await work_off(app)
    clock.advance(90)
    await work_off(app)
    first, last = sent.check_ins()
    assert (first["status"], last["status"]) == ("in_progress", "error")
    assert first["monitor_config"] == {"schedule": {"type": "interval", "value": 2, "unit": "minute"}}


@pytest.mark.parametrize("rule", [{"every": 5}, {"cron": "*/5 * * * * *"}])
async def test_rules_that_sentry_does_not_know_have_no_check_ins(make_app, sent, rule):
    clock = ManualClock()
    app = make_app(clock=clock)
    instrument(app)
    await app.schedules.put("often", "noop", **rule)
    clock.advance(10)
    await work_off(app)
    assert (await app.stats()).counts["succeeded"] >= 1
    assert sent.check_ins() == []


async def test_check_ins_can_be_switched_off(make_app, sent):
    clock = ManualClock()
    app = make_app(clock=clock)
    instrument(app, check_ins=False)
    await app.schedules.put("hourly", "noop", every=3600)
    clock.advance(3600)
    await work_off(app)
    assert (await app.stats()).counts["succeeded"] >= 1
    assert sent.items == []


async def test_memory_of_runs_is_bounded(app):
    seen = {}
    for n in range(sentry.REMEMBERED + 5):
        sentry._remember(seen, n, None)
    assert len(seen) == sentry.REMEMBERED
    assert 4 not in seen


def test_instrument_needs_an_app():
    with pytest.raises(ConfigError, match="needs your Holdfast app"):
        instrument("shop:app")


APP = """
import logging, os
import sentry_sdk
sentry_sdk.init(os.environ["DSN"])

from holdfast import Holdfast
from holdfast.contrib.sentry import instrument
app = Holdfast()
instrument(app)

@app.task(max_attempts=1)
def plain() -> None:
    raise ValueError("plain")

@app.task(run_in="isolated", max_attempts=1)
def apart() -> None:
    logging.getLogger("shop").warning("in its own process")
    raise ValueError("apart")

@app.task(run_in="isolated", max_attempts=1)
def crashes() -> None:
    os._exit(9)
"""


class Ingest(BaseHTTPRequestHandler):
    """What Sentry's own server does with an envelope, as far as a test needs it."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        lines = [json.loads(line) for line in body.splitlines() if line.startswith(b"{")]
        self.server.events += [line for line in lines if "event_id" in line and "platform" in line]
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_):
        pass


@pytest.mark.extended
def test_worker_and_child_processes_send_their_events_before_they_end(terminal):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Ingest)
    server.events = []
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    try:
        terminal.env["DSN"] = f"http://key@127.0.0.1:{server.server_address[1]}/1"
        (terminal.folder / "shop.py").write_text(APP)
        for task in ("plain", "apart", "crashes"):
            terminal("enqueue", "-A", "shop:app", "--task", task)
        terminal.start("worker", "start", "-A", "shop:app", "--foreground", "--drain")
        assert terminal.started[-1].wait(60) == 0
    finally:
        server.shutdown()
        serving.join()
        server.server_close()
    found = {event["transaction"]: event for event in server.events}
    assert len(server.events) == 3
    assert found["plain"]["exception"]["values"][-1]["value"] == "plain"
    assert found["apart"]["exception"]["values"][-1]["value"] == "apart"
    assert "in its own process" in crumbs(found["apart"])
    assert found["crashes"]["exception"]["values"][-1]["type"] == "ProcessFailed"
