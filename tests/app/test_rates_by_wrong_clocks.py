"""A rate on a store without a clock of its own: a process whose clock is ahead does not hold the others up for long."""

from __future__ import annotations

import pytest

from holdfast.core.clock import MICROS
from holdfast.core.job import LimitKey
from holdfast.core.waiting import Waiting
from holdfast.store.bucket.folder import Folder
from holdfast.store.bucket.store import BucketStore
from holdfast.store.sqlite import SqliteStore
from holdfast.testing.build import new_job
from holdfast.testing.clock import ManualClock
from holdfast.testing.verbs import claim, insert, job
from support.eventually import eventually

AHEAD = 26 * 3600.0
SPAN = 20.0
"""Seconds for which nothing starts before the rate lets another job start, by any clock."""
LIMIT_KEY = LimitKey("rated", interval=10 * MICROS, burst=2)
STORES = {
    "sqlite": lambda folder, clock: SqliteStore(folder / "queue.db", clock=clock),
    "folder": lambda folder, clock: BucketStore(Folder(folder / "jobs"), clock=clock),
}


@pytest.fixture(params=STORES)
def make(request, tmp_path):
    return lambda clock: STORES[request.param](tmp_path, clock)


@pytest.fixture
async def two(make):
    """A store by a right clock, and the same one by a clock that is ahead."""
    clocks = ManualClock(), ManualClock()
    clocks[1].jump_wall(AHEAD)
    stores = [make(clock) for clock in clocks]
    for store in stores:
        await store.open()
    yield *stores, clocks[0]
    for store in reversed(stores):
        await store.close()


async def held_by_the_rate(right, ahead):
    """A job that a rate holds, after the process whose clock is ahead has started two."""
    await insert(right, *(new_job(name, limit_key=LIMIT_KEY) for name in ("a", "b", "c")))

    async def has_two():
        return [each.id for each in await claim(ahead, "ahead", limit=2)] == ["a", "b"]

    await eventually(has_two)
    assert await claim(ahead, "ahead") == []

    async def holds():
        assert await claim(right, "right") == []
        return (await job(right, "c")).waiting_for == Waiting("limit", "rated")

    await eventually(holds)


async def test_a_rate_goes_on_once_nothing_has_started_for_as_long_as_it_asks(two):
    right, ahead, clock = two
    await held_by_the_rate(right, ahead)
    await right.tidy(100)
    clock.advance(SPAN)
    await right.tidy(100)
    assert [each.id for each in await claim(right, "right")] == ["c"]


async def test_a_rate_is_kept_until_then(two):
    right, ahead, clock = two
    await held_by_the_rate(right, ahead)
    await right.tidy(100)
    clock.advance(SPAN - 1)
    await right.tidy(100)
    assert await claim(right, "right") == []
