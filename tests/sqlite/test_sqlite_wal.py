"""The write-ahead log stays short with any writers and readers."""

import sqlite3

import pytest

from holdfast.store.protocol import Batch
from holdfast.store.sqlite.connection import WAL_LIMIT
from holdfast.testing.build import ask, new_job, succeeded
from holdfast.testing.verbs import enqueue

PAYLOAD = b'"' + b"x" * 1000 + b'"'
ENQUEUE = """
import asyncio, sys
from holdfast.store.protocol import Batch
from holdfast.store.sqlite import SqliteStore
from holdfast.testing.build import new_job

async def main(path, name, rounds):
    store = SqliteStore(path, synchronous="normal")
    await store.open()
    for turn in range(rounds):
        await store.write(Batch(inserts=[new_job(f"{name}-{turn}-{n}", payload=b"x" * 1000) for n in range(100)]))
    await store.close()

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""


def wal(path):
    return path.with_name(path.name + "-wal").stat().st_size


async def test_the_log_is_begun_anew_under_load(path, open_store):
    store = await open_store(synchronous="normal")
    largest, ends = 0, []
    for turn in range(250):
        jobs = [new_job(f"{turn}-{number}", payload=PAYLOAD) for number in range(100)]
        answers = await store.write(Batch(inserts=jobs, settles=ends, asks=[ask(limit=100)]))
        ends = [succeeded(record) for record in answers.asks[0].records]
        largest = max(largest, wal(path))
    assert largest < 2 * WAL_LIMIT
    assert path.stat().st_size > 5 * WAL_LIMIT


@pytest.mark.extended
async def test_the_log_is_begun_anew_with_several_writers(path, open_store, python):
    store = await open_store(synchronous="normal")
    writers = [python(ENQUEUE, path, name, 170) for name in "abc"]
    largest = 0
    # Somebody who reads all the time is in the log nearly all the time.
    while any(writer.poll() is None for writer in writers):
        await store.stats()
        largest = max(largest, wal(path))
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    assert largest < 8 * WAL_LIMIT
    assert path.stat().st_size > 12 * WAL_LIMIT
    assert (await store.stats())[0].counts == {"queued": 51_000}


async def test_a_reader_that_stays_only_postpones_it(path, open_store):
    store = await open_store(synchronous="normal")
    await enqueue(store)
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM holdfast_job").fetchone()

    async def load(turns):
        for _ in range(turns):
            await store.write(Batch(inserts=[new_job(payload=PAYLOAD) for _ in range(100)]))

    await load(80)
    assert wal(path) > 2 * WAL_LIMIT
    reader.execute("COMMIT")
    await load(80)
    assert wal(path) <= WAL_LIMIT + 1024 * 1024
    reader.close()
