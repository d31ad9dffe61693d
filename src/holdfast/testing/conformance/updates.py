"""Updates: when a job last changed its state or was changed, by the store's clock; and how often it has failed."""

from __future__ import annotations

from holdfast.core.job import HISTORY_LIMIT, Record, State
from holdfast.core.lifecycle import failures, updated_at
from holdfast.core.operations import Output
from holdfast.store.protocol import Store
from holdfast.testing.build import (
    cancellation,
    change,
    dead,
    ending,
    failed,
    holder,
    released,
    retrial,
    says,
    snoozed,
    succeeded,
)
from holdfast.testing.verbs import apply, claim_one, enqueue, job, note, running, settle

from .harness import Harness
from .topic import Topic


class TestUpdates(Topic):
    async def changed(self, store: Store, harness: Harness, before: Record) -> Record:
        """The job, which was updated after `before` was read."""
        now = await job(store, before.id)
        assert updated_at(before) < updated_at(now) <= await store.now()
        await harness.pass_time(harness.unit)
        return now

    async def test_every_transition_is_an_update(self, store: Store, harness: Harness) -> None:
        before = await store.now()
        seen = await enqueue(store)
        assert before <= updated_at(seen) <= await store.now()
        for end in (failed, released, succeeded):
            await harness.pass_time(harness.unit)
            claim = await claim_one(store)
            seen = await self.changed(store, harness, seen)
            assert updated_at(claim) == updated_at(seen)
            assert await settle(store, end(claim))
            seen = await self.changed(store, harness, seen)

    async def test_every_change_is_an_update(self, store: Store, harness: Harness) -> None:
        seen = await enqueue(store)
        await harness.pass_time(harness.unit)
        for patch in ({"meta": {"a": 1}}, {"payload": b'{"a":1}'}, {"state": State.SCHEDULED, "delay": 600.0}):
            assert await apply(store, change(seen, **patch))
            seen = await self.changed(store, harness, seen)
        assert await apply(store, change(seen, state=State.QUEUED, delay=0.0))
        seen = await self.changed(store, harness, seen)
        await claim_one(store)
        seen = await self.changed(store, harness, seen)
        assert await apply(store, cancellation(seen))
        seen = await self.changed(store, harness, seen)
        assert await settle(store, ending(seen, State.CANCELLED))
        seen = await self.changed(store, harness, seen)
        assert await apply(store, change(seen, keep=600.0))
        seen = await self.changed(store, harness, seen)
        assert await apply(store, retrial(seen))
        await self.changed(store, harness, seen)

    async def test_a_note_is_an_update(self, store: Store, harness: Harness) -> None:
        claim = seen = await running(store)
        await harness.pass_time(harness.unit)
        for said in ({"progress": b"1"}, {"checkpoint": b"c"}, {"pid": 7}, {"meta": {"a": 1}}):
            assert await note(store, says(claim, **said))
            seen = await self.changed(store, harness, seen)
        assert await settle(store, succeeded(claim))
        await self.changed(store, harness, seen)

    async def test_output_and_heartbeats_are_no_updates(self, store: Store, harness: Harness) -> None:
        claim = await running(store, by="ann")
        await harness.pass_time(harness.unit)
        assert await note(store, says(claim, output=Output(0, b"hello", 100)))
        await store.heartbeat([holder("ann")])
        assert updated_at(await job(store, claim.id)) == updated_at(claim)

    async def test_becoming_due_is_no_update(self, store: Store, harness: Harness) -> None:
        seen = await enqueue(store, "later", delay=harness.unit)
        await harness.pass_time(2 * harness.unit)
        await running(store, "first", priority=-1)
        assert updated_at(await job(store, "later")) == updated_at(seen)


class TestFailures(Topic):
    async def test_failures_are_counted_beyond_the_kept_history(self, store: Store) -> None:
        await enqueue(store, "a")
        for _ in range(HISTORY_LIMIT + 3):
            await settle(store, failed(await claim_one(store)))
        assert failures(await job(store, "a")) == HISTORY_LIMIT + 3
        await settle(store, dead(await claim_one(store)))
        assert failures(await job(store, "a")) == HISTORY_LIMIT + 4

    async def test_releases_are_no_failures_and_hide_none(self, store: Store) -> None:
        await enqueue(store, "a")
        for _ in range(3):
            await settle(store, failed(await claim_one(store)))
        for _ in range(HISTORY_LIMIT // 2 + 1):
            await settle(store, released(await claim_one(store)))
            await settle(store, snoozed(await claim_one(store), delay=0.0))
        claim = await claim_one(store)
        assert failures(claim) == failures(await job(store, "a")) == 3
        await settle(store, succeeded(claim))
        assert failures(await job(store, "a")) == 3

    async def test_a_retried_job_has_no_failures(self, store: Store) -> None:
        await settle(store, failed(await running(store, "a")))
        await settle(store, dead(await claim_one(store)))
        await apply(store, retrial(await job(store, "a")))
        assert failures(await job(store, "a")) == 0
        await settle(store, failed(await claim_one(store)))
        assert failures(await job(store, "a")) == 1

    async def test_a_cancelled_job_keeps_its_failures(self, store: Store) -> None:
        await settle(store, failed(await running(store, "a")))
        claim = await claim_one(store)
        await apply(store, cancellation(claim))
        await settle(store, failed(claim))
        ended = await job(store, "a")
        assert (ended.state, failures(ended)) == (State.CANCELLED, 1)
