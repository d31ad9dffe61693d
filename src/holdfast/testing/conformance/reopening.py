"""Reopening: a restarted process finds everything unchanged."""

from __future__ import annotations

from holdfast.core.job import State
from holdfast.core.operations import Inserted
from holdfast.store.protocol import Store, records_of
from holdfast.testing.build import dead, failed, holder, new_job, says, succeeded
from holdfast.testing.verbs import claim_one, every, insert, job, note, running, settle

from .harness import Harness
from .topic import Topic


class TestReopening(Topic):
    async def test_every_job_is_unchanged_after_reopening(self, store: Store, harness: Harness) -> None:
        await insert(
            store, new_job("queued", queue="q", meta={"m": 1}, tags=("t",)), new_job("later", queue="q", delay=60.0)
        )
        claimed = await running(store, "running", key="k")
        await note(store, says(claimed, checkpoint=b"half", pid=7))
        await settle(store, succeeded(await running(store, "succeeded"), result=b"1"))
        await settle(store, failed(await running(store, "failed"), delay=60.0))
        await settle(store, dead(await running(store, "dead"), keep=None))
        before = await every(store)
        assert len(before) == 6
        assert await every(await harness.reopen(store)) == before

    async def test_a_claim_survives_the_connection_that_made_it(self, store: Store, harness: Harness) -> None:
        claimed = await running(store, by="ann")
        store = await harness.reopen(store)
        [heartbeat] = await store.heartbeat([holder("ann")])
        assert [held.id for held in heartbeat.held] == [claimed.id]
        assert await settle(store, succeeded(claimed))

    async def test_a_lease_expires_while_no_process_is_connected(self, store: Store, harness: Harness) -> None:
        claimed = await running(store, by=holder("ann", harness.lease))
        store = await harness.reopen(store)
        assert await store.expired(9) == []
        await harness.pass_time(harness.lease * 1.25)
        assert [lost.record.id for lost in await store.expired(9)] == [claimed.id]

    async def test_keys_ids_records_and_numbers_are_remembered(self, store: Store, harness: Harness) -> None:
        await insert(store, new_job("a", key="k", nonce=1))
        await store.put_record("config", "x", b"1")
        kept = await records_of(store, "config")
        first = await job(store, "a")
        store = await harness.reopen(store)
        assert await insert(store, new_job("b", key="k")) == [Inserted("existing", "a")]
        assert await insert(store, new_job("a", nonce=2)) == [Inserted("exists", "a")]
        assert await records_of(store, "config") == kept
        await insert(store, new_job("c"))
        assert (await job(store, "c")).seq > first.seq

    async def test_a_fence_rises_after_reopening(self, store: Store, harness: Harness) -> None:
        claimed = await running(store)
        await settle(store, failed(claimed))
        again = await claim_one(await harness.reopen(store))
        assert again.fence > claimed.fence

    async def test_a_store_that_was_closed_can_be_opened_again(self, store: Store) -> None:
        await insert(store, new_job("a"))
        await store.close()
        await store.open()
        assert (await job(store, "a")).state == State.QUEUED
        await store.close()
        await store.close()
        await store.open()

    async def test_a_sibling_sees_what_was_written_at_once(self, store: Store, harness: Harness) -> None:
        other = await harness.another(store)
        await insert(store, new_job("a"))
        claimed = await claim_one(other, "bob")
        assert await job(store, "a") == claimed
        await settle(store, succeeded(claimed))
        assert (await job(other, "a")).state == State.SUCCEEDED
