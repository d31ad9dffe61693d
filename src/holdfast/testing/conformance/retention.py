"""Retention: an ended job stays readable for its retention; `tidy` removes expired ones, a bounded number at a time."""

from __future__ import annotations

from holdfast.core.job import State
from holdfast.core.operations import Tidied
from holdfast.store.protocol import Batch, Store
from holdfast.testing.build import cancelled, change, dead, holder, new_job, succeeded
from holdfast.testing.verbs import apply, claim, enqueue, every, gone, insert, job, running, settle

from .harness import Harness
from .topic import Topic


class TestRetention(Topic):
    async def test_an_ended_job_is_removed_after_its_retention(self, store: Store, harness: Harness) -> None:
        for end in (succeeded, dead, cancelled):
            record = await running(store)
            await settle(store, end(record, keep=2 * harness.unit))
            assert (await store.tidy(100)).jobs == 0
            assert (await job(store, record.id)).id == record.id
            await harness.pass_time(3 * harness.unit)
            assert (await store.tidy(100)).jobs == 1
            assert await gone(store, record.id)

    async def test_retention_0_removes_a_job_at_its_end(self, store: Store) -> None:
        for end in (succeeded, dead, cancelled):
            record = await running(store)
            assert await settle(store, end(record, keep=0.0))
            assert await gone(store, record.id)
        assert await every(store) == []
        assert await store.stats() == []

    async def test_a_job_without_retention_limit_is_kept(self, store: Store, harness: Harness) -> None:
        record = await running(store)
        await settle(store, dead(record, keep=None))
        await harness.pass_time(40 * harness.unit)
        assert (await store.tidy(100)).jobs == 0
        assert (await job(store, record.id)).expires_at is None

    async def test_an_operators_end_has_its_own_retention(self, store: Store, harness: Harness) -> None:
        record = await enqueue(store)
        await apply(store, change(record, state=State.CANCELLED, keep=2 * harness.unit))
        await harness.pass_time(3 * harness.unit)
        assert (await store.tidy(100)).jobs == 1

    async def test_unfinished_jobs_are_never_removed(self, store: Store, harness: Harness) -> None:
        await running(store, by=holder("ann", harness.lease))
        await enqueue(store)
        await enqueue(store, delay=1.0)
        await harness.pass_time(40 * harness.unit)
        assert (await store.tidy(100)).jobs == 0
        assert len(await every(store)) == 3


class TestTidy(Topic):
    async def test_tidying_an_empty_store_is_no_error(self, store: Store) -> None:
        assert await store.tidy(100) == Tidied(0, 0, 0)

    async def test_tidying_in_bounded_steps_reaches_every_job(self, store: Store, harness: Harness) -> None:
        await insert(store, *(new_job() for _ in range(5)))
        records = await claim(store, limit=5)
        await store.write(Batch(settles=[succeeded(record, keep=harness.unit) for record in records]))
        await harness.pass_time(2 * harness.unit)
        removed: list[int] = []
        while (step := await store.tidy(2)).jobs:
            removed.append(step.jobs)
        assert removed == [2, 2, 1]
        assert await every(store) == []

    async def test_expired_keys_are_removed_in_bounded_steps(self, store: Store, harness: Harness) -> None:
        await insert(store, *(new_job(key=f"k{n}") for n in range(3)))
        records = await claim(store, limit=3)
        await store.write(Batch(settles=[succeeded(record, key_keep=harness.unit, keep=None) for record in records]))
        assert (await store.tidy(2)).keys == 0
        await harness.pass_time(2 * harness.unit)
        assert [(await store.tidy(2)).keys for _ in range(3)] == [2, 1, 0]

    async def test_expired_holders_are_removed_in_bounded_steps(self, store: Store, harness: Harness) -> None:
        await store.heartbeat([holder(name, harness.lease) for name in ("ann", "bob", "cyd")])
        await store.heartbeat([holder("dan", 1000 * harness.lease)])
        await harness.pass_time(harness.lease * 1.25)
        assert [(await store.tidy(2)).holders for _ in range(3)] == [2, 1, 0]
        assert [seen.holder.id for seen in await store.holders()] == ["dan"]

    async def test_a_tidied_job_is_in_no_view(self, store: Store, harness: Harness) -> None:
        record = await running(store, key="k")
        await settle(store, succeeded(record, keep=harness.unit))
        await harness.pass_time(2 * harness.unit)
        await store.tidy(100)
        assert await store.get([record.id]) == [None]
        assert await every(store) == []
        assert await store.stats() == []
