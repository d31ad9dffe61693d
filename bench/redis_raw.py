"""The raw loop: a blocking redis-py client with nothing around it.

It enqueues into the keys and indexes that a plain job of Holdfast has, by plain commands in a pipeline, and claims
from one hash and one sorted set. It promises nothing: no leases, no fences, no results, no retries, no job recognised
when it is sent again. It is the ceiling that Holdfast is measured against.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

from holdfast.core.clock import SystemClock, fresh_entropy
from holdfast.store.open import open_store
from holdfast.store.protocol import Batch
from holdfast.testing.build import ask, new_job, succeeded
from redis import Redis

from . import child

PAYLOAD = b'{"id": "", "task": "nothing", "queue": "default", "payload": {}, "max_attempts": 5}'
BATCH = 100
CLAIM = """
-- Forget the last hundred, hand out the next: ARGV is the number wanted, the time, then the ids that are done.
for at = 3, #ARGV do
  redis.call('ZREM', KEYS[3], ARGV[at])
  redis.call('HDEL', KEYS[1], ARGV[at])
end
local taken = redis.call('ZPOPMIN', KEYS[2], ARGV[1])
local answer = {}
for at = 1, #taken, 2 do
  redis.call('ZADD', KEYS[3], ARGV[2], taken[at])
  answer[#answer + 1] = taken[at]
  answer[#answer + 1] = redis.call('HGET', KEYS[1], taken[at])
end
return answer
"""


def connect() -> Redis:
    return Redis.from_url(os.environ["BENCH_URL"])


def names(count: int) -> list[str]:
    now, entropy = time.time_ns() // 1000, fresh_entropy()
    return [entropy.uuid7(now + number) for number in range(count)]


def insert(client: Redis, ids: list[str], per_trip: int, payload: bytes = PAYLOAD) -> float:
    """Jobs with number, id, body, place in their queue and count, as Holdfast keeps them; the seconds that it took."""
    number = int(client.get("same:seq") or 0)
    start = time.perf_counter()
    for at in range(0, len(ids), per_trip):
        pipe = client.pipeline(transaction=False)
        now = time.time_ns() // 1000
        for id in ids[at : at + per_trip]:
            number += 1
            chunk = number // 256
            pipe.incr("same:seq")
            pipe.hsetnx("same:ids", id, number)
            pipe.hset(f"same:jobs:{chunk}", number, payload)
            pipe.zadd("same:chunks", {chunk: chunk})
            pipe.zadd("same:ready", {f"{now}{number:010}": 0})
            pipe.hincrby("same:counts", "default", 1)
        pipe.execute()
    return time.perf_counter() - start


def enqueue(count: int, per_transaction: int) -> dict[str, Any]:
    client = connect()
    insert(client, names(50), 1)
    ids = names(count)
    child.wait_for_go()
    return {"seconds": insert(client, ids, per_transaction), "jobs": count}


def payloads(count: int, size: int) -> dict[str, Any]:
    """Large jobs, one per round trip."""
    client, ids, text = connect(), names(count), child.text(size).encode()
    insert(client, names(1), 1)
    child.wait_for_go()
    took = insert(client, ids, 1, text)
    child.wait_for_go()
    return {"seconds": took}


def fill(client: Redis, count: int) -> None:
    for at in range(0, count, 1000):
        pipe = client.pipeline(transaction=False)
        for id in names(min(1000, count - at)):
            pipe.hset("raw:jobs", id, PAYLOAD)
            pipe.zadd("raw:ready", {id: 0})
        pipe.execute()


def work(count: int) -> dict[str, Any]:
    client = connect()
    fill(client, count)
    claim = client.register_script(CLAIM)
    claim(keys=["raw:jobs", "raw:empty", "raw:running"], args=[1, 0])
    child.wait_for_go()
    done, held = 0, list[bytes]()
    start = time.perf_counter()
    while True:
        answer = claim(keys=["raw:jobs", "raw:ready", "raw:running"], args=[BATCH, time.time(), *held])
        done += len(held)
        held = answer[::2]
        if not held:
            return {"seconds": time.perf_counter() - start, "jobs": done}


def depth(depth: int, rounds: int) -> dict[str, Any]:
    """Holdfast's own store at a depth: each exchange settles a hundred jobs, adds as many, and claims the next."""

    async def run() -> float:
        store = open_store(os.environ["HOLDFAST_URL"], SystemClock())
        await store.open()
        ids = iter(names(depth + BATCH + rounds * 1000))
        for first in range(0, depth + BATCH, 1000):
            size = min(1000, depth + BATCH - first)
            await store.write(Batch(inserts=[new_job(next(ids), priority=n % 3) for n in range(size)]))
        answers = await store.write(Batch(asks=[ask("bench", limit=BATCH)]))
        start = time.perf_counter()
        for _ in range(rounds * 1000 // BATCH):
            ends = [succeeded(record) for record in answers.asks[0].records]
            more = [new_job(next(ids), priority=n % 3) for n in range(BATCH)]
            answers = await store.write(Batch(inserts=more, settles=ends, asks=[ask("bench", limit=BATCH)]))
        took = time.perf_counter() - start
        await store.close()
        return took

    child.wait_for_go()
    return {"seconds": asyncio.run(run()), "jobs": rounds * 1000}


def memory(count: int, payload: int) -> dict[str, Any]:
    """Bytes per queued job."""

    async def run() -> float:
        client = connect()
        before = client.info("memory")["used_memory"]
        store = open_store(os.environ["HOLDFAST_URL"], SystemClock())
        await store.open()
        ids = names(count)
        for first in range(0, count, 1000):
            jobs = [new_job(id, payload=b"x" * payload) for id in ids[first : first + 1000]]
            await store.write(Batch(inserts=jobs))
        await store.close()
        return (client.info("memory")["used_memory"] - before) / count

    return {"seconds": 1.0, "jobs": asyncio.run(run())}


if __name__ == "__main__":
    commands = {"enqueue": enqueue, "payloads": payloads, "work": work, "depth": depth, "memory": memory}
    child.serve(commands)
