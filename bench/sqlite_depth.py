"""What a job costs at a given depth, in Holdfast's SQLite store and in the raw loop on the same file.

Each round tops the queue up by 1,000 jobs (not measured), then claims and settles 1,000 in batches of 100 (measured),
so that the depth never falls below the one asked for.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterable, Iterator
from typing import Any

from holdfast.core.clock import fresh_entropy
from holdfast.core.job import NewJob, Record
from holdfast.core.lifecycle import Outcome, settle
from holdfast.core.operations import Ask, Holder, Settlement
from holdfast.core.settings import Settings
from holdfast.store.protocol import Batch
from holdfast.store.sqlite import SqliteStore

from . import child, raw

ROUND, BATCH = 1000, 100
PATH = os.environ["BENCH_FILE"]
entropy = fresh_entropy()
RULES = Settings().rules


def fill(depth: int) -> dict[str, Any]:
    """Bring the queue to a depth, through the store."""

    async def run() -> None:
        store = SqliteStore(PATH)
        await store.open()
        waiting = sum(queue.counts.get("queued", 0) for queue in await store.stats())
        for start in range(waiting, depth, ROUND):
            await store.write(Batch(inserts=list(_jobs(min(ROUND, depth - start)))))
        await store.close()

    asyncio.run(run())
    return {"jobs": depth}


def _jobs(count: int) -> Iterator[NewJob]:
    now = time.time_ns() // 1000
    return (NewJob(entropy.uuid7(now), "nothing", "default", raw.PAYLOAD) for _ in range(count))


def holdfast(rounds: int) -> dict[str, Any]:
    return asyncio.run(_holdfast(rounds))


async def _holdfast(rounds: int) -> dict[str, Any]:
    store = SqliteStore(PATH)
    await store.open()
    holder = Holder("bench:depth", 3600.0)
    took = 0.0
    for _ in range(rounds):
        await store.write(Batch(inserts=list(_jobs(ROUND))))
        ends: list[Settlement] = []
        for turn in range(ROUND // BATCH + 1):
            asks = [Ask(holder, ("default",), BATCH, entropy.token())] if turn < ROUND // BATCH else []
            batch = Batch(settles=ends, asks=asks)
            start = time.perf_counter()
            answers = await store.write(batch)
            took += time.perf_counter() - start
            assert all(answers.settles)
            ends = list(_ends(answers.asks[0].records)) if asks else []
            assert len(ends) == (BATCH if asks else 0)
    await store.leave([holder.id])
    await store.close()
    return {"seconds": took, "jobs": rounds * ROUND}


def _ends(records: Iterable[Record]) -> Iterator[Settlement]:
    for record in records:
        yield settle(record, Outcome.succeeded(b"1"), RULES, nonce=entropy.token(), fraction=0.0)


def raw_loop(rounds: int) -> dict[str, Any]:
    connection = raw.connect()
    took = 0.0
    for _ in range(rounds):
        raw.insert(connection, raw.rows(ROUND), ROUND)
        took += raw.drain(connection, ROUND)[1]
    connection.close()
    return {"seconds": took, "jobs": rounds * ROUND}


if __name__ == "__main__":
    child.serve({"fill": fill, "holdfast": holdfast, "raw": raw_loop})
