"""Prometheus metrics of a server and of a supervisor: names, labels and values."""

import re
import urllib.request

import pytest

from holdfast import ConfigError, Holdfast
from holdfast.app import parts_of
from holdfast.core.operations import QueueStats
from holdfast.observe.events import JobEvent
from holdfast.observe.metrics import MAX_QUEUES, Depths, Metrics
from holdfast.observe.tally import MAX_LABEL_VALUES, METRICS, OTHER, Tally
from holdfast.testing import ManualClock
from support.http import serving
from support.ports import free_port
from support.workers import work_off

SERIES = {
    "holdfast_jobs_submitted_total": {"job_type"},
    "holdfast_jobs_succeeded_total": {"job_type"},
    "holdfast_jobs_failed_total": {"job_type"},
    "holdfast_jobs_dead_total": {"job_type"},
    "holdfast_jobs_idempotent_total": {"job_type"},
    "holdfast_jobs_retried_total": set(),
    "holdfast_lease_acquired_total": set(),
    "holdfast_lease_rejected_total": set(),
    "holdfast_worker_active_jobs": set(),
    "holdfast_job_duration_seconds": {"job_type", "outcome"},
    "holdfast_http_request_duration_seconds": {"method", "path_template", "status_code"},
    "holdfast_http_requests_total": {"method", "path_template", "status_code"},
}
"""The twelve documented metrics."""


def read(page):
    """Samples by (name, labels)."""
    found = {}
    for line in page.splitlines():
        if line and not line.startswith("#"):
            name, labels, value = re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)", line).groups()
            found[name, tuple(sorted(re.findall(r'(\w+)="([^"]*)"', labels or "")))] = float(value)
    return found


def number(samples, name, **labels):
    return samples.get((name, tuple(sorted(labels.items()))), 0.0)


async def lived_through(app):
    """A store with a succeeded job, a failed and dead job, a repeated key, and a lost claim."""

    @app.task
    async def fine() -> None: ...

    @app.task(max_attempts=2, retry=lambda error, attempt: 0)
    async def bad() -> None:
        raise RuntimeError("no")

    await fine.using(key="k").enqueue()
    await fine.using(key="k").enqueue()
    await bad.enqueue()
    await work_off(app)
    await app.submit("raw", b"", queue="slow")
    (claim,) = await app.claim(["slow"])
    await app.handle(claim.job.id).mark_failed("a monitor's word")
    assert not await parts_of(app).claims.settle(await parts_of(app).handles.record(claim.job.id), _ended(claim))


def _ended(claim):
    from holdfast.core.lifecycle import Outcome

    return Outcome.succeeded(None)


async def test_the_documented_series_have_labels_and_values(app):
    metrics = Metrics()
    metrics.listen(parts_of(app).events)
    await lived_through(app)
    metrics.tally._answered(_request())
    page = metrics.page(await app.queues()).decode()
    samples = read(page)
    for name, labels in SERIES.items():
        assert METRICS[name].labels == tuple(METRICS[name].labels)
        assert set(METRICS[name].labels) == labels
        found = {
            frozenset(dict(given) | {"le": ""} if "le" in dict(given) else dict(given))
            for (sample, given) in samples
            if sample in (name, f"{name}_sum")
        }
        assert found == {frozenset(labels)}, name
    assert number(samples, "holdfast_jobs_submitted_total", job_type="fine") == 1
    assert number(samples, "holdfast_jobs_idempotent_total", job_type="fine") == 1
    assert number(samples, "holdfast_jobs_succeeded_total", job_type="fine") == 1
    assert number(samples, "holdfast_jobs_failed_total", job_type="bad") == 1
    assert number(samples, "holdfast_jobs_dead_total", job_type="bad") == 1
    assert number(samples, "holdfast_jobs_retried_total") == 1
    assert number(samples, "holdfast_lease_acquired_total") == 4
    assert number(samples, "holdfast_lease_rejected_total") == 1
    assert number(samples, "holdfast_job_duration_seconds_count", job_type="bad", outcome="dead") == 1
    assert number(samples, "holdfast_job_wait_seconds_count", queue="default") == 3
    assert number(samples, "holdfast_queue_depth", queue="default", state="dead") == 1
    assert number(samples, "holdfast_queue_depth", queue="slow", state="failed") == 1
    assert number(samples, "holdfast_store_up") == 1
    for name, metric in METRICS.items():
        shown = name.removesuffix("_total") if metric.kind == "counter" else name
        assert f"# TYPE {name} {metric.kind}" in page or f"# TYPE {shown} {metric.kind}" in page


