"""Concurrency: with many concurrent writers, one job per key, one holder per job, one end per claim."""

from __future__ import annotations

import asyncio
from collections import Counter

from holdfast.core.job import Record, State
from holdfast.store.protocol import Batch, Store, records_of
from holdfast.testing.build import ask, dead, holder, new_job, released, succeeded, swept
from holdfast.testing.verbs import claim, every, insert, job, running, settle

from .harness import Harness
from .topic import Topic

LIMIT = 60.0
"""Seconds after which unfinished work counts as stuck."""


async def crowd(store: Store, harness: Harness, size: int) -> list[Store]:
    return [store, *[await harness.another(store) for _ in range(size - 1)]]


class TestConcurrency(Topic):
    async def test_fifty_inserts_of_one_key_create_one_job(self, store: Store, harness: Harness) -> None:
        stores = await crowd(store, harness, 5)
        async with asyncio.timeout(LIMIT):
            answers = await asyncio.gather(*(insert(stores[n % 5], new_job(f"{n}", key="k")) for n in range(50)))
        outcomes = Counter(answer.outcome for [answer] in answers)
        assert outcomes == {"created": 1, "existing": 49}
        assert len({answer.id for [answer] in answers}) == 1
        assert len(await every(store)) == 1

    async def test_many_inserts_of_one_chosen_id_create_one_job(self, store: Store, harness: Harness) -> None:
        stores = await crowd(store, harness, 4)
        async with asyncio.timeout(LIMIT):
            answers = await asyncio.gather(*(insert(stores[n % 4], new_job("mine", nonce=n + 1)) for n in range(20)))
        assert Counter(answer.outcome for [answer] in answers) == {"created": 1, "exists": 19}

    async def test_many_inserts_never_pass_the_depth(self, store: Store, harness: Harness) -> None:
        stores = await crowd(store, harness, 4)
        async with asyncio.timeout(LIMIT):
            await asyncio.gather(*(insert(stores[n % 4], new_job(max_depth=7)) for n in range(40)))
        assert len(await every(store)) == 7

    async def test_concurrent_claims_take_every_job_once(self, store: Store, harness: Harness) -> None:
        names = {f"{n}" for n in range(200)}
        await insert(store, *(new_job(name) for name in names))
        stores = await crowd(store, harness, 8)

        async def consume(mine: Store, name: str) -> list[str]:
            taken: list[str] = []
            while records := await claim(mine, name, limit=7):
                taken += [record.id for record in records]
            return taken

        async with asyncio.timeout(LIMIT):
            taken = await asyncio.gather(*(consume(mine, f"holder-{n}") for n, mine in enumerate(stores)))
        assert Counter(id for of_one in taken for id in of_one) == Counter(names)

    async def test_producers_and_consumers_at_once_lose_nothing(self, store: Store, harness: Harness) -> None:
        stores = await crowd(store, harness, 6)
        done: Counter[str] = Counter()

        async def produce(mine: Store, number: int) -> None:
            for n in range(30):
                await insert(mine, new_job(f"{number}/{n}"))

        async def consume(mine: Store, name: str) -> None:
            ends: list[Record] = []
            while done.total() + len(ends) < 90:
                answers = await mine.write(Batch(settles=[succeeded(one) for one in ends], asks=[ask(name, limit=5)]))
                assert all(answers.settles)
                done.update(one.id for one in ends)
                ends = answers.asks[0].records
                await asyncio.sleep(0)
            await mine.write(Batch(settles=[succeeded(one) for one in ends]))
            done.update(one.id for one in ends)

        async with asyncio.timeout(LIMIT):
            await asyncio.gather(
                *(produce(mine, n) for n, mine in enumerate(stores[:3])),
                *(consume(mine, f"holder-{n}") for n, mine in enumerate(stores[3:])),
            )
        assert set(done.values()) == {1}
        records = await every(store)
        assert len(records) == len(done) == 90
        assert {(record.state, record.attempt) for record in records} == {(State.SUCCEEDED, 1)}

    async def test_one_of_many_concurrent_ends_of_a_claim_is_written(self, store: Store, harness: Harness) -> None:
        stores = await crowd(store, harness, 6)
        for _ in range(5):
            claimed = await running(store)
            ends = [
                succeeded(claimed),
                dead(claimed),
                released(claimed),
                succeeded(claimed),
                dead(claimed),
                released(claimed),
            ]
            async with asyncio.timeout(LIMIT):
                written = await asyncio.gather(*(settle(mine, end) for mine, end in zip(stores, ends, strict=True)))
            assert Counter(written) == {True: 1, False: 5}
            winner = ends[written.index(True)]
            assert (await job(store, claimed.id)).state == winner.state
            await claim(store, limit=9)

    async def test_a_concurrent_heartbeat_and_sweep_agree_on_the_outcome(self, store: Store, harness: Harness) -> None:
        other = await harness.another(store)
        ann = holder("ann", harness.lease)
        for _ in range(10):
            claimed = await running(store, by=ann)
            await harness.pass_time(harness.lease * 1.25)
            [lost] = await store.expired(9)
            swept_it, [heartbeat] = await asyncio.gather(settle(store, swept(lost)), other.heartbeat([ann]))
            late = await settle(store, succeeded(claimed))
            assert late is not swept_it
            if not swept_it:
                assert [held.id for held in heartbeat.held] == [claimed.id]
            for leftover in await claim(store, "bob", limit=9):
                await settle(store, succeeded(leftover))

    async def test_concurrent_compare_and_set_loses_no_update(self, store: Store, harness: Harness) -> None:
        stores = await crowd(store, harness, 4)

        async def count(mine: Store) -> None:
            for _ in range(10):
                while True:
                    kept = (await records_of(mine, "config")).get("n")
                    value, version = (int(kept.value), kept.version) if kept else (0, 0)
                    if await mine.put_record("config", "n", str(value + 1).encode(), expect=version):
                        break
                    await asyncio.sleep(0)

        async with asyncio.timeout(LIMIT):
            await asyncio.gather(*(count(mine) for mine in stores))
        assert (await records_of(store, "config"))["n"].value == b"40"

    async def test_siblings_in_other_threads_share_the_work(self, store: Store) -> None:
        names = {f"{n}" for n in range(120)}

        async def work(mine: Store, number: int) -> list[str]:
            """Insert a third of the jobs, then claim and settle until nothing is left."""
            await mine.open()
            taken: list[str] = []
            try:
                for n in range(number, 120, 3):
                    listener = mine.listen([f"job/{n}", "queue/default"])
                    await insert(mine, new_job(f"{n}"))
                    listener.close()
                while records := await claim(mine, f"holder-{number}", limit=4):
                    answers = await mine.write(Batch(settles=[succeeded(record) for record in records]))
                    assert all(answers.settles)
                    taken += [record.id for record in records]
            finally:
                await mine.close()
            return taken

        siblings = [store.sibling() for _ in range(3)]
        async with asyncio.timeout(LIMIT):
            taken = await asyncio.gather(
                *(asyncio.to_thread(asyncio.run, work(mine, n)) for n, mine in enumerate(siblings))
            )
        assert Counter(id for of_one in taken for id in of_one) == Counter(names)
        assert {record.state for record in await every(store)} == {State.SUCCEEDED}
