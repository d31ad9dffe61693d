"""Once: how long a key's job stands for a new one, as the new one says."""

from __future__ import annotations

from holdfast.core.operations import Inserted
from holdfast.store.protocol import Store
from holdfast.testing.build import failed, new_job, released, succeeded
from holdfast.testing.verbs import claim_one, enqueue, insert, running, settle

from .harness import Harness
from .topic import Topic


class TestUnique(Topic):
    async def test_while_queued_another_is_the_same(self, store: Store) -> None:
        await enqueue(store, "a", key="k", unique="until_start")
        assert await insert(store, new_job("b", key="k", unique="until_start")) == [Inserted("existing", "a")]

    async def test_while_queued_ends_when_it_runs(self, store: Store) -> None:
        await running(store, "a", key="k", unique="until_start")
        assert await insert(store, new_job("b", key="k", unique="until_start")) == [Inserted("created", "b")]
        assert await insert(store, new_job("c", key="k", unique="until_start")) == [Inserted("existing", "b")]

    async def test_a_job_that_waits_for_its_retry_is_queued(self, store: Store) -> None:
        await settle(store, failed(await running(store, "a", key="k", unique="until_start"), delay=60.0))
        assert await insert(store, new_job("b", key="k", unique="until_start")) == [Inserted("existing", "a")]

    async def test_while_live_ends_with_the_job(self, store: Store, harness: Harness) -> None:
        claim = await running(store, "a", key="k", unique="until_end")
        assert await insert(store, new_job("b", key="k", unique="until_end")) == [Inserted("existing", "a")]
        await settle(store, succeeded(claim, key_keep=60 * harness.unit))
        assert await insert(store, new_job("c", key="k", unique="until_end")) == [Inserted("created", "c")]

    async def test_a_window_counts_from_the_first(self, store: Store, harness: Harness) -> None:
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

    async def test_the_first_may_come_back_beside_the_second(self, store: Store) -> None:
        first = await running(store, "a", key="k", unique="until_start")
        await insert(store, new_job("b", key="k", unique="until_start"))
        await settle(store, released(first))
        assert [(await claim_one(store)).id, (await claim_one(store)).id] == ["a", "b"]

    async def test_sent_again_after_another_took_its_key_it_is_itself(self, store: Store) -> None:
        new = new_job("a", key="k", unique="until_start")
        await insert(store, new)
        await claim_one(store)
        await insert(store, new_job("b", key="k", unique="until_start"))
        assert await insert(store, new) == [Inserted("created", "a")]

    async def test_another_payload_is_a_conflict_while_the_first_stands(self, store: Store) -> None:
        await enqueue(store, "a", key="k", unique="until_end")
        assert (await insert(store, new_job("b", key="k", unique="until_end", payload=b"2")))[0].outcome == "conflict"

    async def test_in_one_batch_the_first_stands(self, store: Store) -> None:
        answers = await insert(store, *(new_job(id, key="k", unique="until_end") for id in ("a", "b")))
        assert answers == [Inserted("created", "a"), Inserted("existing", "a")]

    async def test_a_job_that_finds_no_room_leaves_its_key_as_it_was(self, store: Store, harness: Harness) -> None:
        claim = await running(store, "a", key="k")
        nobody = new_job("b", key="k", unique="until_end", max_depth=0)
        assert await insert(store, nobody) == [Inserted("existing", "a")]
        await settle(store, succeeded(claim, key_keep=60 * harness.unit))
        assert await insert(store, nobody) == [Inserted("full", "b")]
        assert await store.get(["b"]) == [None]
        assert await insert(store, new_job("c", key="k")) == [Inserted("existing", "a")]

    async def test_a_caller_asks_for_the_usual_gets_it(self, store: Store, harness: Harness) -> None:
        claim = await running(store, "a", key="k", unique="until_end")
        await settle(store, succeeded(claim, key_keep=60 * harness.unit))
        assert await insert(store, new_job("b", key="k")) == [Inserted("existing", "a")]
