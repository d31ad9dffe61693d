"""A separate process on a bucket: enqueues and prints the acknowledged jobs, or claims all jobs."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from delayed import Delayed

from holdfast.core.clock import SystemClock
from holdfast.store.bucket import BucketStore
from holdfast.store.bucket.folder import Folder
from holdfast.store.bucket.timings import Timings
from holdfast.store.open import open_store
from holdfast.testing.build import new_job, succeeded
from holdfast.testing.verbs import claim, insert, settle

SHORT = Timings(verify_after=0.4, clean_after=1.5, snapshot_entries=5, look_soonest=0.01, look_latest=0.1)
"""Cleaned away soon: what takes an hour elsewhere takes a second here."""


def sleepy(path):
    """A store with slow requests, so that a stopped process is stopped inside one."""
    return BucketStore(Delayed(Folder(path), 0.03), SHORT)


async def enqueue(store, name, count):
    await store.open()
    for n in range(count):
        [answer] = await insert(store, new_job(f"{name}-{n}"))
        assert answer.outcome == "created"
        print(answer.id, flush=True)
    await store.close()


async def consume(store, name):
    await store.open()
    while records := await claim(store, name, limit=5):
        for record in records:
            assert await settle(store, succeeded(record))
            print(record.id, flush=True)
    await store.close()


if __name__ == "__main__":
    what, where, name = sys.argv[1:4]
    store = sleepy(where) if what == "sleepy" else open_store(where, SystemClock())
    asyncio.run(consume(store, name) if what == "consume" else enqueue(store, name, int(sys.argv[4])))
