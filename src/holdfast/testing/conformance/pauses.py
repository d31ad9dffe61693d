"""Pauses: no job of a paused queue is claimed, and none is lost."""

from __future__ import annotations

from holdfast.core.job import State
from holdfast.store.protocol import Batch, Store
from holdfast.testing.build import ask, new_job, released, succeeded
from holdfast.testing.verbs import answer_to, claim, claim_one, enqueue, insert, job, running, settle

from .harness import Harness
from .topic import Topic


class TestPauses(Topic):
    async def test_no_job_of_a_paused_queue_is_claimed(self, store: Store) -> None:
        await enqueue(store, "a")
        await store.put_record("pause", "default", b"{}")
        answer = await answer_to(store, ask(limit=9))
        assert (answer.records, answer.quarantined_waiting, answer.due_in) == ([], False, None)
        assert (await job(store, "a")).state == State.QUEUED

    async def test_jobs_of_a_resumed_queue_are_claimed(self, store: Store) -> None:
        await enqueue(store, "a")
        await store.put_record("pause", "default", b"{}")
        await store.put_record("pause", "default", None)
        assert (await claim_one(store)).id == "a"

    async def test_a_pause_does_not_affect_other_queues(self, store: Store) -> None:
        await insert(store, new_job("a", queue="a"), new_job("b", queue="b"))
        await store.put_record("pause", "a", b"{}")
        assert [record.id for record in await claim(store, "ann", "a", "b", limit=9)] == ["b"]

    async def test_due_jobs_of_a_paused_queue_wait(self, store: Store, harness: Harness) -> None:
        await enqueue(store, "a", delay=harness.unit)
        await store.put_record("pause", "default", b"{}")
        await harness.pass_time(2 * harness.unit)
        answer = await answer_to(store, ask())
        assert (answer.records, answer.due_in) == ([], None)
        await store.put_record("pause", "default", None)
        assert (await claim_one(store)).id == "a"

    async def test_a_quarantined_job_of_a_paused_queue_does_not_block_others(self, store: Store) -> None:
        await settle(store, released(await running(store, queue="a"), quarantined=True))
        await insert(store, new_job("b", queue="b"))
        await store.put_record("pause", "a", b"{}")
        answer = await answer_to(store, ask("ann", "a", "b", limit=9))
        assert ([record.id for record in answer.records], answer.quarantined_waiting) == (["b"], False)

    async def test_a_paused_queue_accepts_inserts_settlements_and_releases(self, store: Store) -> None:
        await insert(store, new_job("a"), new_job("b"))
        first, second = await claim(store, limit=2)
        await store.put_record("pause", "default", b"{}")
        answers = await store.write(Batch(inserts=[new_job("c")], settles=[succeeded(first), released(second)]))
        assert (answers.inserts[0].outcome, list(answers.settles)) == ("created", [True, True])
        assert await claim(store) == []

    async def test_records_of_other_kinds_pause_nothing(self, store: Store) -> None:
        await enqueue(store, "a")
        await store.put_record("config", "default", b"{}")
        assert (await claim_one(store)).id == "a"
