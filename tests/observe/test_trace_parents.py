"""Traces from the request through the enqueue to the run, across processes and HTTP."""

import json
import subprocess
import sys
import textwrap
from itertools import pairwise

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from holdfast import Flow, Holdfast, QueueFull
from holdfast.observe import traces
from holdfast.observe.trace_ids import trace_id_of
from support.http import served, serving
from support.workers import work_off

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


@pytest.fixture
def spans(monkeypatch):
    """OpenTelemetry configured for one test; returns the recorded spans: Holdfast's by operation and task."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    yield lambda: {_label(span.name, span.attributes): span for span in exporter.get_finished_spans()}
    provider.shutdown()


def _label(name, about):
    operation = about.get("messaging.operation.name")
    return name if operation is None else f"{operation} {about.get('messaging.holdfast.task')}"


def ids(span):
    return span.context.trace_id, span.context.span_id


def parent(span):
    return None if span.parent is None else (span.parent.trace_id, span.parent.span_id)


def linked(span):
    return [(link.context.trace_id, link.context.span_id) for link in span.links]


async def test_request_enqueue_and_run_are_one_trace(app, spans):
    seen = []

    @app.task(queue="mail")
    async def send() -> None:
        with trace.get_tracer("shop").start_as_current_span("smtp"):
            seen.append(1)

    with trace.get_tracer("shop").start_as_current_span("request"):
        handle = await send.enqueue()
    await work_off(app)
    found = spans()
    assert seen == [1]
    assert parent(found["enqueue send"]) == ids(found["request"])
    assert parent(found["run send"]) == ids(found["enqueue send"])
    assert parent(found["smtp"]) == ids(found["run send"])
    assert found["enqueue send"].kind is trace.SpanKind.PRODUCER
    assert found["run send"].kind is trace.SpanKind.CONSUMER
    assert found["enqueue send"].name == "enqueue mail"
    assert found["run send"].name == "run mail"
    about = dict(found["run send"].attributes)
    assert about.pop("messaging.client.id")
    assert about == {
        "messaging.system": "holdfast",
        "messaging.operation.name": "run",
        "messaging.operation.type": "process",
        "messaging.destination.name": "mail",
        "messaging.message.id": handle.id,
        "messaging.holdfast.task": "send",
        "messaging.holdfast.attempt": 1,
        "messaging.holdfast.outcome": "succeeded",
    }
    assert dict(found["enqueue send"].attributes) == {
        "messaging.system": "holdfast",
        "messaging.operation.name": "enqueue",
        "messaging.operation.type": "send",
        "messaging.destination.name": "mail",
        "messaging.message.id": handle.id,
        "messaging.holdfast.task": "send",
    }
    assert linked(found["run send"]) == [ids(found["enqueue send"])]
    assert linked(found["enqueue send"]) == []


async def test_a_sync_task_in_a_thread_has_the_span(app, spans):
    @app.task
    def send() -> None:
        trace.get_tracer("shop").start_span("smtp").end()

    await send.enqueue()
    await work_off(app)
    assert parent(spans()["smtp"]) == ids(spans()["run send"])


async def test_a_failed_run_is_a_failed_span(app, spans):
    @app.task(max_attempts=1)
    async def bad() -> None:
        raise RuntimeError("no")

    await bad.enqueue()
    await work_off(app)
    run = spans()["run bad"]
    assert run.status.status_code is trace.StatusCode.ERROR
    assert run.status.description == "RuntimeError: no"
    assert run.attributes["messaging.holdfast.outcome"] == "failed"
    assert run.attributes["error.type"] == "RuntimeError"
    [event] = run.events
    assert event.name == "exception"
    assert event.attributes["exception.type"] == "RuntimeError"
    assert "raise RuntimeError" in event.attributes["exception.stacktrace"]


async def test_jobs_enqueued_together_share_a_span(app, spans):
    handles = await app.enqueue_many([app.call("noop") for _ in range(3)])
    found = spans()
    assert found["enqueue noop"].attributes["messaging.batch.message_count"] == 3
    metas = [(await handle.job()).meta for handle in handles]
    assert len({meta["traceparent"] for meta in metas}) == 1


async def test_jobs_of_several_queues_name_none(app, spans):
    await app.enqueue_many([app.call("noop"), app.task(_nothing, queue="mail").call()])
    [span] = spans().values()
    assert span.name == "enqueue"
    assert span.attributes["messaging.batch.message_count"] == 2
    assert {"messaging.destination.name", "messaging.message.id"}.isdisjoint(span.attributes)


async def _nothing() -> None: ...


async def test_an_enqueue_links_to_a_context_that_the_caller_gave(app, spans):
    handle = await app.task(_nothing, name="send").using(meta={"traceparent": PARENT}).enqueue()
    await work_off(app)
    [link] = spans()["enqueue send"].links
    assert f"{link.context.trace_id:032x}" == TRACE
    assert link.attributes["messaging.message.id"] == handle.id
    assert f"{spans()['run send'].context.trace_id:032x}" == TRACE


async def test_a_refused_enqueue_is_a_failed_span(app, spans):
    async def full(job, proceed):
        raise QueueFull("mail", 1)

    app.around_enqueue.append(full)
    with pytest.raises(QueueFull):
        await app.enqueue("noop")
    span = spans()["enqueue noop"]
    assert span.status.status_code is trace.StatusCode.ERROR
    assert span.attributes["error.type"] == "holdfast.core.errors.QueueFull"


async def test_a_worker_inside_a_span_links_to_it(app, spans):
    await app.enqueue("noop")
    with trace.get_tracer("shop").start_as_current_span("program"):
        await work_off(app)
    found = spans()
    assert linked(found["run noop"]) == [ids(found["enqueue noop"]), ids(found["program"])]
    assert parent(found["run noop"]) == ids(found["enqueue noop"])


async def test_a_batch_call_is_linked_to_its_runs(app, spans):
    @app.task(batch=3)
    async def send(names: list[str]) -> None:
        trace.get_tracer("shop").start_span("smtp").end()

    await app.enqueue_many([send.call(name) for name in "abc"])
    await work_off(app)
    found = spans()
    call = found["call send"]
    assert call.parent is None
    assert call.attributes["messaging.batch.message_count"] == 3
    assert len(linked(call)) == 3
    assert ids(found["run send"]) in linked(call)
    assert parent(found["smtp"]) == ids(call)


async def test_a_job_of_a_flow_names_it(app, spans):
    flow = Flow("one")
    flow.add(app.call("noop"))
    handle = await app.enqueue_flow(flow)
    await work_off(app)
    assert spans()["run noop"].attributes["messaging.message.conversation_id"] == handle.id


async def test_sync_code_propagates_its_trace(make_app, spans):
    import asyncio

    app = make_app()

    def request():
        with trace.get_tracer("shop").start_as_current_span("request"):
            app.sync.enqueue("noop")

    await asyncio.to_thread(request)
    assert parent(spans()["enqueue noop"]) == ids(spans()["request"])


async def test_a_job_enqueued_by_a_job_stays_in_the_trace(app, spans):
    @app.task
    async def first() -> None:
        await app.enqueue("noop")

    await first.enqueue()
    await work_off(app)
    found = spans()
    assert parent(found["enqueue noop"]) == ids(found["run first"])
    assert found["run noop"].context.trace_id == found["enqueue first"].context.trace_id


async def test_events_have_the_trace_id(app, spans):
    received = []
    app.on("*", received.append)
    await app.enqueue("noop")
    await work_off(app)
    found = {event.trace_id for event in received if hasattr(event, "job_id")}
    assert found == {f"{spans()['enqueue noop'].context.trace_id:032x}"}


async def test_without_a_provider_there_are_no_spans_and_no_meta(app):
    assert traces.tracer() is None
    handle = await app.enqueue("noop")
    assert (await handle.job()).meta == {}


async def test_a_trace_over_http(tmp_path, spans):
    """The request header is the parent of the enqueue's span, which is the parent of the run."""
    app = Holdfast(f"sqlite:///{tmp_path}/jobs.db")
    async with serving(app) as http:
        body = {"type": "noop", "payload": {}}
        made = await http("POST", "/v1/jobs", body, Idempotency_Key="k", traceparent=PARENT)
        assert made.status == 201
        await work_off(app)
    found = spans()
    assert f"{found['enqueue noop'].context.trace_id:032x}" == TRACE
    assert f"{found['enqueue noop'].parent.span_id:016x}" == "00f067aa0ba902b7"
    assert parent(found["run noop"]) == ids(found["enqueue noop"])


