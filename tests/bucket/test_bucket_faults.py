"""Seeded schedules of every fault that a bucket, a machine or an operator can think of: nothing lost, nothing twice.

HOLDFAST_ROUNDS and HOLDFAST_SEED make longer runs and repeat one; a failing round names its seed.
"""

from __future__ import annotations

import logging
import os
import random

import pytest
from fleet import World

from holdfast.store.bucket.log import Log
from support.virtual import run_virtually

ROUNDS = int(os.environ.get("HOLDFAST_ROUNDS", "8"))
_SEED = os.environ.get("HOLDFAST_SEED")


@pytest.fixture(autouse=True)
def quiet():
    """A hostile bucket is what these tests are about; its troubles need no telling."""
    logging.getLogger("holdfast").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("holdfast").setLevel(logging.NOTSET)


def seeds():
    first = int(_SEED) if _SEED else random.SystemRandom().randrange(2**32)
    return [first + n for n in range(1 if _SEED and ROUNDS == 8 else ROUNDS)]


def run(seed, **options):
    world = World(seed, **options)
    try:
        run_virtually(world.run(), world.loop)
    except Exception as error:
        raise AssertionError(f"HOLDFAST_SEED={seed}: {error}") from error
    return world


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_nothing_is_lost_and_nothing_is_finished_twice():
    operations = faults = 0
    for seed in seeds():
        world = run(seed)
        assert world.acknowledged
        operations += world.operations
        faults += sum(world.bucket.faults.values()) + world.pauses + world.crashes
    print(f"{ROUNDS} schedules, {operations} operations, {faults} faults")


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_without_the_guard_jobs_are_lost():
    """The test above can fail: without the proof of head, a writer that slept wins a number that was cleaned away."""

    async def believe(self, *_):
        return None

    for seed in range(1, 200):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Log, "believable", True)
            patch.setattr(Log, "verify", believe)
            try:
                run(seed, sleepers=True)
            except AssertionError as error:
                lost = str(error)
                break
    else:
        pytest.fail("200 schedules without a guard, and nothing was lost")
    assert "acknowledged and" in lost
    run(seed, sleepers=True)
