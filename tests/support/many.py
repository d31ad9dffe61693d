"""A store with very many jobs, written by SQL: a million that have ended, and a tenth as many that wait."""

from __future__ import annotations

import sqlite3
import time

COLUMNS = (
    "seq, id, queue, task, state, priority, run_at, payload, codec, max_attempts, created_at, attempt, fence, "
    "started_at, finished_at, expires_at, result, error"
)
QUEUE = "CASE WHEN i % 10 = 0 THEN 'mail' WHEN i % 1000 = 7 THEN 'rare' ELSE 'default' END"
TASK = "CASE WHEN i % 3 = 0 THEN 'send_mail' ELSE 'resize' END"
STATE = "CASE WHEN i % 200 = 0 THEN 'dead' ELSE 'succeeded' END"
ERROR = "CASE WHEN i % 200 = 0 THEN 'ValueError: order ' || i || ' has no address' END"
EVERY = 5000
"""Microseconds between two jobs."""


def _values(now: int, total: int, payload: str, ended: bool) -> str:
    at = f"({now} - ({total} - i) * {EVERY})"
    common = f"i + 10, 'job-' || i, {QUEUE}, {TASK}"
    text = """'{"picture": "picture-' || i || '.raw", "size": ' || (i % 5000) || '}'"""
    body = payload.format(text)
    if ended:
        result = payload.format("'null'")
        times = f"1, 1, {at} + 1000, {at} + 2000, {now} + 604800000000, {result}, {ERROR}"
        return f"SELECT {common}, {STATE}, 0, {at}, {body}, 'json', 5, {at}, {times}"
    return f"SELECT {common}, 'queued', 0, {at}, {body}, 'json', 5, {at}, 0, 0, NULL, NULL, NULL, NULL, NULL"


def fill_sqlite(path: str, ended: int, queued: int) -> None:
    now, total = int(time.time() * 1e6), ended + queued
    series = "WITH RECURSIVE n(i) AS (SELECT {0} UNION ALL SELECT i + 1 FROM n WHERE i < {1})"
    with sqlite3.connect(path) as connection:
        for first, last, over in ((1, ended, True), (ended + 1, total, False)):
            values = _values(now, total, "CAST({} AS BLOB)", over)
            made = f"INSERT INTO holdfast_job ({COLUMNS}) {values} FROM n"
            connection.execute(f"{series.format(first, last)} {made}")
        connection.execute("DELETE FROM holdfast_ended")
        connection.execute(
            "INSERT INTO holdfast_ended SELECT queue, state, count(*) FROM holdfast_job "
            "WHERE state IN ('succeeded', 'dead', 'cancelled') GROUP BY queue, state"
        )
    connection.close()


async def fill_postgres(url: str, schema: str, ended: int, queued: int) -> None:
    import asyncpg

    now, total = int(time.time() * 1e6), ended + queued
    connection = await asyncpg.connect(url)
    try:
        for table, first, last in (("ended", 1, ended), ("job", ended + 1, total)):
            values = _values(now, total, "convert_to({}, 'UTF8')", table == "ended")
            numbers = f"generate_series({first}::bigint, {last}) AS n(i)"
            await connection.execute(f'INSERT INTO "{schema}".{table} ({COLUMNS}) {values} FROM {numbers}')
        await connection.execute(f"SELECT setval('\"{schema}\".job_seq', {total + 100})")
        await connection.execute(f'ANALYZE "{schema}".job; ANALYZE "{schema}".ended')
    finally:
        await connection.close()
