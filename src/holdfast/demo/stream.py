"""An endless stream of jobs for the dashboard demo: short ones, failing ones, and one long one at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count
from typing import Any

from .. import Holdfast
from ..core.job import State
from ..tasks.task import Call

HANDFUL_EVERY = 0.5
"""Seconds between two batches of jobs."""
PARTS = 40
"""Parts of a film; each takes 0.5 s."""


async def stream(app: Holdfast, over: Callable[[], bool]) -> None:
    """Enqueue jobs until `over` returns True."""
    from .tasks import broken, encode, flaky, invoice, resize

    for number in count():
        if over():
            return
        calls: list[Call[Any]] = [app.call(resize, f"picture-{number}-{one}.raw") for one in range(1 + number % 3)]
        if number % 2 == 0:
            calls.append(app.call(invoice, number))
        if number % 11 == 3:
            calls.append(app.call(flaky, ("mail", "stock", "tax")[number % 3]))
        if number % 37 == 5:
            calls.append(app.call(broken, 1000 + number))
        if number % 10 == 0 and not await _runs(app, "encode"):
            calls.append(app.call(encode, f"film-{number}.mov", PARTS))
        await app.enqueue_many(calls)
        await asyncio.sleep(HANDFUL_EVERY)


async def _runs(app: Holdfast, task: str) -> bool:
    waiting = [State.QUEUED, State.RUNNING, State.FAILED]
    return bool((await app.jobs(state=waiting, task=task, limit=1)).jobs)
