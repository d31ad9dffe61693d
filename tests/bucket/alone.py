"""A store on an engine of its own, in virtual time: no thread, no waiting."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import asynccontextmanager

from holdfast.core.clock import Entropy
from holdfast.store.bucket import BucketStore
from holdfast.store.bucket.engine import Engine
from holdfast.store.bucket.thread import Shared
from holdfast.store.bucket.timings import Timings
from support.virtual import VirtualClock, VirtualLoop, run_virtually

_seeds = itertools.count(7)
"""No two processes may have one name: what the second of them writes would be taken for written."""
TIMINGS = Timings(snapshot_entries=5, look_soonest=0.5, look_latest=2.0)


class Here(Shared):
    """The engine on the caller's own loop: no thread, so that everything happens in one order."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine.bucket, engine.clock, engine.timings)
        self.engine = engine

    async def run(self, work):
        return await work(self.engine)


@asynccontextmanager
async def opened(bucket, clock, timings=TIMINGS):
    """A process of its own, for as long as the block lasts."""
    engine = Engine(bucket, clock, Entropy(next(_seeds)), timings)
    await engine.open()
    try:
        yield BucketStore(bucket, timings, clock=clock, _shared=Here(engine))
    finally:
        await engine.close()


async def watch(store, seconds):
    """Look about once a second; what was lost."""
    lost = []
    for _ in range(round(seconds)):
        await asyncio.sleep(1.0)
        lost = await store.expired(9)
        if lost:
            break
    return lost


def virtually(work):
    """Run `work(clock)` on a loop whose time jumps."""
    loop = VirtualLoop()
    return run_virtually(work(VirtualClock(loop)), loop)
