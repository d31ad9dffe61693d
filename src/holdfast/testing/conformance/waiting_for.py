"""Waits: a job that waits for more than its time is blocked until it is released, and found by what it waits for."""

from __future__ import annotations

import pytest

from holdfast.core.job import State
from holdfast.core.operations import HANDLED, Change, Patch, Where
from holdfast.core.waiting import Kind, Waiting
from holdfast.store.protocol import Batch, Store, records_of
from holdfast.testing.build import (
    ask,
    cancellation,
    cancelled,
    change,
    dead,
    deletion,
    ending,
    failed,
    new_job,
    retrial,
    snoozed,
    succeeded,
)
from holdfast.testing.verbs import answer_to, apply, claim, claim_one, enqueue, every, insert, job, running, settle

from .harness import Harness
from .topic import Topic

X, Y = Waiting("dependency", "x"), Waiting("dependency", "y")
ALL, SIGNAL, PAUSE = Waiting("flow", "w"), Waiting("signal", "x"), Waiting("pause", "x")


async def waiting_for(store: Store, what: Waiting) -> list[str]:
    return [record.id for record in await every(store, Where(waiting_for=what), page=2)]


class TestWaitingFor(Topic):
    async def test_a_waiting_job_is_blocked_and_not_claimed(self, store: Store) -> None:
        made = await enqueue(store, "a", waiting_for=X)
        assert (made.state, made.waiting_for) == (State.BLOCKED, X)
        answer = await answer_to(store, ask(limit=9))
        assert (answer.records, answer.due_in) == ([], None)

    async def test_its_due_time_does_not_release_it(self, store: Store, harness: Harness) -> None:
        await enqueue(store, "a", waiting_for=X, delay=harness.unit)
        await harness.pass_time(2 * harness.unit)
        assert await claim(store) == []

    @pytest.mark.parametrize("kind", ["signal", "dependency", "flow_start", "flow", "pause"])
    async def test_waiting_for_is_kept(self, store: Store, kind: Kind) -> None:
        names = ("x", "limit:x", "a b:c=1, d", "ü\u4e16")
        await insert(store, *(new_job(f"j{n}", waiting_for=Waiting(kind, name)) for n, name in enumerate(names)))
        for number, name in enumerate(names):
            assert await waiting_for(store, Waiting(kind, name)) == [f"j{number}"]
            assert (await job(store, f"j{number}")).waiting_for == Waiting(kind, name)

    async def test_it_is_found_by_what_it_waits_for(self, store: Store) -> None:
        await insert(store, *(new_job(f"a{n}", waiting_for=X) for n in range(5)), new_job("b", waiting_for=Y))
        await insert(store, new_job("c"))
        assert await waiting_for(store, X) == ["a4", "a3", "a2", "a1", "a0"]
        assert await waiting_for(store, Y) == ["b"]
        assert await waiting_for(store, Waiting("dependency", "")) == []
        found = await store.find(Where(waiting_for=X, states=(State.QUEUED,)), None, 9)
        assert found.records == []

    async def test_a_change_releases_it_to_its_place(self, store: Store) -> None:
        seen = await enqueue(store, "a", waiting_for=X)
        await insert(store, new_job("b"))
        assert await apply(store, change(seen, state=State.QUEUED))
        freed = await job(store, "a")
        assert (freed.state, freed.waiting_for, freed.run_at) == (State.QUEUED, None, seen.run_at)
        assert [record.id for record in await claim(store, limit=9)] == ["a", "b"]
        assert await waiting_for(store, X) == []

    async def test_a_change_makes_it_wait_for_something_else(self, store: Store) -> None:
        seen = await enqueue(store, "a", waiting_for=X)
        assert await apply(store, change(seen, waiting_for=Y))
        assert (await job(store, "a")).state == State.BLOCKED
        assert (await waiting_for(store, X), await waiting_for(store, Y)) == ([], ["a"])

    async def test_an_ended_job_can_be_blocked_again(self, store: Store) -> None:
        await settle(store, dead(await running(store, "a")))
        seen = await job(store, "a")
        assert await apply(store, retrial(seen, state=State.BLOCKED, waiting_for=X))
        again = await job(store, "a")
        assert (again.state, again.waiting_for, again.finished_at) == (State.BLOCKED, X, None)
        assert await claim(store) == []

    async def test_it_can_be_cancelled_and_deleted(self, store: Store) -> None:
        first, second = await enqueue(store, "a", waiting_for=ALL), await enqueue(store, "b", waiting_for=ALL)
        assert await apply(store, cancellation(first))
        assert await apply(store, deletion(second))
        assert ((await job(store, "a")).waiting_for, await waiting_for(store, ALL)) == (None, [])

    async def test_a_claim_can_end_in_waiting(self, store: Store) -> None:
        claim_ = await running(store, "a")
        assert await settle(store, ending(claim_, State.BLOCKED, "paused", attempt=0, waiting_for=PAUSE))
        seen = await job(store, "a")
        assert (seen.state, seen.waiting_for, seen.attempt, seen.history[-1].outcome) == (
            State.BLOCKED,
            PAUSE,
            0,
            "paused",
        )
        assert await waiting_for(store, PAUSE) == ["a"]
        assert await claim(store) == []

    async def test_a_wait_may_have_a_timeout(self, store: Store, harness: Harness) -> None:
        claim_ = await running(store, "a")
        await settle(store, snoozed(claim_, 2 * harness.unit, waiting_for=SIGNAL))
        assert ((await job(store, "a")).state, await waiting_for(store, SIGNAL)) == (State.SCHEDULED, ["a"])
        await harness.pass_time(3 * harness.unit)
        again = await claim_one(store)
        assert (again.id, again.waiting_for, await waiting_for(store, SIGNAL)) == ("a", None, [])

    async def test_a_change_ends_a_wait_before_its_time(self, store: Store, harness: Harness) -> None:
        await settle(store, snoozed(await running(store, "a"), 60 * harness.unit, waiting_for=SIGNAL))
        assert await apply(store, change(await job(store, "a"), state=State.QUEUED, delay=0.0))
        assert ((await claim_one(store)).id, await waiting_for(store, SIGNAL)) == ("a", [])

    async def test_a_requested_cancellation_comes_before_waiting(self, store: Store) -> None:
        claim_ = await running(store, "a")
        await apply(store, cancellation(claim_))
        await settle(store, ending(claim_, State.BLOCKED, "paused", waiting_for=PAUSE))
        assert ((await job(store, "a")).state, await waiting_for(store, PAUSE)) == (State.CANCELLED, [])

    async def test_blocked_jobs_are_counted(self, store: Store) -> None:
        await insert(store, new_job("a", waiting_for=ALL), new_job("b"))
        [queue] = await store.stats()
        assert {state: count for state, count in queue.counts.items() if count} == {"blocked": 1, "queued": 1}

    async def test_a_wait_is_kept_after_reopening(self, store: Store, harness: Harness) -> None:
        await enqueue(store, "a", waiting_for=ALL, extra=b'{"x":1}')
        store = await harness.reopen(store)
        assert (await waiting_for(store, ALL), (await job(store, "a")).extra) == (["a"], b'{"x":1}')


