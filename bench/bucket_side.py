"""One process of the bucket run: its argument says what to do, it measures itself and answers with a JSON line."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from holdfast.core.clock import SystemClock, fresh_entropy
from holdfast.core.job import NewJob
from holdfast.core.lifecycle import Outcome, settle
from holdfast.core.operations import Ask, Holder
from holdfast.core.settings import Settings
from holdfast.store.bucket import BucketStore
from holdfast.store.bucket.folder import Folder
from holdfast.store.bucket.timings import Timings
from holdfast.store.group_commit import GroupCommit
from holdfast.store.protocol import Batch

PAYLOAD = b'{"a": 1, "b": 2}'
RULES = Settings().rules


class Slow:
    """A bucket with time added to every request; requests and written bytes are counted."""

    def __init__(self, bucket: Any, seconds: float) -> None:
        self._bucket, self._seconds = bucket, seconds
        self.requests = self.bytes = 0

    async def _take(self) -> None:
        self.requests += 1
        if self._seconds:
            await asyncio.sleep(self._seconds)

    async def get(self, key: str) -> bytes | None:
        await self._take()
        return await self._bucket.get(key)

    async def put_if_absent(self, key: str, data: bytes) -> bool:
        await self._take()
        self.bytes += len(data)
        return await self._bucket.put_if_absent(key, data)

    async def list(self, prefix: str, after: str | None = None) -> Any:
        await self._take()
        return await self._bucket.list(prefix, after)

    async def delete(self, keys: list[str]) -> None:
        await self._take()
        await self._bucket.delete(keys)


class Queue:
    """Holdfast: three verbs over group commit, as an app and a worker use it."""

    def __init__(self, folder: str, seconds: float) -> None:
        self.bucket = Slow(Folder(folder), seconds)
        self.store = BucketStore(self.bucket, Timings())
        self._entropy, self._clock = fresh_entropy(), SystemClock()
        self._holder = Holder(f"bench:{os.getpid()}", 3600.0)

    async def open(self) -> None:
        await self.store.open()
        self.commit = GroupCommit(self.store, self._entropy)

    async def fill(self, count: int, *, at_once: int = 1000, key: bool = False, size: int = 0) -> None:
        payload = b'"' + b"x" * size + b'"' if size else PAYLOAD
        for start in range(0, count, at_once):
            names = [self._entropy.uuid7(self._clock.now()) for _ in range(min(at_once, count - start))]
            jobs = [
                NewJob(n, "add", "q", payload, key=n if key else None, fingerprint=n[:8] if key else "") for n in names
            ]
            await self.store.write(Batch(inserts=jobs))

    async def enqueue(self) -> None:
        await self.commit.insert([NewJob(self._entropy.uuid7(self._clock.now()), "add", "q", PAYLOAD)])

    async def claim(self) -> Any:
        ask = Ask(self._holder, ("q",), 1, self._entropy.token())
        while not (claims := await self.commit.claim(ask)).records:  # noqa: ASYNC110  # the bucket has no event
            await asyncio.sleep(0.01)
        return claims.records[0]

    async def settle(self, record: Any) -> None:
        end = settle(record, Outcome.succeeded(b"3"), RULES, nonce=self._entropy.token(), fraction=0.0)
        assert await self.commit.settle(end)

    async def close(self) -> None:
        await self.store.close()


class SingleObject:
    """The whole queue in one object: read it, change it, write it back if nobody else has.

    `grouped`: what waits shares one such cycle. Else every operation is one of its own, as it must be without a broker.
    """

    def __init__(self, seconds: float, *, grouped: bool) -> None:
        self._seconds, self._grouped = seconds, grouped
        self._object, self._version = b"[]", 0
        self._waiting: list[tuple[Any, asyncio.Future[Any]]] = []
        self._busy = False
        self._entropy, self._clock = fresh_entropy(), SystemClock()
        self.requests = 0

    async def _cycle(self, changes: list[Any]) -> list[Any]:
        while True:
            self.requests += 2
            await asyncio.sleep(self._seconds)
            jobs, version = msgspec.json.decode(self._object), self._version
            answers = [change(jobs) for change in changes]
            data = msgspec.json.encode(jobs)
            await asyncio.sleep(self._seconds)
            if version == self._version:
                self._object, self._version = data, version + 1
                return answers

    async def _do(self, change: Any) -> Any:
        if not self._grouped:
            return (await self._cycle([change]))[0]
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append((change, waiter))
        if not self._busy:
            self._busy = True
            self._task = asyncio.ensure_future(self._drain())
        return await waiter

    async def _drain(self) -> None:
        while self._waiting:
            taken, self._waiting = self._waiting, []
            for (_, waiter), answer in zip(taken, await self._cycle([change for change, _ in taken]), strict=True):
                waiter.set_result(answer)
        self._busy = False

    async def fill(self, count: int) -> None:
        await self._cycle([lambda jobs: jobs.extend([self._new() for _ in range(count)])])

    def _new(self) -> dict[str, Any]:
        return {
            "id": self._entropy.uuid7(self._clock.now()),
            "task": "add",
            "payload": PAYLOAD.decode(),
            "state": "queued",
        }

    async def enqueue(self) -> None:
        await self._do(lambda jobs: jobs.append(self._new()))

    async def claim(self) -> Any:
        def take(jobs: list[dict[str, Any]]) -> str | None:
            found = next((job for job in jobs if job["state"] == "queued"), None)
            if found is None:
                return None
            found["state"] = "running"
            return found["id"]

        while (id := await self._do(take)) is None:  # noqa: ASYNC110  # nor has it one
            await asyncio.sleep(0.01)
        return id

    async def settle(self, id: str) -> None:
        def end(jobs: list[dict[str, Any]]) -> None:
            del jobs[next(n for n, job in enumerate(jobs) if job["id"] == id)]

        await self._do(end)


async def through(queue: Any, callers: int, seconds: float) -> dict[str, float]:
    """Callers that enqueue, claim and settle, one after the other, for some seconds."""
    done, slowest, before = 0, 0.0, getattr(queue, "bucket", queue).requests
    began = time.monotonic()

    async def timed(work: Any) -> Any:
        nonlocal slowest
        start = time.monotonic()
        answer = await work
        slowest = max(slowest, time.monotonic() - start)
        return answer

    async def caller() -> None:
        nonlocal done
        while time.monotonic() - began < seconds:
            await timed(queue.enqueue())
            await timed(queue.settle(await timed(queue.claim())))
            done += 1

    await asyncio.gather(*(caller() for _ in range(callers)))
    took = time.monotonic() - began
    spent = getattr(queue, "bucket", queue).requests - before
    return {"rate": done / took, "requests": spent / max(1, done), "slowest": slowest}


async def at_depth(folder: str, depth: int, rounds: int, **filling: Any) -> dict[str, float]:
    """What jobs cost that are enqueued behind a backlog of their kind, and claimed and settled 1,000 at a time."""
    queue = Queue(folder, 0.0)
    await queue.open()
    await queue.fill(depth, **filling)
    filled = queue.bucket.bytes / depth, queue.bucket.requests / depth
    queue.bucket.requests = queue.bucket.bytes = 0
    began = time.monotonic()
    for _ in range(rounds):
        answers = await queue.store.write(Batch(asks=[Ask(queue._holder, ("q",), 1000, queue._entropy.token())]))
        ends = [
            settle(r, Outcome.succeeded(b"3"), RULES, nonce=queue._entropy.token(), fraction=0.0)
            for r in answers.asks[0].records
        ]
        await queue.store.write(Batch(settles=ends))
        await queue.fill(len(ends), **filling)
    took = (time.monotonic() - began) / rounds / 1000
    jobs = rounds * 1000
    result = {"fill_bytes": filled[0], "fill_requests": filled[1], "micros": took * 1e6}
    result |= {"bytes": queue.bucket.bytes / jobs, "requests": queue.bucket.requests / jobs}
    await queue.close()
    return result


async def join(folder: str) -> dict[str, float]:
    """How long a fresh process takes to join, and the memory that it needs per queued job."""
    before = _resident()
    queue = Queue(folder, 0.0)
    began = time.monotonic()
    await queue.open()
    took = time.monotonic() - began
    [stats] = await queue.store.stats()
    memory = (_resident() - before) / stats.counts["queued"]
    await queue.close()
    return {"seconds": took, "memory": memory}


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def main(request: dict[str, Any]) -> dict[str, float]:
    do = request.pop("do")
    if do == "depth":
        return await at_depth(**request)
    if do == "join":
        return await join(request["folder"])
    seconds = request["delay"]
    if do == "holdfast":
        queue: Any = Queue(request["folder"], seconds)
        await queue.open()
    else:
        queue = SingleObject(seconds, grouped=do == "grouped")
    if request.get("fill"):
        await queue.fill(request["fill"])
    found = await through(queue, request["callers"], request["seconds"])
    if do == "holdfast":
        await queue.close()
    return found


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(json.loads(sys.argv[1])))), flush=True)
