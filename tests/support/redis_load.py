"""Load on a store while its servers move, and what came of it: jobs lost, ended twice, keys and fences given twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, Self

from holdfast import Context, Holdfast
from holdfast.core.errors import HoldfastError
from holdfast.core.job import TERMINAL, Record
from holdfast.core.operations import Settlement
from holdfast.observe.events import Events
from support.eventually import eventually
from support.workers import working


class Load(Events):
    """Producers and a worker in this process. Use it as a context; then `findings` says what is wrong."""

    def __init__(self, url: str, producers: int = 5, pause: float = 0.002) -> None:
        super().__init__()
        self.app = Holdfast(url, lease=5.0, poll=0.1, retry_base=0.01, retry_jitter=0.0)
        self.app.events = self
        self.acknowledged: set[str] = set()
        self.errors: Counter[str] = Counter()
        self.counted_ends: Counter[tuple[str, int]] = Counter()
        self.given_fences: Counter[tuple[str, int]] = Counter()
        self.of_key: dict[str, set[str]] = {}
        self.stored: dict[str, Any] = {}
        self.tries = 0
        self._producers, self._pause = producers, pause
        self._stop = asyncio.Event()

        @self.app.task(name="work", max_attempts=0)
        async def work(ctx: Context, name: str) -> None:
            self.given_fences[ctx.job.id, ctx.fence] += 1

        self._work = work

    def settled(self, record: Record, end: Settlement, began: float | None = None) -> None:
        super().settled(record, end, began)
        if end.state in TERMINAL:
            self.counted_ends[record.id, record.reset_count] += 1

    async def _produce(self, number: int) -> None:
        n = 0
        while not self._stop.is_set():
            n += 1
            key = f"{number}-{n // 2}"  # each key twice
            self.tries += 1
            try:
                handle = await self._work.using(key=key).enqueue(key)
            except HoldfastError as error:
                self.errors[type(error).__name__] += 1
            else:
                self.acknowledged.add(handle.id)
                self.of_key.setdefault(key, set()).add(handle.id)
            await asyncio.sleep(self._pause)

    async def __aenter__(self) -> Self:
        await self.app.__aenter__()
        self._working = working(self.app, concurrency=20)
        await self._working.__aenter__()
        self._tasks = [asyncio.create_task(self._produce(number)) for number in range(self._producers)]
        return self

    async def more(self, jobs: int = 100) -> None:
        """Until so many more jobs are acknowledged."""
        wanted = len(self.acknowledged) + jobs
        await eventually(lambda: len(self.acknowledged) >= wanted, limit=60.0)

    async def tried(self, more: int) -> None:
        """Until the producers have tried so often to enqueue a job."""
        wanted = self.tries + more
        await eventually(lambda: self.tries >= wanted, limit=60.0)

    async def __aexit__(self, *exc: object) -> None:
        self._stop.set()
        await asyncio.gather(*self._tasks)
        if exc[0] is None:
            await self._all_ended()
        await self._working.__aexit__(None, None, None)
        if exc[0] is None:
            cursor = None
            while True:
                page = await self.app.jobs(limit=500, cursor=cursor)
                self.stored |= {job.id: job for job in page.jobs}
                cursor = page.cursor
                if cursor is None:
                    break
        await self.app.__aexit__(None, None, None)

    async def _all_ended(self) -> None:
        async with asyncio.timeout(60):
            while True:
                try:
                    stats = await self.app.stats()
                except HoldfastError:
                    pass
                else:
                    counts = [(state, n) for queue in stats.queues for state, n in queue.counts.items() if n]
                    if all(state in TERMINAL for state, _ in counts):
                        return
                await asyncio.sleep(0.05)

    def findings(self) -> dict[str, int]:
        """What should be 0, each."""
        return {
            "acknowledged and lost": len(self.acknowledged - self.stored.keys()),
            "ended twice": sum(number > 1 for number in self.counted_ends.values()),
            "keys of two jobs": sum(len(ids) > 1 for ids in self.of_key.values()),
            "fences given twice": sum(number > 1 for number in self.given_fences.values()),
        }
