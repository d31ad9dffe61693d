"""Notifications: listeners are notified soon after a change, also if it comes between the claim and the wait."""

from __future__ import annotations

import asyncio

from holdfast import Holdfast, Worker
from holdfast.core.job import LimitKey, State
from holdfast.core.operations import Output
from holdfast.store.protocol import NOTIFIED_KINDS, Listener, Store
from holdfast.testing.build import (
    cancellation,
    change,
    dead,
    failed,
    holder,
    new_job,
    released,
    retrial,
    says,
    succeeded,
)
from holdfast.testing.verbs import apply, claim, enqueue, insert, job, note, running, settle

from .harness import Harness
from .topic import Topic, requires

FOREVER = 3600.0
WEEK = 7 * 86400.0
"""Seconds: a lease whose heartbeats come after the end of the test."""


async def notifies(listener: Listener, harness: Harness) -> None:
    """Wait for the listener; fail if it takes too long."""
    await asyncio.wait_for(listener.wait(FOREVER), harness.notify_limit)


async def relied_on(listener: Listener, harness: Harness) -> None:
    """Wait until the listener is reliable, and forget earlier notifications."""
    async with asyncio.timeout(harness.notify_limit):
        while not listener.reliable:
            await listener.wait(0.01)
    await listener.wait(0.0)