@pytest.mark.parametrize("given", ["00-xyz-1-01", f"ff-{TRACE}-00f067aa0ba902b7-01", "00-" + "0" * 32 + "-" + "1" * 16])
async def test_an_invalid_trace_header_is_ignored(tmp_path, given):
    app = Holdfast(f"sqlite:///{tmp_path}/jobs.db")
    async with serving(app) as http:
        made = await http("POST", "/v1/jobs", {"type": "noop", "payload": {}}, Idempotency_Key="k", traceparent=given)
        assert made.status == 201
        assert (await app.job(made.json["id"])).meta == {}


async def test_a_server_without_opentelemetry_propagates_the_trace(tmp_path):
    app = Holdfast(f"sqlite:///{tmp_path}/jobs.db")
    async with serving(app) as http:
        made = await http("POST", "/v1/jobs", {"type": "noop", "payload": {}}, Idempotency_Key="k", traceparent=PARENT)
        other = await http.submit("noop")
        assert (await app.job(made.json["id"])).meta == {"traceparent": PARENT}
        assert (await app.job(other.json["id"])).meta == {}, "the next request has a trace of its own"


APP = """
import json
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

class Lines(SpanExporter):
    def export(self, spans):
        with open("spans.jsonl", "a") as file:
            for span in spans:
                file.write(json.dumps(json.loads(span.to_json(indent=None))) + "\\n")
        return SpanExportResult.SUCCESS

provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(Lines()))
trace.set_tracer_provider(provider)

from holdfast import Holdfast
app = Holdfast()

@app.task
def outer() -> None:
    inner.sync.enqueue()

@app.task(run_in="isolated")
def inner() -> None:
    trace.get_tracer("shop").start_span("deep").end()
"""


