"""Keys: the same key gives the same job while the key is kept."""

from __future__ import annotations

from holdfast.core.job import State
from holdfast.core.operations import Inserted
from holdfast.store.protocol import Store
from holdfast.testing.build import cancellation, change, dead, deletion, failed, new_job, retrial, succeeded
from holdfast.testing.verbs import apply, claim_one, enqueue, every, gone, insert, job, running, settle

from .harness import Harness
from .topic import Topic


class TestKeys(Topic):
    async def test_the_same_key_and_body_gives_the_same_job(self, store: Store) -> None:
        await insert(store, new_job("a", key="k"))
        assert await insert(store, new_job("b", key="k")) == [Inserted("existing", "a")]
        assert await gone(store, "b")

    async def test_the_same_key_with_another_payload_is_a_conflict(self, store: Store) -> None:
        await insert(store, new_job("a", key="k", payload=b"1"))
        assert await insert(store, new_job("b", key="k", payload=b"2")) == [Inserted("conflict", "a")]
        assert await gone(store, "b")

    async def test_the_same_key_with_another_task_is_a_conflict(self, store: Store) -> None:
        await insert(store, new_job("a", key="k", task="one"))
        assert await insert(store, new_job("b", key="k", task="two")) == [Inserted("conflict", "a")]

    async def test_options_are_not_compared(self, store: Store) -> None:
        await insert(store, new_job("a", key="k", delay=60.0, priority=1))
        [again] = await insert(store, new_job("b", key="k", delay=5.0, priority=2, tags=("x",)))
        assert again == Inserted("existing", "a")
        assert (await job(store, "a")).priority == 1

    async def test_a_key_belongs_to_the_store_and_not_to_a_queue(self, store: Store) -> None:
        await insert(store, new_job("a", key="k", queue="one"))
        assert await insert(store, new_job("b", key="k", queue="two")) == [Inserted("existing", "a")]

    async def test_one_batch_with_a_key_three_times_creates_one_job(self, store: Store) -> None:
        answers = await insert(store, new_job("a", key="k"), new_job("b", key="k"), new_job("c", key="k", payload=b"2"))
        assert [(a.outcome, a.id) for a in answers] == [("created", "a"), ("existing", "a"), ("conflict", "a")]
        assert [record.id for record in await every(store)] == ["a"]

    async def test_a_large_batch_of_new_and_known_keys(self, store: Store) -> None:
        first = [new_job(f"a{number}", key=f"k{number}", payload=b"1") for number in range(30)]
        assert await insert(store, *first) == [Inserted("created", one.id) for one in first]
        again = [new_job(f"b{number}", key=f"k{number}", payload=b"1") for number in range(27, 57)]
        known = [Inserted("existing", f"a{number}") for number in range(27, 30)]
        assert await insert(store, *again) == known + [Inserted("created", one.id) for one in again[3:]]
        assert await insert(store, new_job("c", key="k40", payload=b"2")) == [Inserted("conflict", "b40")]
        assert {record.key for record in await every(store)} == {f"k{number}" for number in range(57)}

    async def test_keys_are_compared_exactly(self, store: Store) -> None:
        for key in ("k", "K", "k ", "ķ", "k\u0327", ""):
            [answer] = await insert(store, new_job(key=key))
            assert answer.outcome == "created", key

    async def test_jobs_without_a_key_are_always_created(self, store: Store) -> None:
        assert [a.outcome for a in await insert(store, new_job("a"), new_job("b"))] == ["created", "created"]

    async def test_a_key_is_known_while_its_job_runs_and_waits_again(self, store: Store) -> None:
        claim = await running(store, "a", key="k")
        assert (await insert(store, new_job(key="k")))[0] == Inserted("existing", "a")
        await settle(store, failed(claim, delay=60.0))
        assert (await insert(store, new_job(key="k")))[0] == Inserted("existing", "a")


