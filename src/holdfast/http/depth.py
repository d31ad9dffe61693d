"""Records queue depths, and which workers have come and gone, once a minute, for the dashboard."""

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
    """Record depths while the block runs; the app must be open."""
    task = asyncio.create_task(_record(parts))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def _record(parts: Parts) -> None:
    while True:
        try:
            await parts.timeseries.record_depth()
            await parts.timeseries.record_workers()
        except Exception as error:  # noqa: BLE001  # drivers may raise anything; retried in a minute
            parts.runtime.outages.failed("recording queue depths", error)
        else:
            parts.runtime.outages.worked("recording queue depths")
        await asyncio.sleep(60.5 - parts.runtime.clock.now() / MICROS % 60)  # shortly after the next minute begins
