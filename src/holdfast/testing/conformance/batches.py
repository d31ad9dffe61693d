"""Batches: mixed operations share one round trip, in the order of the batch's fields, each with its own answer."""

from __future__ import annotations

from holdfast.core.job import State
from holdfast.store.protocol import Batch, Store
from holdfast.testing.build import (
    ask,
    cancellation,
    change,
    dead,
    deletion,
    failed,
    new_job,
    released,
    retrial,
    says,
    succeeded,
)
from holdfast.testing.verbs import claim, enqueue, gone, insert, job, running, settle

from .topic import Topic


class TestBatches(Topic):
    async def test_an_ask_sees_inserts_of_its_batch(self, store: Store) -> None:
        answers = await store.write(Batch(inserts=[new_job("a"), new_job("b")], asks=[ask(limit=9)]))
        assert [record.id for record in answers.asks[0].records] == ["a", "b"]

    async def test_an_ask_sees_releases_of_its_batch(self, store: Store) -> None:
        claimed = await running(store)
        answers = await store.write(Batch(settles=[released(claimed)], asks=[ask("bob")]))
        [again] = answers.asks[0].records
        assert (again.id, again.holder, again.fence > claimed.fence) == (claimed.id, "bob", True)

    async def test_an_ask_sees_changes_of_its_batch(self, store: Store) -> None:
        cancelled, later = await enqueue(store), await enqueue(store, delay=60.0)
        changes = [cancellation(cancelled), change(later, state=State.QUEUED, delay=0.0)]
        answers = await store.write(Batch(changes=changes, asks=[ask(limit=9)]))
        assert [record.id for record in answers.asks[0].records] == [later.id]

    async def test_a_change_sees_settlements_of_its_batch(self, store: Store) -> None:
        claimed = await running(store)
        ended = await job(store, claimed.id)
        ended.state = State.SUCCEEDED
        answers = await store.write(
            Batch(settles=[succeeded(claimed)], changes=[cancellation(claimed), retrial(ended)])
        )
        assert (list(answers.settles), list(answers.changes)) == ([True], [False, True])
        assert (await job(store, claimed.id)).reset_count == 1

    async def test_an_insert_is_checked_before_settlements_of_its_batch(self, store: Store) -> None:
        claimed = await running(store, "a", key="k")
        answers = await store.write(Batch(inserts=[new_job("b", key="k")], settles=[succeeded(claimed)]))
        assert answers.inserts[0].outcome == "existing"

    async def test_every_operation_is_answered_if_some_are_refused(self, store: Store) -> None:
        await insert(store, new_job("a"), new_job("b"), new_job("taken", nonce=1, queue="other"))
        first, second = await claim(store, limit=2)
        await settle(store, released(first))
        waiting = await job(store, "a")
        answers = await store.write(
            Batch(
                inserts=[new_job("taken", nonce=2), new_job("c")],
                notes=[says(first, progress=b"1"), says(second, progress=b"2")],
                settles=[failed(first), succeeded(second)],
                changes=[cancellation(second), change(waiting, meta={"x": 1})],
                asks=[ask("bob", "nowhere"), ask("bob", limit=9)],
            )
        )
        assert [answer.outcome for answer in answers.inserts] == ["exists", "created"]
        assert list(answers.notes) == [False, True]
        assert list(answers.settles) == [False, True]
        assert list(answers.changes) == [False, True]
        assert [[record.id for record in claims.records] for claims in answers.asks] == [[], ["a", "c"]]

    async def test_a_large_batch_is_one_batch(self, store: Store) -> None:
        answers = await store.write(Batch(inserts=[new_job(f"{n}") for n in range(2000)]))
        assert {answer.outcome for answer in answers.inserts} == {"created"}
        records = await claim(store, limit=2000)
        assert len(records) == 2000
        answers = await store.write(Batch(settles=[succeeded(record) for record in records]))
        assert all(answers.settles)
        assert len(answers.settles) == 2000

    async def test_a_settlement_and_the_next_claim_share_a_batch(self, store: Store) -> None:
        await insert(store, new_job("a"), new_job("b"), new_job("c"))
        current = (await claim(store))[0]
        seen = [current.id]
        for _ in range(2):
            answers = await store.write(Batch(settles=[succeeded(current)], asks=[ask()]))
            assert list(answers.settles) == [True]
            current = answers.asks[0].records[0]
            seen.append(current.id)
        assert seen == ["a", "b", "c"]


class TestManyChanges(Topic):
    async def test_each_of_many_changes_is_fenced_and_answered_by_itself(self, store: Store) -> None:
        await insert(store, *[new_job(f"{n}") for n in range(9)])
        records = await claim(store, limit=9)
        await store.write(Batch(settles=[dead(record) for record in records]))
        ended = {record.id: await job(store, record.id) for record in records}
        stale, absent = ended["2"], ended["4"]
        stale.fence += 1
        absent.id = "no such job"
        changes = [retrial(record) if n % 2 == 0 else deletion(record) for n, record in enumerate(ended.values())]
        answers = await store.write(Batch(changes=changes))
        refused = [n for n, done in enumerate(answers.changes) if not done]
        assert refused == [n for n, seen in enumerate(ended.values()) if seen in (stale, absent)]
        assert {record.id for record in await claim(store, limit=9)} == {"0", "6", "8"}
        assert [await gone(store, id) for id in "1357"] == [True] * 4
        assert [(await job(store, id)).state for id in "24"] == [State.DEAD] * 2

    async def test_a_change_sees_earlier_changes_of_its_batch(self, store: Store) -> None:
        first, second = await enqueue(store, key="k"), await enqueue(store)
        cancelled = await job(store, first.id)
        cancelled.state = State.CANCELLED
        changes = [
            cancellation(first, key_keep=60.0),
            cancellation(first),
            retrial(cancelled),
            deletion(second),
            deletion(second),
        ]
        answers = await store.write(Batch(changes=changes))
        assert list(answers.changes) == [True, False, True, True, False]
        assert (await job(store, first.id)).state == State.QUEUED
        assert (await insert(store, new_job("x", key="k")))[0].outcome == "existing"
        counts = {state: number for queue in await store.stats() for state, number in queue.counts.items() if number}
        assert counts == {"queued": 1}

    async def test_the_keys_of_many_deleted_jobs_are_free_at_once(self, store: Store) -> None:
        records = [await enqueue(store, key=f"k{n}") for n in range(3)]
        await store.write(Batch(changes=[deletion(record) for record in records]))
        answers = await insert(store, *[new_job(f"new-{n}", key=f"k{n}") for n in range(3)])
        assert [answer.outcome for answer in answers] == ["created"] * 3