class TestForgottenKeys(Topic):
    async def test_a_key_is_remembered_after_the_end(self, store: Store, harness: Harness) -> None:
        await settle(store, succeeded(await running(store, "a", key="k"), key_keep=4 * harness.unit))
        await harness.pass_time(2 * harness.unit)
        assert await insert(store, new_job("b", key="k")) == [Inserted("existing", "a")]
        assert (await insert(store, new_job("c", key="k", payload=b"2")))[0].outcome == "conflict"

    async def test_a_key_is_forgotten_once_its_time_is_over(self, store: Store, harness: Harness) -> None:
        await settle(store, succeeded(await running(store, "a", key="k"), key_keep=2 * harness.unit))
        await harness.pass_time(3 * harness.unit)
        assert await insert(store, new_job("b", key="k", payload=b"2")) == [Inserted("created", "b")]
        assert await insert(store, new_job("c", key="k", payload=b"2")) == [Inserted("existing", "b")]

    async def test_a_key_kept_for_no_time_is_free_at_once(self, store: Store) -> None:
        await settle(store, succeeded(await running(store, "a", key="k"), key_keep=0.0))
        assert await insert(store, new_job("b", key="k")) == [Inserted("created", "b")]

    async def test_a_key_outlives_its_removed_job(self, store: Store, harness: Harness) -> None:
        await settle(store, succeeded(await running(store, "a", key="k"), keep=0.0, key_keep=4 * harness.unit))
        assert await gone(store, "a")
        assert await insert(store, new_job("b", key="k")) == [Inserted("existing", "a")]

    async def test_a_key_stays_known_however_long_its_job_waits(self, store: Store, harness: Harness) -> None:
        await insert(store, new_job("a", key="k", delay=60.0 * harness.unit))
        await harness.pass_time(3 * harness.unit)
        await store.tidy(100)
        assert await insert(store, new_job("b", key="k")) == [Inserted("existing", "a")]

    async def test_a_dead_and_a_cancelled_job_remember_their_keys_too(self, store: Store, harness: Harness) -> None:
        await settle(store, dead(await running(store, "a", key="k"), key_keep=4 * harness.unit))
        await apply(store, cancellation(await enqueue(store, "b", key="l"), key_keep=4 * harness.unit))
        assert await insert(store, new_job(key="k"), new_job(key="l")) == [
            Inserted("existing", "a"),
            Inserted("existing", "b"),
        ]

    async def test_a_job_that_ends_cancelled_instead_remembers_its_key(self, store: Store, harness: Harness) -> None:
        claim = await running(store, "a", key="k")
        await apply(store, cancellation(claim))
        assert await settle(store, failed(claim, key_keep=4 * harness.unit))
        assert (await insert(store, new_job(key="k")))[0] == Inserted("existing", "a")

    async def test_deleting_an_ended_job_keeps_its_key(self, store: Store, harness: Harness) -> None:
        await settle(store, succeeded(await running(store, "a", key="k"), key_keep=4 * harness.unit))
        assert await apply(store, deletion(await job(store, "a")))
        assert await insert(store, new_job("b", key="k")) == [Inserted("existing", "a")]

    async def test_deleting_an_unfinished_job_frees_its_key(self, store: Store) -> None:
        assert await apply(store, deletion(await enqueue(store, "a", key="k")))
        assert await insert(store, new_job("b", key="k", payload=b"2")) == [Inserted("created", "b")]

    async def test_a_retried_job_has_its_key_until_it_ends(self, store: Store, harness: Harness) -> None:
        await settle(store, dead(await running(store, "a", key="k"), key_keep=2 * harness.unit))
        assert await apply(store, retrial(await job(store, "a")))
        await harness.pass_time(3 * harness.unit)
        await store.tidy(100)
        assert await insert(store, new_job("b", key="k")) == [Inserted("existing", "a")]

    async def test_an_old_job_does_not_free_the_key_of_a_newer_one(self, store: Store) -> None:
        await settle(store, dead(await running(store, "a", key="k"), key_keep=0.0))
        await insert(store, new_job("b", key="k", delay=60.0))
        assert await apply(store, retrial(await job(store, "a")))
        await settle(store, succeeded(await claim_one(store), key_keep=0.0))
        assert await insert(store, new_job("c", key="k")) == [Inserted("existing", "b")]

    async def test_deleting_an_old_job_keeps_the_key_of_a_newer_one(self, store: Store) -> None:
        await settle(store, dead(await running(store, "a", key="k"), key_keep=0.0))
        await insert(store, new_job("b", key="k", delay=60.0))
        await apply(store, retrial(await job(store, "a")))
        assert await apply(store, deletion(await job(store, "a")))
        assert await insert(store, new_job("c", key="k")) == [Inserted("existing", "b")]

    async def test_a_change_of_an_ended_job_keeps_the_expiry_of_its_key(self, store: Store, harness: Harness) -> None:
        await settle(store, succeeded(await running(store, "a", key="k"), key_keep=2 * harness.unit))
        assert await apply(store, change(await job(store, "a"), meta={"seen": True}))
        assert (await insert(store, new_job(key="k")))[0].outcome == "existing"
        await harness.pass_time(3 * harness.unit)
        assert (await insert(store, new_job(key="k")))[0].outcome == "created"

    async def test_an_operators_end_sets_the_expiry_of_the_key(self, store: Store, harness: Harness) -> None:
        record = await running(store, "a", key="k")
        assert await apply(store, change(record, state=State.DEAD, keep=None, key_keep=2 * harness.unit))
        assert (await insert(store, new_job(key="k")))[0].outcome == "existing"
        await harness.pass_time(3 * harness.unit)
        assert (await insert(store, new_job(key="k")))[0].outcome == "created"
