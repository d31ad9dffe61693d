"""A worker whose claim is answered late, on a line that is otherwise in time: a heartbeat sees the claim first."""

from __future__ import annotations

import asyncio
from typing import Protocol

from holdfast import Holdfast, State, limit

from .eventually import eventually
from .workers import working

LEASE = 1.5
HEARTBEATS = 4
"""Heartbeats that see the claim before its answer arrives: by then it is known for longer than half a lease."""


class SlowLine(Protocol):
    """A line to a store, on which the answer to the next claim can be held up."""

    @property
    def heartbeats(self) -> int: ...
    def hold_claims(self) -> None: ...
    def let_go(self) -> None: ...


async def run_with_a_late_claim(slow_url: str, url: str, line: SlowLine, *, limited: bool) -> tuple[list[str], State]:
    """Who ran the one job, and how it ended. Another worker, on a good line, takes whatever becomes ready."""
    ran: list[str] = []
    begun, gate = asyncio.Event(), asyncio.Event()

    def with_task(app: Holdfast, name: str) -> Holdfast:
        @app.task(name="work", limit=limit(name="one", concurrency=1) if limited else None)
        async def work() -> None:
            ran.append(name)
            begun.set()
            await gate.wait()

        return app

    slow = with_task(Holdfast(slow_url, lease=LEASE, poll=0.1), "late")
    good = with_task(Holdfast(url, lease=LEASE, poll=0.1), "other")
    async with slow, good:
        handle = await good.enqueue("work")
        line.hold_claims()
        async with working(slow, concurrency=1):
            await eventually(lambda: line.heartbeats >= HEARTBEATS)
            async with working(good, concurrency=1):
                line.let_go()
                await asyncio.wait_for(begun.wait(), 90)
                seen = line.heartbeats
                await eventually(lambda: line.heartbeats >= seen + 2)
                gate.set()
                return ran, (await handle.wait(timeout=30)).state
