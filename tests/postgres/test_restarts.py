"""The server killed with SIGKILL and started again under load: every acknowledged job finishes once.

HOLDFAST_KILLS=50 for the long version.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter

import asyncpg
import pytest

from holdfast import Holdfast, HoldfastError, Worker
from support.eventually import eventually
from support.postgres import DURABLE, PostgresServer, installed

KILLS = int(os.environ.get("HOLDFAST_KILLS", "3"))


@pytest.fixture
def durable():
    if not installed():
        pytest.skip("no Postgres binaries")
    server = PostgresServer(options=DURABLE).start()
    yield server
    server.remove()


@pytest.mark.timeout(300 + 20 * KILLS)
async def test_every_acknowledged_job_finishes_once_though_the_server_is_killed(durable):
    app = Holdfast(durable.url, poll=0.2, lease=4.0)
    ran: Counter[int] = Counter()

    @app.task(max_attempts=1000)
    async def work(n: int) -> None:
        ran[n] += 1

    acknowledged: dict[str, int] = {}
    stop = asyncio.Event()

    async def enqueue() -> None:
        n = 0
        while not stop.is_set():
            n += 1
            try:
                handles = await asyncio.gather(*(work.using(id=f"job-{n}-{k}").enqueue(n) for k in range(5)))
            except HoldfastError:
                await asyncio.sleep(0.05)
                continue
            acknowledged.update({handle.id: n for handle in handles})
            await asyncio.sleep(0.005)

    async with app:
        worker = Worker(app, concurrency=20)
        working = asyncio.create_task(worker.run())
        enqueuing = asyncio.create_task(enqueue())
        for _ in range(KILLS):
            await asyncio.sleep(0.7)
            await asyncio.to_thread(durable.kill)
            await asyncio.to_thread(durable.start)
            before = sum(ran.values())
            # Workers resume within seconds, without a restart.
            await eventually(lambda before=before: sum(ran.values()) > before, 15)
        stop.set()
        await enqueuing

        async def all_ended():
            counts = (await app.stats()).counts
            return not counts.get("queued", 0) + counts.get("running", 0)

        await eventually(all_ended, 40)
        worker.stop()
        await working
        connection = await asyncpg.connect(durable.url)
        rows = dict(await connection.fetch("SELECT id, state FROM holdfast.ended"))
        await connection.close()
    assert len(acknowledged) > 50
    lost = [id for id in acknowledged if rows.get(id) != "succeeded"]
    assert lost == []
