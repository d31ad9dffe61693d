"""Asks that find nothing are answered without an entry in the log, and so must change nothing either."""

from __future__ import annotations

import asyncio

from alone import opened, virtually
from delayed import InMemory

from holdfast.testing.build import cancellation, new_job
from holdfast.testing.verbs import apply, claim, insert


def test_an_ask_for_no_job_makes_a_due_one_ready_for_everybody():
    async def story(clock):
        bucket = InMemory(clock)
        async with opened(bucket, clock) as ours, opened(bucket, clock) as theirs:
            await insert(ours, new_job("a", delay=1.0))
            await asyncio.sleep(2.0)
            assert await claim(ours, limit=0) == []
            [seen] = await ours.get(["a"])
            assert await apply(ours, cancellation(seen))
            return [(await store.get(["a"]))[0].state for store in (ours, theirs)]

    assert virtually(story) == ["cancelled", "cancelled"]
