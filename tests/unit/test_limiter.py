"""The rules of a limit key, alone: how far back a position may lie, and when to check deferred jobs again."""

import pytest

from holdfast.core.clock import MICROS
from holdfast.core.job import LimitKey
from holdfast.core.limiter import LAG, LOOK_AGAIN, STEP, Limiter
from holdfast.store.reference.memory import MemoryStore
from holdfast.store.sqlite import SqliteStore
from holdfast.testing.build import new_job, succeeded
from holdfast.testing.clock import ManualClock
from holdfast.testing.verbs import claim, claim_one, insert, settle

NOW = 10 * LAG
FAIR = LimitKey("a", weight=1)


def test_a_new_limit_key_starts_at_the_head_of_its_queue():
    assert Limiter().position(FAIR, (NOW - 5, NOW), NOW) == NOW - 5


def test_a_position_is_at_most_a_day_in_the_past():
    """Else jobs without a limit key, and those that come back, would wait while new keys come faster than they go."""
    assert Limiter().position(FAIR, (NOW - 2 * LAG, NOW), NOW) == NOW - LAG


@pytest.mark.parametrize(("weight", "other"), [(1, 2), (30, 31), (50, 100)])
def test_weights_differ_in_their_steps(weight, other):
    steps = []
    for one in (weight, other):
        limiter, limit_key = Limiter(), LimitKey("a", weight=one)
        first = limiter.position(limit_key, (NOW, NOW + STEP), NOW)
        steps.append(limiter.position(limit_key, (NOW, NOW + STEP), NOW) - first)
    assert steps[0] > steps[1]


def test_a_limit_key_that_is_not_full_is_looked_at_again():
    assert Limiter().next_look(LimitKey("a", concurrency=2), 1, NOW) == NOW + LOOK_AGAIN
    assert Limiter().next_look(LimitKey("a", concurrency=2), 2, NOW) is None
    assert Limiter().next_look(LimitKey("a", concurrency=2, interval=7), 1, NOW) == NOW + 7


@pytest.mark.parametrize(
    "make", [lambda _, clock: MemoryStore(clock), lambda path, clock: SqliteStore(path, clock=clock)]
)
async def test_a_limit_key_continues_although_its_released_job_is_in_a_paused_queue(tmp_path, make):
    clock = ManualClock()
    store = make(str(tmp_path / "jobs.db"), clock)
    await store.open()
    try:
        jobs = [
            new_job(id, queue=id[0], limit_key=LimitKey("a", concurrency=1)) for id in ("open-1", "paused", "open-2")
        ]
        await insert(store, *jobs)
        first = await claim_one(store, "ann", "o", "p")
        assert await claim(store, "ann", "o", "p", limit=9) == []
        await store.put_record("pause", "p", b"{}", 0)
        await settle(store, succeeded(first))
        assert await claim(store, "ann", "o", "p") == []
        clock.advance(LOOK_AGAIN / MICROS + 1)
        assert (await claim_one(store, "ann", "o", "p")).id == "open-2"
    finally:
        await store.close()
