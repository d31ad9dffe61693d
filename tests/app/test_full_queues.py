"""Queues that are full: max_depth."""

import asyncio

import pytest

from holdfast import QueueFull


async def test_a_full_queue_refuses_more_until_there_is_room(make_app):
    app = make_app(max_depth=3)
    for _ in range(3):
        await app.enqueue("noop")
    with pytest.raises(
        QueueFull, match=r"queue 'default' is full: it has at least 3 waiting jobs \(max_depth\)"
    ) as refused:
        await app.enqueue("noop")
    assert (refused.value.queue, refused.value.max_depth, refused.value.retry_safe) == ("default", 3, True)
    [claim] = await app.claim()
    await app.enqueue("noop")
    await claim.complete()


async def test_every_queue_has_a_depth_of_its_own(make_app):
    app = make_app(max_depth=1)
    await app.submit("a", b"", queue="one")
    await app.submit("a", b"", queue="two")
    with pytest.raises(QueueFull, match="'two'"):
        await app.submit("a", b"", queue="two")


async def test_scheduled_and_failed_jobs_wait_too(make_app):
    app = make_app(max_depth=2)
    await app.submit("a", b"", delay=60)
    await app.submit("a", b"", id="b")
    [claim] = await app.claim()
    await claim.fail("later")
    with pytest.raises(QueueFull):
        await app.submit("a", b"")


async def test_a_key_that_is_known_finds_its_job_in_a_full_queue(make_app):
    app = make_app(max_depth=1)
    first = await app.submit("a", b"", key="k")
    assert (await app.submit("a", b"", key="k")).id == first.id


async def test_of_many_at_once_only_as_many_as_fit_get_in(make_app):
    app = make_app(max_depth=5)
    answers = await asyncio.gather(*(app.enqueue("noop") for _ in range(20)), return_exceptions=True)
    assert sum(isinstance(answer, QueueFull) for answer in answers) == 15
    assert (await app.stats()).counts["queued"] == 5
