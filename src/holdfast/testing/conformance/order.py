"""Order: within one queue a claim takes the lowest (priority, time due, insertion)."""

from __future__ import annotations

from holdfast.core.clock import MICROS
from holdfast.core.job import PRIORITY_MAX, PRIORITY_MIN
from holdfast.store.protocol import Store
from holdfast.testing.build import change, failed, new_job, released, retrial, succeeded
from holdfast.testing.verbs import apply, claim, claim_one, enqueue, insert, job, settle

from .harness import Harness
from .topic import Topic


async def claimed_order(store: Store, limit: int = 100) -> list[str]:
    return [record.id for record in await claim(store, limit=limit)]


class TestOrder(Topic):
    async def test_equal_jobs_are_claimed_in_the_order_of_insertion(self, store: Store) -> None:
        await insert(store, *(new_job(f"{n:02}") for n in range(12)))
        assert await claimed_order(store) == [f"{n:02}" for n in range(12)]

    async def test_one_at_a_time_gives_the_same_order_as_all_at_once(self, store: Store) -> None:
        priorities = (3, -1, 0, -1, 3, 2)
        await insert(store, *(new_job(f"{p}/{n}", priority=p) for n, p in enumerate(priorities)))
        order = [(await claim_one(store)).id for _ in priorities]
        assert order == ["-1/1", "-1/3", "0/2", "2/5", "3/0", "3/4"]

    async def test_a_lower_priority_comes_first(self, store: Store) -> None:
        for priority in (0, 5, -5, PRIORITY_MAX, PRIORITY_MIN, 1, -1):
            await enqueue(store, str(priority), priority=priority)
        assert await claimed_order(store) == [str(PRIORITY_MIN), "-5", "-1", "0", "1", "5", str(PRIORITY_MAX)]

    async def test_among_equals_the_one_that_was_due_first_comes_first(self, store: Store, harness: Harness) -> None:
        now = await store.now()
        step = int(harness.unit * MICROS)
        await insert(store, *(new_job(f"+{n}", run_at=now + n * step) for n in (3, 1, 2)))
        await enqueue(store, "+0")
        await harness.pass_time(4 * harness.unit)
        await enqueue(store, "last")
        assert await claimed_order(store) == ["+0", "+1", "+2", "+3", "last"]

    async def test_a_priority_counts_more_than_the_time_due(self, store: Store, harness: Harness) -> None:
        await enqueue(store, "early")
        await insert(store, new_job("late", priority=-1, delay=harness.unit))
        await harness.pass_time(2 * harness.unit)
        assert await claimed_order(store) == ["late", "early"]

    async def test_jobs_due_at_the_same_instant_come_in_the_order_of_insertion(
        self, store: Store, harness: Harness
    ) -> None:
        at = await store.now() + int(harness.unit * MICROS)
        await insert(store, *(new_job(f"{n}", run_at=at) for n in range(5)))
        await harness.pass_time(2 * harness.unit)
        assert await claimed_order(store) == ["0", "1", "2", "3", "4"]

    async def test_a_released_job_keeps_its_place(self, store: Store, harness: Harness) -> None:
        await enqueue(store, "a")
        await harness.pass_time(harness.unit)
        await insert(store, new_job("b"), new_job("c"))
        await settle(store, released(await claim_one(store)))
        assert await claimed_order(store) == ["a", "b", "c"]

    async def test_a_failed_job_is_ordered_by_its_new_due_time(self, store: Store, harness: Harness) -> None:
        await insert(store, new_job("a"), new_job("b"))
        await settle(store, failed(await claim_one(store), delay=harness.unit))
        await harness.pass_time(2 * harness.unit)
        await enqueue(store, "c")
        assert await claimed_order(store) == ["b", "a", "c"]

    async def test_a_retried_job_comes_after_waiting_jobs(self, store: Store, harness: Harness) -> None:
        await enqueue(store, "a")
        await settle(store, succeeded(await claim_one(store)))
        await insert(store, new_job("b"))
        await harness.pass_time(harness.unit)
        await apply(store, retrial(await job(store, "a")))
        assert await claimed_order(store) == ["b", "a"]

    async def test_a_job_that_was_made_due_earlier_moves_forward(self, store: Store, harness: Harness) -> None:
        record = await enqueue(store, "a", delay=1000 * harness.unit)
        await apply(store, change(record, state="queued", delay=0.0))
        await harness.pass_time(harness.unit)
        await enqueue(store, "b")
        assert await claimed_order(store) == ["a", "b"]

    async def test_a_claim_of_several_queues_takes_the_best_of_each(self, store: Store) -> None:
        await insert(store, new_job("a1", queue="a", priority=1), new_job("a0", queue="a"))
        await insert(store, new_job("b1", queue="b", priority=1), new_job("b0", queue="b"))
        taken = [record.id for record in await claim(store, "ann", "a", "b", limit=4)]
        assert [id for id in taken if id[0] == "a"] == ["a0", "a1"]
        assert [id for id in taken if id[0] == "b"] == ["b0", "b1"]

    async def test_a_queue_that_was_named_first_is_tried_first(self, store: Store) -> None:
        await insert(store, new_job("a", queue="a", priority=9), new_job("b", queue="b", priority=-9))
        assert (await claim_one(store, "ann", "a", "b")).id == "a"
