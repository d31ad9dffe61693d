"""Leases without a shared clock: watched by all running processes together, and not during an outage."""

from __future__ import annotations

import asyncio

import pytest
from alone import opened, virtually, watch
from delayed import InMemory

from holdfast.core.errors import StoreUnavailable
from holdfast.store.bucket.protocol import NotWritten
from holdfast.testing.build import holder, new_job, swept
from holdfast.testing.verbs import claim_one, insert, settle

LEASE = 30.0


def test_short_lived_processes_find_an_expired_lease_together():
    async def story(clock):
        bucket = InMemory(clock)
        async with opened(bucket, clock) as store:
            await insert(store, new_job("a"))
            await claim_one(store, holder("dead", LEASE))
        began = clock.monotonic()
        for _ in range(100):
            async with opened(bucket, clock) as store:
                if lost := await watch(store, 5):
                    assert await settle(store, swept(lost[0]))
                    break
            await asyncio.sleep(3.0)
        return clock.monotonic() - began

    assert LEASE <= virtually(story) <= 3 * LEASE


def test_a_holder_that_heartbeats_is_never_found_dead():
    async def story(clock):
        bucket = InMemory(clock)
        async with opened(bucket, clock) as alive, opened(bucket, clock) as other:
            await insert(alive, new_job("a"))
            await claim_one(alive, holder("ann", LEASE))
            for _ in range(40):
                assert await watch(other, 10) == []
                await alive.heartbeat([holder("ann", LEASE)])

    virtually(story)


def test_a_holder_that_left_and_comes_back_is_alive():
    """Its heartbeat numbers start again: the time watched before does not count."""

    async def story(clock):
        bucket = InMemory(clock)
        async with opened(bucket, clock) as store:
            await store.heartbeat([holder("ann", LEASE)])
            await watch(store, LEASE - 5)
        async with opened(bucket, clock) as store:
            await store.leave(["ann"])
            await store.heartbeat([holder("ann", LEASE)])
            await watch(store, 10)
            return await store.holders()

    [ann] = virtually(story)
    assert ann.alive


class Outage(InMemory):
    over = False

    async def get(self, key):
        if self.over:
            raise OSError("no route to host")
        return await super().get(key)


def test_an_outage_ends_no_lease():
    async def story(clock):
        bucket = Outage(clock)
        async with opened(bucket, clock) as store:
            await insert(store, new_job("a"))
            await claim_one(store, holder("ann", LEASE))
            assert await watch(store, 10) == []
            bucket.over = True
            for _ in range(100):
                await asyncio.sleep(1.0)
                try:
                    await store.expired(9)
                except StoreUnavailable:
                    continue
                raise AssertionError("it answered")
            bucket.over = False
            assert await store.expired(9) == []
            assert await watch(store, 15) == []
            assert len(await watch(store, 15)) == 1

    virtually(story)


class Full(InMemory):
    is_full = False

    async def put_if_absent(self, key, data):
        if self.is_full:
            raise NotWritten("No space left on device; nothing was written")
        return await super().put_if_absent(key, data)


def test_a_disk_that_can_be_read_but_not_written_ends_no_lease():
    async def story(clock):
        bucket = Full(clock)
        async with opened(bucket, clock) as store, opened(bucket, clock) as other:
            await insert(store, new_job("a"))
            await claim_one(store, holder("ann", LEASE))
            for _ in range(2):
                bucket.is_full = True
                for _ in range(round(2 * LEASE)):
                    await asyncio.sleep(1.0)
                    await other.expired(9)
                    with pytest.raises(StoreUnavailable):
                        await other.heartbeat([holder("bob", LEASE)])
                bucket.is_full = False
                await other.heartbeat([holder("bob", LEASE)])
                assert await watch(other, 15) == []
                await store.heartbeat([holder("ann", LEASE)])
            assert len(await watch(other, LEASE + 5)) == 1

    virtually(story)
