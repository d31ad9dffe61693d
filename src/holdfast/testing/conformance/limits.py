"""Limit keys: concurrency limits, rate limits and fair order, over all claims."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core.clock import MICROS
from holdfast.core.job import LimitKey, NewJob, Record, State
from holdfast.core.operations import Where
from holdfast.core.waiting import Waiting
from holdfast.store.protocol import Batch, Store
from holdfast.testing.build import (
    ask,
    cancellation,
    change,
    deletion,
    failed,
    new_job,
    released,
    says,
    succeeded,
    swept,
)
from holdfast.testing.verbs import answer_to, apply, claim, claim_one, every, insert, job, note, settle

from .harness import Harness
from .topic import Topic, requires


def limited(name: str, count: int, limit_key: LimitKey, **options: Any) -> list[NewJob]:
    return [new_job(f"{name}{n}", limit_key=limit_key, **options) for n in range(count)]


async def taken(store: Store, limit: int = 99, **options: Any) -> list[str]:
    return [record.id for record in await claim(store, limit=limit, **options)]


async def deferred(store: Store, limit_key: str) -> list[str]:
    return sorted(record.id for record in await every(store, Where(waiting_for=Waiting("limit", limit_key))))


class TestRunningAtOnce(Topic):
    limit_key = LimitKey("l", concurrency=2)

    async def test_a_full_limit_key_is_skipped_and_later_jobs_are_claimed(self, store: Store) -> None:
        await insert(store, *limited("a", 5, self.limit_key), new_job("z"))
        assert await taken(store) == ["a0", "a1", "z"]
        assert await deferred(store, "l") == ["a2", "a3", "a4"]
        assert (await job(store, "a2")).state == State.BLOCKED

    async def test_single_claims_count_against_a_limit(self, store: Store) -> None:
        await insert(store, *limited("a", 4, self.limit_key))
        assert [await taken(store, 1), await taken(store, 1), await taken(store, 1)] == [["a0"], ["a1"], []]

    @requires("wall_jumps")
    @pytest.mark.parametrize("jump", [61 * 60.0, 26 * 3600.0], ids=["+61 min", "+26 h"])
    async def test_capacity_freed_by_a_process_whose_clock_is_ahead_is_used_by_others(
        self, store: Store, harness: Harness, jump: float
    ) -> None:
        await insert(store, *limited("a", 4, self.limit_key))
        first, _ = await claim(store, limit=9)
        await harness.jump_wall(jump)
        await settle(store, succeeded(first))
        await harness.jump_wall(-jump)
        assert await taken(store) == ["a2"]

    async def test_an_end_frees_capacity(self, store: Store) -> None:
        await insert(store, *limited("a", 4, self.limit_key))
        first, _ = await claim(store, limit=9)
        assert await taken(store) == []
        await settle(store, succeeded(first))
        assert await taken(store) == ["a2"]
        assert await taken(store) == []

    async def test_an_ask_uses_capacity_that_its_batch_frees(self, store: Store) -> None:
        await insert(store, *limited("a", 4, self.limit_key))
        first, second = await claim(store, limit=9)
        await taken(store)
        answers = await store.write(Batch(settles=[succeeded(first), succeeded(second)], asks=[ask(limit=9)]))
        assert [record.id for record in answers.asks[0].records] == ["a2", "a3"]

    async def test_every_end_of_a_claim_frees_capacity(self, store: Store, harness: Harness) -> None:
        await insert(store, *limited("a", 4, LimitKey("l", concurrency=1)))
        first = await claim_one(store)
        assert await taken(store) == []
        await settle(store, failed(first, delay=600 * harness.unit))
        second = await claim_one(store)
        assert (second.id, await taken(store)) == ("a1", [])
        await settle(store, released(second))
        assert (await claim_one(store)).id == "a1"
        [lost] = await store.expired(9, "ann")
        await settle(store, swept(lost, crashes=0))
        assert await taken(store, by="bob") == ["a1"]

    async def test_a_released_job_comes_before_deferred_jobs(self, store: Store) -> None:
        await insert(store, *limited("a", 3, LimitKey("l", concurrency=1)))
        first = await claim_one(store)
        await taken(store)
        await settle(store, released(first))
        assert await taken(store) == ["a0"]

    async def test_deferred_jobs_keep_their_order(self, store: Store) -> None:
        limit_key = LimitKey("l", concurrency=1)
        await insert(
            store,
            new_job("a", limit_key=limit_key),
            new_job("low", limit_key=limit_key, priority=5),
            new_job("b", limit_key=limit_key),
        )
        await insert(store, new_job("urgent", limit_key=limit_key, priority=-5))
        order: list[str] = []
        for _ in range(4):
            one = await claim_one(store)
            assert await taken(store) == []
            await settle(store, succeeded(one))
            order.append(one.id)
        assert order == ["urgent", "a", "b", "low"]

    async def test_limit_keys_are_independent(self, store: Store) -> None:
        await insert(
            store, *limited("a", 3, LimitKey("l", concurrency=1)), *limited("b", 3, LimitKey("m", concurrency=1))
        )
        assert await taken(store) == ["a0", "b0"]

    async def test_a_limit_key_is_shared_by_all_queues(self, store: Store) -> None:
        limit_key = LimitKey("l", concurrency=1)
        await insert(store, new_job("a", limit_key=limit_key, queue="x"), new_job("b", limit_key=limit_key, queue="y"))
        one = await claim_one(store, "ann", "x")
        assert await claim(store, "bob", "y") == []
        await settle(store, succeeded(one))
        assert (await claim_one(store, "bob", "y")).id == "b"

    async def test_cancelling_a_ready_job_frees_capacity(self, store: Store) -> None:
        await insert(
            store,
            *limited("a", 3, LimitKey("l", concurrency=1)),
            new_job("p", limit_key=LimitKey("l", concurrency=1), priority=-9),
        )
        first = await claim_one(store)
        assert first.id == "p"
        await taken(store)
        answers = await store.write(Batch(settles=[succeeded(first)], asks=[ask("ann", "elsewhere")]))
        assert answers.asks[0].records == []
        seen = await job(store, "a0")
        assert await apply(store, cancellation(seen))
        assert await taken(store) == ["a1"]

    async def test_deferred_jobs_can_be_cancelled_and_deleted(self, store: Store) -> None:
        await insert(store, *limited("a", 4, LimitKey("l", concurrency=1)))
        first = await claim_one(store)
        await taken(store)
        await apply(store, cancellation(await job(store, "a1")))
        await apply(store, deletion(await job(store, "a2")))
        await settle(store, succeeded(first))
        assert await taken(store) == ["a3"]

    async def test_a_due_job_of_a_full_limit_key_is_deferred(self, store: Store, harness: Harness) -> None:
        limit_key = LimitKey("l", concurrency=1)
        await insert(store, new_job("a", limit_key=limit_key), new_job("b", limit_key=limit_key, delay=harness.unit))
        first = await claim_one(store)
        await harness.pass_time(2 * harness.unit)
        assert await taken(store) == []
        await settle(store, succeeded(first))
        assert await taken(store) == ["b"]

    async def test_a_quarantined_job_is_deferred(self, store: Store) -> None:
        limit_key = LimitKey("l", concurrency=1)
        await insert(store, *limited("a", 2, limit_key))
        await settle(store, released(await claim_one(store), quarantined=True))
        assert await taken(store) == ["a0"]
        assert await taken(store, by="bob") == []
        assert await deferred(store, "l") == ["a1"]

    async def test_limits_apply_after_a_new_connection(self, store: Store, harness: Harness) -> None:
        await insert(store, *limited("a", 3, LimitKey("l", concurrency=1)))
        first = await claim_one(store)
        await taken(store)
        store = await harness.reopen(store)
        assert await taken(store) == []
        await settle(store, succeeded(first))
        assert await taken(store) == ["a1"]

    async def test_more_jobs_than_one_claim_defers(self, store: Store) -> None:
        await insert(store, *limited("a", 1500, LimitKey("l", concurrency=1)), new_job("z", priority=1))
        got: list[str] = []
        for _ in range(4):
            answer = await answer_to(store, ask(limit=2))
            got += [record.id for record in answer.records]
            if got[-1:] == ["z"]:
                break
            assert answer.records or answer.due_in == 0.0
        assert got == ["a0", "z"]


class TestRates(Topic):
    def limit_key(self, harness: Harness, burst: int = 1) -> LimitKey:
        return LimitKey("l", interval=int(4 * harness.unit * MICROS), burst=burst)

    async def test_one_starts_per_interval(self, store: Store, harness: Harness) -> None:
        await insert(store, *limited("a", 3, self.limit_key(harness)))
        assert await taken(store) == ["a0"]
        answer = await answer_to(store, ask(limit=9))
        assert answer.records == []
        assert answer.due_in is not None
        assert 0 < answer.due_in <= 4 * harness.unit
        await harness.pass_time(5 * harness.unit)
        assert await taken(store) == ["a1"]
        assert await taken(store) == []

    async def test_a_burst_may_start_at_once(self, store: Store, harness: Harness) -> None:
        await insert(store, *limited("a", 6, self.limit_key(harness, burst=3)))
        assert await taken(store) == ["a0", "a1", "a2"]
        assert await taken(store) == []
        await harness.pass_time(5 * harness.unit)
        assert await taken(store) == ["a3"]

    async def test_ends_do_not_change_a_rate(self, store: Store, harness: Harness) -> None:
        await insert(store, *limited("a", 2, self.limit_key(harness)))
        await settle(store, succeeded(await claim_one(store)))
        assert await taken(store) == []

    async def test_others_go_on(self, store: Store, harness: Harness) -> None:
        await insert(store, *limited("a", 3, self.limit_key(harness)), new_job("z"))
        assert await taken(store) == ["a0", "z"]

    async def test_an_unused_rate_is_not_saved_up_beyond_its_burst(self, store: Store, harness: Harness) -> None:
        await insert(store, *limited("a", 1, self.limit_key(harness, burst=2)))
        assert await taken(store) == ["a0"]
        await harness.pass_time(20 * harness.unit)
        await insert(store, *limited("b", 4, self.limit_key(harness, burst=2)))
        assert await taken(store) == ["b0", "b1"]

    async def test_a_running_job_may_report_a_rate_limit(self, store: Store, harness: Harness) -> None:
        limit_key = LimitKey("l", concurrency=5)
        await insert(store, *limited("a", 3, limit_key), new_job("z"))
        first = await claim_one(store)
        assert await note(store, says(first, rest=4 * harness.unit))
        assert await taken(store) == ["z"]
        await harness.pass_time(5 * harness.unit)
        assert await taken(store) == ["a1", "a2"]

    async def test_a_reported_rate_limit_needs_the_fence(self, store: Store) -> None:
        await insert(store, *limited("a", 2, LimitKey("l", concurrency=5)))
        first = await claim_one(store)
        assert not await note(store, says(first, fence=first.fence + 1, rest=600.0))
        assert await taken(store) == ["a1"]


class TestFairOrder(Topic):
    async def test_a_limit_key_with_many_jobs_does_not_delay_others(self, store: Store) -> None:
        await insert(store, *limited("a", 50, LimitKey("a", weight=1)))
        assert await taken(store, 5) == ["a0", "a1", "a2", "a3", "a4"]
        await insert(store, *limited("b", 3, LimitKey("b", weight=1)))
        assert set(await taken(store, 2)) == {"b0", "a5"}
        assert set(await taken(store, 4)) == {"b1", "b2", "a6", "a7"}

    async def test_limit_keys_are_served_round_robin(self, store: Store) -> None:
        jobs: list[NewJob] = []
        for name in "abc":
            jobs += limited(name, 4, LimitKey(name, weight=1))
        await insert(store, *jobs)
        order = [record.id for record in await claim(store, limit=12)]
        for start in range(0, 12, 3):
            assert {id[0] for id in order[start : start + 3]} == {"a", "b", "c"}

    async def test_weights_determine_the_shares(self, store: Store) -> None:
        await insert(store, *limited("a", 30, LimitKey("a", weight=1)), *limited("b", 30, LimitKey("b", weight=3)))
        order = [record.id[0] for record in await claim(store, limit=20)]
        assert 14 <= order.count("b") <= 16

    async def test_a_limit_key_alone_gets_everything(self, store: Store) -> None:
        await insert(store, *limited("a", 5, LimitKey("a", weight=1)))
        assert await taken(store) == ["a0", "a1", "a2", "a3", "a4"]

    async def test_earlier_use_does_not_count_after_the_queue_was_empty(self, store: Store) -> None:
        await insert(store, *limited("a", 40, LimitKey("a", weight=1)))
        await taken(store)
        await insert(store, *limited("b", 3, LimitKey("b", weight=1)))
        await insert(store, *limited("c", 3, LimitKey("a", weight=1)))
        assert {id[0] for id in (await taken(store))[:4]} == {"b", "c"}

    async def test_priority_comes_first(self, store: Store) -> None:
        await insert(store, *limited("a", 3, LimitKey("a", weight=1)))
        await insert(store, *limited("b", 1, LimitKey("b", weight=1), priority=-1))
        assert (await taken(store))[0] == "b0"

    async def test_a_ready_job_of_a_limit_key_is_queued_at_any_position(self, store: Store) -> None:
        await insert(store, *limited("a", 40, LimitKey("a", weight=1)))
        found: list[Record] = await every(store)
        assert {record.state for record in found} == {State.QUEUED}

    async def test_a_change_of_a_ready_job_keeps_its_position(self, store: Store) -> None:
        await insert(store, *limited("a", 3, LimitKey("a", weight=1)))
        seen = await job(store, "a1")
        assert await apply(store, change(seen, meta={"x": 1}))
        assert await taken(store) == ["a0", "a1", "a2"]