def _request():
    from holdfast.observe.events import RequestEvent

    return RequestEvent("http_request", "GET", "/v1/jobs/{id}", 200, 0.01)


def test_buckets_count_everything_below_them():
    tally = Tally()
    for seconds in (0.0005, 0.001, 0.3, 7200):
        tally._observe(("holdfast_job_wait_seconds", "q"), seconds)
    metrics = Metrics()
    metrics.tally.add_all(tally.take())
    samples = read(metrics.page(None).decode())
    at = {le: number(samples, "holdfast_job_wait_seconds_bucket", queue="q", le=le) for le in ("0.001", "0.5", "+Inf")}
    assert at == {"0.001": 2, "0.5": 3, "+Inf": 4}
    assert number(samples, "holdfast_job_wait_seconds_sum", queue="q") == pytest.approx(7200.3015)
    assert tally.take() == (), "taken is taken"


def test_label_values_are_limited():
    tally = Tally()
    assert [tally._known("job_type", f"task-{n}") for n in range(MAX_LABEL_VALUES + 2)][-2:] == [OTHER, OTHER]
    assert tally._known("job_type", "task-0") == "task-0"


def test_label_values_are_limited_per_label():
    metrics = Metrics()
    for number_ in range(MAX_LABEL_VALUES + 100):
        metrics.tally._count("holdfast_jobs_submitted_total", JobEvent("job_created", "1", f"made-up-{number_}", "q"))
    metrics.tally._answered(_request())
    metrics.tally._claimed(JobEvent("lease_acquired", "1", "made-up", "mail", waited=0.1))
    samples = read(metrics.page(None).decode())
    labels = {"method": "GET", "path_template": "/v1/jobs/{id}", "status_code": "200"}
    assert number(samples, "holdfast_http_requests_total", **labels) == 1
    assert number(samples, "holdfast_job_wait_seconds_count", queue="mail") == 1
    assert number(samples, "holdfast_jobs_submitted_total", job_type=OTHER) == 100


def test_all_workers_of_a_supervisor_share_the_label_limit():
    """Each worker process has its own limit, reset at every start."""
    metrics = Metrics()
    for worker in range(3):
        tally = Tally()
        for name in range(MAX_LABEL_VALUES):
            event = JobEvent("job_succeeded", "1", f"{worker}-{name}", "q", ran=0.1)
            tally._ended(event)
        metrics.tally.add_all(tally.take())
    samples = read(metrics.page(None).decode())
    shown = [labels for name, labels in samples if name == "holdfast_jobs_succeeded_total"]
    assert len(shown) == MAX_LABEL_VALUES + 1
    assert number(samples, "holdfast_jobs_succeeded_total", job_type=OTHER) == 2 * MAX_LABEL_VALUES
    counted = number(samples, "holdfast_job_duration_seconds_count", job_type=OTHER, outcome="succeeded")
    assert counted == 2 * MAX_LABEL_VALUES


