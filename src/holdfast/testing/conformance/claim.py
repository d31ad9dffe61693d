"""Claim: a job is assigned to one holder, its attempt is counted, and its fence raised."""

from __future__ import annotations

from holdfast.core.job import State
from holdfast.store.protocol import Batch, Store
from holdfast.testing.build import ask, failed, holder, new_job, released, snoozed, succeeded
from holdfast.testing.verbs import answer_to, claim, claim_one, enqueue, insert, job, running, settle

from .harness import Harness
from .topic import Topic, requires


class TestClaim(Topic):
    async def test_a_claim_has_holder_fence_and_token(self, store: Store) -> None:
        await enqueue(store, "a")
        wish = ask("ann")
        before = await store.now()
        [record] = (await answer_to(store, wish)).records
        assert (record.id, record.state, record.holder, record.token) == ("a", State.RUNNING, "ann", wish.token)
        assert record.started_at is not None
        assert before <= record.started_at <= await store.now()

    async def test_a_claim_returns_the_stored_record(self, store: Store) -> None:
        record = await running(store, payload=b'{"x": 1}', meta={"m": 1}, tags=("t",))
        assert await job(store, record.id) == record

    async def test_a_running_job_is_not_claimed_again(self, store: Store) -> None:
        await running(store)
        assert await claim(store, "bob") == []
        assert await claim(store, "ann") == []

    async def test_an_ended_job_is_not_claimed(self, store: Store) -> None:
        await settle(store, succeeded(await running(store)))
        assert await claim(store) == []

    async def test_two_asks_of_a_batch_get_different_jobs(self, store: Store) -> None:
        await insert(store, *(new_job() for _ in range(5)))
        answers = await store.write(Batch(asks=[ask("ann", limit=3), ask("bob", limit=3)]))
        ids = [record.id for claims in answers.asks for record in claims.records]
        assert len(ids) == len(set(ids)) == 5
        assert [len(claims.records) for claims in answers.asks] == [3, 2]

    async def test_a_limit_bounds_a_claim(self, store: Store) -> None:
        await insert(store, *(new_job() for _ in range(5)))
        assert len(await claim(store, limit=2)) == 2
        assert len(await claim(store, limit=100)) == 3

    async def test_a_limit_of_0_claims_nothing(self, store: Store) -> None:
        await enqueue(store, "a")
        assert await claim(store, limit=0) == []
        assert (await job(store, "a")).state == State.QUEUED

    async def test_a_limit_holds_across_queues(self, store: Store) -> None:
        await insert(store, new_job(queue="one"), new_job(queue="one"), new_job(queue="two"), new_job(queue="two"))
        assert len(await claim(store, "ann", "one", "two", limit=3)) == 3

    async def test_only_given_queues_are_served(self, store: Store) -> None:
        await insert(store, new_job("a", queue="one"), new_job("b", queue="two"), new_job("c", queue="three"))
        assert {record.id for record in await claim(store, "ann", "one", "three", limit=9)} == {"a", "c"}

    async def test_a_queue_named_twice_gives_each_job_once(self, store: Store) -> None:
        await insert(store, new_job("a"), new_job("b"))
        records = await claim(store, "ann", "default", "default", limit=9)
        assert [(record.id, record.fence) for record in records] == [("a", 1), ("b", 1)]

    async def test_only_given_tasks_are_served(self, store: Store) -> None:
        await insert(
            store, new_job("a", task="x"), new_job("b", task="y"), new_job("c", task="z"), new_job("d", task="y")
        )
        assert [record.id for record in await claim(store, limit=9, tasks=("y", "z"))] == ["b", "c", "d"]
        assert await claim(store, limit=9, tasks=("y",)) == []
        assert (await job(store, "a")).state == State.QUEUED

    async def test_an_ask_without_tasks_gets_no_job(self, store: Store) -> None:
        await enqueue(store)
        assert await claim(store, tasks=()) == []

    async def test_queues_that_were_never_used_are_empty(self, store: Store) -> None:
        answer = await answer_to(store, ask("ann", "nowhere"))
        assert (answer.records, answer.quarantined_waiting, answer.due_in) == ([], False, None)

    @requires("write_count")
    async def test_an_ask_that_finds_nothing_writes_nothing(self, store: Store, harness: Harness) -> None:
        await enqueue(store, delay=1000 * harness.unit)
        await running(store, queue="other", by=holder("ann", harness.lease))
        await harness.pass_time(harness.lease * 0.75)
        before = await harness.write_count()
        assert await claim(store, holder("ann", harness.lease)) == []
        assert await claim(store, "never-seen") == []
        assert await harness.write_count() == before


class TestAttempts(Topic):
    async def test_an_attempt_is_counted_at_the_claim(self, store: Store) -> None:
        record = await running(store)
        assert record.attempt == 1
        assert (await job(store, record.id)).attempt == 1

    async def test_every_claim_counts_one_more(self, store: Store) -> None:
        record = await running(store)
        for number in (2, 3, 4):
            assert await settle(store, failed(record))
            record = await claim_one(store)
            assert record.attempt == number

    async def test_a_release_is_not_charged(self, store: Store) -> None:
        record = await running(store)
        assert await settle(store, released(record))
        assert (await job(store, record.id)).attempt == 0
        assert (await claim_one(store)).attempt == 1

    async def test_a_snooze_is_not_charged(self, store: Store, harness: Harness) -> None:
        record = await running(store)
        assert await settle(store, snoozed(record, delay=harness.unit))
        assert (await job(store, record.id)).attempt == 0

    async def test_a_fence_rises_with_every_claim_also_after_a_release(self, store: Store) -> None:
        fences: list[int] = []
        await enqueue(store)
        for end in (released, failed, released, failed):
            record = await claim_one(store)
            fences.append(record.fence)
            assert await settle(store, end(record))
            assert (await job(store, record.id)).fence == record.fence
        assert fences == sorted(set(fences))
        assert fences[0] > 0

    async def test_a_new_claim_has_the_token_of_its_own_ask(self, store: Store) -> None:
        first = await running(store)
        await settle(store, released(first))
        wish = ask("bob")
        [second] = (await answer_to(store, wish)).records
        assert second.token == wish.token != first.token

    async def test_a_token_may_be_any_number_of_62_bits(self, store: Store) -> None:
        await enqueue(store)
        record = await claim_one(store, token=2**62 - 1)
        assert record.token == 2**62 - 1
        assert await settle(store, succeeded(record, nonce=2**62 - 1))

    async def test_a_claim_clears_the_pid_of_the_previous_one(self, store: Store) -> None:
        record = await running(store)
        await settle(store, failed(record))
        again = await claim_one(store, "bob")
        assert (again.holder, again.pid, again.error) == ("bob", None, "Boom: it broke")
