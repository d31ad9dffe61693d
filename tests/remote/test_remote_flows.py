"""Flows through a server, which releases waiting jobs; its clients need only the role `work`."""

import msgspec
import pytest

from holdfast import ConfigError, Context, Flow, Holdfast, QueueFull, State
from holdfast.app import parts_of
from holdfast.flows.creation import ENDED, Pending
from support.workers import work_off, working

SECRET = "a-worker's-token"


@pytest.fixture
def worker_only(monkeypatch):
    monkeypatch.setenv("HOLDFAST_TOKEN", SECRET)
    return {SECRET: frozenset({"work"})}


async def test_a_worker_that_ends_once_idle_waits_for_what_the_server_frees(serve, worker_only):
    server = await serve(sweeps=True, roles=worker_only)
    async with Holdfast(server.url, poll=0.05) as app:

        @app.task
        async def one(number: int) -> int:
            return number + 1

        @app.task(max_attempts=1)
        async def grow(ctx: Context, number: int) -> None:
            await ctx.add_to_flow(one, await ctx.add_to_flow(one, number))

        @app.task(max_attempts=1)
        async def dies() -> None:
            raise ValueError("broken")

        flow = Flow()
        flow.chain(one.using().call(0), one, one, grow)
        bad = flow.add(dies)
        flow.add(one, 1).after(bad)
        flow.on_end(one, 7)
        handle = await app.enqueue_flow(flow)
        await work_off(app)
        status = await handle.status()
    assert (status.state, status.counts) == (State.DEAD, {"succeeded": 7, "dead": 1, "cancelled": 1})


async def test_a_flow_that_does_not_fit_is_refused_for_that_reason(serve, worker_only):
    server = await serve(sweeps=True, roles=worker_only)
    async with Holdfast(server.url, max_depth=1) as app:

        @app.task
        async def one() -> None: ...

        await one.enqueue()
        flow = Flow()
        flow.add(one)
        with pytest.raises(QueueFull):
            await app.enqueue_flow(flow)


@pytest.mark.parametrize("left", [Pending(cancel=True), Pending(delete=1)], ids=["cancel", "delete"])
async def test_a_workers_token_does_not_have_the_server_cancel_or_delete_a_flow(serve, worker_only, left):
    server = await serve(sweeps=True, roles=worker_only)
    async with Holdfast(server.url) as app:

        @app.task
        async def one() -> None: ...

        flow = Flow()
        flow.add(one)
        handle = await app.enqueue_flow(flow)
        await parts_of(app).records.put(ENDED, handle.id, msgspec.json.encode(Pending(also=(f"{handle.id}.0",))))
        with pytest.raises(ConfigError, match="operate"):
            await parts_of(app).records.put(ENDED, handle.id, msgspec.json.encode(left))
        with pytest.raises(ConfigError, match="operate"):
            await handle.cancel()
        await work_off(app)
        assert (await handle.status()).state == State.SUCCEEDED


async def test_a_flow_begins_when_the_server_receives_its_record(serve, worker_only, monkeypatch):
    monkeypatch.setenv("HOLDFAST_POLL", "3600")  # it looks by itself at its start, and never again
    server = await serve(sweeps=True, roles=worker_only)
    async with Holdfast(server.url, poll=0.05) as app:

        @app.task
        async def one(number: int) -> int:
            return number + 1

        flow = Flow()
        flow.chain(one.using().call(0), one)
        handle = await app.enqueue_flow(flow)
        async with working(app):
            assert (await handle.wait(90)).state == State.SUCCEEDED
