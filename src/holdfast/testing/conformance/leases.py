"""Leases: they belong to the holder, and expire only by the store's own clock."""

from __future__ import annotations

import pytest

from holdfast.store.protocol import CONTROL, Batch, Store
from holdfast.testing.build import ask, cancellation, holder, new_job, released, succeeded
from holdfast.testing.verbs import apply, claim, claim_one, enqueue, insert, job, running, settle

from .harness import Harness
from .topic import Topic, requires


class TestHeartbeats(Topic):
    async def test_a_heartbeat_creates_a_holder(self, store: Store) -> None:
        ann = holder(
            "ann",
            30.0,
            kind="worker",
            node="n1",
            pid=7,
            queues=("a", "b"),
            tasks=("x",),
            slots=10,
            version="1.2",
            started_at=5,
        )
        [heartbeat] = await store.heartbeat([ann])
        assert heartbeat.held == ()
        [seen] = await store.holders()
        assert (seen.holder, seen.heartbeat, seen.alive, seen.jobs) == (ann, heartbeat.heartbeat, True, ())

    async def test_a_heartbeat_updates_a_holder(self, store: Store) -> None:
        await store.heartbeat([holder(slots=1)])
        await store.heartbeat([holder(slots=2, queues=("mail",))])
        [seen] = await store.holders()
        assert (seen.holder.slots, seen.holder.queues) == (2, ("mail",))

    async def test_a_heartbeat_says_when_a_worker_has_a_request(self, store: Store) -> None:
        await store.put_record(CONTROL, "bob/1", b"{}", 0)
        assert [reply.requests for reply in await store.heartbeat([holder("ann"), holder("bob")])] == [True, True]

    async def test_heartbeat_numbers_rise(self, store: Store) -> None:
        heartbeats = [(await store.heartbeat([holder()]))[0].heartbeat for _ in range(4)]
        assert heartbeats == sorted(set(heartbeats))

    async def test_a_heartbeat_returns_the_claims_of_the_holder(self, store: Store) -> None:
        await insert(store, new_job("a"), new_job("b"), new_job("c"))
        first, second = await claim(store, "ann", limit=2)
        await claim(store, "bob")
        [heartbeat] = await store.heartbeat([holder("ann")])
        assert {(h.id, h.seq, h.fence, h.token, h.cancel) for h in heartbeat.held} == {
            (r.id, r.seq, r.fence, r.token, False) for r in (first, second)
        }

    async def test_a_heartbeat_reports_a_requested_cancellation(self, store: Store) -> None:
        await apply(store, cancellation(await running(store)))
        [heartbeat] = await store.heartbeat([holder()])
        assert [held.cancel for held in heartbeat.held] == [True]

    async def test_a_heartbeat_omits_lost_claims(self, store: Store) -> None:
        first = await running(store)
        await settle(store, released(first))
        await claim_one(store, "bob")
        [heartbeat] = await store.heartbeat([holder("ann")])
        assert heartbeat.held == ()

    async def test_several_holders_heartbeat_at_once_and_are_answered_in_order(self, store: Store) -> None:
        await running(store, "a", by="ann", queue="a")
        await running(store, "b", by="bob", queue="b")
        heartbeats = await store.heartbeat([holder("bob"), holder("cyd"), holder("ann")])
        assert [[held.id for held in heartbeat.held] for heartbeat in heartbeats] == [["b"], [], ["a"]]

    async def test_a_heartbeat_without_holders_is_empty(self, store: Store) -> None:
        assert await store.heartbeat([]) == []
        assert await store.holders() == []


