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
    ran: list[int] = []
    left = others = (KEYS - 1) * EACH

    @app.task(limit=limit(key="tenant", running=running))
    async def work(tenant: int) -> None:
        nonlocal left
        ran.append(tenant)
        if tenant:
            left -= 1
            if left == 0:
                worker.stop()

    worker = Worker(app)
    async with app:
        await app.enqueue_many([(work, 0)] * MANY)
        await app.enqueue_many([(work, tenant) for _ in range(EACH) for tenant in range(1, KEYS)])
        await worker.run()
    delayed_by = ran.count(0)
    print(f"{delayed_by} jobs of the key with {MANY} began before the last of {others} others ended")
    # A fair share is as many as each of the others has; what is claimed at one time may stand in any order.
    assert delayed_by <= EACH + 2 * SLOTS
    assert delayed_by < others / 10
