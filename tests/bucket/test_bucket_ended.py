"""Ended jobs are archived and stay readable; old log entries are deleted, unfinished jobs and payloads are kept."""

from __future__ import annotations

import asyncio

import pytest
from alone import TIMINGS, opened, virtually
from delayed import InMemory
from msgspec.structs import replace

from holdfast.core.job import State
from holdfast.core.operations import Inserted, Output, Printed, Where
from holdfast.store.protocol import Batch
from holdfast.testing.build import ask, change, deletion, new_job, retrial, says, succeeded
from holdfast.testing.verbs import apply, claim, claim_one, every, insert, job, settle
from support.virtual import VirtualClock

LONG = b'"' + b"x" * 1000 + b'"'
HUGE = b"y" * 100_000
DAY = 86400.0


async def run_some(store, count, *, result=b"1", keep=7 * DAY, **options):
    """Jobs that have ended, one commit each for enqueue, claim and settle."""
    for n in range(count):
        await insert(store, new_job(f"done-{n:03}", nonce=1, **options))
        claimed = await claim_one(store)
        streamed = says(claimed, progress=b"5", output=Output(0, b"1\n", 100, stream=True))
        await store.write(Batch(notes=[streamed, says(claimed, output=Output(0, b"printed", 100))]))
        assert await settle(store, succeeded(claimed, result, keep=keep))


async def pass_commits(store, count=60):
    """Time, and commits in it, so that the log is kept short."""
    for n in range(count):
        await asyncio.sleep(20.0)
        await store.put_record("config", "n", b"%d" % n)
    await asyncio.sleep(1.0)


def live(store):
    return store._shared.engine.replica.jobs.jobs


@pytest.mark.parametrize("payload", [b"1", LONG, HUGE], ids=["short", "long", "huge"])
def test_ended_jobs_leave_the_state_and_are_read_as_before(payload):
    async def story(clock):
        bucket = InMemory(clock)
        async with opened(bucket, clock) as store:
            await run_some(store, 12, result=payload, payload=payload)
            before = await every(store)
            stats = await store.stats()
            await pass_commits(store)
            assert not live(store)
            for record in before:
                assert await store.output(record.id, 0, 100, stream=True) == [Printed(0, 1, b"1\n", True)]
                assert await store.output(record.id, 0, 100) == [Printed(0, 1, b"printed")]
            assert await every(store) == before
            assert await store.get([record.id for record in before]) == before
            assert await store.stats() == stats
            assert [r.id for r in await every(store, Where(states=("succeeded",), queue="default"), page=5)] == [
                r.id for r in before
            ]
            assert await store.find(Where(states=("queued",)), None, 5) is not None
        async with opened(bucket, clock) as again:
            assert await every(again) == before

    virtually(story)


def test_an_ended_job_can_be_retried_deleted_and_recognised():
    async def story(clock):
        bucket = InMemory(clock)
        async with opened(bucket, clock) as store:
            await run_some(store, 6, payload=LONG)
            await pass_commits(store)
            assert not live(store)
            await apply(store, retrial(await job(store, "done-001")))
            again = await claim_one(store)
            assert (again.id, again.reset_count, again.payload) == ("done-001", 1, LONG)
            assert await settle(store, succeeded(again, keep=None))
            await apply(store, deletion(await job(store, "done-002")))
            assert await store.get(["done-002"]) == [None]
            assert await insert(store, new_job("done-003", nonce=1)) == [Inserted("created", "done-003")]
            assert await insert(store, new_job("done-003", nonce=9)) == [Inserted("exists", "done-003")]
            await pass_commits(store)
            names = [record.id for record in await every(store)]
            assert sorted(names) == ["done-000", "done-001", "done-003", "done-004", "done-005"]
            assert (await job(store, "done-001")).reset_count == 1
            [stats] = await store.stats()
            assert stats.counts[State.SUCCEEDED] == 5

    virtually(story)


def test_ended_jobs_go_when_their_retention_ends():
    async def story(clock):
        bucket = InMemory(clock)
        async with opened(bucket, clock) as store:
            await run_some(store, 5, keep=DAY, payload=HUGE)
            await pass_commits(store)
            assert len(await every(store)) == 5
            await asyncio.sleep(DAY)
            assert (await store.tidy(100)).jobs == 5
            assert await every(store) == []
            await pass_commits(store, 300)
            await asyncio.sleep(2 * DAY)
            await pass_commits(store, 300)
        assert not [key for key in bucket.objects if key.startswith(("done/", "payload/"))]

    virtually(story)


