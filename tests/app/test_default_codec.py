"""`Holdfast(codec=…)` on a store with JSON jobs: these are decoded, run and read as JSON."""

import logging
import pickle

import pytest

from holdfast import InvalidJob, limit
from holdfast.app import parts_of
from holdfast.core.job import State
from holdfast.worker.deploy_check import DeployCheck
from holdfast.worker.waiting_calls import waiting_calls
from support.inside import session_of
from support.workers import work_off


class Pickled:
    """A codec whose bytes are no JSON."""

    dumps = staticmethod(pickle.dumps)
    loads = staticmethod(pickle.loads)


async def codec_of(app, id):
    [record] = await session_of(app).store.get([id])
    return record.codec


def with_tasks(app):
    @app.task(limit=limit(key="n", concurrency=1))
    def double(n: int) -> dict[str, int]:
        return {"n": 2 * n}

    return app, double


@pytest.fixture
async def old(make_app):
    app, double = with_tasks(make_app())
    await app.open()
    return app, double


@pytest.fixture
def new(make_app, old):
    return with_tasks(make_app(session_of(old[0]).store.sibling(), codec=Pickled()))


async def test_jobs_stored_as_json_are_run_and_read(old, new):
    app, double = new
    before = await old[1].enqueue(4)
    page = await waiting_calls(session_of(old[0]).store, None, None)
    assert [DeployCheck(parts_of(app).registry).refusal(call) for call in page.calls] == [None]
    after = await double.enqueue(5)
    await work_off(app)
    assert await app.handle(before.id).result(timeout=30) == {"n": 8}
    assert await old[0].handle(before.id).result(timeout=30) == {"n": 8}  # still JSON
    assert await app.handle(after.id).result(timeout=30) == {"n": 10}
    assert await codec_of(app, after.id) == "custom"


async def test_a_handle_on_an_older_job_with_the_same_key_reads_its_result(old, new):
    app, double = new
    before = await old[1].using(key="k", unique="until_end").enqueue(4)
    same = await double.using(key="k", unique="until_end").enqueue(4)
    assert same.id == before.id
    await work_off(app)
    assert await same.result(timeout=30) == {"n": 8}


async def test_results_of_json_jobs_that_ended_are_read(old, new):
    handle = await old[1].enqueue(4)
    await work_off(old[0])
    assert await new[0].handle(handle.id).result(timeout=30) == {"n": 8}


@pytest.mark.parametrize("by_name", [False, True])
async def test_schedules_are_json(old, new, by_name, make_app):
    app, double = new
    if by_name:  # an app that does not have the task
        other = make_app(session_of(old[0]).store.sibling(), codec=Pickled())
        await other.schedules.put("often", other.call("double", n=4), every=60)
    else:
        await app.schedules.put("often", double.call(4), every=60)
    handle = await app.schedules.run_now("often")
    assert await codec_of(app, handle.id) == "json"
    await work_off(app)
    assert await handle.result(timeout=30) == {"n": 8}


async def test_declared_schedules_are_stored(new, caplog):
    app, _ = new

    @app.cron("0 3 * * *", kwargs={"n": 1})
    def nightly(n: int) -> None: ...

    with pytest.raises(InvalidJob, match="schedule 'wrong'"):

        @app.cron("0 3 * * *", name="wrong", kwargs={"n": object()})
        def wrong(n: int) -> None: ...

    await app.open()
    with caplog.at_level(logging.WARNING):
        await parts_of(app).schedules.declare()
    assert [one.name for one in await app.schedules.list()] == ["nightly"]
    assert caplog.messages == []


async def test_follow_ups_are_json(new):
    app, double = new
    ran = []

    @app.task
    def report(id: str) -> None:
        ran.append(id)

    handle = await double.using(on_success=report).enqueue(4)
    await work_off(app)
    assert ran == [handle.id]


async def test_a_task_with_its_own_codec_still_refuses_json(new, old):
    app, _ = new

    @app.task(codec=Pickled())
    def own(n: int) -> None: ...

    handle = await old[0].enqueue("own", n=1)
    await work_off(app)
    assert (await handle.job()).state != State.SUCCEEDED
    with pytest.raises(InvalidJob, match="own codec"):
        await app.schedules.put("often", own.call(1), every=60)


async def test_a_follow_up_with_its_own_codec_is_refused(new):
    app, double = new

    @app.task(codec=Pickled())
    def report(id: str) -> None: ...

    with pytest.raises(InvalidJob, match="own codec"):
        await double.using(on_success=report).enqueue(4)
