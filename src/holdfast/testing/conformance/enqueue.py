"""Enqueue: an inserted job is stored as given, or the answer has the reason why not."""

from __future__ import annotations

from typing import Any

from holdfast.core.clock import MICROS
from holdfast.core.job import PRIORITY_MAX, PRIORITY_MIN, State
from holdfast.core.operations import Inserted
from holdfast.core.retry import Backoff
from holdfast.store.protocol import Batch, Store
from holdfast.testing.build import cancellation, failed, new_job, succeeded
from holdfast.testing.verbs import apply, claim, claim_one, enqueue, gone, insert, job, settle

from .topic import Topic


class TestEnqueue(Topic):
    async def test_a_new_job_is_answered_as_created_under_its_own_id(self, store: Store) -> None:
        assert await insert(store, new_job("a")) == [Inserted("created", "a")]

    async def test_a_new_job_is_queued_and_has_not_been_tried(self, store: Store) -> None:
        record = await enqueue(store)
        assert (record.state, record.attempt, record.fence, record.reset_count) == (State.QUEUED, 0, 0, 0)
        assert (record.holder, record.pid, record.started_at, record.finished_at) == (None, None, None, None)
        assert (record.expires_at, record.quarantined, record.crashes, record.cancel) == (None, False, 0, False)
        assert (record.result, record.error, record.traceback, record.history) == (None, None, None, ())
        assert (record.progress, record.checkpoint) == (None, None)

    async def test_every_given_field_is_kept(self, store: Store) -> None:
        given = {
            "task": "mail.send",
            "queue": "mail",
            "payload": b'{"to": "x"}',
            "codec": "cloudpickle",
            "priority": -7,
            "max_attempts": 9,
            "timeout": 2.5,
            "key": "welcome-1",
            "tags": ("red", "blue"),
            "meta": {"a": 1, "b": {"c": [True, None, "x", 1.5]}},
            "retry": Backoff(base=1.0, factor=3.0, jitter=0.0, cap=60.0),
        }
        record = await enqueue(store, "a", **given)
        assert {name: getattr(record, name) for name in given} == given

    async def test_an_omitted_option_stays_empty(self, store: Store) -> None:
        record = await enqueue(store)
        assert (record.timeout, record.key, record.retry, record.tags, record.meta) == (None, None, None, (), {})

    async def test_unlimited_attempts_are_kept_as_zero(self, store: Store) -> None:
        assert (await enqueue(store, max_attempts=0)).max_attempts == 0

    async def test_the_extreme_priorities_are_kept(self, store: Store) -> None:
        for priority in (PRIORITY_MIN, PRIORITY_MAX):
            assert (await enqueue(store, priority=priority)).priority == priority

    async def test_times_are_the_stores_own(self, store: Store) -> None:
        before = await store.now()
        record = await enqueue(store)
        assert before <= record.created_at <= await store.now()
        assert record.run_at == record.created_at

    async def test_a_delay_makes_a_job_scheduled(self, store: Store) -> None:
        before = await store.now()
        record = await enqueue(store, delay=90.5)
        assert record.state == State.SCHEDULED
        assert before <= record.run_at - int(90.5 * MICROS) <= await store.now()

    async def test_a_time_in_the_future_makes_a_job_scheduled_for_exactly_then(self, store: Store) -> None:
        at = await store.now() + 3600 * MICROS + 1
        record = await enqueue(store, run_at=at)
        assert (record.state, record.run_at) == (State.SCHEDULED, at)

    async def test_a_given_time_wins_over_a_delay(self, store: Store) -> None:
        at = await store.now() + 3600 * MICROS
        assert (await enqueue(store, run_at=at, delay=5.0)).run_at == at

    async def test_the_past_means_now(self, store: Store) -> None:
        before = await store.now()
        for record in (await enqueue(store, run_at=1), await enqueue(store, delay=-60.0)):
            assert record.state == State.QUEUED
            assert before <= record.run_at <= await store.now()

    async def test_numbers_rise_with_every_insert(self, store: Store) -> None:
        await insert(store, *(new_job(f"job/{n}") for n in range(5)))
        await insert(store, new_job("job/5"))
        records = await store.get([f"job/{n}" for n in range(6)])
        numbers = [record.seq for record in records if record is not None]
        assert len(numbers) == 6
        assert numbers == sorted(set(numbers))

    async def test_a_batch_is_answered_in_order(self, store: Store) -> None:
        await insert(store, new_job("b", nonce=1))
        answers = await insert(store, new_job("a"), new_job("b", nonce=2), new_job("c"))
        assert [(answer.id, answer.outcome) for answer in answers] == [
            ("a", "created"),
            ("b", "exists"),
            ("c", "created"),
        ]

    async def test_a_large_batch_is_stored_as_given_if_its_jobs_are_alike_or_if_one_differs(self, store: Store) -> None:
        usual = {"queue": "q", "task": "t", "priority": 3, "codec": "json", "max_attempts": 4, "timeout": 2.5}
        unusual = {"queue": "r", "task": "u", "priority": -1, "codec": "bytes", "max_attempts": 0, "timeout": None}
        for name in ("", *unusual):
            given: list[dict[str, Any]] = [{"id": f"{name} {n}", "payload": b"%d" % n, **usual} for n in range(137)]
            given[77].update({name: unusual[name]} if name else {})
            await insert(store, *(new_job(**fields) for fields in given))
            records = await store.get([fields["id"] for fields in given])
            assert [{field: getattr(record, field) for field in given[0]} for record in records] == given
            numbers = [record.seq for record in records if record is not None]
            assert numbers == sorted(numbers)

    async def test_an_empty_batch_is_answered_with_nothing(self, store: Store) -> None:
        answers = await store.write(Batch())
        parts = (answers.inserts, answers.notes, answers.settles, answers.changes, answers.asks)
        assert [list(part) for part in parts] == [[], [], [], [], []]


