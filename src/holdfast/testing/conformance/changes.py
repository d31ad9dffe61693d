"""Changes: an operator cancels, retries, reschedules or deletes a job that is still as it was seen."""

from __future__ import annotations

from holdfast.core.clock import MICROS
from holdfast.core.job import Attempt, State
from holdfast.core.operations import Change, Patch, Where
from holdfast.core.waiting import COMPATIBLE, Waiting
from holdfast.store.protocol import Batch, Store
from holdfast.testing.build import (
    HOUR,
    as_dict,
    cancellation,
    change,
    dead,
    deletion,
    failed,
    new_job,
    released,
    retrial,
    snoozed,
    succeeded,
)
from holdfast.testing.verbs import apply, claim, claim_one, enqueue, gone, insert, job, running, settle

from .harness import Harness
from .topic import Topic


class TestCancel(Topic):
    async def test_a_waiting_job_ends_at_once(self, store: Store) -> None:
        for delay in (0.0, 60.0):
            record = await enqueue(store, delay=delay)
            assert await apply(store, cancellation(record))
            ended = await job(store, record.id)
            assert ended.state == State.CANCELLED
            assert ended.finished_at is not None
            assert ended.expires_at == ended.finished_at + int(HOUR * MICROS)
        assert await claim(store) == []

    async def test_a_failed_job_that_waits_for_its_time_can_be_cancelled(self, store: Store, harness: Harness) -> None:
        record = await running(store)
        await settle(store, failed(record, delay=harness.unit))
        assert await apply(store, cancellation(await job(store, record.id)))
        await harness.pass_time(2 * harness.unit)
        assert await claim(store) == []

    async def test_a_cancelled_job_may_be_removed_at_once(self, store: Store) -> None:
        record = await enqueue(store)
        assert await apply(store, cancellation(record, keep=0.0))
        assert await gone(store, record.id)


class TestRetry(Topic):
    async def test_a_retried_job_starts_with_attempt_0(self, store: Store) -> None:
        record = await running(store)
        await settle(store, dead(record, error="E"))
        assert await apply(store, retrial(await job(store, record.id)))
        again = await job(store, record.id)
        assert (again.state, again.attempt, again.reset_count, again.fence) == (State.QUEUED, 0, 1, record.fence)
        assert (again.finished_at, again.expires_at, again.holder, again.started_at) == (None, None, None, None)
        assert (again.pid, again.error) == (None, None)
        claim = await claim_one(store)
        assert (claim.attempt, claim.fence > record.fence) == (1, True)

    async def test_a_retried_job_has_no_retention(self, store: Store, harness: Harness) -> None:
        record = await running(store)
        await settle(store, succeeded(record, keep=harness.unit))
        await apply(store, retrial(await job(store, record.id)))
        await harness.pass_time(2 * harness.unit)
        assert (await store.tidy(100)).jobs == 0
        assert (await claim_one(store)).id == record.id

    async def test_a_job_can_be_retried_later(self, store: Store, harness: Harness) -> None:
        record = await running(store)
        await settle(store, dead(record))
        assert await apply(store, retrial(await job(store, record.id), state=State.SCHEDULED, delay=2 * harness.unit))
        assert await claim(store) == []
        await harness.pass_time(3 * harness.unit)
        assert (await claim_one(store)).id == record.id

    async def test_a_retry_may_write_the_history(self, store: Store) -> None:
        record = await running(store)
        await settle(store, dead(record))
        line = Attempt(1, record.fence, 1, "ann", record.started_at, record.created_at, "dead", "E")
        assert await apply(store, retrial(await job(store, record.id), history=(line,)))
        assert (await job(store, record.id)).history == (line,)


