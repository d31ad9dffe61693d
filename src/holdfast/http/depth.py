"""The server notes once a minute how deep the queues are: charts have no other way to know."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from ..core.clock import MICROS

if TYPE_CHECKING:
    from ..parts import Parts

logger = logging.getLogger("holdfast.http")


@asynccontextmanager
async def recording_depth(parts: Parts) -> AsyncGenerator[None]:
    """Note it for as long as the block lasts; the app is open."""
    task = asyncio.create_task(_note(parts))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def _note(parts: Parts) -> None:
    while True:
        try:
            await parts.timeseries.record_depth()
        except Exception as error:  # noqa: BLE001  # whatever a driver raises: the next minute may fare better
            parts.runtime.outages.failed("statistics", error)
        else:
            parts.runtime.outages.worked("statistics")
        await asyncio.sleep(60.5 - parts.runtime.clock.now() / MICROS % 60)  # shortly after the next minute begins
