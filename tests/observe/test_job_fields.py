"""The fields of the running job in every line that a task logs, and tracebacks of failed jobs."""

import asyncio
import io
import json
import logging

import pytest

from holdfast import Context, Flow
from holdfast.observe import logs
from holdfast.observe.job_fields import NAMES, JobFields
from support.workers import work_off

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
shop = logging.getLogger("shop")


@pytest.fixture
def said():
    """The records of the logger `shop`, as a handler of the user's own gets them."""
    found = []

    class Kept(logging.Handler):
        def emit(self, record):
            found.append(record)

    handler = Kept()
    handler.addFilter(JobFields())
    shop.addHandler(handler)
    yield found
    shop.removeHandler(handler)


def fields(record):
    return {name: getattr(record, name) for name in NAMES if getattr(record, name) is not None}


async def test_lines_of_concurrent_tasks_have_the_fields_of_their_own_job(app, said):
    @app.task(queue="mail")
    async def on_loop(name: str) -> None:
        await asyncio.sleep(0)
        shop.warning(name)
        await asyncio.create_task(deeper(name))

    async def deeper(name: str) -> None:
        shop.warning(name)

    @app.task(queue="mail")
    def in_thread(name: str) -> None:
        shop.warning(name)

    ids = {}
    for n in range(5):
        ids[f"loop {n}"] = (await on_loop.enqueue(f"loop {n}")).id
        ids[f"thread {n}"] = (await in_thread.enqueue(f"thread {n}")).id
    await work_off(app)
    assert len(said) == 15
    for record in said:
        assert record.job_id == ids[record.getMessage()]
        assert record.job_type.split(".")[-1] in ("on_loop", "in_thread")
        assert (record.queue, record.attempt, record.trace_id, record.flow) == ("mail", 1, None, None)
        assert record.worker_id is not None


async def test_a_line_has_the_flow_and_the_trace_of_its_job(app, said):
    @app.task(name="step")
    async def step() -> None:
        shop.warning("here")

    flow = Flow()
    flow.add(step.using(meta={"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}))
    handle = await app.enqueue_flow(flow)
    await work_off(app)
    [record] = said
    assert (record.flow, record.trace_id, record.job_type) == (handle.id, TRACE, "step")


async def test_a_call_for_several_jobs_is_no_single_job(app, said):
    @app.task(name="many", batch=10)
    async def many(items: list[int]) -> None:
        shop.warning("together")

    for n in range(3):
        await many.enqueue(n)
    await work_off(app)
    assert [fields(record) for record in said] == [{"job_type": "many"}] * len(said)
    assert said


async def test_outside_of_a_job_the_fields_are_none(app, said):
    @app.task
    async def quiet() -> None: ...

    await quiet.enqueue()
    await work_off(app)
    shop.warning("later")
    assert [fields(record) for record in said] == [{}]


async def test_attributes_of_the_task_itself_are_kept(app, said):
    @app.task
    async def work(ctx: Context) -> None:
        shop.warning("mine", extra={"queue": "of my own", "job_id": None})

    await work.enqueue()
    await work_off(app)
    assert (said[0].queue, said[0].job_id, said[0].attempt) == ("of my own", None, 1)


# -- the log of a worker


@pytest.fixture
def log_lines(capsys):
    """Logs as `holdfast worker start` does; a function that returns the lines."""
    root, flags = logging.getLogger(), (logging.logThreads, logging.logProcesses, logging.logMultiprocessing)
    handlers, level = root.handlers[:], root.level

    def read(style="json"):
        logs.flush()
        text = capsys.readouterr().err
        return [json.loads(line) for line in text.splitlines()] if style == "json" else text

    yield read
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.logThreads, logging.logProcesses, logging.logMultiprocessing = flags


async def failing(app):
    @app.task(name="parse", max_attempts=2, retry=lambda error, attempt: 0)
    def parse(text: str) -> int:
        shop.info("parsing")
        raise ValueError("\x1b[31m" + text)

    handle = await parse.enqueue("bad")
    await work_off(app)
    return handle


async def test_tracebacks_are_one_field_of_failed_and_dead_jobs(app, log_lines):
    logs.set_up("INFO", "json")
    handle = await failing(app)
    lines = {line["event"]: line for line in log_lines() if line.get("job_id") == handle.id}
    assert lines["parsing"]["logger"] == "shop"
    assert lines["parsing"]["attempt"] == 2
    for event in ("job_failed", "job_dead"):
        trace = lines[event]["traceback"].splitlines()
        assert trace[0] == "Traceback (most recent call last):"
        assert "raise ValueError" in lines[event]["traceback"]
        assert trace[-1].startswith("ValueError: ")
    assert "traceback" not in lines["job_created"]


async def test_tracebacks_follow_their_line_on_a_terminal(app, log_lines):
    logs.set_up("INFO", "pretty")
    await failing(app)
    text = log_lines("pretty")
    assert text.count("\nTraceback (most recent call last):\n") == 2
    assert "\x1b" not in text, "what a task raised cannot colour or move the terminal"


async def test_formatters_of_logging_print_the_traceback_of_a_job(app):
    output = io.StringIO()
    handler = logging.StreamHandler(output)
    logger = logging.getLogger("holdfast")
    logger.addHandler(handler)
    try:
        await failing(app)
    finally:
        logger.removeHandler(handler)
    assert output.getvalue().count("\nTraceback (most recent call last):\n") == 2


async def test_an_event_has_no_traceback(app):
    seen = []
    app.on("*", seen.append)
    await failing(app)
    assert {"job_failed", "job_dead"} <= {event.name for event in seen}
    assert not any("traceback" in event.fields for event in seen)
