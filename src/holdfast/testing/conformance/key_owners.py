"""Key owners: which job has a key and has not ended, by a read."""

from __future__ import annotations

import asyncio

from holdfast.core.operations import Inserted
from holdfast.core.waiting import Waiting
from holdfast.store.protocol import Store
from holdfast.testing.build import cancellation, dead, deletion, failed, new_job, retrial, succeeded
from holdfast.testing.verbs import apply, enqueue, every, insert, job, running, settle

from .harness import Harness
from .topic import Topic

MANY = 1000
"""Keys that a bulk retry asks for at once."""


class TestKeyOwners(Topic):
    async def test_a_key_belongs_to_its_job_from_the_insert_until_the_end(self, store: Store) -> None:
        await enqueue(store, "a", key="k")
        assert await store.key_owners(["k"]) == ["a"]
        claim = await running(store, "b", key="l", queue="other")
        assert await store.key_owners(["k", "l"]) == ["a", "b"]
        await settle(store, failed(claim, delay=60.0))
        assert await store.key_owners(["l"]) == ["b"]

    async def test_a_job_that_waits_for_its_time_or_for_another_has_its_key(self, store: Store) -> None:
        await insert(
            store, new_job("a", key="k", delay=60.0), new_job("b", key="l", waiting_for=Waiting("dependency", "c"))
        )
        assert await store.key_owners(["k", "l"]) == ["a", "b"]

    async def test_an_ended_job_has_no_key_however_long_it_is_remembered(self, store: Store, harness: Harness) -> None:
        await settle(store, succeeded(await running(store, "a", key="k"), key_keep=60 * harness.unit))
        await settle(store, dead(await running(store, "b", key="l"), key_keep=60 * harness.unit))
        await apply(store, cancellation(await enqueue(store, "c", key="m"), key_keep=60 * harness.unit))
        assert await store.key_owners(["k", "l", "m"]) == [None, None, None]
        assert await insert(store, new_job("d", key="k")) == [Inserted("existing", "a")]

    async def test_an_expired_or_unknown_key_has_no_owner(self, store: Store, harness: Harness) -> None:
        await settle(store, succeeded(await running(store, "a", key="k"), key_keep=2 * harness.unit))
        await harness.pass_time(3 * harness.unit)
        assert await store.key_owners(["k", "never"]) == [None, None]
        await store.tidy(100)
        assert await store.key_owners(["k"]) == [None]

    async def test_the_key_of_a_removed_job_has_no_owner(self, store: Store, harness: Harness) -> None:
        await settle(store, succeeded(await running(store, "a", key="k"), keep=0.0, key_keep=60 * harness.unit))
        await apply(store, deletion(await enqueue(store, "b", key="l")))
        assert await store.key_owners(["k", "l"]) == [None, None]

    async def test_a_key_belongs_to_its_newest_job(self, store: Store) -> None:
        await settle(store, dead(await running(store, "a", key="k"), key_keep=0.0))
        await enqueue(store, "b", key="k")
        assert await store.key_owners(["k"]) == ["b"]
        first = await running(store, "c", key="l", unique="until_start", queue="other")
        await enqueue(store, "d", key="l", unique="until_start", queue="other")
        assert await store.key_owners(["l"]) == ["d"]
        await settle(store, succeeded(first, key_keep=0.0))
        assert await store.key_owners(["l"]) == ["d"]

    async def test_a_retried_job_has_its_key_again(self, store: Store, harness: Harness) -> None:
        await settle(store, dead(await running(store, "a", key="k"), key_keep=60 * harness.unit))
        assert await apply(store, retrial(await job(store, "a")))
        assert await store.key_owners(["k"]) == ["a"]

    async def test_keys_are_compared_exactly(self, store: Store) -> None:
        keys = ["k", "K", "k ", "ķ", "k\u0327", ""]
        for number, key in enumerate(keys):
            await enqueue(store, f"{number}", key=key)
        assert await store.key_owners(keys[::-1]) == ["5", "4", "3", "2", "1", "0"]

    async def test_each_key_is_answered_in_its_place_however_often_it_is_asked(self, store: Store) -> None:
        await enqueue(store, "a", key="k")
        assert await store.key_owners(["k", "none", "k"]) == ["a", None, "a"]
        assert await store.key_owners([]) == []

    async def test_a_thousand_keys_are_answered_at_once(self, store: Store) -> None:
        await insert(store, *(new_job(f"{n}", key=f"k{n}") for n in range(0, MANY, 2)))
        owners = await store.key_owners([f"k{n}" for n in range(MANY)])
        assert owners == [None if n % 2 else f"{n}" for n in range(MANY)]

    async def test_reading_owners_writes_nothing(self, store: Store) -> None:
        await enqueue(store, "a", key="k")
        before, cursor = await every(store), (await store.transitions(None, 10)).cursor
        await store.key_owners(["k", "free"])
        assert (await every(store), (await store.transitions(cursor, 10)).transitions) == (before, [])
        assert await insert(store, new_job("b", key="free")) == [Inserted("created", "b")]

    async def test_a_key_of_concurrent_inserts_belongs_to_one_job(self, store: Store, harness: Harness) -> None:
        stores = [store, *[await harness.another(store) for _ in range(3)]]

        async def insert_and_ask(number: int) -> str | None:
            mine = stores[number % len(stores)]
            await insert(mine, new_job(f"{number}", key="k", unique="until_end"))
            return (await mine.key_owners(["k"]))[0]

        owners = await asyncio.gather(*(insert_and_ask(n) for n in range(20)))
        [only] = await every(store)
        assert set(owners) == {only.id}