def test_the_deepest_queues_are_exported_and_the_rest_summed():
    queues = [QueueStats(f"made-up-{n}", {"queued": 1, "succeeded": 500}, oldest=n + 2_000_000) for n in range(600)]
    queues.insert(300, QueueStats("mail", {"queued": 5}, oldest=1_000_000, paused=True))
    queues.append(QueueStats(OTHER, {"queued": 9}, oldest=500_000, paused=True))
    samples = read(Metrics().page((queues, 2_500_000, ())).decode())
    named = {dict(labels)["queue"] for name, labels in samples if name == "holdfast_queue_depth"}
    assert len(named) == MAX_QUEUES + 1
    assert number(samples, "holdfast_queue_depth", queue="mail", state="queued") == 5
    assert number(samples, "holdfast_queue_paused", queue="mail") == 1
    assert number(samples, "holdfast_queue_depth", queue=OTHER, state="queued") == 600 - (MAX_QUEUES - 1) + 9
    assert number(samples, "holdfast_queue_oldest_age_seconds", queue=OTHER) == 2
    assert number(samples, "holdfast_queue_paused", queue=OTHER) == 0, "most of them are not"
    shown = sum(value for (name, labels), value in samples.items() if ("state", "queued") in labels)
    assert shown == 600 + 5 + 9


def test_few_queues_are_all_exported():
    samples = read(Metrics().page(([QueueStats("mail", {"queued": 1})], 0, ())).decode())
    assert {dict(labels)["queue"] for name, labels in samples if name == "holdfast_queue_depth"} == {"mail"}


def test_a_hostile_label_value_is_escaped():
    metrics = Metrics()
    metrics.tally._add(("holdfast_jobs_dead_total", 'a"} 1\nholdfast_fake_total{x="\\'))
    lines = [line for line in metrics.page(None).decode().splitlines() if not line.startswith("#")]
    assert not any(line.startswith("holdfast_fake") for line in lines)


async def test_the_oldest_age_is_by_the_stores_clock():
    metrics = Metrics()
    seen = [QueueStats("mail", {"queued": 2}, oldest=1_000_000, paused=True)], 4_500_000, ()
    samples = read(metrics.page(seen).decode())
    assert number(samples, "holdfast_queue_oldest_age_seconds", queue="mail") == 3.5
    assert number(samples, "holdfast_queue_paused", queue="mail") == 1
    assert number(samples, "holdfast_queue_depth", queue="mail", state="queued") == 2
    assert ("holdfast_queue_depth", (("queue", "mail"), ("state", "dead"))) in samples, "a zero is shown too"


async def test_queue_statistics_are_cached():
    clock, asked = ManualClock(), []

    async def ask():
        asked.append(1)
        return [], 0

    depths = Depths(ask, clock)
    await depths.read()
    await depths.read()
    assert len(asked) == 1
    clock.advance(60)
    await depths.read()
    assert len(asked) == 2


async def test_store_up_is_0_if_the_store_does_not_respond():
    from holdfast import StoreUnavailable

    async def ask():
        raise StoreUnavailable("down")

    assert await Depths(ask, ManualClock()).read() is None
    samples = read(Metrics().page(None).decode())
    assert number(samples, "holdfast_store_up") == 0
    assert not any(name == "holdfast_queue_depth" for name, _ in samples)


async def test_requests_are_counted_by_path_template(tmp_path):
    async with serving(Holdfast(f"sqlite:///{tmp_path}/jobs.db")) as http:
        made = (await http.submit("noop")).json
        assert (await http("GET", f"/v1/jobs/{made['id']}")).status == 200
        assert (await http("GET", "/v1/nothing/here")).status == 404
        assert (await http("MKCOL", "/v1/jobs")).status == 405
        reply = await http("GET", "/metrics")
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    samples = read(reply.content.decode())
    assert number(samples, "holdfast_jobs_submitted_total", job_type="noop") == 1
    labels = {"method": "GET", "path_template": "/v1/jobs/{id}", "status_code": "200"}
    assert number(samples, "holdfast_http_requests_total", **labels) == 1
    assert number(samples, "holdfast_http_request_duration_seconds_count", **labels) == 1
    assert made["id"] not in reply.content.decode()
    assert "nothing" not in reply.content.decode()
    assert "MKCOL" not in reply.content.decode()
    assert number(samples, "holdfast_queue_depth", queue="default", state="queued") == 1


