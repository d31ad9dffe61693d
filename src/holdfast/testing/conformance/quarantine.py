"""Quarantined jobs: a job that was running when its process crashed runs apart from other jobs, and finally alone."""

from __future__ import annotations

from typing import Any

from holdfast.core.job import LimitKey, Record
from holdfast.core.operations import Change, Patch
from holdfast.core.waiting import Waiting
from holdfast.store.protocol import COHORT, Batch, Store
from holdfast.testing.build import ask, failed, new_job, released, says
from holdfast.testing.verbs import answer_to, claim, claim_one, enqueue, insert, job, note, running, settle

from .harness import Harness
from .topic import Topic


async def make_quarantined(store: Store, id: str, *, crashes: int = 1, **options: Any) -> Record:
    """A waiting job in quarantine."""
    record = await running(store, id, **options)
    assert await settle(store, released(record, quarantined=True, crashes=crashes))
    return await job(store, id)


async def make_many_quarantined(
    store: Store, crashes: int, count: int, task: str = "work", **options: Any
) -> list[str]:
    """The ids of several such jobs, in order."""
    ids = [f"{crashes}-{number:02}" for number in range(count)]
    await insert(store, *(new_job(id, task=task, **options) for id in ids))
    queue = options.get("queue", "default")
    for record in await claim(store, "ann", queue, limit=count, tasks=(task,)):
        assert await settle(store, released(record, quarantined=True, crashes=crashes))
    return ids


