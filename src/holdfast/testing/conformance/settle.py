"""Settle: a claim ends once, and the job has its outcome."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast.core.clock import MICROS
from holdfast.core.job import State
from holdfast.core.operations import Settlement
from holdfast.store.protocol import Batch, Store
from holdfast.testing.build import (
    HOUR,
    as_dict,
    cancellation,
    cancelled,
    dead,
    failed,
    new_job,
    released,
    snoozed,
    succeeded,
)
from holdfast.testing.verbs import apply, claim, enqueue, gone, insert, job, running, settle

from .topic import Topic


class TestEnds(Topic):
    async def test_a_job_that_succeeded_keeps_its_result(self, store: Store) -> None:
        record = await running(store)
        before = await store.now()
        assert await settle(store, succeeded(record, result=b'{"answer": 42}'))
        ended = await job(store, record.id)
        assert (ended.state, ended.result, ended.error) == (State.SUCCEEDED, b'{"answer": 42}', None)
        assert ended.finished_at is not None
        assert before <= ended.finished_at <= await store.now()
        assert ended.expires_at == ended.finished_at + int(HOUR * MICROS)

    async def test_an_empty_result_and_no_result_differ(self, store: Store) -> None:
        for result in (None, b"", b"null"):
            record = await running(store)
            await settle(store, succeeded(record, result=result))
            assert (await job(store, record.id)).result == result

    async def test_a_dead_job_keeps_its_error_and_traceback(self, store: Store) -> None:
        record = await running(store)
        assert await settle(store, dead(record, error="ValueError: no", traceback="Traceback…\n  line 1", keep=None))
        ended = await job(store, record.id)
        assert (ended.state, ended.error, ended.traceback) == (State.DEAD, "ValueError: no", "Traceback…\n  line 1")
        assert ended.finished_at is not None
        assert ended.expires_at is None

    async def test_a_claim_may_end_cancelled(self, store: Store) -> None:
        record = await running(store)
        assert await settle(store, cancelled(record))
        assert (await job(store, record.id)).state == State.CANCELLED

    async def test_an_ended_job_keeps_the_fields_of_its_last_claim(self, store: Store) -> None:
        for end in (succeeded, dead, cancelled):
            record = await running(store)
            await settle(store, end(record))
            ended = await job(store, record.id)
            for part in ("attempt", "fence", "reset_count", "holder", "started_at"):
                assert getattr(ended, part) == getattr(record, part), part

    async def test_a_settlement_keeps_other_fields(self, store: Store) -> None:
        record = await running(store, payload=b"[1]", key="k", tags=("t",), meta={"m": 1}, timeout=3.0, priority=4)
        await settle(store, succeeded(record))
        changed = ("state", "result", "finished_at", "expires_at")
        assert as_dict(await job(store, record.id), *changed) == as_dict(record, *changed)

    async def test_an_ended_job_is_not_settled_again(self, store: Store) -> None:
        record = await running(store)
        assert await settle(store, succeeded(record, result=b"1"))
        for end in (succeeded, dead, cancelled, released, failed):
            assert not await settle(store, end(record))
        ended = await job(store, record.id)
        assert (ended.state, ended.result) == (State.SUCCEEDED, b"1")

    async def test_a_settlement_sets_the_attempt(self, store: Store) -> None:
        record = await running(store)
        assert await settle(store, dead(record, attempt=7))
        assert (await job(store, record.id)).attempt == 7

    async def test_one_batch_settles_many_claims(self, store: Store) -> None:
        await insert(store, *(new_job(f"{n}") for n in range(4)))
        a, b, c, d = await claim(store, limit=4)
        ends = [succeeded(a), failed(b, delay=60.0), dead(c), released(d)]
        assert list((await store.write(Batch(settles=ends))).settles) == [True] * 4
        states = [record.state for record in await store.get(["0", "1", "2", "3"]) if record]
        assert states == [State.SUCCEEDED, State.FAILED, State.DEAD, State.QUEUED]

    async def test_one_of_two_ends_of_a_claim_in_a_batch_is_written(self, store: Store) -> None:
        record = await running(store)
        answers = await store.write(Batch(settles=[succeeded(record), dead(record)]))
        assert list(answers.settles) == [True, False]
        assert (await job(store, record.id)).state == State.SUCCEEDED

    async def test_a_settlement_of_an_unknown_job_is_refused_alone(self, store: Store) -> None:
        known = await running(store)
        strange = Settlement(
            "unknown", known.seq + 1000, 1, 1, nonce=5, state="succeeded", outcome="succeeded", attempt=1
        )
        answers = await store.write(Batch(settles=[strange, succeeded(known)]))
        assert list(answers.settles) == [False, True]

    async def test_a_waiting_job_cannot_be_settled(self, store: Store) -> None:
        record = await enqueue(store)
        assert not await settle(store, succeeded(record))
        assert (await job(store, record.id)).state == State.QUEUED


class TestRequestedCancellation(Topic):
    @pytest.mark.parametrize("end", [failed, released], ids=["failed", "released"])
    async def test_a_job_that_would_wait_again_is_cancelled(self, store: Store, end: Callable[..., Settlement]) -> None:
        record = await running(store)
        assert await apply(store, cancellation(record))
        assert await settle(store, end(record, cancelled_keep=60.0))
        ended = await job(store, record.id)
        assert (ended.state, ended.cancel) == (State.CANCELLED, False)
        assert ended.finished_at is not None
        assert ended.expires_at == ended.finished_at + 60 * MICROS
        assert await claim(store) == []

    async def test_a_snoozed_job_is_cancelled(self, store: Store) -> None:
        record = await running(store)
        await apply(store, cancellation(record))
        assert await settle(store, snoozed(record, delay=60.0))
        assert (await job(store, record.id)).state == State.CANCELLED

    async def test_a_job_that_succeeds_first_stays_succeeded(self, store: Store) -> None:
        record = await running(store)
        assert await apply(store, cancellation(record))
        assert await settle(store, succeeded(record, result=b"1"))
        ended = await job(store, record.id)
        assert (ended.state, ended.result, ended.cancel) == (State.SUCCEEDED, b"1", False)

    async def test_a_dead_job_stays_dead(self, store: Store) -> None:
        record = await running(store)
        await apply(store, cancellation(record))
        assert await settle(store, dead(record))
        assert (await job(store, record.id)).state == State.DEAD

    async def test_a_cancelled_claim_with_retention_0_is_removed_at_once(self, store: Store) -> None:
        record = await running(store)
        await apply(store, cancellation(record))
        assert await settle(store, failed(record, cancelled_keep=0.0))
        assert await gone(store, record.id)

    async def test_a_requested_cancellation_does_not_end_the_claim(self, store: Store) -> None:
        record = await running(store)
        assert await apply(store, cancellation(record))
        asked = await job(store, record.id)
        assert (asked.state, asked.cancel, asked.fence) == (State.RUNNING, True, record.fence)
