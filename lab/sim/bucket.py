"""A bucket behind a bad network, and the bucket store's own code in every process.

The bucket answers "exists" after it applied a put, and to a conflict that left nothing behind; it throttles, fails,
times out, cuts bodies short, deletes half of what it should, and applies puts long after their sender gave up.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from holdfast.core.clock import Entropy
from holdfast.store.bucket import BucketStore
from holdfast.store.bucket.protocol import Listed, NotWritten
from holdfast.store.bucket.thread import EngineRun, Shared
from holdfast.store.bucket.timings import Timings

from .network import Network
from .plan import Plan
from .world import Loop, Process, SimClock, World

TIMINGS = Timings(
    verify_after=1.2,
    clean_after=3.6,
    snapshot_entries=5,
    archive_after=6.5,
    archive_jobs=3,
    look_soonest=0.1,
    look_latest=1.0,
    patience=1.2,
    watch_least=0.3,
)
"""Everything is sooner than in production, so that a few seconds have it all: snapshots, cleaning, sleeping."""


CREATED = {
    "snapshot": "snapshots taken",
    "inbox": "batches handed in for others to write",
    "done": "segments of ended jobs written",
}
"""Objects whose creation shows that something was reached."""


class Objects:
    """A bucket that is well, in memory."""

    def __init__(self, clock: SimClock) -> None:
        self.objects: dict[str, tuple[bytes, int]] = {}
        self._clock = clock

    def put(self, key: str, data: bytes) -> bool:
        if key in self.objects:
            return False
        self.objects[key] = (data, self._clock.now())
        return True

    def listed(self, prefix: str, after: str | None) -> list[Listed]:
        keys = sorted(key for key in self.objects if key.startswith(prefix) and (after is None or key > after))
        return [Listed(key, self.objects[key][1], len(self.objects[key][0])) for key in keys]

    async def get(self, key: str) -> bytes | None:
        found = self.objects.get(key)
        return None if found is None else found[0]

    async def put_if_absent(self, key: str, data: bytes) -> bool:
        return self.put(key, data)

    async def list(self, prefix: str, after: str | None = None) -> Sequence[Listed]:
        return self.listed(prefix, after)

    async def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            self.objects.pop(key, None)


class Bucket(Network):
    """The objects, and what becomes of requests."""

    one_clock = False
    very_late = 12.0

    def __init__(self, world: World, plan: Plan, counts: Counter[str]) -> None:
        super().__init__(world, plan.rates, counts)
        self.truth = Objects(self.server.clock)

        self.engines: list[tuple[Process, EngineRun]] = []

    def store(self, process: Process) -> BucketStore:
        """A process's store: its own engine, at its own end of the network."""
        return BucketStore(Port(self), TIMINGS, _shared=Together(Port(self), process, self.engines))

    def observer(self, process: Process) -> BucketStore:
        """What there is, read by the same code, without the network."""
        return BucketStore(self.truth, TIMINGS, _shared=Together(self.truth, process, self.engines))

    def left_running(self, process: Process) -> int:
        """The engines of a process that have not ended."""
        return sum(1 for where, run in self.engines if where is process and not run.over.done())


class Port:
    """One process's way to the bucket."""

    def __init__(self, network: Bucket) -> None:
        self._network = network
        self._objects = network.truth
        self._follows = False

    def __str__(self) -> str:
        return "simulated bucket"

    async def get(self, key: str) -> bytes | None:
        rates = self._network.rates
        return await self._ask("gets", self._get, key, more=(("cut", rates.cut),))

    async def put_if_absent(self, key: str, data: bytes) -> bool:
        rates = self._network.rates
        more = (("conflict", rates.conflict), ("exists", rates.exists))
        return await self._ask("puts", self._put, key, data, more=more)

    async def list(self, prefix: str, after: str | None = None) -> Sequence[Listed]:
        return await self._ask("lists", self._list, prefix, after)

    async def delete(self, keys: Sequence[str]) -> None:
        await self._ask("deletes", self._delete, keys)

    async def _ask(
        self, kind: str, work: Callable[..., Any], *args: Any, more: tuple[tuple[str, float], ...] = ()
    ) -> Any:
        network = self._network
        fate = network.draw(network.fates + more)
        if fate != "answered":
            network.counts[f"{kind}: {fate}"] += 1
        if fate == "refused":
            await asyncio.sleep(network.latency())
            surely = kind == "puts" and network.world.chance.random() < 0.5
            raise NotWritten("a full disk (simulated)") if surely else OSError("429 or 503 (simulated)")
        return await network.ask(lambda: work(fate, *args), fate, TimeoutError)

    # -- at the bucket

    def _get(self, fate: str, key: str) -> bytes | None:
        found = self._objects.objects.get(key)
        if key.startswith("log/"):
            self._follows = True
        elif self._follows and key.startswith("snapshot/"):
            self._network.counts["joined the log again"] += 1
        if found is None:
            return None
        return found[0][: self._network.world.chance.randrange(len(found[0]))] if fate == "cut" else found[0]

    def _put(self, fate: str, key: str, data: bytes) -> bool:
        if fate == "conflict":
            return False
        created = self._objects.put(key, data)
        if created and fate == "late":
            self._network.counts["puts that came late, and created"] += 1
        if created and (what := CREATED.get(key.partition("/")[0])):
            self._network.counts[what] += 1
        return created and fate != "exists"

    def _list(self, fate: str, prefix: str, after: str | None) -> list[Listed]:
        return self._objects.listed(prefix, after)

    def _delete(self, fate: str, keys: Sequence[str]) -> None:
        half = len(keys) // 2 if fate == "unanswered" else len(keys)
        for key in keys[:half]:
            if self._objects.objects.pop(key, None) is not None and key.startswith("log/"):
                self._network.counts["log entries cleaned away"] += 1


class LoopRun(EngineRun):
    """An engine on a loop of its own instead of a thread: it goes on while the worker's loop is blocked."""

    def start(self) -> None:
        together = self._shared
        assert isinstance(together, Together)
        together.engines.append((together.process, self))
        process = together.process
        process.start(self._run_on(Entropy(process.world.chance.getrandbits(64))), Loop(process))

    async def _run_on(self, entropy: Entropy) -> None:
        try:
            await self.serve(entropy)
        finally:
            self.over.set_result(None)


class Together(Shared):
    """All stores of one simulated process share one engine."""

    run_class = LoopRun

    def __init__(self, bucket: Port | Objects, process: Process, engines: list[tuple[Process, EngineRun]]) -> None:
        super().__init__(bucket, process.clock, TIMINGS)
        self.process = process
        self.engines = engines

    def anew(self) -> Together:
        return Together(self.bucket, self.process, self.engines)
