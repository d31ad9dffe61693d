"""Steps and signals through a server, by workers with only the role `work`."""

import asyncio
from functools import partial

import pytest

from holdfast import Context, Holdfast
from holdfast.core.errors import ConfigError, InvalidState
from holdfast.core.operations import Change, Patch
from holdfast.core.waiting import Waiting
from holdfast.store.protocol import Batch
from support.workers import work_off


async def test_workers_wait_for_signals_and_send_them(serve, monkeypatch):
    server = await serve(roles={"worker": frozenset({"work"})}, sweeps=True)
    monkeypatch.setenv("HOLDFAST_TOKEN", "worker")
    async with Holdfast(server.url) as app:

        @app.task
        async def waiting_for(ctx: Context, timeout: float | None) -> object:
            await ctx.step("a", int)
            return await ctx.wait_for("go", timeout)

        @app.task
        async def sends() -> int:
            return await app.signal("go", 7)

        handles = [await waiting_for.enqueue(None), await waiting_for.enqueue(3600)]
        await work_off(app)
        assert [(await handle.job()).state for handle in handles] == ["blocked", "scheduled"]
        sent = await sends.enqueue()
        await work_off(app)
        assert await sent.result(5) == 2
        assert await asyncio.gather(*(handle.result(5) for handle in handles)) == [7, 7]


async def test_a_dead_job_is_retried_unless_its_key_is_anothers(serve):
    server = await serve()
    async with Holdfast(server.url) as app:
        charge = partial(server.app.submit, "charge", b"order 3", key="k", unique="until_end", max_attempts=1)
        first = await charge()
        await (await app.claim())[0].fail("exit 3")
        second = await charge()
        with pytest.raises(InvalidState, match=f"now belongs to job '{second.id}'"):
            await app.retry(first.id)
        await second.cancel()
        assert (await app.retry(first.id)).state == "queued"


@pytest.mark.parametrize(
    "patch",
    [
        Patch(state="cancelled"),
        Patch(state="running"),
        Patch(state="queued", payload=b"{}"),
        Patch(state="queued", meta={"a": 1}),
        Patch(state="queued", attempt=0),
        Patch(cancel=True),
        None,
    ],
)
async def test_a_worker_frees_what_waits_and_changes_nothing_else_of_it(serve, open_at, monkeypatch, patch):
    from holdfast.testing.build import new_job
    from holdfast.testing.verbs import insert

    server = await serve(roles={"worker": frozenset({"work"})})
    monkeypatch.setenv("HOLDFAST_TOKEN", "worker")
    store = await open_at(server.url)
    await insert(store, new_job("a", waiting_for=Waiting("signal", "go")))
    with pytest.raises(ConfigError, match=r"roles? 'operate'"):
        await store.write(Batch(changes=[Change("a", "blocked", 0, patch)]))
    assert (
        await store.write(Batch(changes=[Change("a", "blocked", 0, Patch(state="queued", delay=0.0))]))
    ).changes == [True]
    with pytest.raises(ConfigError, match=r"roles? 'operate'"):
        await store.write(Batch(changes=[Change("a", "queued", 0, Patch(state="queued", delay=0.0))]))
