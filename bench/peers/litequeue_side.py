"""litequeue: a table with put, pop and done. It has no workers and no retries; the loop around it is ours."""

from __future__ import annotations

import os
import time
from typing import Any

from litequeue import LiteQueue

from .. import child

PAYLOAD = "{}"
WARM_UP = 50


def _open(*, synced: bool) -> LiteQueue:
    queue = LiteQueue(os.environ["BENCH_FILE"], timeout=60)
    if synced:
        # It sets NORMAL, which loses the last commits when the machine goes down.
        queue.conn.execute("PRAGMA synchronous = FULL")
    return queue


def enqueue(count: int, *, synced: bool) -> dict[str, Any]:
    queue = _open(synced=synced)
    for _ in range(WARM_UP):
        queue.put(PAYLOAD)
    child.wait_for_go()
    start = time.perf_counter()
    for _ in range(count):
        queue.put(PAYLOAD)
    return {"seconds": time.perf_counter() - start, "jobs": count}


def fill(count: int) -> dict[str, Any]:
    """Jobs to be run later, in one transaction; litequeue itself has no bulk put."""
    queue = _open(synced=True)
    with queue.transaction("IMMEDIATE"):
        for _ in range(count):
            queue.put(PAYLOAD)
    return {"jobs": count}


def work(*, synced: bool) -> dict[str, Any]:
    queue = _open(synced=synced)
    child.wait_for_go()
    jobs = 0
    while (message := queue.pop()) is not None:
        queue.done(message.message_id)
        jobs += 1
    return {"ended": time.monotonic(), "jobs": jobs}


if __name__ == "__main__":
    child.serve({"enqueue": enqueue, "fill": fill, "work": work})
