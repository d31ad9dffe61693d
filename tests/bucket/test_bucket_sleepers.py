"""A process that was away while its place in the log was cleaned: what it writes there is not in the log."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from alone import TIMINGS, opened, virtually
from delayed import Delayed, InMemory
from delayed_puts import DelayedPuts

from holdfast.core.errors import HoldfastError, OutcomeUnknown
from holdfast.store.bucket.log_format import Mark, Segment
from holdfast.store.bucket.protocol import NotWritten
from holdfast.store.bucket.write_request import WriteRequest
from holdfast.store.bucket.writer import ALONE
from holdfast.testing.build import change, new_job, succeeded
from holdfast.testing.verbs import apply, claim_one, insert, job, settle

SECOND = "log/0000000000000002"
TRIP = 0.1


def test_a_sleeper_that_reads_its_own_entry_does_not_take_it_for_written():
    """It wins a number that was deleted; a concurrent read gets that entry before it joins again."""

    async def story(clock):
        bucket = InMemory(clock)
        async with opened(bucket, clock) as busy, opened(Delayed(bucket, TRIP), clock) as sleeper:
            await insert(busy, new_job("first"))
            await sleeper.get(["first"])
            await busy.put_record("config", "tick", b"0")
            while SECOND in bucket.objects:
                await asyncio.sleep(TIMINGS.clean_after / 10)
                await busy.put_record("config", "tick", b"0")
            writing = asyncio.create_task(insert(sleeper, new_job("late")))
            await asyncio.sleep(1.5 * TRIP)
            await sleeper.get(["first"])
            await writing
            return (await busy.get(["late"]))[0]

    assert virtually(story) is not None, "acknowledged, but lost"


@pytest.mark.parametrize("trips", range(1, 12))
def test_what_is_read_while_the_log_is_joined_again_is_the_head(trips):
    """A writer that slept joins again; a read that began before, or begins meanwhile, misses nothing."""

    async def story(clock):
        bucket = InMemory(clock)
        async with opened(bucket, clock) as busy, opened(Delayed(bucket, TRIP), clock) as sleeper:
            await insert(busy, new_job("first"))
            await sleeper.get(["first"])
            await busy.put_record("config", "tick", b"0")
            while SECOND in bucket.objects:
                await asyncio.sleep(TIMINGS.clean_after / 10)
                await busy.put_record("config", "tick", b"0")
            writing = asyncio.create_task(insert(sleeper, new_job("late")))
            await asyncio.sleep(trips * TRIP / 2)
            await insert(busy, new_job("newest"))
            found = await sleeper.get(["newest"])
            await writing
            return found[0]

    assert virtually(story) is not None


def test_a_large_payload_that_was_cleaned_away_before_its_job_came_is_written_again():
    """Days may pass between the two in a process that sleeps, and to other processes the object is unneeded."""

    async def story(clock):
        bucket = InMemory(clock)
        held, patient = DelayedPuts(bucket, "log/", answered=False), msgspec.structs.replace(TIMINGS, patience=1e9)
        async with opened(bucket, clock) as busy, opened(held, clock, patient) as sleeper:
            await insert(busy, new_job("first"))
            await sleeper.get(["first"])
            held.shut()
            writing = asyncio.create_task(insert(sleeper, new_job("late", payload=b"x" * 100_000)))
            await held.reached.wait()
            while any(key.startswith("payload/") for key in bucket.objects):
                await asyncio.sleep(TIMINGS.clean_after / 10)
                await busy.put_record("config", "tick", b"0")
            held.open()
            await writing
            return (await job(busy, "late")).payload

    assert virtually(story) == b"x" * 100_000


def test_a_change_of_an_ended_job_while_it_is_written_to_its_segment_is_kept():
    async def story(clock):
        bucket = InMemory(clock)
        held = DelayedPuts(bucket, "done/", answered=True)
        async with opened(held, clock) as store:
            await insert(store, new_job("a"))
            assert await settle(store, succeeded(await claim_one(store), b"1", keep=1e6))
            held.shut()
            while not held.reached.is_set():
                await asyncio.sleep(20.0)
                await store.put_record("config", "tick", b"0")
            assert await apply(store, change(await job(store, "a"), meta={"seen": True}))
            held.open()
            while "a" in store._shared.engine.replica.jobs.jobs:
                await asyncio.sleep(20.0)
                await store.put_record("config", "tick", b"0")
            return (await job(store, "a")).meta

    assert virtually(story) == {"seen": True}


def test_a_segment_that_may_have_been_cleaned_away_is_overlooked():
    """Its writer slept between its put and its entry; others have marked a snapshot since, after which they clean."""

    async def story(clock):
        async with opened(InMemory(clock), clock) as store:
            await insert(store, new_job("a"))
            assert await settle(store, succeeded(await claim_one(store), b"1", keep=1e6))
            engine, seen = store._shared.engine, await job(store, "a")
            segment = Segment("gone", engine.replica.position, [(seen.seq, seen.fence)], "a", "a", None)
            await engine.write(WriteRequest(marks=[Mark(1, 100)]))
            await engine.write(WriteRequest(segments=[segment]))
            return await job(store, "a") == seen

    assert virtually(story)


class Full(InMemory):
    """Is full, now and then."""

    full = False

    async def put_if_absent(self, key, data):
        if self.full and key.startswith("log/"):
            raise NotWritten(f"{key} cannot be written: no space left")
        return await super().put_if_absent(key, data)


def test_an_engine_that_could_not_write_for_others_writes_again():
    """A batch is in the inbox; the process that would write it has a full disk at first."""

    async def story(clock):
        bucket = InMemory(clock)
        full = Full(clock)
        full.objects = bucket.objects
        async with opened(full, clock) as store, opened(bucket, clock) as other:
            await insert(store, new_job("a"))
            engine = store._shared.engine
            batched = await other._shared.engine._batch([])
            batched.writer, batched.number = "other", 1
            engine._writer._adoptable["other", 1] = batched
            full.full = True
            with pytest.raises(NotWritten):
                await insert(store, new_job("b"))
            full.full = False
            await insert(store, new_job("c"))
            return await store.get(["a", "b", "c"])

    a, b, c = virtually(story)
    assert (a is not None, b, c is not None) == (True, None, True)


def test_what_was_handed_in_is_not_called_unwritten_by_a_writer_that_has_no_room():
    """It lost against another, handed its batch in, and could not write itself: the other may, later."""

    async def story(clock):
        bucket = InMemory(clock)
        full = Full(clock)
        full.objects = bucket.objects
        async with opened(full, clock) as store, opened(bucket, clock) as other:
            await insert(other, new_job("a"))
            await store.get(["a"])
            store._shared.engine._writer._lost_at = asyncio.get_running_loop().time()
            full.full = True
            with pytest.raises(HoldfastError) as raised:
                await insert(store, new_job("b"))
            for _ in range(2 * ALONE):
                await other.put_record("config", "tick", b"0")
            return raised.type, (await other.get(["b"]))[0]

    raised, b = virtually(story)
    assert b is not None, "it was not adopted: the test shows nothing"
    assert raised is OutcomeUnknown


class Late(InMemory):
    """The first put is made long after its sender gave up; the second finds a full disk."""

    puts = 0

    async def put_if_absent(self, key, data):
        self.puts += key.startswith("log/")
        if self.puts == 1:
            made = super().put_if_absent(key, data)
            self.making = asyncio.create_task(_later(made))
            raise TimeoutError
        if self.puts == 2:
            raise NotWritten(f"{key} cannot be written: no space left")
        return await super().put_if_absent(key, data)


async def _later(made):
    await asyncio.sleep(0.08)
    await made


def test_a_full_disk_at_a_second_put_leaves_the_first_unknown():
    async def story(clock):
        async with opened(Late(clock), clock) as store:
            await insert(store, new_job("a"))
            return (await store.get(["a"]))[0]

    assert virtually(story) is not None