class TestChosenIds(Topic):
    async def test_an_id_that_is_taken_is_refused_and_the_first_job_stays(self, store: Store) -> None:
        await insert(store, new_job("mine", nonce=11, payload=b"1"))
        assert await insert(store, new_job("mine", nonce=22, payload=b"2")) == [Inserted("exists", "mine")]
        assert (await job(store, "mine")).payload == b"1"

    async def test_an_id_is_taken_while_its_ended_job_is_kept(self, store: Store) -> None:
        await insert(store, new_job("mine", nonce=11))
        assert await settle(store, succeeded(await claim_one(store)))
        assert await insert(store, new_job("mine", nonce=22)) == [Inserted("exists", "mine")]

    async def test_an_id_is_free_again_once_its_job_is_removed(self, store: Store) -> None:
        await insert(store, new_job("mine", nonce=11))
        assert await settle(store, succeeded(await claim_one(store), keep=0.0))
        assert await gone(store, "mine")
        assert await insert(store, new_job("mine", nonce=22)) == [Inserted("created", "mine")]

    async def test_one_batch_with_an_id_twice_creates_one_job(self, store: Store) -> None:
        answers = await insert(store, new_job("mine", nonce=1), new_job("mine", nonce=2))
        assert [answer.outcome for answer in answers] == ["created", "exists"]

    async def test_a_refused_id_leaves_its_key_free(self, store: Store) -> None:
        await insert(store, new_job("mine", nonce=1))
        assert await insert(store, new_job("mine", nonce=2, key="k")) == [Inserted("exists", "mine")]
        assert await insert(store, new_job("other", key="k")) == [Inserted("created", "other")]


class TestDepth(Topic):
    async def test_a_full_queue_refuses_a_job_and_stores_nothing(self, store: Store) -> None:
        await insert(store, new_job("a", max_depth=2), new_job("b", max_depth=2))
        assert await insert(store, new_job("c", max_depth=2)) == [Inserted("full", "c")]
        assert await gone(store, "c")

    async def test_one_batch_fills_a_queue_only_to_its_depth(self, store: Store) -> None:
        answers = await insert(store, *(new_job(max_depth=3) for _ in range(5)))
        assert [answer.outcome for answer in answers] == ["created"] * 3 + ["full"] * 2

    async def test_scheduled_and_failed_jobs_count_as_waiting(self, store: Store) -> None:
        await settle(store, failed(await claim_one(store, "ann", (await enqueue(store)).queue), delay=60.0))
        await insert(store, new_job(delay=60.0))
        assert (await insert(store, new_job("c", max_depth=2)))[0].outcome == "full"
        assert (await insert(store, new_job("c", max_depth=3)))[0].outcome == "created"

    async def test_running_and_ended_jobs_do_not_count_as_waiting(self, store: Store) -> None:
        await insert(store, new_job("a"), new_job("b"))
        first, _second = await claim(store, limit=2)
        await settle(store, succeeded(first))
        assert (await insert(store, new_job(max_depth=1)))[0].outcome == "created"

    async def test_a_cancelled_job_does_not_count_as_waiting(self, store: Store) -> None:
        await apply(store, cancellation(await enqueue(store)))
        assert (await insert(store, new_job(max_depth=1)))[0].outcome == "created"

    async def test_other_queues_do_not_count(self, store: Store) -> None:
        await insert(store, new_job(queue="mail"), new_job(queue="mail"))
        assert (await insert(store, new_job(max_depth=1)))[0].outcome == "created"

    async def test_a_known_key_is_answered_even_when_the_queue_is_full(self, store: Store) -> None:
        await insert(store, new_job("a", key="k", max_depth=1))
        assert await insert(store, new_job("b", key="k", max_depth=1)) == [Inserted("existing", "a")]

    async def test_a_refused_job_leaves_its_key_free(self, store: Store) -> None:
        await insert(store, new_job("a"))
        await insert(store, new_job("b", key="k", max_depth=1))
        assert await insert(store, new_job("c", key="k")) == [Inserted("created", "c")]
