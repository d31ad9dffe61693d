"""Sweeping: a lost claim is settled like any other, and only if its holder has sent no heartbeat since."""

from __future__ import annotations

from holdfast.core.job import State
from holdfast.core.operations import Lost
from holdfast.store.protocol import Batch, Store
from holdfast.testing.build import cancellation, dead, holder, new_job, succeeded, swept
from holdfast.testing.verbs import apply, claim, claim_one, insert, job, running, settle

from .harness import Harness
from .topic import Topic


async def lost_claim(store: Store, harness: Harness, id: str = "a") -> Lost:
    """A claim of ann whose lease has expired, as a sweeper sees it."""
    await running(store, id, by=holder("ann", harness.lease))
    await harness.pass_time(harness.lease * 1.25)
    [lost] = await store.expired(9)
    return lost


class TestSweeping(Topic):
    async def test_a_lost_claim_has_its_fence_and_its_holders_heartbeat(self, store: Store, harness: Harness) -> None:
        claim = await running(store, by=holder("ann", harness.lease))
        [heartbeat] = await store.heartbeat([holder("ann", harness.lease)])
        await harness.pass_time(harness.lease * 1.25)
        [lost] = await store.expired(9)
        assert lost.record == claim
        assert lost.heartbeat == heartbeat.heartbeat

    async def test_listing_lost_claims_changes_nothing(self, store: Store, harness: Harness) -> None:
        lost = await lost_claim(store, harness)
        assert await store.expired(9) == [lost]
        assert (await job(store, "a")).state == State.RUNNING

    async def test_a_swept_job_can_be_claimed_again(self, store: Store, harness: Harness) -> None:
        lost = await lost_claim(store, harness)
        assert await settle(store, swept(lost))
        waiting = await job(store, "a")
        assert (waiting.state, waiting.quarantined, waiting.attempt) == (State.QUEUED, True, 1)
        assert [line.outcome for line in waiting.history] == ["lost"]
        again = await claim_one(store, "bob")
        assert (again.attempt, again.holder) == (2, "bob")
        assert not await settle(store, succeeded(lost.record))

    async def test_a_sweeper_is_refused_when_the_holder_has_renewed_since(self, store: Store, harness: Harness) -> None:
        lost = await lost_claim(store, harness)
        await store.heartbeat([holder("ann", harness.lease)])
        assert not await settle(store, swept(lost))
        assert await job(store, "a") == lost.record
        assert await settle(store, succeeded(lost.record))

    async def test_a_sweeper_is_refused_when_the_holder_has_claimed_since(self, store: Store, harness: Harness) -> None:
        lost = await lost_claim(store, harness)
        await running(store, "b", by=holder("ann", harness.lease), queue="other")
        assert not await settle(store, swept(lost))
        assert await store.expired(9) == []

    async def test_a_holder_that_is_silent_again_is_swept_with_the_heartbeat_seen_then(
        self, store: Store, harness: Harness
    ) -> None:
        stale = await lost_claim(store, harness)
        await store.heartbeat([holder("ann", harness.lease)])
        await harness.pass_time(harness.lease * 1.25)
        [lost] = await store.expired(9)
        assert not await settle(store, swept(stale))
        assert await settle(store, swept(lost))

    async def test_of_two_sweepers_one_is_refused(self, store: Store, harness: Harness) -> None:
        lost = await lost_claim(store, harness)
        answers = await store.write(Batch(settles=[swept(lost), swept(lost)]))
        assert list(answers.settles) == [True, False]
        assert len((await job(store, "a")).history) == 1

    async def test_a_sweeper_that_comes_after_the_late_holder_is_refused(self, store: Store, harness: Harness) -> None:
        lost = await lost_claim(store, harness)
        assert await settle(store, succeeded(lost.record, result=b"1"))
        assert not await settle(store, swept(lost))
        assert (await job(store, "a")).result == b"1"

    async def test_a_sweeper_may_end_a_job_as_dead(self, store: Store, harness: Harness) -> None:
        lost = await lost_claim(store, harness)
        assert await settle(store, dead(lost.record, error="poisonous", expected_heartbeat=lost.heartbeat))
        assert (await job(store, "a")).state == State.DEAD

    async def test_a_lost_job_with_requested_cancellation_is_cancelled(self, store: Store, harness: Harness) -> None:
        claim = await running(store, by=holder("ann", harness.lease))
        await apply(store, cancellation(claim))
        await harness.pass_time(harness.lease * 1.25)
        [lost] = await store.expired(9)
        assert lost.record.cancel
        assert await settle(store, swept(lost))
        assert (await job(store, claim.id)).state == State.CANCELLED

    async def test_at_most_limit_lost_claims_are_listed(self, store: Store, harness: Harness) -> None:
        await insert(store, *(new_job() for _ in range(5)))
        await claim(store, holder("ann", harness.lease), limit=3)
        await claim(store, holder("bob", harness.lease), limit=2)
        await harness.pass_time(harness.lease * 1.25)
        assert len(await store.expired(4)) == 4
        assert {lost.record.holder for lost in await store.expired(9)} == {"ann", "bob"}

    async def test_sweeping_in_small_steps_reaches_every_lost_claim(self, store: Store, harness: Harness) -> None:
        await insert(store, *(new_job() for _ in range(7)))
        await claim(store, holder("ann", harness.lease), limit=7)
        await harness.pass_time(harness.lease * 1.25)
        steps = 0
        while lost := await store.expired(2):
            assert all((await store.write(Batch(settles=[swept(one) for one in lost]))).settles)
            steps += 1
        assert steps == 4


class TestDeadChildren(Topic):
    async def test_all_claims_of_one_holder_are_listed_before_its_lease_expires(self, store: Store) -> None:
        await insert(store, new_job("a"), new_job("b"), new_job("c"))
        await claim(store, "ann", limit=2)
        await claim(store, "bob")
        lost = await store.expired(9, holder="ann")
        assert {one.record.id for one in lost} == {"a", "b"}
        assert len(await store.expired(1, holder="ann")) == 1
        assert all((await store.write(Batch(settles=[swept(one) for one in lost]))).settles)

    async def test_an_unknown_holder_has_lost_nothing(self, store: Store) -> None:
        await running(store)
        assert await store.expired(9, holder="unknown") == []

    async def test_a_child_with_a_new_heartbeat_is_not_swept(self, store: Store) -> None:
        await running(store, by="ann")
        [lost] = await store.expired(9, holder="ann")
        await store.heartbeat([holder("ann")])
        assert not await settle(store, swept(lost))
