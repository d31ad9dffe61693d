"""The server's own upkeep: workers that reach their store through it leave lost leases, retention and flows to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from ..worker.freeing import Freeing
from ..worker.upkeep import Upkeep

if TYPE_CHECKING:
    from ..app import Holdfast

FIRST_LOOK = 5.0
"""Seconds before the first look. While the server was away nobody could renew a lease through it: whoever lives beats
again within a second or two of its return, and must not be taken for dead before."""


@asynccontextmanager
async def sweeping(app: Holdfast, *, first_look: float = FIRST_LOOK) -> AsyncGenerator[None]:
    """Sweep for as long as the block lasts; the app is open."""
    task, freeing = asyncio.create_task(_sweep(app, first_look)), Freeing(app, app.session.settings.poll)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
        await freeing.stop()


async def _sweep(app: Holdfast, first_look: float) -> None:
    await asyncio.sleep(first_look)
    upkeep = Upkeep(app, app.session.settings.poll)
    try:
        await asyncio.Event().wait()
    finally:
        upkeep.stop()
