"""A call without `await` stores nothing, and says so."""

import asyncio
import gc
import logging

import pytest
from starlette.background import BackgroundTask

from holdfast import Flow, InvalidJob, State


@pytest.fixture
def send(app):
    @app.task
    async def send(n: int) -> int:
        return n

    return send


CALLS = {
    "send.enqueue(…)": lambda app, send: send.enqueue(1),
    "send.using(…).enqueue(…)": lambda app, send: send.using(delay=60).enqueue(1),
    "app.enqueue(…)": lambda app, send: app.enqueue("send", 1),
    "app.enqueue_many(…)": lambda app, send: app.enqueue_many([send.call(1)]),
    "app.submit(…)": lambda app, send: app.submit("send", b"{}"),
    "app.enqueue_flow(…)": lambda app, send: app.enqueue_flow(_flow(send)),
}


def _flow(send):
    flow = Flow()
    flow.add(send, 1)
    return flow


@pytest.mark.parametrize("name", CALLS)
async def test_a_call_that_is_dropped_without_await_is_reported(app, send, caplog, name):
    with caplog.at_level(logging.ERROR, "holdfast"), pytest.warns(RuntimeWarning) as warned:
        CALLS[name](app, send)
    blocking = (
        name.replace("using(…).", "using(…).sync.").replace("app.", "app.sync.").replace("send.en", "send.sync.en")
    )
    text = f"{name} was called without await: no job was stored; in blocking code use {blocking}"
    assert [record.getMessage() for record in caplog.records] == [text]
    assert [(str(one.message), one.filename) for one in warned] == [(text, __file__)]
    assert (await app.jobs()).jobs == []


async def test_a_call_without_await_is_no_handle(app, send):
    call = send.enqueue(1)
    for name in ("id", "result", "cancel"):
        with pytest.raises(InvalidJob, match=r"send.enqueue\(…\) was called without await: no job was stored"):
            getattr(call, name)
    with pytest.raises(AttributeError, match="'Enqueuing' object has no attribute 'other'"):
        call.other  # noqa: B018
    assert (await call).id


async def test_a_call_can_be_used_like_any_coroutine(app, send, caplog):
    made = asyncio.create_task(send.enqueue(1))
    both = await asyncio.gather(made, send.enqueue(2), asyncio.wait_for(send.enqueue(3), 90))
    assert [(await handle.job()).state for handle in both] == [State.QUEUED] * 3
    unwanted = send.enqueue(4)
    unwanted.close()
    del unwanted
    cancelled = asyncio.create_task(send.enqueue(5))
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    del cancelled
    gc.collect()
    assert caplog.records == []
    assert len((await app.jobs()).jobs) == 3


async def test_frameworks_take_it_for_a_coroutine_function(app, send):
    for fn in (send.enqueue, send.using(delay=1).enqueue, app.enqueue, app.enqueue_many, app.submit, app.enqueue_flow):
        assert asyncio.iscoroutinefunction(fn)
    await BackgroundTask(send.enqueue, 1)()
    assert len((await app.jobs()).jobs) == 1