class TestQuarantine(Topic):
    async def test_quarantine_and_crashes_are_kept(self, store: Store) -> None:
        record = await make_quarantined(store, "s")
        assert (record.quarantined, record.crashes) == (True, 1)

    async def test_a_job_released_from_quarantine_is_ordinary(self, store: Store) -> None:
        quarantined = await make_quarantined(store, "s", priority=-1, crashes=-2)
        await insert(store, new_job("a"), new_job("b"))
        lifted = Change(quarantined.id, quarantined.state, quarantined.fence, Patch(quarantined=False, crashes=0))
        assert list((await store.write(Batch(changes=[lifted]))).changes) == [True]
        assert [record.id for record in await claim(store, limit=9, busy=True)] == ["s", "a", "b"]

    async def test_a_quarantined_job_is_claimed_alone(self, store: Store) -> None:
        await make_quarantined(store, "s", priority=-1)
        await insert(store, new_job("a"), new_job("b"))
        assert [record.id for record in await claim(store, limit=9)] == ["s"]

    async def test_two_quarantined_jobs_are_claimed_one_by_one(self, store: Store) -> None:
        await make_quarantined(store, "s", queue="one")
        await make_quarantined(store, "t", queue="one", priority=-1)
        assert [record.id for record in await claim(store, "ann", "one", limit=9)] == ["t"]
        assert [record.id for record in await claim(store, "ann", "one", limit=9)] == ["s"]

    async def test_quarantined_jobs_at_minus_2_are_claimed_together(self, store: Store) -> None:
        ids = await make_many_quarantined(store, -2, 12)
        await enqueue(store, "sound")
        taken = await claim(store, limit=50)
        assert [record.id for record in taken] == ids
        assert {record.crashes for record in taken} == {-2}
        assert [record.id for record in await claim(store, "bob", limit=50)] == ["sound"]

    async def test_no_more_quarantined_jobs_are_claimed_than_the_limit(self, store: Store) -> None:
        ids = await make_many_quarantined(store, -2, 5)
        assert [record.id for record in await claim(store, limit=3)] == ids[:3]

    async def test_quarantined_jobs_at_minus_1_are_claimed_in_small_cohorts(self, store: Store) -> None:
        ids = await make_many_quarantined(store, -1, COHORT + 4)
        assert [record.id for record in await claim(store, "ann", limit=50)] == ids[:COHORT]
        assert [record.id for record in await claim(store, "bob", limit=50)] == ids[COHORT:]

    async def test_quarantined_jobs_with_different_crashes_are_not_claimed_together(self, store: Store) -> None:
        first = await make_many_quarantined(store, -1, 2)
        [alone] = await make_many_quarantined(store, 0, 1, "alone")
        second = await make_many_quarantined(store, -2, 2, "second")
        assert [record.id for record in await claim(store, "ann", limit=9)] == first
        assert [record.id for record in await claim(store, "bob", limit=9)] == [alone]
        assert [record.id for record in await claim(store, "cat", limit=9)] == second

    async def test_a_quarantined_job_claimed_alone_has_0_crashes(self, store: Store) -> None:
        await make_many_quarantined(store, -2, 1)
        record = await claim_one(store)
        assert (record.quarantined, record.crashes) == (True, 0)
        assert (await job(store, record.id)).crashes == 0

    async def test_quarantined_jobs_after_another_job_wait(self, store: Store) -> None:
        await make_quarantined(store, "late", crashes=-2, task="late", priority=5)
        ids = await make_many_quarantined(store, -2, 2, priority=-1)
        await insert(store, new_job("a"))
        assert [record.id for record in await claim(store, "ann", limit=9)] == ids
        assert [record.id for record in await claim(store, "bob", limit=9)] == ["a"]
        assert [record.id for record in await claim(store, "cat", limit=9)] == ["late"]

    async def test_quarantined_jobs_of_given_tasks_are_claimed_together(self, store: Store) -> None:
        ids = await make_many_quarantined(store, -2, 3)
        await make_quarantined(store, "other", crashes=-2, task="other", priority=-1)
        assert [record.id for record in await claim(store, limit=9, tasks=("work",))] == ids

    async def test_a_quarantined_job_of_a_full_limit_key_is_deferred_and_ends_the_cohort(self, store: Store) -> None:
        limit_key = LimitKey("one", concurrency=3)
        ids = await make_many_quarantined(store, -2, 3, limit_key=limit_key, queue="limited")
        await running(store, "before", "zoe", limit_key=limit_key, queue="elsewhere")
        assert [record.id for record in await claim(store, "ann", "limited", limit=9)] == ids[:2]
        assert (await job(store, ids[2])).waiting_for == Waiting("limit", "one")

    async def test_a_busy_holder_gets_no_quarantined_job(self, store: Store) -> None:
        await make_quarantined(store, "s", priority=-1)
        await enqueue(store, "a")
        answer = await answer_to(store, ask(limit=9, busy=True))
        assert [record.id for record in answer.records] == ["a"]
        assert answer.quarantined_waiting

    async def test_an_empty_answer_to_a_busy_holder_reports_a_quarantined_job(self, store: Store) -> None:
        await make_quarantined(store, "s")
        answer = await answer_to(store, ask(busy=True))
        assert (answer.records, answer.quarantined_waiting) == ([], True)
        assert (await claim_one(store, "bob")).id == "s"

    async def test_jobs_before_a_quarantined_one_are_claimed_first(self, store: Store) -> None:
        await make_quarantined(store, "s", priority=5)
        await insert(store, new_job("a"), new_job("b"))
        answer = await answer_to(store, ask(limit=2))
        assert [record.id for record in answer.records] == ["a", "b"]
        assert not answer.quarantined_waiting

    async def test_a_skipped_quarantined_job_is_reported(self, store: Store) -> None:
        await make_quarantined(store, "s", priority=5)
        await insert(store, new_job("a"), new_job("b", priority=9))
        answer = await answer_to(store, ask(limit=2))
        assert [record.id for record in answer.records] == ["a", "b"]
        assert answer.quarantined_waiting

    async def test_a_quarantined_job_is_reported_if_slots_stay_free(self, store: Store) -> None:
        await make_quarantined(store, "s", priority=5)
        await enqueue(store, "a")
        answer = await answer_to(store, ask(limit=9))
        assert [record.id for record in answer.records] == ["a"]
        assert answer.quarantined_waiting

    async def test_a_quarantined_job_of_a_later_queue_waits(self, store: Store) -> None:
        await make_quarantined(store, "s", queue="b")
        await enqueue(store, "a", queue="a")
        answer = await answer_to(store, ask("ann", "a", "b", limit=9))
        assert [record.id for record in answer.records] == ["a"]
        assert answer.quarantined_waiting
        assert [record.id for record in await claim(store, "ann", "a", "b", limit=9)] == ["s"]

    async def test_a_quarantined_job_of_the_first_queue_excludes_other_queues(self, store: Store) -> None:
        await make_quarantined(store, "s", queue="a")
        await enqueue(store, "b", queue="b")
        assert [record.id for record in await claim(store, "ann", "a", "b", limit=9)] == ["s"]

    async def test_a_quarantined_job_of_another_task_does_not_block(self, store: Store) -> None:
        await make_quarantined(store, "s", task="other", priority=-1)
        await insert(store, new_job("a"), new_job("b"))
        answer = await answer_to(store, ask(limit=9, tasks=("work",)))
        assert ([record.id for record in answer.records], answer.quarantined_waiting) == (["a", "b"], False)

    async def test_a_settlement_can_end_the_quarantine(self, store: Store) -> None:
        await make_quarantined(store, "s")
        record = await claim_one(store)
        assert record.quarantined
        assert await settle(store, released(record))
        assert not (await job(store, "s")).quarantined
        await enqueue(store, "a")
        assert len(await claim(store, limit=9)) == 2

    async def test_a_new_checkpoint_resets_the_crashes(self, store: Store) -> None:
        await make_quarantined(store, "s")
        record = await claim_one(store)
        assert record.crashes == 1
        assert await note(store, says(record, checkpoint=b"7"))
        assert (await job(store, "s")).crashes == 0

    async def test_a_new_checkpoint_keeps_crashes_below_0(self, store: Store) -> None:
        await make_many_quarantined(store, -2, 2)
        [record, _] = await claim(store, limit=2)
        assert await note(store, says(record, checkpoint=b"7"))
        assert (await job(store, record.id)).crashes == -2

    async def test_progress_keeps_the_crashes(self, store: Store) -> None:
        await make_quarantined(store, "s")
        assert await note(store, says(await claim_one(store), progress=b"7"))
        assert (await job(store, "s")).crashes == 1

    async def test_a_delayed_quarantined_job_is_claimed_alone(self, store: Store, harness: Harness) -> None:
        record = await running(store, "s", priority=-1)
        assert await settle(store, failed(record, delay=2 * harness.unit, quarantined=True))
        await enqueue(store, "a")
        assert [r.id for r in await claim(store, limit=9)] == ["a"]
        await enqueue(store, "b")
        await harness.pass_time(3 * harness.unit)
        assert [r.id for r in await claim(store, limit=9)] == ["s"]
