"""Waking: bells ring soon after something happened, and never before a waiter could hear them."""

from __future__ import annotations

import asyncio

from holdfast.store.protocol import Bell, Store
from holdfast.testing.build import cancellation, change, dead, failed, new_job, released, retrial, succeeded
from holdfast.testing.verbs import apply, claim, enqueue, insert, job, running, settle

from .harness import Harness
from .topic import Topic, requires

FOREVER = 3600.0


async def rings(bell: Bell, harness: Harness) -> None:
    """Wait for the bell; fail if it takes too long."""
    await asyncio.wait_for(bell.wait(FOREVER), harness.ring_limit)


class TestWaking(Topic):
    async def test_a_silent_bell_returns_after_its_timeout(self, store: Store) -> None:
        bell = store.listen(["queue/default", "job/a"])
        await bell.wait(0.01)
        await bell.wait(0.0)
        bell.close()

    async def test_a_closed_bell_may_be_closed_again(self, store: Store) -> None:
        bell = store.listen(["queue/default"])
        bell.close()
        bell.close()
        await enqueue(store)

    @requires("hints")
    async def test_a_bell_rings_when_a_job_is_inserted(self, store: Store, harness: Harness) -> None:
        bell = store.listen(["queue/default"])
        waiting = asyncio.create_task(rings(bell, harness))
        await asyncio.sleep(0)
        await enqueue(store)
        await waiting
        bell.close()

    @requires("hints")
    async def test_a_ring_between_the_claim_and_the_wait_is_not_lost(self, store: Store, harness: Harness) -> None:
        bell = store.listen(["queue/default"])
        for _ in range(3):
            assert await claim(store) == []
            await enqueue(store)
            await rings(bell, harness)
            assert len(await claim(store)) == 1
        bell.close()

    @requires("hints")
    async def test_a_sibling_rings_the_bell(self, store: Store, harness: Harness) -> None:
        other = await harness.another(store)
        bell = store.listen(["queue/mail", "queue/default"])
        assert await claim(store) == []
        await enqueue(other)
        await rings(bell, harness)
        bell.close()

    @requires("hints")
    async def test_a_bell_rings_when_a_job_is_put_back(self, store: Store, harness: Harness) -> None:
        for end in (released, failed):
            claimed = await running(store, queue="mail")
            bell = store.listen(["queue/mail"])
            await settle(store, end(claimed))
            await rings(bell, harness)
            bell.close()
            await claim(store, "ann", "mail")

    @requires("hints")
    async def test_a_bell_rings_when_a_job_is_retried_or_made_due(self, store: Store, harness: Harness) -> None:
        ended = await running(store)
        await settle(store, dead(ended))
        bell = store.listen(["queue/default"])
        await apply(store, retrial(await job(store, ended.id)))
        await rings(bell, harness)
        bell.close()
        later = await enqueue(store, delay=1000.0)
        bell = store.listen(["queue/default"])
        await apply(store, change(later, state="queued", delay=0.0))
        await rings(bell, harness)
        bell.close()

    @requires("hints")
    async def test_a_bell_rings_when_a_queue_is_resumed(self, store: Store, harness: Harness) -> None:
        await store.put_record("pause", "default", b"{}")
        bell = store.listen(["queue/default"])
        await store.put_record("pause", "default", None)
        await rings(bell, harness)
        bell.close()

    @requires("hints")
    async def test_a_bell_rings_when_a_job_ends(self, store: Store, harness: Harness) -> None:
        other = await harness.another(store)
        for end in (succeeded, dead):
            claimed = await running(store)
            bell = store.listen([f"job/{claimed.id}"])
            await settle(other, end(claimed))
            await rings(bell, harness)
            bell.close()

    @requires("hints")
    async def test_a_bell_rings_when_a_job_is_cancelled_or_removed_as_it_ends(
        self, store: Store, harness: Harness
    ) -> None:
        waiting = await enqueue(store)
        bell = store.listen([f"job/{waiting.id}"])
        await apply(store, cancellation(waiting))
        await rings(bell, harness)
        bell.close()
        claimed = await running(store)
        bell = store.listen([f"job/{claimed.id}"])
        await settle(store, succeeded(claimed, keep=0.0))
        await rings(bell, harness)
        bell.close()

    @requires("hints")
    async def test_every_bell_of_a_topic_rings(self, store: Store, harness: Harness) -> None:
        other = await harness.another(store)
        bells = [store.listen(["queue/default"]), store.listen(["queue/default"]), other.listen(["queue/default"])]
        await insert(store, new_job())
        for bell in bells:
            await rings(bell, harness)
            bell.close()

    async def test_a_waiter_may_be_cancelled(self, store: Store) -> None:
        bell = store.listen(["queue/default"])
        waiting = asyncio.create_task(bell.wait(FOREVER))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled()
        bell.close()
        await enqueue(store)