class TestWaking(Topic):
    async def test_a_silent_listener_returns_after_its_timeout(self, store: Store) -> None:
        listener = store.listen(["queue/default", "job/a"])
        await listener.wait(0.01)
        await listener.wait(0.0)
        listener.close()

    async def test_a_closed_listener_may_be_closed_again(self, store: Store) -> None:
        listener = store.listen(["queue/default"])
        listener.close()
        listener.close()
        await enqueue(store)

    @requires("hints")
    async def test_a_listener_is_notified_when_a_job_is_inserted(self, store: Store, harness: Harness) -> None:
        listener = store.listen(["queue/default"])
        waiting = asyncio.create_task(notifies(listener, harness))
        await asyncio.sleep(0)
        await enqueue(store)
        await waiting
        listener.close()

    @requires("hints")
    async def test_a_notification_between_the_claim_and_the_wait_is_not_lost(
        self, store: Store, harness: Harness
    ) -> None:
        listener = store.listen(["queue/default"])
        for _ in range(3):
            assert await claim(store) == []
            await enqueue(store)
            await notifies(listener, harness)
            assert len(await claim(store)) == 1
        listener.close()

    @requires("hints")
    async def test_a_write_of_a_sibling_notifies_the_listener(self, store: Store, harness: Harness) -> None:
        other = await harness.another(store)
        listener = store.listen(["queue/mail", "queue/default"])
        assert await claim(store) == []
        await enqueue(other)
        await notifies(listener, harness)
        listener.close()

    @requires("hints")
    async def test_a_listener_is_notified_when_a_job_is_released(self, store: Store, harness: Harness) -> None:
        for end in (released, failed):
            claimed = await running(store, queue="mail")
            listener = store.listen(["queue/mail"])
            await settle(store, end(claimed))
            await notifies(listener, harness)
            listener.close()
            await claim(store, "ann", "mail")

    @requires("hints")
    async def test_a_listener_is_notified_when_a_job_is_retried_or_made_due(
        self, store: Store, harness: Harness
    ) -> None:
        ended = await running(store)
        await settle(store, dead(ended))
        listener = store.listen(["queue/default"])
        await apply(store, retrial(await job(store, ended.id)))
        await notifies(listener, harness)
        listener.close()
        later = await enqueue(store, delay=1000.0)
        listener = store.listen(["queue/default"])
        await apply(store, change(later, state="queued", delay=0.0))
        await notifies(listener, harness)
        listener.close()

    @requires("hints")
    async def test_a_listener_is_notified_when_a_queue_is_resumed(self, store: Store, harness: Harness) -> None:
        await store.put_record("pause", "default", b"{}")
        listener = store.listen(["queue/default"])
        await store.put_record("pause", "default", None)
        await notifies(listener, harness)
        listener.close()

    @requires("hints")
    async def test_a_listener_is_notified_when_a_record_of_its_kind_changes(
        self, store: Store, harness: Harness
    ) -> None:
        other = await harness.another(store)
        for kind in NOTIFIED_KINDS:
            listener = store.listen([f"record/{kind}"])
            for value in (b"{}", b"[]", None, b"{}"):  # the first wait may end when the listener is registered
                await other.put_record(kind, "a", value)
                await notifies(listener, harness)
            listener.close()

    @requires("reliable_hints")
    async def test_a_reliable_listener_is_notified_of_a_job_that_a_claim_for_others_releases(
        self, store: Store, harness: Harness
    ) -> None:
        other, one = await harness.another(store), LimitKey("l", concurrency=1)
        await insert(store, new_job("a", limit_key=one), new_job("b", queue="mail", limit_key=one))
        [first] = await claim(store)
        assert await claim(store, "ann", "mail") == []
        await settle(other, succeeded(first))
        listener = store.listen(["queue/mail"])
        await relied_on(listener, harness)
        assert await claim(other, "bob", "default") == []
        await notifies(listener, harness)
        assert [record.id for record in await claim(store, "ann", "mail")] == ["b"]
        listener.close()

    @requires("reliable_hints")
    async def test_a_reliable_listener_is_notified_of_jobs_that_a_claim_releases_beyond_its_own(
        self, store: Store, harness: Harness
    ) -> None:
        other, two = await harness.another(store), LimitKey("l", concurrency=2)
        await insert(store, *(new_job(f"a{n}", limit_key=two) for n in range(4)))
        for claimed in await claim(store, limit=4):
            await settle(other, succeeded(claimed))
        listener = store.listen(["queue/default"])
        await relied_on(listener, harness)
        assert [record.id for record in await claim(other, "bob", limit=1)] == ["a2"]
        await notifies(listener, harness)
        assert [record.id for record in await claim(store, limit=4)] == ["a3"]
        listener.close()

    @requires("hints")
    async def test_a_listener_is_notified_when_a_job_ends(self, store: Store, harness: Harness) -> None:
        other = await harness.another(store)
        for end in (succeeded, dead):
            claimed = await running(store)
            listener = store.listen([f"job/{claimed.id}"])
            await settle(other, end(claimed))
            await notifies(listener, harness)
            listener.close()

    @requires("hints")
    async def test_a_listener_is_notified_when_a_job_is_cancelled_or_removed_as_it_ends(
        self, store: Store, harness: Harness
    ) -> None:
        waiting = await enqueue(store)
        listener = store.listen([f"job/{waiting.id}"])
        await apply(store, cancellation(waiting))
        await notifies(listener, harness)
        listener.close()
        claimed = await running(store)
        listener = store.listen([f"job/{claimed.id}"])
        await settle(store, succeeded(claimed, keep=0.0))
        await notifies(listener, harness)
        listener.close()

    @requires("hints")
    async def test_a_holder_is_notified_of_each_request_to_cancel_one_of_its_jobs(
        self, store: Store, harness: Harness
    ) -> None:
        other = await harness.another(store)
        await insert(store, *(new_job(f"a{n}") for n in range(5)))
        claimed = await claim(store, "ann", limit=5)
        listener = store.listen(["holder/ann"])
        for one in claimed:  # the first waits may end when the listener is registered
            await apply(other, cancellation(one))
            await notifies(listener, harness)
        [heartbeat] = await store.heartbeat([holder("ann")])
        assert [held.cancel for held in heartbeat.held] == [True] * 5
        listener.close()

    @requires("hints")
    async def test_a_listener_is_notified_of_each_chunk_and_progress_of_its_job(
        self, store: Store, harness: Harness
    ) -> None:
        other, claimed = await harness.another(store), await running(store)
        listener = store.listen([f"note/{claimed.id}"])
        for number in range(4):  # the first waits may end when the listener is registered
            await note(other, says(claimed, output=Output(number, b"x", 100, stream=True)))
            await notifies(listener, harness)
        for number in range(3):
            await note(other, says(claimed, progress=b"%d" % number))
            await notifies(listener, harness)
        listener.close()

    @requires("reliable_hints")
    async def test_a_reliable_listener_for_notes_is_not_notified_of_other_jobs_and_of_output(
        self, store: Store, harness: Harness
    ) -> None:
        other, claimed, another = await harness.another(store), await running(store), await running(store)
        listener, seen = store.listen([f"note/{claimed.id}"]), store.listen([f"job/{another.id}"])
        for one in (seen, listener):
            await relied_on(one, harness)
        await note(other, says(another, progress=b"1", output=Output(0, b"x", 100, stream=True)))
        await note(other, says(claimed, output=Output(0, b"x", 100)))
        await settle(other, succeeded(another))
        await notifies(seen, harness)  # so all notifications before it have arrived
        assert not await listener.wait(0.0)
        for one in (listener, seen):
            one.close()

    @requires("hints")
    async def test_a_worker_stops_cancelled_jobs_long_before_its_next_heartbeat(
        self, store: Store, harness: Harness
    ) -> None:
        app, began = Holdfast(store.sibling()), asyncio.Event()

        @app.task(name="forever")
        async def forever() -> None:
            began.set()
            await asyncio.Event().wait()

        async with app, asyncio.timeout(4 * harness.notify_limit):
            worker = Worker(app, lease=WEEK)
            working = asyncio.create_task(worker.run())
            for _ in range(3):  # the first may end by a heartbeat that follows the start
                handle = await forever.enqueue()
                await began.wait()
                began.clear()
                await apply(store, cancellation(await job(store, handle.id)))
                assert (await handle.wait()).state == State.CANCELLED
            worker.stop()
            await working

    @requires("hints")
    async def test_every_listener_of_a_topic_is_notified(self, store: Store, harness: Harness) -> None:
        other = await harness.another(store)
        listeners = [store.listen(["queue/default"]), store.listen(["queue/default"]), other.listen(["queue/default"])]
        await insert(store, new_job())
        for listener in listeners:
            await notifies(listener, harness)
            listener.close()

    async def test_a_waiter_may_be_cancelled(self, store: Store) -> None:
        listener = store.listen(["queue/default"])
        waiting = asyncio.create_task(listener.wait(FOREVER))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled()
        listener.close()
        await enqueue(store)