class TestLeases(Topic):
    async def test_a_lease_is_valid_until_it_expires(self, store: Store, harness: Harness) -> None:
        await running(store, by=holder("ann", harness.lease))
        await harness.pass_time(harness.lease * 0.75)
        assert await store.expired(9) == []
        await harness.pass_time(harness.lease * 0.5)
        assert len(await store.expired(9)) == 1

    async def test_a_heartbeat_extends_the_lease_of_every_claim(self, store: Store, harness: Harness) -> None:
        ann = holder("ann", harness.lease)
        await insert(store, new_job(), new_job())
        await claim(store, ann, limit=2)
        for _ in range(3):
            await harness.pass_time(harness.lease * 0.75)
            await store.heartbeat([ann])
        assert await store.expired(9) == []
        await harness.pass_time(harness.lease * 1.25)
        assert len(await store.expired(9)) == 2

    async def test_a_claim_renews_a_lease_after_half_of_it(self, store: Store, harness: Harness) -> None:
        ann = holder("ann", harness.lease)
        await running(store, by=ann)
        await harness.pass_time(harness.lease * 0.75)
        await running(store, by=ann)
        await harness.pass_time(harness.lease * 0.75)
        assert await store.expired(9) == []

    async def test_a_claim_renews_an_expired_lease(self, store: Store, harness: Harness) -> None:
        ann = holder("ann", harness.lease)
        await store.heartbeat([ann])
        await harness.pass_time(harness.lease * 1.5)
        await running(store, by=ann)
        assert await store.expired(9) == []

    async def test_another_holders_heartbeat_extends_nothing(self, store: Store, harness: Harness) -> None:
        await running(store, by=holder("ann", harness.lease))
        await harness.pass_time(harness.lease * 1.25)
        await store.heartbeat([holder("bob", harness.lease)])
        assert [lost.record.holder for lost in await store.expired(9)] == ["ann"]

    async def test_a_lost_claim_is_not_claimed_before_it_is_settled(self, store: Store, harness: Harness) -> None:
        await running(store, by=holder("ann", harness.lease))
        await harness.pass_time(harness.lease * 1.25)
        assert await claim(store, "bob") == []

    @requires("wall_jumps")
    @pytest.mark.parametrize("jump", [3600.0, -3600.0], ids=["forward", "back"])
    async def test_a_wrong_wall_clock_neither_ends_nor_extends_a_lease(
        self, store: Store, harness: Harness, jump: float
    ) -> None:
        await running(store, by=holder("ann", harness.lease))
        await harness.jump_wall(jump)
        assert await store.expired(9) == []
        assert [seen.alive for seen in await store.holders()] == [True]
        await harness.pass_time(harness.lease * 1.25)
        assert len(await store.expired(9)) == 1

    @requires("reboots")
    async def test_a_reboot_ends_every_lease(self, store: Store, harness: Harness) -> None:
        record = await running(store, by=holder("ann", 1000.0))
        store = await harness.reboot(store)
        assert [lost.record.id for lost in await store.expired(9)] == [record.id]
        assert [seen.alive for seen in await store.holders()] == [False]


class TestHolders(Topic):
    async def test_a_claim_creates_its_holder(self, store: Store) -> None:
        claim = await running(store, by="ann")
        [seen] = await store.holders()
        assert (seen.holder.id, seen.alive, seen.jobs) == ("ann", True, (claim.id,))

    async def test_a_holder_shows_how_long_it_has_been_silent(self, store: Store, harness: Harness) -> None:
        await store.heartbeat([holder("ann", harness.lease)])
        await harness.pass_time(2 * harness.unit)
        [seen] = await store.holders()
        assert seen.alive
        assert seen.age == pytest.approx(2 * harness.unit, abs=harness.unit)

    async def test_an_expired_holder_is_kept_while_it_has_jobs(self, store: Store, harness: Harness) -> None:
        claim = await running(store, by=holder("ann", harness.lease))
        await harness.pass_time(harness.lease * 50)
        await store.tidy(100)
        [seen] = await store.holders()
        assert (seen.alive, seen.jobs) == (False, (claim.id,))

    async def test_an_expired_holder_without_jobs_is_removed(self, store: Store, harness: Harness) -> None:
        claim = await running(store, by=holder("ann", harness.lease))
        await settle(store, succeeded(claim))
        assert (await store.tidy(100)).holders == 0
        await harness.pass_time(harness.lease * 1.25)
        assert (await store.tidy(100)).holders == 1
        assert await store.holders() == []

    async def test_a_holder_that_leaves_without_jobs_is_removed(self, store: Store) -> None:
        await store.heartbeat([holder("ann"), holder("bob")])
        await store.leave(["ann"])
        assert [seen.holder.id for seen in await store.holders()] == ["bob"]

    async def test_a_holder_that_leaves_with_jobs_loses_its_lease_at_once(self, store: Store) -> None:
        claim = await running(store, by="ann")
        await store.leave(["ann"])
        [seen] = await store.holders()
        assert (seen.alive, seen.jobs) == (False, (claim.id,))
        assert [lost.record.id for lost in await store.expired(9)] == [claim.id]

    async def test_an_unknown_holder_may_leave(self, store: Store) -> None:
        await store.leave(["unknown"])
        await store.leave([])
        assert await store.holders() == []

    async def test_a_holder_that_left_may_come_back(self, store: Store) -> None:
        await running(store, by="ann")
        await store.leave(["ann"])
        [heartbeat] = await store.heartbeat([holder("ann")])
        assert len(heartbeat.held) == 1
        assert await store.expired(9) == []

    async def test_a_holder_lists_its_running_jobs(self, store: Store) -> None:
        await insert(store, new_job("a"), new_job("b"))
        first, _second = await claim(store, "ann", limit=2)
        await settle(store, succeeded(first))
        [seen] = await store.holders()
        assert seen.jobs == ("b",)

    async def test_claims_of_one_batch_have_their_own_holders(self, store: Store) -> None:
        await insert(store, new_job(), new_job())
        await store.write(Batch(asks=[ask("ann"), ask("bob")]))
        assert {seen.holder.id: len(seen.jobs) for seen in await store.holders()} == {"ann": 1, "bob": 1}

    async def test_an_empty_claim_has_no_jobs(self, store: Store) -> None:
        assert await claim(store, "ann") == []
        waiting = await enqueue(store)
        assert (await job(store, waiting.id)).holder is None
        assert [seen.jobs for seen in await store.holders() if seen.jobs] == []
