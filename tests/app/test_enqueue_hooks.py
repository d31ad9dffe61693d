"""Hooks around enqueue, and the events that everybody can listen to."""

import logging

import msgspec
import pytest

from holdfast import KeyConflict, State
from support.workers import work_off


def tagging(word, seen=None):
    async def hook(job, store):
        if seen is not None:
            seen.append(f"before {word}")
        answer = await store(msgspec.structs.replace(job, tags=(*job.tags, word)))
        if seen is not None:
            seen.append(f"after {word}")
        return answer

    return hook


async def test_a_hook_can_change_the_job_on_its_way(app):
    app.around_enqueue.append(tagging("seen"))
    assert (await (await app.enqueue("noop")).job()).tags == ("seen",)


async def test_every_way_to_enqueue_passes_the_hooks(app):
    app.around_enqueue.append(tagging("seen"))
    await app.enqueue("noop")
    await app.enqueue_many([("noop",), ("noop",)])
    await app.submit("raw", b"")
    assert len((await app.jobs(tag="seen")).jobs) == 4


async def test_hooks_nest_the_last_added_outermost(app):
    seen = []
    app.around_enqueue += [tagging("inner", seen), tagging("outer", seen)]
    job = await (await app.enqueue("noop")).job()
    assert seen == ["before outer", "before inner", "after inner", "after outer"]
    assert job.tags == ("outer", "inner")


async def test_a_hook_that_refuses_keeps_the_job_out(app):
    async def refuse(job, store):
        raise PermissionError("not on Sundays")

    app.around_enqueue.append(refuse)
    with pytest.raises(PermissionError, match="not on Sundays"):
        await app.enqueue("noop")
    assert (await app.jobs()).jobs == []


async def test_a_hook_sees_the_stores_answer(app):
    answers = []

    async def look(job, store):
        answer = await store(job)
        answers.append(answer.outcome)
        return answer

    app.around_enqueue.append(look)
    await app.submit("raw", b"1", key="k")
    await app.submit("raw", b"1", key="k")
    with pytest.raises(KeyConflict):
        await app.submit("raw", b"2", key="k")
    assert answers == ["created", "existing", "conflict"]


# -- events


@pytest.fixture
def received(app):
    """The events of an app, by name and job."""
    received = []
    app.on("*", lambda event: received.append((event.name, event.fields)))
    return received


def names(received, job_id):
    return [name for name, fields in received if fields.get("job_id") == job_id]


async def test_handlers_receive_the_events_of_a_job(app, received):
    @app.task
    def fine() -> None: ...

    handle = await fine.enqueue()
    await work_off(app)
    assert names(received, handle.id) == ["job_created", "lease_acquired", "handler_start", "job_succeeded"]
    about = next(fields for name, fields in received if name == "job_succeeded")
    assert (about["job_type"], about["attempt"]) == ("fine", 1)
    assert about["worker_id"] == (await handle.job()).worker


async def test_handlers_receive_failures_and_operations(app, received):
    @app.task(max_attempts=2, retry=lambda error, attempt: 0)
    def bad() -> None:
        raise RuntimeError("no")

    handle = await bad.enqueue()
    await work_off(app)
    await app.retry(handle.id)
    await handle.update_meta(a=1)
    await app.cancel(handle.id)
    await app.delete(handle.id)
    assert [name for name in names(received, handle.id) if name not in ("lease_acquired", "handler_start")] == [
        "job_created",
        "job_failed",
        "job_dead",
        "job_retried",
        "job_meta_updated",
        "job_cancelled",
        "job_deleted",
    ]
    assert next(fields for name, fields in received if name == "job_failed")["error"] == "RuntimeError: no"


async def test_an_idempotent_enqueue_is_reported_apart(app, received):
    first = await app.submit("raw", b"", key="k")
    await app.submit("raw", b"", key="k")
    assert names(received, first.id) == ["job_created", "idempotent_submission"]


async def test_a_handler_that_raises_harms_nobody(app, received, caplog):
    @app.on("*")
    def broken(event):
        raise RuntimeError("a defect of the handler")

    handle = await app.enqueue("noop")
    await work_off(app)
    assert (await handle.job()).state == State.SUCCEEDED
    assert "job_succeeded" in names(received, handle.id)
    assert "of event job_created raised" in caplog.text


async def test_the_library_logs_through_logging_with_the_fields_beside_the_words(app, caplog):
    caplog.set_level(logging.DEBUG, "holdfast")
    handle = await app.enqueue("noop")
    await work_off(app)
    logged = {record.event: record for record in caplog.records if hasattr(record, "event")}
    assert {"job_created", "lease_acquired", "handler_start", "job_succeeded"} <= set(logged)
    assert logged["job_succeeded"].fields["job_id"] == handle.id
