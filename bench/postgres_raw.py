"""The raw loop on Postgres: asyncpg on the very tables and indexes of Holdfast's store, with nothing around it.

It promises nothing: no leases, no fences, no history, no errors. It is the ceiling that Holdfast is measured against.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Callable
from typing import Any

import asyncpg
import psycopg

from holdfast.core.clock import fresh_entropy
from holdfast.store.postgres import PostgresStore
from holdfast.store.protocol import Batch
from holdfast.testing.build import ask, holder, succeeded

from . import child

BATCH = 100
NEW = ("default", "nothing", b"{}", 5)
"""What every job says, bound as any program binds what it writes."""
BLOCKING_NAMES = ("id", "queue", "task", "payload", "max_attempts", "now")
"""What psycopg calls $1 to $6 of ONE."""
ONE = """
INSERT INTO holdfast.job (seq, id, queue, task, state, priority, run_at, payload, codec, max_attempts, created_at)
VALUES (nextval('holdfast.job_seq'), $1, $2, $3, 'queued', 0, $6, $4, 'json', $5, $6)
"""
MANY = """
INSERT INTO holdfast.job (seq, id, queue, task, state, priority, run_at, payload, codec, max_attempts, created_at)
SELECT nextval('holdfast.job_seq'), u.id, $2, $3, 'queued', 0, $6, u.payload, 'json', $5, $6
FROM unnest($1::text[], $4::bytea[]) AS u(id, payload)
"""
CLAIM = """
UPDATE holdfast.job SET state = 'running', attempt = attempt + 1, fence = fence + 1, holder = 'raw', started_at = 1
WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM holdfast.job WHERE gen = 1 AND queue = 'default' AND quarantined = false AND state = 'queued'
    ORDER BY priority, run_at, seq LIMIT 100 FOR UPDATE SKIP LOCKED))
RETURNING seq, task, payload
"""
COMPLETE = "UPDATE holdfast.job SET state = 'succeeded', result = '1', finished_at = 1 WHERE seq = ANY ($1)"


async def _open() -> asyncpg.Connection:
    store = PostgresStore(os.environ["BENCH_URL"])
    await store.open()
    await store.close()
    connection = await asyncpg.connect(os.environ["BENCH_URL"])
    await connection.execute("SET enable_sort = off; SET enable_bitmapscan = off; SET enable_seqscan = off")
    return connection


def _ids(count: int) -> list[str]:
    now, entropy = _now(), fresh_entropy()
    return [entropy.uuid7(now + number) for number in range(count)]


def _now() -> int:
    return time.time_ns() // 1000


async def _insert_many(statement: Any, ids: list[str]) -> None:
    queue, task, payload, attempts = NEW
    await statement.fetch(ids, queue, task, [payload] * len(ids), attempts, _now())


def enqueue(count: int, per_transaction: int) -> dict[str, Any]:
    async def run() -> float:
        connection = await _open()
        one, many = await connection.prepare(ONE), await connection.prepare(MANY)
        for id in _ids(50):
            await one.fetch(id, *NEW, _now())
        new = _ids(count)
        child.wait_for_go()
        start = time.perf_counter()
        if per_transaction == 1:
            for id in new:
                await one.fetch(id, *NEW, _now())
        else:
            for at in range(0, count, per_transaction):
                await _insert_many(many, new[at : at + per_transaction])
        took = time.perf_counter() - start
        await connection.close()
        return took

    return {"seconds": asyncio.run(run()), "jobs": count}


def enqueue_blocking(count: int) -> dict[str, Any]:
    """One `INSERT` per commit by psycopg, without an event loop."""
    statement = re.sub(r"\$(\d)", lambda found: f"%({BLOCKING_NAMES[int(found[1]) - 1]})s", ONE)

    async def make() -> None:
        await (await _open()).close()

    asyncio.run(make())
    with psycopg.connect(os.environ["BENCH_URL"], autocommit=True) as connection, connection.cursor() as cursor:

        def insert(ids: list[str]) -> None:
            for id in ids:
                cursor.execute(statement, dict(zip(BLOCKING_NAMES, (id, *NEW, _now()), strict=True)), prepare=True)

        insert(_ids(50))
        new = _ids(count)
        child.wait_for_go()
        start = time.perf_counter()
        insert(new)
        return {"seconds": time.perf_counter() - start, "jobs": count}


def payloads(count: int, size: int) -> dict[str, Any]:
    """Large jobs, one per commit."""
    text = child.text(size).encode()
    queue, task, _, attempts = NEW

    async def run() -> float:
        connection = await _open()
        one, ids = await connection.prepare(ONE), _ids(count)
        child.wait_for_go()
        start = time.perf_counter()
        for id in ids:
            await one.fetch(id, queue, task, text, attempts, _now())
        took = time.perf_counter() - start
        child.wait_for_go()
        await connection.close()
        return took

    return {"seconds": asyncio.run(run())}


def work(count: int) -> dict[str, Any]:
    async def run() -> tuple[int, float]:
        connection = await _open()
        new, many = _ids(count), await connection.prepare(MANY)
        for at in range(0, count, 1000):
            await _insert_many(many, new[at : at + 1000])
        claim, complete = await connection.prepare(CLAIM), await connection.prepare(COMPLETE)
        child.wait_for_go()
        done, start = 0, time.perf_counter()
        while rows := await claim.fetch():
            await complete.fetch([row[0] for row in rows])
            done += len(rows)
        took = time.perf_counter() - start
        await connection.close()
        return done, took

    done, took = asyncio.run(run())
    return {"seconds": took, "jobs": done}


def depth(depth: int, rounds: int) -> dict[str, Any]:
    """Claim and settle through the store itself, at a depth that stays, in a table that was never analysed."""

    async def run() -> float:
        store = PostgresStore(os.environ["BENCH_URL"])
        await store.open()
        connection = await asyncpg.connect(os.environ["BENCH_URL"])
        await connection.execute("ALTER TABLE holdfast.job SET (autovacuum_enabled = off)")
        new, many = _ids(depth + 1000 * rounds), await connection.prepare(MANY)
        for at in range(0, len(new), 10_000):
            await _insert_many(many, new[at : at + 10_000])
        me, records = holder("me", 600.0), []
        child.wait_for_go()
        start = time.perf_counter()
        for _ in range(rounds * 1000 // BATCH):
            ends = [succeeded(record) for record in records]
            records = (await store.write(Batch(settles=ends, asks=[ask(me, limit=BATCH)]))).asks[0].records
        took = time.perf_counter() - start
        await connection.close()
        await store.close()
        return took

    return {"seconds": asyncio.run(run()), "jobs": rounds * 1000}


if __name__ == "__main__":
    commands: dict[str, Callable[..., dict[str, Any]]] = {
        "enqueue": enqueue,
        "enqueue_blocking": enqueue_blocking,
        "payloads": payloads,
        "work": work,
        "depth": depth,
    }
    child.serve(commands)
