"""Warns when jobs wait in a queue that no live worker serves."""

from __future__ import annotations

import asyncio
import logging

from ..client.inspection import Inspection
from ..client.session import Session
from ..observe.outages import REFUSALS

logger = logging.getLogger("holdfast")
FIRST_CHECK = 5.0
"""Seconds after the start of the worker: others may start with it."""
UNSERVED_EVERY = 60.0
"""Seconds between two checks; each counts all queues."""


class UnservedQueues:
    """Checks the queues once a minute, and names each unserved one when it first has jobs."""

    def __init__(self, inspection: Inspection, session: Session) -> None:
        self._inspection = inspection
        self._session = session
        self._named: set[str] = set()
        self._task = asyncio.create_task(self._run())

    def stop(self) -> None:
        self._task.cancel()

    async def _run(self) -> None:
        pause = FIRST_CHECK
        while True:
            await asyncio.sleep(pause * (0.5 + self._session.entropy.fraction()))
            pause = UNSERVED_EVERY
            try:
                await self.check()
            except REFUSALS:
                return  # this worker may not count jobs
            except Exception as error:  # noqa: BLE001  # whatever a driver raises, the next round may work
                self._session.outages.failed("checking for unserved queues", error)
            else:
                self._session.outages.worked("checking for unserved queues")

    async def check(self) -> None:
        """Log a warning for each queue with queued jobs that has no live worker, unless it was named before."""
        queues, _, _ = await self._inspection.queues()
        found = {one.name: one.counts.get("queued", 0) for one in queues if not (one.listeners or one.paused)}
        found = {name: count for name, count in found.items() if count}
        for name in sorted(found.keys() - self._named):
            logger.warning(
                "no live worker serves queue %s, in which jobs wait (queued: %d); start one with --queues %s, or with"
                " an app whose tasks use this queue",
                name,
                found[name],
                name,
            )
        self._named = set(found)
