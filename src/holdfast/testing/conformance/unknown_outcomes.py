"""Unknown outcomes: a batch that is sent again, because its answer was lost, is recognised and done once."""

from __future__ import annotations

from holdfast.core.job import State
from holdfast.core.operations import Inserted
from holdfast.store.protocol import Batch, Store
from holdfast.testing.build import dead, failed, holder, new_job, released, retrial, succeeded, swept
from holdfast.testing.verbs import apply, claim_one, every, insert, job, running, settle

from .harness import Harness
from .topic import Topic


class TestUnknownOutcomes(Topic):
    async def test_an_insert_sent_again_is_created_once(self, store: Store) -> None:
        new = new_job("a")
        assert await insert(store, new) == await insert(store, new) == [Inserted("created", "a")]
        assert len(await every(store)) == 1

    async def test_a_repeated_insert_with_a_chosen_id_is_recognised(self, store: Store) -> None:
        new = new_job("mine", nonce=7)
        assert await insert(store, new) == await insert(store, new) == [Inserted("created", "mine")]
        assert await insert(store, new_job("mine", nonce=8)) == [Inserted("exists", "mine")]

    async def test_a_repeated_insert_with_a_key_is_recognised(self, store: Store) -> None:
        new = new_job("a", key="k")
        assert await insert(store, new) == await insert(store, new) == [Inserted("created", "a")]
        assert await insert(store, new_job("b", key="k")) == [Inserted("existing", "a")]

    async def test_an_insert_sent_again_is_recognised_while_the_job_runs_and_after_its_end(self, store: Store) -> None:
        new = new_job("a", nonce=7, key="k")
        await insert(store, new)
        claimed = await claim_one(store)
        assert await insert(store, new) == [Inserted("created", "a")]
        await settle(store, succeeded(claimed, key_keep=60.0))
        assert await insert(store, new) == [Inserted("created", "a")]
        assert (await job(store, "a")).state == State.SUCCEEDED

    async def test_an_insert_sent_again_into_a_queue_that_is_full_by_now_is_recognised(self, store: Store) -> None:
        new = new_job("a", max_depth=1)
        assert await insert(store, new) == await insert(store, new) == [Inserted("created", "a")]

    async def test_a_settlement_sent_again_is_recognised(self, store: Store) -> None:
        for make in (succeeded, dead, failed, released):
            end = make(await running(store))
            assert await settle(store, end)
            before = await job(store, end.id)
            assert await settle(store, end), make.__name__
            assert await job(store, end.id) == before
            if before.state == State.QUEUED:
                await settle(store, succeeded(await claim_one(store)))

    async def test_a_settlement_sent_again_is_recognised_though_the_job_was_claimed_again(self, store: Store) -> None:
        end = released(await running(store))
        assert await settle(store, end)
        again = await claim_one(store, "bob")
        assert await settle(store, end)
        assert await job(store, again.id) == again

    async def test_a_settlement_twice_in_one_batch_is_done_once(self, store: Store) -> None:
        end = failed(await running(store))
        assert list((await store.write(Batch(settles=[end, end]))).settles) == [True, True]
        assert len((await job(store, end.id)).history) == 1

    async def test_another_settlement_of_the_same_claim_is_refused(self, store: Store) -> None:
        claimed = await running(store)
        assert await settle(store, succeeded(claimed))
        assert not await settle(store, succeeded(claimed))

    async def test_a_refused_settlement_is_refused_again(self, store: Store) -> None:
        claimed = await running(store)
        await settle(store, released(claimed))
        late = succeeded(claimed)
        assert not await settle(store, late)
        assert not await settle(store, late)

    async def test_a_settlement_sent_again_after_a_retry_changes_nothing(self, store: Store) -> None:
        end = dead(await running(store))
        await settle(store, end)
        await apply(store, retrial(await job(store, end.id)))
        before = await job(store, end.id)
        await settle(store, end)
        assert await job(store, end.id) == before

    async def test_a_sweep_sent_again_is_recognised(self, store: Store, harness: Harness) -> None:
        await running(store, by=holder("ann", harness.lease))
        await harness.pass_time(harness.lease * 1.25)
        [lost] = await store.expired(9)
        end = swept(lost)
        assert await settle(store, end)
        await store.heartbeat([holder("ann", harness.lease)])
        assert await settle(store, end)
        assert len((await job(store, end.id)).history) == 1

    async def test_a_whole_batch_sent_again_gives_the_same_answers(self, store: Store) -> None:
        claimed, other = await running(store, queue="one"), await running(store, queue="two")
        batch = Batch(
            inserts=[new_job("a"), new_job("b", key="k"), new_job("c", nonce=3)],
            settles=[succeeded(claimed), released(other)],
        )
        first = await store.write(batch)
        before = await every(store)
        second = await store.write(batch)
        assert list(second.inserts) == list(first.inserts)
        assert list(second.settles) == list(first.settles) == [True, True]
        assert await every(store) == before

    async def test_a_batch_sent_again_through_a_restarted_process_is_recognised(
        self, store: Store, harness: Harness
    ) -> None:
        batch = Batch(inserts=[new_job("a", nonce=3)], settles=[released(await running(store))])
        await store.write(batch)
        again = await (await harness.reopen(store)).write(batch)
        assert (again.inserts[0].outcome, list(again.settles)) == ("created", [True])
