"""`app.on`: what can be heard of jobs, by name or all, and what it costs and never says."""

import logging

import pytest

from holdfast import ConfigError, Retry
from holdfast.app import parts_of
from holdfast.observe.events import KINDS, JobEvent, WorkerEvent
from support.workers import work_off

SECRET = "correct-horse-battery"


def listened(app, name="*"):
    heard = []
    app.on(name, heard.append)
    return heard


async def test_a_handler_hears_the_events_of_its_name(app):
    heard = listened(app, "job_succeeded")
    handle = await app.enqueue("noop")
    await work_off(app)
    (event,) = heard
    assert isinstance(event, JobEvent)
    assert (event.name, event.job_id, event.job_type, event.queue, event.attempt) == (
        "job_succeeded",
        handle.id,
        "noop",
        "default",
        1,
    )
    assert event.worker_id == (await handle.job()).worker


async def test_it_works_as_a_decorator(app):
    heard = []

    @app.on("job_created")
    def hear(event: JobEvent) -> None:
        heard.append(event.job_id)

    handle = await app.enqueue("noop")
    assert heard == [handle.id]
    assert callable(hear), "the function is left as it is"


async def test_a_star_hears_everything_in_order(app):
    heard = listened(app)
    await app.enqueue("noop")
    await work_off(app)
    assert [event.name for event in heard] == [
        "job_created",
        "worker_started",
        "lease_acquired",
        "handler_start",
        "job_succeeded",
        "worker_stopped",
    ]
    started = heard[1]
    assert isinstance(started, WorkerEvent)
    assert started.queues == ("default",)
    assert started.slots == 10


async def test_what_is_no_event_cannot_be_heard(app):
    with pytest.raises(ConfigError, match=r"there is no event 'job_done'; the events are: .*job_dead"):
        app.on("job_done", print)


async def test_a_coroutine_function_cannot_listen(app):
    async def slow(event):
        raise AssertionError

    with pytest.raises(ConfigError, match="must be a sync function"):
        app.on("job_dead", slow)


async def test_a_handler_can_be_taken_off_again(app):
    heard = []
    app.on("*", heard.append)
    parts_of(app).events.off("*", heard.append)
    await app.enqueue("noop")
    assert heard == []


async def test_an_end_says_how_long_the_job_waited_and_ran(app):
    @app.task(max_attempts=2, retry=lambda error, attempt: 0)
    async def bad() -> None:
        raise Retry("once more", after=0)

    heard = listened(app)
    await bad.using(delay=0.05).enqueue()
    await work_off(app, poll=0.02)
    while not any(event.name == "job_dead" for event in heard):
        await work_off(app, poll=0.02)
    failed = next(event for event in heard if event.name == "job_failed")
    assert failed.waited >= 0
    assert failed.ran > 0
    assert "once more" in failed.error
    assert failed.retry_in is not None
    claimed = next(event for event in heard if event.name == "lease_acquired")
    assert claimed.waited is not None
    assert claimed.fence > 0


async def test_a_claim_by_hand_says_how_long_it_took_too(app):
    heard = listened(app, "job_succeeded")
    await app.submit("raw", b"")
    (claim,) = await app.claim()
    await claim.complete()
    assert heard[0].ran >= 0
    assert heard[0].waited >= 0


async def test_no_event_carries_a_payload_a_result_or_meta(app):
    @app.task
    async def login(password: str) -> str:
        return password

    heard = listened(app)
    await login.using(meta={"token": SECRET}).enqueue(SECRET)
    await work_off(app)
    assert len(heard) > 4
    assert SECRET not in repr([(event.name, event.fields) for event in heard])


async def test_every_event_that_is_reported_is_in_the_table_with_its_fields(app):
    @app.task(max_attempts=2, retry=lambda error, attempt: 0)
    def bad() -> None:
        raise RuntimeError("no")

    heard = listened(app)
    handle = await bad.using(key="k").enqueue()
    await bad.using(key="k").enqueue()
    await work_off(app)
    await app.retry(handle.id)
    await app.update_meta(handle.id, a=1)
    await app.cancel(handle.id)
    await app.delete(handle.id)
    common = {"job_id", "job_type", "queue", "attempt", "worker_id", "trace_id"}
    for event in heard:
        if isinstance(event, JobEvent):
            assert set(event.fields) - common <= set(KINDS[event.name].fields), event


async def test_nothing_is_made_while_nobody_listens(app, monkeypatch):
    """The price of an event that nobody wants is a comparison: no event object is made."""
    monkeypatch.setattr("holdfast.observe.events.JobEvent", None)
    logging.getLogger("holdfast").setLevel(logging.CRITICAL)
    try:
        handle = await app.enqueue("noop")
        await work_off(app)
    finally:
        logging.getLogger("holdfast").setLevel(logging.NOTSET)
    assert (await handle.job()).state == "succeeded"
