"""`holdfast migrate` and `holdfast doctor` on Postgres."""

from __future__ import annotations

import asyncio
import sys


async def holdfast(*words, url, code=0):
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "holdfast", *words, "--url", url),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said = (await process.communicate())[0].decode()
    assert code is None or process.returncode == code, said
    return said


async def test_migrate_says_what_is_missing_and_brings_it(url):
    assert "Missing schema versions: 1" in await holdfast("migrate", "--check", url=url, code=1)
    assert "Applied version 1" in await holdfast("migrate", url=url)
    assert "up to date" in await holdfast("migrate", "--check", url=url)


async def test_the_dumped_sql_makes_the_schema(url, schema, sql):
    await sql.execute(await holdfast("migrate", "--dump-sql", url=url))
    assert "up to date" in await holdfast("migrate", "--check", url=url)


async def test_doctor_reports_dead_rows_old_snapshots_and_a_missing_index(url, schema, sql, store):
    report = await holdfast("doctor", url=url, code=None)
    assert "dead rows" in report
    assert "transaction" in report or "snapshot" in report
    await sql.execute(f'DROP INDEX "{schema}".job_due')
    assert "job_due" in await holdfast("doctor", url=url, code=1)