def test_the_log_is_cleaned_and_what_waits_keeps_its_payload():
    async def story(clock):
        bucket = InMemory(clock)
        async with opened(bucket, clock) as store:
            await insert(store, *(new_job(f"wait-{n}", payload=LONG, delay=30 * DAY) for n in range(3)))
            await pass_commits(store, 400)
            kept = sorted(key for key in bucket.objects if key.startswith("log/"))
            assert kept[0].endswith("01"), "the entry that holds the payloads is kept"
            assert len(kept) < 300
            assert 2 <= len([key for key in bucket.objects if key.startswith("snapshot/")]) < 60
        async with opened(bucket, clock) as again:
            await asyncio.sleep(31 * DAY)
            taken = await claim(again, limit=9)
            assert [record.payload for record in taken] == [LONG] * 3

    virtually(story)


def test_cost_does_not_grow_with_depth():
    """Bytes and requests per job, for jobs enqueued in bulk: at 20,000 queued as at 1,000."""

    async def cost(clock, depth):
        bucket = InMemory(clock)
        written = 0
        create = bucket.put_if_absent

        async def counted(key, data):
            nonlocal written
            written += len(data)
            return await create(key, data)

        bucket.put_if_absent = counted
        async with opened(bucket, clock, replace(TIMINGS, snapshot_entries=1000)) as store:
            for at in range(0, depth, 1000):
                await insert(store, *(new_job(f"{at + n:08}") for n in range(1000)))
            filled = written / depth
            engine = store._shared.engine
            engine.bucket.take()
            written = 0
            for turn in range(10):
                answers = await store.write(Batch(asks=[ask("ann", limit=1000)]))
                taken = answers.asks[0].records
                await store.write(Batch(settles=[succeeded(record) for record in taken]))
                await insert(store, *(new_job(f"{turn}/{n:08}") for n in range(len(taken))))
            spent = engine.bucket.spent
            return filled, written / 10_000, (spent.gets + spent.puts + spent.lists) / 10_000

    shallow, deep = (virtually(lambda clock, depth=depth: cost(clock, depth)) for depth in (1000, 20_000))
    for small, large in zip(shallow, deep, strict=True):
        assert large <= 1.5 * small


@pytest.mark.parametrize("off", [3660.0, 26 * 3600.0, -26 * 3600.0], ids=["61min", "26h", "-26h"])
def test_a_wrong_clock_does_not_put_away_what_has_just_ended(off):
    """Its enqueue may still be repeated: it is recognised for as long as the job is in the state."""

    async def story(clock):
        loop = asyncio.get_running_loop()
        # The clock of the process that ends the job, or that archives it, is wrong: the difference counts.
        bucket, clock, fast = InMemory(clock), VirtualClock(loop, min(off, 0.0)), VirtualClock(loop, max(off, 0.0))
        async with opened(bucket, clock) as store, opened(bucket, fast) as other:
            new = new_job("unique")
            await insert(store, new)
            await settle(store, succeeded(await claim_one(store)))
            for n in range(20):
                await other.put_record("config", "n", b"%d" % n)
                await asyncio.sleep(1.0)
            [answer] = await insert(store, new)
            assert (answer.outcome, answer.id) == ("created", "unique")
            assert [record.state for record in await every(store)] == ["succeeded"]

    virtually(story)


def test_what_ended_before_a_process_came_is_put_away_by_the_buckets_clock():
    """No process here runs long enough to see a job as ended for five minutes."""

    async def story(clock):
        bucket = InMemory(clock)
        async with opened(bucket, clock) as store:
            await run_some(store, 12)
            before = await every(store)
        left = []
        for turn in range(12):
            await asyncio.sleep(120.0)
            async with opened(bucket, clock) as store:
                for n in range(10):
                    await store.put_record("config", "n", b"%d" % (100 * turn + n))
                await asyncio.sleep(1.0)
                left.append(len(live(store)))
        assert left[0] == 12
        assert left[-1] == 0
        async with opened(bucket, clock) as store:
            assert await every(store) == before

    virtually(story)


@pytest.mark.parametrize(
    "payload", [b"\0@payload/none.5", b"\0=", b"\0#1/0/inserts/0", HUGE], ids=["object", "plain", "entry", "huge"]
)
def test_a_payload_that_an_operator_puts_in_is_kept_as_it_is(payload):
    """Also a payload that looks like a pointer into the log."""

    async def story(clock):
        bucket = InMemory(clock)
        async with opened(bucket, clock) as store:
            await insert(store, new_job("a"))
            assert await apply(store, change(await job(store, "a"), payload=payload))
            assert (await job(store, "a")).payload == payload
        assert len(payload) < 1000 or any(key.startswith("payload/") for key in bucket.objects)

    virtually(story)