def test_a_trace_over_processes(terminal):
    """Enqueued by one process, run by another and its child; all spans are exported before exit."""
    (terminal.folder / "shop.py").write_text(APP)
    code = """
    from shop import app, outer, provider, trace
    with trace.get_tracer("shop").start_as_current_span("request"):
        outer.sync.enqueue()
    app.sync.close()
    provider.force_flush()
    """
    subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], cwd=terminal.folder, env=terminal.env, check=True, timeout=60
    )
    terminal.start("worker", "start", "-A", "shop:app", "--foreground", "--drain")
    assert terminal.started[-1].wait(60) == 0
    lines = map(json.loads, (terminal.folder / "spans.jsonl").read_text().splitlines())
    found = {_label(span["name"], span["attributes"]): span for span in lines}
    way = ["request", "enqueue outer", "run outer", "enqueue inner", "run inner", "deep"]
    for above, below in pairwise(way):
        assert found[below]["parent_id"] == found[above]["context"]["span_id"], (above, below)
        assert found[below]["context"]["trace_id"] == found["request"]["context"]["trace_id"]


async def test_a_trace_through_a_remote_store(tmp_path, spans):
    """A remote store: its server needs no OpenTelemetry."""
    with served(tmp_path, f"sqlite:///{tmp_path}/jobs.db") as process:
        async with Holdfast(process.address()) as far:
            await far.enqueue("noop")
            await work_off(far)
    found = spans()
    assert parent(found["run noop"]) == ids(found["enqueue noop"])


def test_a_manual_claim_can_continue_the_trace(spans):
    with traces.continued({"traceparent": PARENT}), trace.get_tracer("shop").start_as_current_span("manual claim"):
        pass
    assert f"{spans()['manual claim'].context.trace_id:032x}" == TRACE


@pytest.mark.parametrize("meta", [{}, {"traceparent": 5}, {"traceparent": "00"}, {"traceparent": "0" * 10_000}])
def test_invalid_trace_meta_is_ignored(meta):
    assert trace_id_of(meta) is None
