"""Suspects: a job that was in flight when its process died runs alone the next time, and blames nobody."""

from __future__ import annotations

from typing import Any

from holdfast.job import Record
from holdfast.store.protocol import Store
from holdfast.testing.build import ask, failed, new_job, released, says
from holdfast.testing.verbs import answer_to, claim, claim_one, enqueue, insert, job, note, running, settle

from .harness import Harness
from .topic import Topic


async def make_suspect(store: Store, id: str, **options: Any) -> Record:
    """A waiting job that is suspected of having killed its process."""
    record = await running(store, id, **options)
    assert await settle(store, released(record, suspect=True, deaths=1))
    return await job(store, id)


class TestSuspects(Topic):
    async def test_a_suspicion_and_its_deaths_are_kept(self, store: Store) -> None:
        record = await make_suspect(store, "s")
        assert (record.suspect, record.deaths) == (True, 1)

    async def test_a_suspect_is_claimed_alone(self, store: Store) -> None:
        await make_suspect(store, "s", priority=-1)
        await insert(store, new_job("a"), new_job("b"))
        assert [record.id for record in await claim(store, limit=9)] == ["s"]

    async def test_two_suspects_are_claimed_one_by_one(self, store: Store) -> None:
        await make_suspect(store, "s", queue="one")
        await make_suspect(store, "t", queue="one", priority=-1)
        assert [record.id for record in await claim(store, "ann", "one", limit=9)] == ["t"]
        assert [record.id for record in await claim(store, "ann", "one", limit=9)] == ["s"]

    async def test_a_busy_holder_is_given_no_suspect(self, store: Store) -> None:
        await make_suspect(store, "s", priority=-1)
        await enqueue(store, "a")
        answer = await answer_to(store, ask(limit=9, busy=True))
        assert [record.id for record in answer.records] == ["a"]
        assert answer.suspect_waiting

    async def test_a_busy_holder_is_told_of_a_suspect_where_there_is_nothing_else(self, store: Store) -> None:
        await make_suspect(store, "s")
        answer = await answer_to(store, ask(busy=True))
        assert (answer.records, answer.suspect_waiting) == ([], True)
        assert (await claim_one(store, "bob")).id == "s"

    async def test_sound_jobs_that_stand_before_a_suspect_go_first(self, store: Store) -> None:
        await make_suspect(store, "s", priority=5)
        await insert(store, new_job("a"), new_job("b"))
        answer = await answer_to(store, ask(limit=2))
        assert [record.id for record in answer.records] == ["a", "b"]
        assert not answer.suspect_waiting

    async def test_a_suspect_that_stood_before_the_last_job_taken_is_announced(self, store: Store) -> None:
        await make_suspect(store, "s", priority=5)
        await insert(store, new_job("a"), new_job("b", priority=9))
        answer = await answer_to(store, ask(limit=2))
        assert [record.id for record in answer.records] == ["a", "b"]
        assert answer.suspect_waiting

    async def test_a_suspect_is_announced_where_slots_stayed_empty(self, store: Store) -> None:
        await make_suspect(store, "s", priority=5)
        await enqueue(store, "a")
        answer = await answer_to(store, ask(limit=9))
        assert [record.id for record in answer.records] == ["a"]
        assert answer.suspect_waiting

    async def test_a_suspect_of_a_later_queue_waits_for_its_turn(self, store: Store) -> None:
        await make_suspect(store, "s", queue="b")
        await enqueue(store, "a", queue="a")
        answer = await answer_to(store, ask("ann", "a", "b", limit=9))
        assert [record.id for record in answer.records] == ["a"]
        assert answer.suspect_waiting
        assert [record.id for record in await claim(store, "ann", "a", "b", limit=9)] == ["s"]

    async def test_a_suspect_of_the_first_queue_keeps_the_other_queues_out(self, store: Store) -> None:
        await make_suspect(store, "s", queue="a")
        await enqueue(store, "b", queue="b")
        assert [record.id for record in await claim(store, "ann", "a", "b", limit=9)] == ["s"]

    async def test_a_suspect_of_an_unwanted_task_disturbs_nobody(self, store: Store) -> None:
        await make_suspect(store, "s", task="other", priority=-1)
        await insert(store, new_job("a"), new_job("b"))
        answer = await answer_to(store, ask(limit=9, tasks=("work",)))
        assert ([record.id for record in answer.records], answer.suspect_waiting) == (["a", "b"], False)

    async def test_a_suspect_that_ended_well_is_a_job_like_any_other(self, store: Store) -> None:
        await make_suspect(store, "s")
        record = await claim_one(store)
        assert record.suspect
        assert await settle(store, released(record))
        assert not (await job(store, "s")).suspect
        await enqueue(store, "a")
        assert len(await claim(store, limit=9)) == 2

    async def test_a_new_checkpoint_starts_the_count_of_deaths_again(self, store: Store) -> None:
        await make_suspect(store, "s")
        record = await claim_one(store)
        assert record.deaths == 1
        assert await note(store, says(record, checkpoint=b"7"))
        assert (await job(store, "s")).deaths == 0

    async def test_progress_leaves_the_count_of_deaths(self, store: Store) -> None:
        await make_suspect(store, "s")
        assert await note(store, says(await claim_one(store), progress=b"7"))
        assert (await job(store, "s")).deaths == 1

    async def test_a_suspect_that_waits_for_its_time_is_claimed_alone_then(
        self, store: Store, harness: Harness
    ) -> None:
        record = await running(store, "s", priority=-1)
        assert await settle(store, failed(record, delay=2 * harness.unit, suspect=True))
        await enqueue(store, "a")
        assert [r.id for r in await claim(store, limit=9)] == ["a"]
        await enqueue(store, "b")
        await harness.pass_time(3 * harness.unit)
        assert [r.id for r in await claim(store, limit=9)] == ["s"]
