"""Waiting again: a claim that ends without ending the job adds an entry to the history, and sets the next due time."""

from __future__ import annotations

from holdfast.core.clock import MICROS
from holdfast.core.job import HISTORY_LIMIT, State
from holdfast.store.protocol import Store
from holdfast.testing.build import dead, failed, released, retrial, snoozed, succeeded
from holdfast.testing.verbs import apply, claim_one, enqueue, job, running, settle

from .harness import Harness
from .topic import Topic


class TestWaitingAgain(Topic):
    async def test_a_failed_job_is_due_after_its_delay(self, store: Store) -> None:
        record = await running(store)
        before = await store.now()
        assert await settle(store, failed(record, delay=90.5, error="E: x", traceback="tb"))
        waiting = await job(store, record.id)
        assert (waiting.state, waiting.error, waiting.traceback) == (State.FAILED, "E: x", "tb")
        assert before <= waiting.run_at - int(90.5 * MICROS) <= await store.now()

    async def test_a_failed_job_that_is_due_at_once_is_queued(self, store: Store) -> None:
        record = await running(store)
        assert await settle(store, failed(record, delay=0.0))
        assert (await job(store, record.id)).state == State.QUEUED

    async def test_a_negative_delay_means_now(self, store: Store) -> None:
        record = await running(store)
        before = await store.now()
        assert await settle(store, failed(record, delay=-90.0))
        waiting = await job(store, record.id)
        assert waiting.state == State.QUEUED
        assert waiting.run_at >= before

    async def test_no_delay_keeps_the_due_time(self, store: Store, harness: Harness) -> None:
        record = await running(store)
        await harness.pass_time(harness.unit)
        assert await settle(store, released(record))
        waiting = await job(store, record.id)
        assert (waiting.state, waiting.run_at) == (State.QUEUED, record.run_at)

    async def test_a_waiting_job_has_no_holder(self, store: Store) -> None:
        record = await running(store)
        await settle(store, snoozed(record, delay=60.0))
        waiting = await job(store, record.id)
        assert (waiting.holder, waiting.pid, waiting.started_at) == (None, None, None)
        assert (waiting.finished_at, waiting.expires_at) == (None, None)

    async def test_a_result_is_kept_only_if_the_last_end_has_one(self, store: Store) -> None:
        record = await running(store)
        await settle(store, failed(record, error="first"))
        await settle(store, succeeded(await claim_one(store), result=b"1"))
        ended = await job(store, record.id)
        assert (ended.result, ended.error, ended.traceback) == (b"1", None, None)


class TestHistory(Topic):
    async def test_an_ended_claim_is_one_entry_of_history(self, store: Store) -> None:
        record = await running(store, by="ann")
        before = await store.now()
        await settle(store, failed(record, error="E: x"))
        [line] = (await job(store, record.id)).history
        assert (line.number, line.fence, line.reset_count, line.worker) == (1, record.fence, 0, "ann")
        assert (line.started_at, line.outcome, line.error) == (record.started_at, "failed", "E: x")
        assert before <= line.ended_at <= await store.now()

    async def test_history_is_in_order(self, store: Store) -> None:
        await enqueue(store, "a")
        for end in (failed, released, failed):
            await settle(store, end(await claim_one(store)))
        history = (await job(store, "a")).history
        assert [line.outcome for line in history] == ["failed", "released", "failed"]
        assert [line.fence for line in history] == sorted({line.fence for line in history})

    async def test_a_released_claim_has_the_attempt_of_its_settlement(self, store: Store) -> None:
        await settle(store, released(await running(store, "a")))
        [line] = (await job(store, "a")).history
        assert line.number == 0

    async def test_the_final_claim_is_not_in_the_history(self, store: Store) -> None:
        await settle(store, failed(await running(store, "a")))
        await settle(store, succeeded(await claim_one(store)))
        assert [line.outcome for line in (await job(store, "a")).history] == ["failed"]

    async def test_history_keeps_the_last_entries(self, store: Store) -> None:
        await enqueue(store, "a")
        for number in range(HISTORY_LIMIT + 3):
            await settle(store, failed(await claim_one(store), error=str(number)))
        history = (await job(store, "a")).history
        assert [line.error for line in history] == [str(number) for number in range(3, HISTORY_LIMIT + 3)]

    async def test_history_is_kept_by_a_retry(self, store: Store) -> None:
        await settle(store, failed(await running(store, "a")))
        await settle(store, dead(await claim_one(store)))
        await apply(store, retrial(await job(store, "a")))
        await settle(store, failed(await claim_one(store)))
        assert [(line.reset_count, line.number) for line in (await job(store, "a")).history] == [(0, 1), (1, 1)]
