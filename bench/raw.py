"""The raw loop: Python's sqlite3 on the very tables and indexes of Holdfast's store, with nothing around it.

It promises nothing: no leases, no fences, no errors, one writer. It is the ceiling that Holdfast is measured against.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from typing import Any

from holdfast.core.clock import fresh_entropy
from holdfast.store.sqlite import SqliteStore

from . import child

PAYLOAD = b"{}"
BATCH = 100
WEEK = 7 * 86400 * 1_000_000

INSERT = """
INSERT INTO holdfast_job (id, queue, task, state, priority, run_at, payload, codec, max_attempts, created_at)
VALUES (?, 'default', 'nothing', 'queued', 0, ?, ?, 'json', 5, ?)
"""
CLAIM = """
UPDATE holdfast_job SET state = 'running', attempt = attempt + 1, fence = fence + 1, holder = ?, token = ?,
    started_at = ?
WHERE seq IN (
    SELECT seq FROM holdfast_job INDEXED BY holdfast_ready
    WHERE queue = 'default' AND state = 'queued' AND quarantined = 0 ORDER BY priority, run_at, seq LIMIT ?)
RETURNING seq, task, payload
"""
COMPLETE = "UPDATE holdfast_job SET state = 'succeeded', result = ?, finished_at = ?, expires_at = ? WHERE seq = ?"

Row = tuple[str, int, bytes, int]


def connect() -> sqlite3.Connection:
    """A connection to a file that Holdfast made, as durable as Holdfast's own and with as much cache."""

    path = os.environ["BENCH_FILE"]

    async def make() -> None:
        store = SqliteStore(path)
        await store.open()
        await store.close()

    asyncio.run(make())
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA cache_size = -16000")
    return connection


def rows(count: int) -> list[Row]:
    now, entropy = time.time_ns() // 1000, fresh_entropy()
    return [(entropy.uuid7(now + number), now, PAYLOAD, now) for number in range(count)]


def insert(connection: sqlite3.Connection, new: list[Row], per_transaction: int) -> float:
    """Seconds that it took."""
    start = time.perf_counter()
    if per_transaction == 1:
        for row in new:
            connection.execute(INSERT, row)
    else:
        for at in range(0, len(new), per_transaction):
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(INSERT, new[at : at + per_transaction])
            connection.execute("COMMIT")
    return time.perf_counter() - start


def drain(connection: sqlite3.Connection, limit: int) -> tuple[int, float]:
    """Complete the last hundred and claim the next in each transaction; jobs done, and seconds that it took."""
    done, held = 0, list[tuple[int, str, bytes]]()
    start = time.perf_counter()
    while True:
        now = time.time_ns() // 1000
        connection.execute("BEGIN IMMEDIATE")
        if held:
            connection.executemany(COMPLETE, [(b"1", now, now + WEEK, seq) for seq, _, _ in held])
        claimed = min(BATCH, limit - done - len(held))
        done += len(held)
        held = connection.execute(CLAIM, ("raw", 1, now, claimed)).fetchall() if claimed else []
        connection.execute("COMMIT")
        if not held:
            return done, time.perf_counter() - start


def enqueue(count: int, per_transaction: int) -> dict[str, Any]:
    connection = connect()
    insert(connection, rows(50), 1)
    new = rows(count)
    child.wait_for_go()
    took = insert(connection, new, per_transaction)
    connection.close()
    return {"seconds": took, "jobs": count}


def payloads(count: int, size: int) -> dict[str, Any]:
    """Large jobs, one per transaction."""
    connection = connect()
    text = child.text(size).encode()
    new = [(id, at, text, now) for id, at, _, now in rows(count)]
    child.wait_for_go()
    took = insert(connection, new, 1)
    child.wait_for_go()
    connection.close()
    return {"seconds": took}


def work(count: int) -> dict[str, Any]:
    connection = connect()
    insert(connection, rows(count), 1000)
    child.wait_for_go()
    done, took = drain(connection, count)
    connection.close()
    return {"seconds": took, "jobs": done}


if __name__ == "__main__":
    child.serve({"enqueue": enqueue, "payloads": payloads, "work": work})
