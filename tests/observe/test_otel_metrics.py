"""OpenTelemetry metrics, read back from the SDK."""

import asyncio
import json

import pytest
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from holdfast import Discard, Holdfast, QueueFull, Worker
from holdfast.observe import meters
from holdfast.observe.tally import MAX_LABEL_VALUES
from support.eventually import eventually
from support.workers import work_off

DESTINATION, TASK = "messaging.destination.name", "messaging.holdfast.task"
OPERATION, OUTCOME = "messaging.operation.name", "messaging.holdfast.outcome"


@pytest.fixture
def reader(monkeypatch):
    """OpenTelemetry configured for one test."""
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    monkeypatch.setattr("opentelemetry.metrics._internal._METER_PROVIDER", provider)
    yield reader
    provider.shutdown()


@pytest.fixture
def measured(reader):
    """What was recorded: the points of a metric, each with its attributes."""

    async def read(name):
        data = await asyncio.to_thread(reader.get_metrics_data)  # as an exporter does, on a thread of its own
        found = [] if data is None else data.resource_metrics[0].scope_metrics[0].metrics
        points = [point for metric in found if metric.name == name for point in metric.data.data_points]
        return [(dict(point.attributes), point) for point in points]

    return read


async def test_enqueues_are_counted_and_timed(app, measured):
    await app.enqueue_many([app.call("noop"), app.task(_nothing, queue="mail").call(), app.call("noop")])
    found = await measured("messaging.client.sent.messages")
    assert {about[DESTINATION]: point.value for about, point in found} == {"default": 2, "mail": 1}
    assert {"messaging.system": "holdfast", OPERATION: "enqueue", DESTINATION: "mail"} in [about for about, _ in found]
    [(about, point)] = await measured("messaging.client.operation.duration")
    assert about == {"messaging.system": "holdfast", OPERATION: "enqueue", "messaging.operation.type": "send"}
    assert point.count == 1
    assert tuple(point.explicit_bounds) == meters.DURATIONS


async def _nothing() -> None: ...


async def test_a_refused_enqueue_has_its_error(app, measured):
    async def full(job, proceed):
        raise QueueFull("default", 1)

    app.around_enqueue.append(full)
    with pytest.raises(QueueFull):
        await app.enqueue("noop")
    for name in ("messaging.client.sent.messages", "messaging.client.operation.duration"):
        [(about, _)] = await measured(name)
        assert about["error.type"] == "holdfast.core.errors.QueueFull"


@pytest.mark.parametrize("kind", ["loop", "thread", "batch"])
async def test_claims_and_runs_are_counted_and_timed(app, measured, kind):
    if kind == "loop":

        @app.task(max_attempts=1)
        async def work(n: int) -> None:
            raise ValueError(n)

    elif kind == "thread":

        @app.task(max_attempts=1)
        def work(n: int) -> None:
            raise ValueError(n)

    else:

        @app.task(max_attempts=1, batch=2)
        async def work(numbers: list[int]) -> None:
            raise ValueError(numbers)

    await app.enqueue_many([work.call(1), work.call(2)])
    await app.enqueue("noop")
    await work_off(app)
    [(about, point)] = await measured("messaging.client.consumed.messages")
    assert about == {"messaging.system": "holdfast", OPERATION: "claim", DESTINATION: "default"}
    assert point.value == 3
    runs = {about[TASK]: (about, point.count) for about, point in await measured("messaging.process.duration")}
    assert runs["work"] == (
        {
            "messaging.system": "holdfast",
            OPERATION: "run",
            DESTINATION: "default",
            TASK: "work",
            "error.type": "ValueError",
        },
        2,
    )
    assert "error.type" not in runs["noop"][0]
    ended = {(about[TASK], about[OUTCOME]): point.value for about, point in await measured("holdfast.job.ended")}
    assert ended == {("work", "dead"): 2, ("noop", "succeeded"): 1}
    [(_, waits)] = await measured("holdfast.job.wait")
    assert waits.count == 3


async def test_an_outcome_without_an_exception_has_its_own_error_type(app, measured):
    @app.task
    async def work() -> None:
        raise Discard("no")

    await work.enqueue()
    await work_off(app)
    [(about, _)] = await measured("messaging.process.duration")
    assert about["error.type"] == "holdfast.tasks.context.Discard"


async def test_a_running_worker_reports_the_queues(app, measured, reader):
    send = app.task(_nothing, queue="mail")
    await send.enqueue()
    await send.using(delay=60).enqueue()
    assert await measured("holdfast.queue.depth") == []
    worker = Worker(app, ["other"])
    running = asyncio.create_task(worker.run())
    await eventually(lambda: worker.holder is not None)
    found = {
        (about[DESTINATION], about["messaging.holdfast.state"]): point.value
        for about, point in await measured("holdfast.queue.depth")
    }
    assert (found["mail", "queued"], found["mail", "scheduled"], found["mail", "dead"]) == (1, 1, 0)
    ages = {about[DESTINATION]: point.value for about, point in await measured("holdfast.queue.age")}
    assert ages["mail"] >= 0
    reader.get_metrics_data()  # on the worker's own thread: the store is not read, and nothing waits
    worker.stop()
    await running
    assert await measured("holdfast.queue.depth") == []


async def test_many_names_are_counted_together(app, measured):
    jobs = [app.task(_nothing, name=f"t{n}", queue=f"q{n}").call() for n in range(MAX_LABEL_VALUES + 5)]
    await app.enqueue_many(jobs)
    sent = {about[DESTINATION]: point.value for about, point in await measured("messaging.client.sent.messages")}
    assert len(sent) == MAX_LABEL_VALUES + 1
    assert sent["(other)"] == 5


async def test_an_app_that_opens_again_counts_once(app, measured):
    await app.enqueue("noop")
    await app.close()
    await app.enqueue("noop")
    await work_off(app)
    [(_, point)] = await measured("messaging.client.consumed.messages")
    assert point.value == 2


async def test_without_a_provider_nothing_is_recorded(app):
    assert meters.meters() is None
    await app.enqueue("noop")
    await work_off(app)
    assert isinstance(app, Holdfast)


APP = """
import json
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult, PeriodicExportingMetricReader

class Lines(MetricExporter):
    def export(self, metrics_data, timeout_millis=0, **kwargs):
        with open("metrics.jsonl", "a") as file:
            file.write(json.dumps(json.loads(metrics_data.to_json(indent=None))) + "\\n")
        return MetricExportResult.SUCCESS
    def force_flush(self, timeout_millis=0): return True
    def shutdown(self, timeout_millis=0, **kwargs): pass

metrics.set_meter_provider(MeterProvider([PeriodicExportingMetricReader(Lines(), export_interval_millis=3600_000)]))

from holdfast import Holdfast
app = Holdfast()
"""


def test_a_worker_process_exports_its_metrics_before_it_ends(terminal):
    (terminal.folder / "shop.py").write_text(APP)
    terminal("enqueue", "--task", "noop")
    terminal.start("worker", "start", "-A", "shop:app", "--foreground", "--drain")
    assert terminal.started[-1].wait(60) == 0
    [exported] = map(json.loads, (terminal.folder / "metrics.jsonl").read_text().splitlines())
    found = exported["resource_metrics"][0]["scope_metrics"][0]["metrics"]
    assert {"messaging.client.consumed.messages", "messaging.process.duration"} <= {one["name"] for one in found}


def test_the_tests_replace_the_provider_that_the_api_returns(reader):
    assert meters.meters() is not None
    assert type(metrics.get_meter_provider()) is MeterProvider
