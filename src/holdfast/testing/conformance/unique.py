"""Unique jobs: how long the job of a key prevents a new one, by the `unique` of the new one."""

from __future__ import annotations

from holdfast.core.operations import Inserted
from holdfast.store.protocol import Store
from holdfast.testing.build import failed, new_job, released, succeeded
from holdfast.testing.verbs import claim_one, enqueue, insert, running, settle

from .harness import Harness
from .topic import Topic


class TestUnique(Topic):
    async def test_until_start_gives_the_existing_job(self, store: Store) -> None:
        await enqueue(store, "a", key="k", unique="until_start")
        assert await insert(store, new_job("b", key="k", unique="until_start")) == [Inserted("existing", "a")]

    async def test_until_start_ends_with_the_claim(self, store: Store) -> None:
        await running(store, "a", key="k", unique="until_start")
        assert await insert(store, new_job("b", key="k", unique="until_start")) == [Inserted("created", "b")]
        assert await insert(store, new_job("c", key="k", unique="until_start")) == [Inserted("existing", "b")]

    async def test_until_start_includes_the_wait_for_a_retry(self, store: Store) -> None:
        await settle(store, failed(await running(store, "a", key="k", unique="until_start"), delay=60.0))
        assert await insert(store, new_job("b", key="k", unique="until_start")) == [Inserted("existing", "a")]

    async def test_until_end_ends_with_the_job(self, store: Store, harness: Harness) -> None:
        claim = await running(store, "a", key="k", unique="until_end")
        assert await insert(store, new_job("b", key="k", unique="until_end")) == [Inserted("existing", "a")]
        await settle(store, succeeded(claim, key_keep=60 * harness.unit))
        assert await insert(store, new_job("c", key="k", unique="until_end")) == [Inserted("created", "c")]

    async def test_a_window_begins_with_the_first_job(self, store: Store, harness: Harness) -> None:
        window = 3 * harness.unit
        claim = await running(store, "a", key="k", unique="window", window=window)
        await settle(store, succeeded(claim, keep=0.0, key_keep=60 * harness.unit))
        await harness.pass_time(harness.unit)
        assert await insert(store, new_job("b", key="k", unique="window", window=window)) == [Inserted("existing", "a")]
        await harness.pass_time(3 * harness.unit)
        assert await insert(store, new_job("c", key="k", unique="window", window=window)) == [Inserted("created", "c")]

    async def test_the_end_of_the_first_does_not_free_the_key_of_the_second(self, store: Store) -> None:
        first = await running(store, "a", key="k", unique="until_start")
        await insert(store, new_job("b", key="k", unique="until_start"))
        await settle(store, succeeded(first, key_keep=0.0))
        assert await insert(store, new_job("c", key="k", unique="until_start")) == [Inserted("existing", "b")]

    async def test_the_first_job_may_be_released_after_the_second_was_created(self, store: Store) -> None:
        first = await running(store, "a", key="k", unique="until_start")
        await insert(store, new_job("b", key="k", unique="until_start"))
        await settle(store, released(first))
        assert [(await claim_one(store)).id, (await claim_one(store)).id] == ["a", "b"]

    async def test_a_repeated_insert_is_recognised_after_another_job_took_its_key(self, store: Store) -> None:
        new = new_job("a", key="k", unique="until_start")
        await insert(store, new)
        await claim_one(store)
        await insert(store, new_job("b", key="k", unique="until_start"))
        assert await insert(store, new) == [Inserted("created", "a")]

    async def test_another_payload_is_a_conflict_until_the_end_of_the_first(self, store: Store) -> None:
        await enqueue(store, "a", key="k", unique="until_end")
        assert (await insert(store, new_job("b", key="k", unique="until_end", payload=b"2")))[0].outcome == "conflict"

    async def test_the_first_of_a_batch_is_created(self, store: Store) -> None:
        answers = await insert(store, *(new_job(id, key="k", unique="until_end") for id in ("a", "b")))
        assert answers == [Inserted("created", "a"), Inserted("existing", "a")]

    async def test_a_job_refused_by_a_full_queue_keeps_the_key_as_it_was(self, store: Store, harness: Harness) -> None:
        claim = await running(store, "a", key="k")
        refused = new_job("b", key="k", unique="until_end", max_depth=0)
        assert await insert(store, refused) == [Inserted("existing", "a")]
        await settle(store, succeeded(claim, key_keep=60 * harness.unit))
        assert await insert(store, refused) == [Inserted("full", "b")]
        assert await store.get(["b"]) == [None]
        assert await insert(store, new_job("c", key="k")) == [Inserted("existing", "a")]

    async def test_an_insert_without_unique_finds_a_kept_key(self, store: Store, harness: Harness) -> None:
        claim = await running(store, "a", key="k", unique="until_end")
        await settle(store, succeeded(claim, key_keep=60 * harness.unit))
        assert await insert(store, new_job("b", key="k")) == [Inserted("existing", "a")]
