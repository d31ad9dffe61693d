"""A thousand keys, one of which has very many jobs: the others start and end as if it were not there."""

from __future__ import annotations

import os

import pytest

from holdfast import Holdfast, Worker, limit

KEYS = 1000
MANY = int(os.environ.get("HOLDFAST_MANY", "3000"))
"""Jobs of the one key; 100,000 is what the promise is held to."""
EACH = 2
SLOTS = 10


@pytest.mark.timeout(300 + MANY / 100)
@pytest.mark.parametrize("running", [None, 2], ids=["any number of a key run", "two of a key run"])
async def test_a_key_with_very_many_jobs_does_not_delay_the_others(store_url, running):
    app = Holdfast(store_url, concurrency=SLOTS)
    others = [tenant for _ in range(EACH) for tenant in range(1, KEYS)]
    begun: list[int] = []
    left = 0

    @app.task(limit=limit(key="tenant", concurrency=running))
    async def work(tenant: int) -> None:
        nonlocal left
        begun.append(tenant)
        left -= tenant != 0
        if left == 0:
            worker.stop()

    async with app:
        starts = {}
        for many in (0, MANY):
            begun.clear()
            left = len(others)
            await app.enqueue_many([(work, 0)] * many)
            await app.enqueue_many([(work, tenant) for tenant in others])
            worker = Worker(app)
            await worker.run()
            starts[many] = len(begun)
    ratio = starts[MANY] / starts[0]
    print(f"{starts[0]} starts for the others alone, {starts[MANY]} beside a key with {MANY}: {ratio:.3f}")
    # A fair share is as many as each of the others has; what is claimed at one time may stand in any order.
    assert starts[MANY] - starts[0] <= EACH + 2 * SLOTS
    assert ratio <= 1.1
