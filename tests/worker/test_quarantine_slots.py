"""A quarantined job runs apart from sound jobs: a worker that is busy makes room for it."""

import asyncio

from holdfast import Holdfast, State
from holdfast.store.protocol import Batch
from holdfast.store.reference.memory import MemoryStore
from holdfast.testing import build
from support.eventually import eventually, still
from support.workers import working


async def test_a_busy_worker_takes_no_more_until_a_quarantined_has_run():
    store, ran, go_on = MemoryStore(), [], asyncio.Event()
    async with Holdfast(store) as app:

        @app.task
        async def work(name: str) -> None:
            ran.append(name)
            if name == "long":
                await go_on.wait()

        await work.enqueue("long")
        later = await work.using(delay=3600).enqueue("quarantined")
        async with working(app, concurrency=2, lease=60.0, poll=0.01):
            await eventually(lambda: ran == ["long"])
            [seen] = await store.get([later.id])
            await store.write(Batch(changes=[build.change(seen, state=State.QUEUED, delay=0.0, quarantined=True)]))
            await app.enqueue_many([work.call(f"sound {n}") for n in range(3)])
            # The claim that meets the quarantined job may take a sound job beside it; the quarantined job is next.
            await still(lambda: len(ran) <= 2 and "quarantined" not in ran)
            go_on.set()
            await eventually(lambda: len(ran) == 5)
    assert ran.index("quarantined") in (1, 2)