class TestInternal(Topic):
    async def test_internal_metadata_is_kept(self, store: Store) -> None:
        made = await enqueue(store, "a", extra=b'{"deadline": 7}')
        assert made.extra == b'{"deadline": 7}'
        assert (await claim_one(store)).extra == b'{"deadline": 7}'
        assert (await enqueue(store, "b")).extra is None

    async def test_a_change_replaces_internal_metadata(self, store: Store) -> None:
        seen = await enqueue(store, "a", extra=b"{}")
        assert await apply(store, change(seen, extra=b'{"y":2}'))
        assert (await job(store, "a")).extra == b'{"y":2}'

    async def test_a_change_replaces_the_payload_and_the_checkpoint(self, store: Store) -> None:
        for size in (1, 100_000):
            seen = await enqueue(store, f"a{size}", payload=b"1" * size)
            assert await apply(store, change(seen, payload=b"2" * (100_001 - size), checkpoint=b"c"))
            changed = await job(store, f"a{size}")
            assert (changed.payload, changed.checkpoint) == (b"2" * (100_001 - size), b"c")

    async def test_a_key_has_the_fingerprint_of_the_new_payload(self, store: Store) -> None:
        seen = await enqueue(store, "a", key="k", payload=b"1")
        other = new_job("b", key="k", payload=b"2")
        assert (await insert(store, other))[0].outcome == "conflict"
        assert await apply(store, change(seen, payload=b"2", fingerprint=other.fingerprint))
        assert (await insert(store, other))[0].outcome == "existing"

    async def test_the_retention_of_an_ended_job_can_be_set(self, store: Store, harness: Harness) -> None:
        await settle(store, succeeded(await running(store, "a"), keep=None))
        assert await apply(store, change(await job(store, "a"), keep=2 * harness.unit))
        await harness.pass_time(harness.unit)
        await store.tidy(100)
        assert (await job(store, "a")).state == State.SUCCEEDED
        await harness.pass_time(2 * harness.unit)
        assert (await store.tidy(100)).jobs == 1


