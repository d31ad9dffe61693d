"""A store on an engine of its own, in virtual time: no thread, no waiting."""

from __future__ import annotations

from contextlib import asynccontextmanager

from fleet import Here

from holdfast.clock import Entropy
from holdfast.store.bucket import BucketStore
from holdfast.store.bucket.engine import Engine
from holdfast.store.bucket.pace import Pace
from support.virtual import VirtualClock, VirtualLoop, run_virtually

PACE = Pace(snapshot_entries=5, look_soonest=0.5, look_latest=2.0)


@asynccontextmanager
async def opened(bucket, clock, pace=PACE):
    """A process of its own, for as long as the block lasts."""
    engine = Engine(bucket, clock, Entropy(7), pace)
    await engine.open()
    try:
        yield BucketStore(bucket, pace, clock=clock, _shared=Here(engine))
    finally:
        await engine.close()


def virtually(work):
    """Run `work(clock)` on a loop whose time jumps."""
    loop = VirtualLoop()
    return run_virtually(work(VirtualClock(loop)), loop)
