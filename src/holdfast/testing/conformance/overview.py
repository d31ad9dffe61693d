"""Statistics of queues."""

from __future__ import annotations

from holdfast.store.protocol import Store
from holdfast.testing.build import dead, deletion, failed, new_job, succeeded
from holdfast.testing.verbs import apply, claim, enqueue, insert, job, running, settle

from .harness import Harness
from .topic import Topic


def counted(counts: dict[str, int]) -> dict[str, int]:
    """Without states that have no jobs: a store may list them or not."""
    return {state: number for state, number in counts.items() if number}


class TestOverview(Topic):
    async def test_an_empty_store_has_no_queues(self, store: Store) -> None:
        assert await store.stats() == []

    async def test_jobs_are_counted_per_queue_and_state(self, store: Store) -> None:
        await insert(store, new_job(queue="b"), new_job(queue="b"), new_job(queue="b", delay=60.0), new_job(queue="a"))
        await insert(store, *(new_job(queue="c", delay=60.0) for _ in range(2)))
        await claim(store, "ann", "b")
        await settle(store, succeeded(await running(store, queue="c")))
        await settle(store, dead(await running(store, queue="c")))
        await settle(store, failed(await running(store, queue="c"), delay=60.0))
        stats = await store.stats()
        assert [queue.name for queue in stats] == ["a", "b", "c"]
        assert [counted(queue.counts) for queue in stats] == [
            {"queued": 1},
            {"queued": 1, "running": 1, "scheduled": 1},
            {"succeeded": 1, "dead": 1, "failed": 1, "scheduled": 2},
        ]

    async def test_the_oldest_queued_job_is_reported(self, store: Store, harness: Harness) -> None:
        oldest = await enqueue(store, priority=9)
        await harness.pass_time(harness.unit)
        await enqueue(store, priority=-9)
        [queue] = await store.stats()
        assert queue.oldest == oldest.run_at

    async def test_a_queue_without_queued_jobs_has_no_oldest(self, store: Store) -> None:
        await enqueue(store, delay=60.0)
        [queue] = await store.stats()
        assert queue.oldest is None

    async def test_counts_follow_state_changes(self, store: Store) -> None:
        record = await running(store)
        assert [counted(queue.counts) for queue in await store.stats()] == [{"running": 1}]
        await settle(store, succeeded(record))
        assert [counted(queue.counts) for queue in await store.stats()] == [{"succeeded": 1}]
        await apply(store, deletion(await job(store, record.id)))
        assert await store.stats() == []

    async def test_an_empty_paused_queue_is_listed(self, store: Store) -> None:
        await store.put_record("pause", "mail", b"{}")
        [queue] = await store.stats()
        assert (queue.name, queue.paused, counted(queue.counts), queue.oldest) == ("mail", True, {}, None)

    async def test_a_paused_queue_is_marked(self, store: Store) -> None:
        await insert(store, new_job(queue="a"), new_job(queue="b"))
        await store.put_record("pause", "b", b"{}")
        assert [(queue.name, queue.paused) for queue in await store.stats()] == [("a", False), ("b", True)]