class TestRecordedEnds(Topic):
    """An end that other jobs wait for is recorded in the same commit."""

    async def recorded(self, store: Store) -> set[str]:
        return set(await records_of(store, "ended"))

    @pytest.mark.parametrize("end", [succeeded, dead, cancelled])
    async def test_every_end_is_recorded(self, store: Store, end: object) -> None:
        claim_ = await running(store, "a")
        assert await settle(store, end(claim_, record_end=True))  # type: ignore[operator]
        assert await self.recorded(store) == {"a"}

    async def test_an_end_is_recorded_only_if_requested_and_written(self, store: Store) -> None:
        claim_ = await running(store, "a")
        assert not await settle(store, succeeded(claim_, fence=claim_.fence + 1, record_end=True))
        assert await settle(store, succeeded(claim_))
        assert await self.recorded(store) == set()

    async def test_a_job_that_waits_again_has_not_ended(self, store: Store) -> None:
        await settle(store, failed(await running(store, "a"), delay=60.0, record_end=True))
        assert await self.recorded(store) == set()

    async def test_a_cancellation_instead_of_a_retry_is_recorded(self, store: Store) -> None:
        claim_ = await running(store, "a")
        await apply(store, cancellation(claim_))
        await settle(store, failed(claim_, record_end=True))
        assert await self.recorded(store) == {"a"}

    async def test_an_end_by_an_operator_is_recorded(self, store: Store) -> None:
        seen = await enqueue(store, "a")
        assert await apply(store, cancellation(seen, record_end=True))
        assert await self.recorded(store) == {"a"}
        assert await store.put_record("ended", "a", None)
        assert await self.recorded(store) == set()

    async def test_the_record_of_a_handled_end_is_removed_with_the_release(self, store: Store) -> None:
        await settle(store, succeeded(await running(store, "a"), record_end=True))
        await settle(store, succeeded(await running(store, "b"), record_end=True, keep=None))
        first, second, waiting_for = (
            await job(store, "a"),
            await job(store, "b"),
            await enqueue(store, "c", waiting_for=X),
        )
        handled = [
            Change("c", waiting_for.state, waiting_for.fence, Patch(state=State.QUEUED), expected_seq=waiting_for.seq),
            Change("a", first.state, first.fence, HANDLED, expected_seq=first.seq),
            Change("b", second.state, second.fence, Patch(keep=60.0, handled=True), expected_seq=second.seq),
        ]
        assert (await store.write(Batch(changes=handled))).changes == [True, True, True]
        assert await self.recorded(store) == set()
        assert (await job(store, "c")).state == State.QUEUED
        assert await job(store, "a") == first, "it is as it was"
        assert (await job(store, "b")).expires_at is not None
        assert (await store.write(Batch(changes=handled[1:2]))).changes == [True], "it may be sent again"

    async def test_the_record_of_an_end_is_kept_if_something_was_added(self, store: Store) -> None:
        await settle(store, succeeded(await running(store, "a"), record_end=True))
        await store.put_record("ended", "a", b'{"also":["b"]}')
        seen = await job(store, "a")
        assert (await store.write(Batch(changes=[Change("a", seen.state, seen.fence, HANDLED)]))).changes == [True]
        assert await self.recorded(store) == {"a"}

    async def test_the_record_of_another_end_is_not_removed(self, store: Store) -> None:
        await settle(store, succeeded(await running(store, "a"), record_end=True))
        seen = await job(store, "a")
        others = [
            Change("a", seen.state, seen.fence + 1, HANDLED),
            Change("a", State.DEAD, seen.fence, HANDLED),
            Change("a", seen.state, seen.fence, HANDLED, expected_seq=seen.seq + 1),
            Change("b", seen.state, seen.fence, HANDLED),
        ]
        assert (await store.write(Batch(changes=others))).changes == [False] * 4
        assert await self.recorded(store) == {"a"}

    async def test_many_ends_of_a_batch_are_recorded(self, store: Store) -> None:
        await insert(store, *(new_job(f"a{n}") for n in range(40)))
        claims = await claim(store, limit=40)
        ends = [succeeded(each, record_end=n % 2 == 0) for n, each in enumerate(claims)]
        assert all((await store.write(Batch(settles=ends))).settles)
        assert len(await self.recorded(store)) == 20