class TestChanges(Topic):
    async def test_a_waiting_job_can_be_rescheduled(self, store: Store) -> None:
        record = await enqueue(store, delay=60.0)
        before = await store.now()
        assert await apply(store, change(record, state=State.SCHEDULED, delay=90.0))
        assert before <= (await job(store, record.id)).run_at - 90 * MICROS <= await store.now()

    async def test_a_scheduled_job_can_be_made_due_now(self, store: Store) -> None:
        record = await enqueue(store, delay=60.0)
        assert await apply(store, change(record, state=State.QUEUED, delay=0.0))
        assert (await claim_one(store)).id == record.id

    async def test_a_queued_job_can_be_delayed(self, store: Store) -> None:
        record = await enqueue(store)
        assert await apply(store, change(record, state=State.SCHEDULED, delay=60.0))
        assert await claim(store) == []

    async def test_an_operator_can_end_a_running_job(self, store: Store) -> None:
        record = await running(store)
        assert await apply(
            store, change(record, state=State.DEAD, error="monitor", traceback="tb", result=b"r", keep=None)
        )
        ended = await job(store, record.id)
        assert (ended.state, ended.error, ended.traceback, ended.result) == (State.DEAD, "monitor", "tb", b"r")
        assert ended.finished_at is not None
        assert ended.expires_at is None
        assert [seen.jobs for seen in await store.holders()] == [()]

    async def test_an_operator_can_release_a_running_job(self, store: Store) -> None:
        record = await running(store)
        assert await apply(store, change(record, state=State.QUEUED, delay=0.0))
        waiting = await job(store, record.id)
        assert (waiting.state, waiting.holder, waiting.started_at) == (State.QUEUED, None, None)
        assert (await claim_one(store, "bob")).fence > record.fence

    async def test_a_change_keeps_other_fields(self, store: Store) -> None:
        record = await running(store, meta={"a": 1}, tags=("t",), key="k")
        assert await apply(store, change(record, progress=b"p"))
        changed = ("progress", "changed_at")
        assert as_dict(await job(store, record.id), *changed) == as_dict(record, *changed)

    async def test_meta_is_merged_in_every_state(self, store: Store) -> None:
        waiting = await enqueue(store, meta={"a": 1, "b": 1}, queue="one")
        claimed = await running(store, meta={"a": 1, "b": 1}, queue="two")
        ended = await running(store, meta={"a": 1, "b": 1}, queue="three")
        await settle(store, succeeded(ended))
        for record in (waiting, claimed, await job(store, ended.id)):
            assert await apply(store, change(record, meta={"b": 2, "c": 3}))
            after = await job(store, record.id)
            assert after.meta == {"a": 1, "b": 2, "c": 3}
            assert as_dict(after, "meta", "changed_at") == as_dict(record, "meta", "changed_at")

    async def test_a_change_can_end_a_quarantine(self, store: Store) -> None:
        await settle(store, released(await running(store, "s"), quarantined=True, crashes=2))
        assert await apply(store, change(await job(store, "s"), quarantined=False, crashes=0))
        await enqueue(store, "a")
        assert [record.id for record in await claim(store, limit=9)] == ["s", "a"]

    async def test_a_job_in_another_state_is_not_changed(self, store: Store) -> None:
        waiting = await enqueue(store)
        claimed = await claim_one(store)
        for stale in (cancellation(waiting), change(waiting, meta={"x": 1}), deletion(waiting)):
            assert not await apply(store, stale)
        assert await job(store, waiting.id) == claimed

    async def test_a_job_that_was_claimed_again_meanwhile_is_not_changed(self, store: Store) -> None:
        first = await running(store)
        await settle(store, released(first))
        second = await claim_one(store, "bob")
        for stale in (cancellation(first), deletion(first)):
            assert not await apply(store, stale)
        assert await job(store, second.id) == second

    async def test_an_unknown_job_is_not_changed(self, store: Store) -> None:
        assert not await apply(store, Change("unknown", State.QUEUED, 0, Patch(meta={"x": 1})))
        assert not await apply(store, Change("unknown", State.QUEUED, 0, None))

    async def test_of_two_changes_of_the_state_in_one_batch_the_second_is_refused(self, store: Store) -> None:
        record = await enqueue(store)
        answers = await store.write(Batch(changes=[cancellation(record), cancellation(record)]))
        assert list(answers.changes) == [True, False]

    async def test_a_change_decided_before_a_retry_is_not_written_after_it(self, store: Store) -> None:
        record = await enqueue(store)
        assert await apply(store, Change(record.id, record.state, record.fence, Patch(reset_count=1)))
        for reset_count, done in ((0, False), (2, False), (1, True)):
            change_ = Change(
                record.id, record.state, record.fence, Patch(meta={"by": reset_count}), expected_reset_count=reset_count
            )
            assert await apply(store, change_) is done
        assert (await job(store, record.id)).meta == {"by": 1}

    async def test_a_job_that_was_never_retried_has_the_reset_count_0(self, store: Store) -> None:
        record = await enqueue(store)
        end = Change(record.id, record.state, record.fence, Patch(state=State.DEAD, keep=None), expected_reset_count=0)
        assert await apply(store, end)

    async def test_a_change_decided_for_one_wait_is_not_written_after_another_has_begun(self, store: Store) -> None:
        record, waits = await enqueue(store), [Waiting("signal", name) for name in ("a", "b")]
        assert await apply(store, change(record, state=State.BLOCKED, waiting_for=waits[0]))
        ready = Patch(state=State.QUEUED)
        for wait, done in ((waits[1], False), (waits[0], True), (waits[0], False)):
            change_ = Change(record.id, State.BLOCKED, record.fence, ready, expected_waiting_for=wait)
            assert await apply(store, change_) is done


