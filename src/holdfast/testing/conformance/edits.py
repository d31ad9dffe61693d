"""Edits: a waiting job gets another queue, priority, payload or time, in one change."""

from __future__ import annotations

from holdfast.core.job import LimitKey, NewJob, State
from holdfast.store.protocol import Store
from holdfast.testing.build import change, deletion, failed, new_job, succeeded
from holdfast.testing.verbs import apply, claim, claim_one, enqueue, insert, job, running, settle

from .harness import Harness
from .topic import Topic


async def counts(store: Store) -> dict[str, dict[str, int]]:
    return {one.name: {state: n for state, n in one.counts.items() if n} for one in await store.stats()}


class TestEdits(Topic):
    async def test_a_ready_job_gets_another_priority(self, store: Store) -> None:
        await insert(store, *(new_job(name) for name in "abc"))
        assert await apply(store, change(await job(store, "c"), priority=-32768))
        assert await apply(store, change(await job(store, "a"), priority=32767))
        edited = await job(store, "c")
        assert (edited.state, edited.priority, edited.queue) == (State.QUEUED, -32768, "default")
        assert [record.id for record in await claim(store, limit=9)] == ["c", "b", "a"]

    async def test_a_ready_job_gets_another_queue(self, store: Store) -> None:
        other = "another queue, with a name that is longer than thirty-two bytes"
        await insert(store, *(new_job(name, payload=b'{"n": 1}', tags=("t",)) for name in "ab"))
        before = await job(store, "a")
        assert await apply(store, change(before, queue=other))
        edited = await job(store, "a")
        assert (edited.queue, edited.payload, edited.task, edited.tags) == (other, before.payload, "work", ("t",))
        assert await counts(store) == {"default": {"queued": 1}, other: {"queued": 1}}
        assert [record.id for record in await claim(store, "ann", "default", limit=9)] == ["b"]
        claimed = await claim_one(store, "ann", other)
        assert (claimed.id, claimed.queue) == ("a", other)
        await settle(store, succeeded(claimed))
        assert await counts(store) == {"default": {"running": 1}, other: {"succeeded": 1}}

    async def test_a_job_that_waits_for_its_time_gets_another_place(self, store: Store, harness: Harness) -> None:
        await enqueue(store, "later", delay=harness.unit)
        await settle(store, failed(await running(store, "again", queue="default"), delay=harness.unit))
        for id in ("later", "again"):
            seen = await job(store, id)
            assert await apply(store, change(seen, queue="other", priority=-1 if id == "again" else 0))
            assert (await job(store, id)).state == seen.state
        assert await claim(store, "ann", "default", "other", limit=9) == []
        await harness.pass_time(2 * harness.unit)
        assert await claim(store, "ann", "default", limit=9) == []
        assert [record.id for record in await claim(store, "ann", "other", limit=9)] == ["again", "later"]

    async def test_everything_is_edited_in_one_change(self, store: Store) -> None:
        seen = await enqueue(store, "a", delay=600.0)
        wanted = {"queue": "other", "priority": 7, "payload": b'{"n":2}', "state": State.QUEUED, "delay": 0.0}
        assert await apply(store, change(seen, **wanted))
        claimed = await claim_one(store, "ann", "other")
        assert (claimed.payload, claimed.priority, claimed.queue, claimed.codec) == (b'{"n":2}', 7, "other", "json")

    async def test_a_job_that_has_started_is_not_edited(self, store: Store) -> None:
        seen = await enqueue(store, "a")
        claimed = await claim_one(store)
        assert not await apply(store, change(seen, queue="other", priority=5))
        kept = await job(store, "a")
        assert (kept.queue, kept.priority) == ("default", 0)
        assert await settle(store, succeeded(claimed))

    async def test_an_edited_job_can_be_edited_and_deleted_again(self, store: Store) -> None:
        seen = await enqueue(store, "a")
        for queue in ("x", "default", "y"):
            assert await apply(store, change(seen, queue=queue))
            seen = await job(store, "a")
        assert await apply(store, deletion(seen))
        assert await counts(store) == {}

    async def test_a_deferred_job_keeps_its_limit(self, store: Store) -> None:
        limit = LimitKey("l", concurrency=1)
        await insert(store, *(new_job(name, limit_key=limit) for name in ("a", "b", "c")))
        first = await claim_one(store)
        assert await claim(store, limit=9) == []
        deferred = await job(store, "c")
        assert deferred.state == State.BLOCKED
        assert await apply(store, change(deferred, queue="other", priority=-5))
        assert await claim(store, "ann", "default", "other", limit=9) == []
        await settle(store, succeeded(first))
        second = await claim_one(store, "ann", "default", "other")
        assert (second.id, second.queue) == ("c", "other")
        assert await claim(store, "ann", "default", "other", limit=9) == []

    async def test_a_payload_without_a_fingerprint_keeps_that_of_the_key(self, store: Store) -> None:
        first = new_job("a", key="k", payload=b'{"n":1}')
        await insert(store, first)
        assert await apply(store, change(await job(store, "a"), payload=b'{"n":2}'))
        again = NewJob("b", first.task, "default", first.payload, key="k", fingerprint=first.fingerprint)
        [answer] = await insert(store, again)
        assert (answer.outcome, answer.id) == ("existing", "a")
