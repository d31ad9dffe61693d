"""Due jobs: a claim itself makes due jobs ready."""

from __future__ import annotations

import pytest

from holdfast.core.clock import MICROS
from holdfast.core.job import State
from holdfast.store.protocol import PROMOTE_LIMIT, Store
from holdfast.testing.build import ask, failed, new_job, snoozed
from holdfast.testing.verbs import answer_to, claim, claim_one, enqueue, insert, job, running, settle

from .harness import Harness
from .topic import Topic, requires


class TestDue(Topic):
    async def test_a_scheduled_job_is_not_claimed_before_it_is_due(self, store: Store, harness: Harness) -> None:
        await enqueue(store, "a", delay=4 * harness.unit)
        await harness.pass_time(2 * harness.unit)
        assert await claim(store) == []
        assert (await job(store, "a")).state == State.SCHEDULED

    async def test_a_scheduled_job_is_claimed_once_it_is_due(self, store: Store, harness: Harness) -> None:
        await enqueue(store, "a", delay=2 * harness.unit)
        await harness.pass_time(3 * harness.unit)
        assert (await claim_one(store)).id == "a"

    @requires("manual_time")
    async def test_a_job_is_due_exactly_at_its_time(self, store: Store, harness: Harness) -> None:
        await enqueue(store, "a", run_at=await store.now() + MICROS)
        await harness.pass_time(1.0 - 1 / MICROS)
        assert await claim(store) == []
        await harness.pass_time(1 / MICROS)
        assert (await claim_one(store)).id == "a"

    async def test_a_failed_job_waits_for_its_time(self, store: Store, harness: Harness) -> None:
        record = await running(store)
        await settle(store, failed(record, delay=2 * harness.unit))
        assert (await job(store, record.id)).state == State.FAILED
        assert await claim(store) == []
        await harness.pass_time(3 * harness.unit)
        assert (await claim_one(store)).id == record.id

    async def test_a_snoozed_job_waits_for_its_time(self, store: Store, harness: Harness) -> None:
        record = await running(store)
        await settle(store, snoozed(record, delay=2 * harness.unit))
        assert (await job(store, record.id)).state == State.SCHEDULED
        await harness.pass_time(3 * harness.unit)
        assert (await claim_one(store)).id == record.id

    async def test_an_empty_answer_has_the_next_due_time(self, store: Store, harness: Harness) -> None:
        await insert(
            store, new_job(delay=9 * harness.unit), new_job(delay=5 * harness.unit), new_job(queue="other", delay=1)
        )
        await harness.pass_time(2 * harness.unit)
        due_in = (await answer_to(store, ask())).due_in
        assert due_in == pytest.approx(3 * harness.unit, abs=harness.unit)

    async def test_an_answer_for_several_queues_reports_the_soonest(self, store: Store, harness: Harness) -> None:
        await insert(store, new_job(queue="a", delay=9 * harness.unit), new_job(queue="b", delay=5 * harness.unit))
        due_in = (await answer_to(store, ask("ann", "a", "b"))).due_in
        assert due_in == pytest.approx(5 * harness.unit, abs=harness.unit)

    async def test_the_next_due_time_includes_failed_jobs(self, store: Store, harness: Harness) -> None:
        await settle(store, failed(await running(store), delay=5 * harness.unit))
        due_in = (await answer_to(store, ask())).due_in
        assert due_in == pytest.approx(5 * harness.unit, abs=harness.unit)

    async def test_an_empty_queue_has_no_due_time(self, store: Store) -> None:
        await running(store)
        assert (await answer_to(store, ask())).due_in is None

    async def test_more_jobs_than_one_step_promotes_are_all_claimed_in_the_end(
        self, store: Store, harness: Harness
    ) -> None:
        many = PROMOTE_LIMIT + 50
        await insert(store, *(new_job(f"{n:05}", delay=harness.unit) for n in range(many)))
        await harness.pass_time(2 * harness.unit)
        taken: list[str] = []
        while records := await claim(store, limit=400):
            taken += [record.id for record in records]
        assert taken == [f"{n:05}" for n in range(many)]
