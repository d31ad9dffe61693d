"""Transactional completion: the writes of a task's block and the end of its claim commit together, or not at all."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import msgspec
import pytest

from holdfast.core.errors import LeaseLost
from holdfast.core.job import LimitKey, Record, State
from holdfast.core.operations import Output
from holdfast.store.protocol import Binding, Store, Transacting, records_of
from holdfast.testing.build import new_job, released, says, succeeded
from holdfast.testing.verbs import claim, claim_one, gone, insert, job, running, settle

from .harness import Harness
from .topic import Topic, requires
from .transitions import since, watch
from .waking import notifies


async def complete(store: Store, end: Any, effect: str = "effect") -> None:
    """End a claim in a block that also inserts a job: the task's own write."""
    async with cast("Transacting", store).transaction(lambda: end) as connection:
        await cast("Binding", store).insert_bound(connection, [new_job(effect, queue="effects")])


async def print_and_complete(store: Store, held: Record) -> None:
    """End a claim in a block together with its last output."""
    notes = [says(held, output=Output(at, data, 1 << 20)) for at, data in ((0, b"one"), (3, b"two"))]
    async with cast("Transacting", store).transaction(lambda: succeeded(held), lambda: notes):
        pass


async def taken_over(store: Store) -> tuple[Record, Record]:
    first = await running(store, by="ann")
    assert await settle(store, released(first))
    return first, await claim_one(store, "bob")


class TestCompletion(Topic):
    @requires("transactional_completion")
    async def test_the_last_output_of_a_block_is_kept_with_its_end(self, store: Store) -> None:
        held = await running(store)
        await print_and_complete(store, held)
        assert [piece.data for piece in await store.output(held.id, 0, 100)] == [b"one", b"two"]
        first, second = await taken_over(store)
        with pytest.raises(LeaseLost):
            await print_and_complete(store, first)
        assert await store.output(second.id, 0, 100) == []

    @requires("transactional_completion", "hints")
    async def test_a_block_ends_its_job_once_with_all_effects(self, store: Store, harness: Harness) -> None:
        limit_key = LimitKey("l", concurrency=1)
        jobs = [new_job("a", limit_key=limit_key, key="k", fingerprint="f"), new_job("b", limit_key=limit_key)]
        await insert(store, *jobs)
        held, cursor, listener = await claim_one(store), await watch(store), store.listen(["job/a"])
        assert await claim(store) == []
        waiting = asyncio.create_task(notifies(listener, harness))
        await asyncio.sleep(0)
        await complete(store, succeeded(held, b'"done"', key="k", record_end=True))
        await waiting
        listener.close()
        ended = await job(store, "a")
        assert (ended.state, ended.result) == (State.SUCCEEDED, b'"done"')
        assert (await job(store, "effect")).state == State.QUEUED
        assert ("a", "succeeded") in await since(store, cursor)
        assert sum(stats.count for stats in await store.stats_by_minute(0) if stats.outcome == "succeeded") == 1
        assert "a" in await records_of(store, "ended")
        assert [record.id for record in await claim(store)] == ["b"]
        assert await store.key_owners(["k"]) == [None]
        with pytest.raises(LeaseLost):
            await complete(store, succeeded(held, b"2"), "second")
        assert not await settle(store, succeeded(held, b"3"))
        assert await job(store, "a") == ended
        assert await gone(store, "second")

    @requires("transactional_completion")
    async def test_a_block_that_fails_or_whose_claim_has_ended_keeps_nothing(self, store: Store) -> None:
        first, held = await taken_over(store)

        async def fail() -> None:
            async with cast("Transacting", store).transaction(lambda: succeeded(held)) as connection:
                await cast("Binding", store).insert_bound(connection, [new_job("effect", queue="effects")])
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fail()
        assert await gone(store, "effect")
        stale_token = msgspec.structs.replace(held, token=first.token)
        stale_fence = msgspec.structs.replace(held, fence=first.fence)
        for stale in (first, stale_token, stale_fence):
            with pytest.raises(LeaseLost):
                await complete(store, succeeded(stale))
            assert await gone(store, "effect")
        assert await job(store, held.id) == held
        await complete(store, succeeded(held))
        assert (await job(store, held.id)).state == State.SUCCEEDED
