"""Waiting and dead jobs are given another task."""

import pytest

from holdfast import InvalidJob, State
from holdfast.client import bulk_change as bulk_module
from holdfast.client.search import Filter
from holdfast.core.waiting import Waiting
from support.workers import work_off


@pytest.fixture
def moved_app(make_app, monkeypatch):
    monkeypatch.setattr(bulk_module, "PAGE", 2)
    app = make_app(max_attempts=1)

    @app.task
    async def new(n: int) -> int:
        return n

    @app.task
    async def broken(n: int) -> None:
        raise ValueError

    return app


async def test_waiting_refused_and_dead_jobs_are_moved_and_no_others(moved_app):
    app = moved_app
    ended = await app.enqueue("new", 0)
    dead = await app.enqueue("broken", 1)
    refused = await app.enqueue("old", 2)
    await work_off(app)
    other = await app.enqueue("other", 3)
    [claim] = await app.claim(tasks=["other"])
    assert await app.bulk.move("old", "new", dry_run=True) == 1
    assert await app.bulk.move("old", "new") == 1
    assert await app.bulk.move("broken", "new") == 1
    assert await app.bulk.move("other", "new") == 0, "it is running"
    assert await app.bulk.move("old", "new") == 0
    assert [((await one.job()).task, (await one.job()).state) for one in (ended, dead, refused, other)] == [
        ("new", State.SUCCEEDED), ("new", State.DEAD), ("new", State.QUEUED), ("other", State.RUNNING),
    ]  # fmt: skip
    await claim.complete()
    await app.retry(dead.id)
    await work_off(app)
    assert [await one.result(timeout=30) for one in (dead, refused)] == [1, 2]


async def test_a_move_of_a_queue_leaves_the_others(moved_app):
    app = moved_app
    for number in range(5):
        await app.enqueue("broken", number)
    assert await app.bulk.move("broken", "new", queue="other") == 0
    assert await app.bulk.move("broken", "new", queue="default") == 5


async def test_a_step_of_a_move_by_filter_or_ids(moved_app):
    app = moved_app
    one, two = await app.enqueue("broken", 1), await app.enqueue("broken", 2)
    assert (await app.bulk.change("move", Filter(task="broken", state="queued"), to="new", dry_run=True)).matched == 2
    assert (await app.bulk.change("move", ids=[one.id], to="new")).changed == 1
    done = await app.bulk.change("move", ids=[one.id, two.id], to="new")
    assert (done.changed, done.reasons) == (1, {"state": 1})
    for action, to in (("move", None), ("delete", "new"), ("move", "")):
        with pytest.raises(InvalidJob):
            await app.bulk.change(action, ids=[one.id], to=to)


async def test_jobs_are_not_moved_to_an_internal_task(moved_app):
    app = moved_app
    job = await app.enqueue("broken", 1)
    for move in (app.bulk.move("broken", "holdfast.call"), app.bulk.change("move", ids=[job.id], to="holdfast.call")):
        with pytest.raises(InvalidJob, match=r"'holdfast\.call' is internal to Holdfast: jobs cannot be moved to it"):
            await move
    assert (await job.job()).task == "broken"


async def test_a_moved_job_does_not_wait_for_the_pause_of_its_former_task(moved_app):
    app = moved_app
    await app.pause(task="broken")
    job = await app.enqueue("broken", 1)
    await work_off(app)
    assert (await job.job()).state == State.BLOCKED
    await app.pause(task="new")
    assert await app.bulk.move("broken", "new") == 1
    await work_off(app)
    assert (await job.job()).waiting_for == Waiting("pause", "new")
    await app.resume(task="new")
    await work_off(app)
    assert await job.result(timeout=30) == 1


async def test_a_flow_itself_is_not_moved_but_its_jobs_are(moved_app):
    from holdfast import Flow

    app = moved_app
    flow = Flow()
    flow.add(app.call("broken", 1))
    handle = await app.enqueue_flow(flow)
    own = await app.job(handle.id)
    assert (await app.bulk.change("move", ids=[own.id], to="new")).reasons == {"state": 1}
    assert await app.bulk.move("broken", "new") == 1
    await work_off(app)
    assert (await app.job(handle.id)).state == State.SUCCEEDED
