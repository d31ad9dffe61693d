"""What the peers on Redis share: a few ways to enqueue, and a worker in this process that is watched from a thread.

Most of these libraries' workers do not return: when the work is done, the thread says so and ends the process.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import random
import threading
import time
from collections.abc import Callable
from typing import Any

from .. import child

URL = os.environ.get("BENCH_URL", "redis://localhost:6379")
WARM_UP = 50
CONCURRENCY = 100
done = [0, 0.0]
"""Jobs that ran in this process, and when the last one did."""
latencies: list[float] = []


def ran() -> None:
    done[0] += 1
    done[1] = time.monotonic()


def arrived(sent: int) -> None:
    latencies.append((time.monotonic_ns() - sent) / 1e9)


class Side:
    """One library: how it enqueues (plain functions or coroutines) and how its worker is started (and blocks)."""

    def __init__(
        self,
        nothing: Callable[[], Any],
        stamp: Callable[[int], Any],
        work: Callable[[], Any],
        *,
        opened: Callable[[], Any] = lambda: None,
        bulk: Callable[[int], Any] | None = None,
        take: Callable[[str], Any] | None = None,
        flow: Callable[[], Any] | None = None,
    ) -> None:
        self._nothing, self._stamp, self._work, self._opened, self._bulk = nothing, stamp, work, opened, bulk
        self._take, self._flow = take, flow

    async def _enqueue(self, how: str, count: int) -> dict[str, Any]:
        await _maybe(self._opened())
        for _ in range(WARM_UP):
            await _maybe(self._nothing())
        child.wait_for_go()
        start = time.perf_counter()
        await self._put(how, count)
        child.say(seconds=time.perf_counter() - start, jobs=count)
        os._exit(0)

    async def _put(self, how: str, count: int) -> None:
        if how == "bulk" and self._bulk is not None:
            for _ in range(count // 1000):
                await _maybe(self._bulk(1000))
            return
        callers = 1 if how == "singles" or not inspect.iscoroutinefunction(self._nothing) else 100

        async def caller() -> None:
            for _ in range(count // callers):
                answer = self._nothing()
                if inspect.isawaitable(answer):
                    await answer

        await asyncio.gather(*[caller() for _ in range(callers)])

    def enqueue(self, how: str, count: int) -> dict[str, Any]:
        return asyncio.run(self._enqueue(how, count))

    def payloads(self, count: int, size: int) -> dict[str, Any]:
        """Large jobs, one after another; only of libraries with blocking calls."""
        assert self._take is not None
        text = child.text(size)
        self._take("")
        child.wait_for_go()
        start = time.perf_counter()
        for _ in range(count):
            self._take(text)
        took = time.perf_counter() - start
        child.wait_for_go()
        return {"seconds": took}

    def flows(self, count: int) -> dict[str, Any]:
        """Seconds to enqueue flows of three jobs, and to run them; only of libraries with blocking calls."""
        assert self._flow is not None
        child.wait_for_go()
        start = time.perf_counter()
        for _ in range(count):
            self._flow()
        took, began = time.perf_counter() - start, time.monotonic()

        def watch() -> None:
            while done[0] < 3 * count:
                time.sleep(0.01)
            child.say(enqueue=took, run=done[1] - began)
            os._exit(0)

        threading.Thread(target=watch, daemon=True).start()
        self._start_worker()
        return {"enqueue": took, "run": done[1] - began}

    def fill(self, count: int) -> dict[str, Any]:
        async def run() -> None:
            await _maybe(self._opened())
            await self._put("callers", count)

        asyncio.run(run())
        return {"jobs": count}

    def work(self, count: int) -> dict[str, Any]:
        def watch() -> None:
            while done[0] < count:
                time.sleep(0.01)
            child.say(ended=done[1], jobs=done[0])
            os._exit(0)

        child.wait_for_go()
        threading.Thread(target=watch, daemon=True).start()
        self._start_worker()
        return {"ended": done[1], "jobs": done[0]}

    def worker(self) -> dict[str, Any]:
        def watch() -> None:
            time.sleep(2.0)
            child.say(ready=True)
            child.wait_for_stop()
            child.say(latencies=latencies)
            os._exit(0)

        threading.Thread(target=watch, daemon=True).start()
        self._start_worker()
        return {"latencies": latencies}

    def _start_worker(self) -> None:
        answer = self._work()
        if inspect.isawaitable(answer):

            async def run() -> None:
                await answer

            asyncio.run(run())

    def produce(self, count: int, pauses: tuple[float, float]) -> dict[str, Any]:
        async def run() -> None:
            await _maybe(self._opened())
            child.wait_for_go()
            for _ in range(count):
                await asyncio.sleep(random.uniform(*pauses))
                await _maybe(self._stamp(time.monotonic_ns()))

        asyncio.run(run())
        return {"jobs": count}

    def serve(self) -> None:
        child.serve(
            {
                "enqueue": self.enqueue,
                "payloads": self.payloads,
                "flows": self.flows,
                "fill": self.fill,
                "work": self.work,
                "worker": self.worker,
                "produce": self.produce,
            }
        )


async def _maybe(answer: Any) -> Any:
    return await answer if inspect.isawaitable(answer) else answer
