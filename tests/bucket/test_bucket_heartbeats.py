"""Heartbeats of a process that has the log's head and no jobs: they renew leases beside writers that have all jobs."""

from __future__ import annotations

import asyncio

from alone import TIMINGS, opened, virtually, watch
from delayed import InMemory

from holdfast.core.clock import Entropy
from holdfast.store.bucket import BucketStore
from holdfast.store.bucket.heartbeat import HeadWriter
from holdfast.testing.build import holder, new_job
from holdfast.testing.verbs import claim_one, insert

LEASE = 30.0
ANN = holder("ann", LEASE)


async def joined(bucket, clock):
    writer = HeadWriter(bucket, clock, Entropy(1), TIMINGS)
    await writer.join()
    return writer


async def beats(store):
    [ann] = await store.holders()
    return ann.heartbeat


def test_a_heartbeat_without_the_jobs_renews_a_lease():
    async def story(clock):
        bucket = InMemory(clock)
        async with opened(bucket, clock) as store:
            await insert(store, new_job("a"))
            await claim_one(store, ANN)
            light = await joined(bucket, clock)
            for _ in range(10):
                assert await watch(store, LEASE / 3) == []
                await light.write([ANN])
            assert not light.log.replica.jobs.jobs
            [lost] = await watch(store, 2 * LEASE)
            assert lost.record.id == "a", "without heartbeats the lease ends"

    virtually(story)


def test_it_joins_at_the_last_entry_and_reads_no_other():
    async def story(clock):
        bucket = InMemory(clock)
        async with opened(bucket, clock) as store:
            for number in range(30):  # several snapshots
                await insert(store, new_job(f"j{number}"))
            read = []
            get = bucket.get

            async def counted(key):
                read.append(key)
                return await get(key)

            bucket.get = counted
            light = await joined(bucket, clock)
            assert len([key for key in read if not key.startswith("log/")]) == 0
            assert len(read) == 2, "the last entry, and the one after it, which is missing"
            await light.write([ANN])
            assert await beats(store) == 1

    virtually(story)


def test_writers_with_and_without_the_jobs_write_one_log():
    async def story(clock):
        bucket = InMemory(clock)
        async with opened(bucket, clock) as store, opened(bucket, clock) as other:
            await store.heartbeat([ANN])
            light = await joined(bucket, clock)

            async def insert_some(into, name):
                for number in range(20):
                    await insert(into, new_job(f"{name}{number}"))

            async def beat():
                for _ in range(20):
                    await light.write([ANN])

            await asyncio.gather(insert_some(store, "s"), insert_some(other, "o"), beat())
            assert await beats(store) == await beats(other) == 21, "each is applied once"
            assert all(await other.get([f"{name}{number}" for name in "so" for number in range(20)]))

    virtually(story)


def test_a_heartbeat_that_is_refused_as_old_is_written_again(monkeypatch):
    monkeypatch.setattr("holdfast.store.bucket.replica.BATCH_WINDOW", 3)

    async def story(clock):
        bucket = InMemory(clock)
        async with opened(bucket, clock) as store:
            light = await joined(bucket, clock)
            for number in range(5):
                await insert(store, new_job(f"j{number}"))
            await light.write([ANN])
            assert await beats(store) == 1

    virtually(story)


def test_it_joins_again_after_its_entries_were_cleaned_away():
    async def story(clock):
        bucket = InMemory(clock)
        async with opened(bucket, clock) as store:
            light = await joined(bucket, clock)
            await light.write([ANN])
            for number in range(60):
                await insert(store, new_job(f"j{number}"))
                await asyncio.sleep(TIMINGS.clean_after / 10)
            assert await bucket.get("log/0000000000000002") is None
            await light.write([ANN])
            assert await beats(store) == 2
            async with opened(bucket, clock) as fresh:
                assert await beats(fresh) == 2

    virtually(story)


async def test_a_folders_heartbeats_run_in_a_thread(tmp_path):
    from holdfast.store.bucket.folder import Folder

    store = BucketStore(Folder(str(tmp_path / "jobs")))
    light = store.heartbeat_only()
    await light.heartbeat([ANN])
    await light.heartbeat([ANN])
    await light.close()
    await store.open()
    assert await beats(store) == 2
    await store.close()
