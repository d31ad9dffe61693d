"""Results of tasks with a codec of their own, and of pickled callables: a process that has the codec can read them."""

import asyncio
import pickle

import pytest

from holdfast import Flow, InvalidJob
from holdfast.app import parts_of
from support.inside import session_of
from support.workers import work_off

pytest.importorskip("cloudpickle")
SIGNED = {"cloudpickle": True, "secret": "a long random text"}
VALUE = {("a", 1): {2, 3}}


class Pickled:
    """A codec whose bytes are no JSON, and that has no name."""

    dumps = staticmethod(pickle.dumps)
    loads = staticmethod(pickle.loads)


def with_tasks(app):
    @app.task(codec=Pickled())
    def strange() -> object:
        return VALUE

    @app.task(codec=Pickled())
    def empty() -> None:
        pass

    return app


@pytest.fixture
def app(make_app):
    return with_tasks(make_app(**SIGNED))


@pytest.fixture
async def again(app, make_app):
    """Another process with the same code, on the same store."""
    await app.open()
    return with_tasks(make_app(session_of(app).store.sibling(), **SIGNED))


@pytest.mark.parametrize("kind", ["codec", "pickled"])
async def test_a_handle_from_an_id_alone_gives_the_value(app, again, kind):
    call = "strange" if kind == "codec" else lambda: VALUE
    handle = await app.enqueue(call)
    await work_off(app)
    assert await handle.result(timeout=30) == VALUE
    assert await app.handle(handle.id).result(timeout=30) == VALUE
    assert await again.handle(handle.id).result(timeout=30) == VALUE
    assert await asyncio.to_thread(lambda: again.sync.handle(handle.id).result(timeout=30)) == VALUE


async def test_none_is_a_value_too(app, again):
    handle = await app.enqueue("empty")
    await work_off(app)
    assert await again.handle(handle.id).result(timeout=30) is None


async def test_a_job_that_was_submitted_as_bytes_has_its_tasks_result(app):
    handle = await app.submit("strange", pickle.dumps(((), {})))
    await work_off(app)
    assert await handle.result(timeout=30) == VALUE


async def test_the_jobs_of_a_flow_are_read_by_their_numbers(app, again):
    flow = Flow()
    node = flow.add(parts_of(app).registry.tasks["strange"])
    handle = await app.enqueue_flow(flow)
    await work_off(app)
    assert await handle.handle(node).result(timeout=30) == VALUE
    assert await again.flows.handle(handle.id).handle(0).result(timeout=30) == VALUE


@pytest.mark.parametrize("kind", ["codec", "pickled"])
async def test_what_a_claim_was_completed_with_is_read_by_the_same_codec(app, again, kind):
    handle = await app.enqueue("strange" if kind == "codec" else lambda: None)
    (claim,) = await again.claim()
    await claim.complete(VALUE)
    assert await handle.result(timeout=30) == VALUE
    assert await again.handle(handle.id).result(timeout=30) == VALUE


async def test_a_result_that_the_codec_cannot_encode_leaves_the_claim_as_it_is(app):
    await app.enqueue("strange")
    (claim,) = await app.claim()
    with pytest.raises(InvalidJob, match="the codec of task 'strange' cannot encode the result of job "):
        await claim.complete(lambda: None)
    await claim.complete(1)


async def test_a_snapshot_shows_it_as_bytes_and_opens_nothing(app):
    strange, pickled = await app.enqueue("strange"), await app.enqueue(lambda: VALUE)
    await work_off(app)
    assert (await app.job(strange.id)).result.keys() == {"$bytes"}
    assert (await app.job(pickled.id)).result.keys() == {"$cloudpickle"}


@pytest.mark.parametrize("kind", ["codec", "pickled"])
async def test_an_app_without_the_codec_says_what_is_missing(app, make_app, kind):
    handle = await app.enqueue("strange" if kind == "codec" else lambda: VALUE)
    await work_off(app)
    plain = make_app(session_of(app).store.sibling())
    with pytest.raises(InvalidJob, match=rf"job {handle.id} is encoded by the codec .* this app does not have"):
        await plain.handle(handle.id).result(timeout=30)


async def test_what_an_app_without_the_codec_completed_is_json_to_such_apps(app, make_app):
    handle = await app.enqueue("strange")
    plain = make_app(session_of(app).store.sibling())
    (claim,) = await plain.claim()
    await claim.complete({"width": 128})
    assert await plain.handle(handle.id).result(timeout=30) == {"width": 128}