APP = """
import os, signal
from holdfast import ConfigError, Holdfast

app = Holdfast()


@app.task(run_in="thread")
def fine() -> None: ...


@app.task(max_attempts=1)
def bad() -> None:
    raise RuntimeError("no")


@app.task(max_attempts=1)
def fatal() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_one_port_counts_for_all_workers_of_a_supervisor(terminal):
    (terminal.folder / "shop.py").write_text(APP)
    port = free_port()
    for _ in range(20):
        terminal.store.submit("fine", b"{}", json=True)
    terminal.store.submit("bad", b"{}", json=True, max_attempts=1)
    command = ["worker", "start", "-A", "shop:app", "--count", "2", "--concurrency", "2"]
    terminal.start(*command, "--foreground", "--metrics-port", str(port))

    def samples():
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as page:
                return read(page.read().decode())
        except OSError:
            return {}

    terminal.until(lambda: number(samples(), "holdfast_jobs_succeeded_total", job_type="fine") == 20)
    terminal.until(lambda: number(samples(), "holdfast_jobs_dead_total", job_type="bad") == 1)
    terminal.until(lambda: number(samples(), "holdfast_queue_depth", queue="default", state="succeeded") == 20)
    terminal.store.submit("fatal", b"{}", json=True, max_attempts=1)
    # The killed worker's count is lost; the supervisor settled the job and counts it.
    terminal.until(lambda: number(samples(), "holdfast_jobs_dead_total", job_type="fatal") == 1)
    after = samples()
    assert number(after, "holdfast_jobs_succeeded_total", job_type="fine") == 20
    assert number(after, "holdfast_worker_active_jobs") == 0
    assert number(after, "holdfast_store_up") == 1


def test_a_supervisor_serves_the_page_on_every_path_with_the_prefix(terminal):
    port = free_port()
    terminal.env["HOLDFAST_METRICS_PREFIX"] = "acme"
    terminal.start("worker", "start", "--foreground", "--metrics-port", str(port))

    def page(path):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as page:
                return page.read().decode()
        except OSError:
            return ""

    terminal.until(lambda: "\nacme_store_up 1.0" in page("/metrics/"))
    assert "holdfast" not in page("/metrics")


def test_a_metrics_port_in_use_is_reported(terminal):
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        output = terminal("worker", "start", "--foreground", "--metrics-port", str(port), code=2)
    assert f"metrics cannot be served on 127.0.0.1:{port}" in output


def test_a_metrics_port_is_checked(terminal):
    assert "must be a port from 0 to 65535, or HOST:PORT" in terminal(
        "worker", "start", "--metrics-port", "many", code=2
    )


async def test_every_metric_name_has_the_prefix(make_app, monkeypatch):
    app = make_app(metrics_prefix="acme_jobs")
    async with serving(app) as http:
        await http.submit()
        names = {name for name, _ in read((await http("GET", "/metrics")).content.decode())}
    assert {"acme_jobs_store_up", "acme_jobs_jobs_submitted_total", "acme_jobs_http_requests_total"} <= names
    assert all(name.startswith("acme_jobs_") for name in names)
    monkeypatch.setenv("HOLDFAST_METRICS_PREFIX", "of_the_environment")
    async with serving(make_app()) as http:
        page = (await http("GET", "/metrics")).content.decode()
    assert "\nof_the_environment_store_up 1.0" in page
    assert "holdfast" not in page


@pytest.mark.parametrize("wrong", ["", "1st", "a-b", "a b", "ends_", "ä", "x" * 65, 5])
def test_an_invalid_metrics_prefix_is_refused(wrong):
    with pytest.raises(ConfigError, match="metrics_prefix must be 1 to 64 letters"):
        Holdfast("memory://", metrics_prefix=wrong)
