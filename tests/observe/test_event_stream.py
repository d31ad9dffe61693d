"""`app.on`: events by name or all, their fields and their cost."""

import logging

import pytest

from holdfast import ConfigError, Retry
from holdfast.app import parts_of
from holdfast.observe.events import KINDS, JobEvent, WorkerEvent
from holdfast.version import __version__
from support.workers import work_off

SECRET = "correct-horse-battery"


def record_events(app, name="*"):
    received = []
    app.on(name, received.append)
    return received


async def test_a_handler_gets_the_events_of_its_name(app):
    received = record_events(app, "job_succeeded")
    handle = await app.enqueue("noop")
    await work_off(app)
    (event,) = received
    assert isinstance(event, JobEvent)
    assert (event.name, event.job_id, event.job_type, event.queue, event.attempt) == (
        "job_succeeded",
        handle.id,
        "noop",
        "default",
        1,
    )
    assert event.worker_id == (await handle.job()).worker


async def test_on_is_a_decorator(app):
    received = []

    @app.on("job_created")
    def hear(event: JobEvent) -> None:
        received.append(event.job_id)

    handle = await app.enqueue("noop")
    assert received == [handle.id]
    assert callable(hear), "the function is left as it is"


async def test_a_star_handler_gets_all_events_in_order(app):
    received = record_events(app)
    await app.enqueue("noop")
    await work_off(app)
    assert [event.name for event in received] == [
        "job_created",
        "worker_started",
        "lease_acquired",
        "handler_start",
        "job_succeeded",
        "worker_stopped",
    ]
    started = received[1]
    assert isinstance(started, WorkerEvent)
    assert started.queues == ("default",)
    assert started.slots == 10
    assert (started.tasks, started.version) == ((), __version__)
    assert started.store == repr(app).removeprefix("Holdfast('").removesuffix("')")


async def test_an_unknown_event_is_refused(app):
    with pytest.raises(ConfigError, match=r"there is no event 'job_done'; use one of: .*job_dead"):
        app.on("job_done", print)


async def test_a_coroutine_function_is_refused_as_handler(app):
    async def slow(event):
        raise AssertionError

    with pytest.raises(ConfigError, match="must be a plain function"):
        app.on("job_dead", slow)


async def test_a_handler_can_be_unregistered(app):
    received = []
    app.on("*", received.append)
    parts_of(app).events.off("*", received.append)
    await app.enqueue("noop")
    assert received == []


async def test_settlement_events_have_wait_and_run_times(app):
    @app.task(max_attempts=2, retry=lambda error, attempt: 0)
    async def bad() -> None:
        raise Retry("once more", after=0)

    received = record_events(app)
    await bad.using(delay=0.05).enqueue()
    await work_off(app, poll=0.02)
    while not any(event.name == "job_dead" for event in received):
        await work_off(app, poll=0.02)
    failed = next(event for event in received if event.name == "job_failed")
    assert failed.waited >= 0
    assert failed.ran > 0
    assert "once more" in failed.error
    assert failed.retry_in is not None
    claimed = next(event for event in received if event.name == "lease_acquired")
    assert claimed.waited is not None
    assert claimed.fence > 0


async def test_a_manual_claim_has_wait_and_run_times(app):
    received = record_events(app, "job_succeeded")
    await app.submit("raw", b"")
    (claim,) = await app.claim()
    await claim.complete()
    assert received[0].ran >= 0
    assert received[0].waited >= 0


async def test_no_event_contains_a_payload_a_result_or_meta(app):
    @app.task
    async def login(password: str) -> str:
        return password

    received = record_events(app)
    await login.using(meta={"token": SECRET}).enqueue(SECRET)
    await work_off(app)
    assert len(received) > 4
    assert SECRET not in repr([(event.name, event.fields) for event in received])


async def test_every_emitted_event_is_in_the_table_with_its_fields(app):
    @app.task(max_attempts=2, retry=lambda error, attempt: 0)
    def bad() -> None:
        raise RuntimeError("no")

    received = record_events(app)
    handle = await bad.using(key="k").enqueue()
    await bad.using(key="k").enqueue()
    await work_off(app)
    await app.retry(handle.id)
    await handle.update_meta(a=1)
    await app.cancel(handle.id)
    await app.delete(handle.id)
    common = {"job_id", "job_type", "queue", "attempt", "worker_id", "trace_id"}
    for event in received:
        if isinstance(event, JobEvent):
            assert set(event.fields) - common <= set(KINDS[event.name].fields), event


async def test_no_event_object_is_created_without_handlers(app, monkeypatch):
    """An event without handlers costs one comparison; no event object is created."""
    monkeypatch.setattr("holdfast.observe.events.JobEvent", None)
    logging.getLogger("holdfast").setLevel(logging.CRITICAL)
    try:
        handle = await app.enqueue("noop")
        await work_off(app)
    finally:
        logging.getLogger("holdfast").setLevel(logging.NOTSET)
    assert (await handle.job()).state == "succeeded"
