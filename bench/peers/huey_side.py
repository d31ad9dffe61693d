"""Huey: its consumer with threads, as its documentation starts it."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from typing import Any

from .. import child
from .huey_app import huey, latencies, nothing, ran, stamp, take

WARM_UP = 50


def enqueue(count: int) -> dict[str, Any]:
    for _ in range(WARM_UP):
        nothing()
    child.wait_for_go()
    start = time.perf_counter()
    for _ in range(count):
        nothing()
    return {"seconds": time.perf_counter() - start, "jobs": count}


def payloads(count: int, size: int) -> dict[str, Any]:
    """Large jobs, one per transaction: Huey has no bulk enqueue."""
    text = child.text(size)
    take("")
    child.wait_for_go()
    start = time.perf_counter()
    for _ in range(count):
        take(text)
    took = time.perf_counter() - start
    child.wait_for_go()
    return {"seconds": took}


def fill(count: int) -> dict[str, Any]:
    """Jobs to be run later, in one transaction: Huey has no bulk enqueue, but nothing is measured here."""
    with huey.storage.db(commit=True) as cursor:
        cursor.executemany(
            "insert into task (queue, data, priority) values (?, ?, 0)",
            [(huey.name, huey.serialize_task(nothing.s())) for _ in range(count)],
        )
    return {"jobs": count}


def work(threads: int) -> dict[str, Any]:
    consumer = huey.create_consumer(workers=threads, periodic=False)
    child.wait_for_go()
    consumer.start()
    seen = -1
    # Nothing else tells that a consumer is done: the queue is empty, and no job has run for a while.
    while huey.storage.queue_size() or len(ran) != seen:
        seen = len(ran)
        time.sleep(0.3)
    consumer.stop(graceful=True)
    return {"ended": max(ran, default=0.0), "jobs": len(ran)}


def worker(threads: int) -> dict[str, Any]:
    """An idle consumer that notes when jobs reach it, polling as by default (100 ms, growing by 15 % up to 10 s)."""
    consumer = huey.create_consumer(workers=threads, periodic=False)
    consumer.start()
    child.say(ready=True)
    child.wait_for_stop()
    consumer.stop(graceful=True)
    return {"latencies": latencies}


def produce(count: int, pauses: tuple[float, float]) -> dict[str, Any]:
    child.wait_for_go()
    for _ in range(count):
        time.sleep(random.uniform(*pauses))
        stamp(time.monotonic_ns())
    return {"jobs": count}


if __name__ == "__main__":
    logging.disable(logging.INFO)
    commands: dict[str, Callable[..., dict[str, Any]]] = {
        "enqueue": enqueue,
        "payloads": payloads,
        "fill": fill,
        "work": work,
        "worker": worker,
        "produce": produce,
    }
    child.serve(commands)