class TestDelete(Topic):
    async def test_a_job_can_be_deleted_in_every_state(self, store: Store) -> None:
        ended = await running(store, queue="a")
        await settle(store, succeeded(ended))
        claimed = await running(store, queue="b")
        queued, scheduled = await enqueue(store), await enqueue(store, delay=60.0)
        for record in (await job(store, ended.id), claimed, queued, scheduled):
            assert await apply(store, deletion(record))
            assert await gone(store, record.id)
        assert await claim(store, limit=9) == []
        assert await store.stats() == []
        assert [seen.jobs for seen in await store.holders() if seen.jobs] == []

    async def test_a_deleted_job_is_deleted_once(self, store: Store) -> None:
        record = await enqueue(store)
        answers = await store.write(Batch(changes=[deletion(record), deletion(record)]))
        assert list(answers.changes) == [True, False]

    async def test_a_deletion_keeps_other_jobs(self, store: Store) -> None:
        await insert(store, new_job("a"), new_job("b"), new_job("c"))
        await apply(store, deletion(await job(store, "b")))
        assert [record.id for record in await claim(store, limit=9)] == ["a", "c"]


class TestTask(Topic):
    async def test_a_waiting_and_an_ended_job_get_another_task(self, store: Store) -> None:
        for key, end in ((None, None), ("k", dead), (None, succeeded)):
            record = await enqueue(store, task="a", key=key, payload=b'{"n": 1}', tags=("t",))
            if end is not None:
                assert await settle(store, end(await claim_one(store)))
            before = await job(store, record.id)
            assert await apply(store, change(before, task="another task"))
            after = await job(store, record.id)
            assert after.task == "another task"
            assert as_dict(after) | {"task": "a", "changed_at": None} == as_dict(before) | {"changed_at": None}
            found = await store.find(Where(task="another task"), None, 10)
            assert record.id in [one.id for one in found.records]
            if end is None:
                assert await claim(store, tasks=("a",)) == []
                assert [one.id for one in await claim(store, tasks=("another task",))] == [record.id]

    async def test_a_refused_job_is_made_due_with_its_new_task_and_payload(self, store: Store) -> None:
        record = await running(store)
        await settle(store, snoozed(record, 60.0, waiting_for=COMPATIBLE))
        assert [one.id for one in (await store.find(Where(waiting_for=COMPATIBLE), None, 10)).records] == [record.id]
        waiting = await job(store, record.id)
        assert await apply(store, change(waiting, task="b" * 100, payload=b"{}", state=State.QUEUED, delay=0.0))
        [again] = await claim(store)
        assert (again.task, again.payload, again.waiting_for) == ("b" * 100, b"{}", None)
        assert (await store.find(Where(waiting_for=COMPATIBLE), None, 10)).records == []
