"""Scheduler: every worker checks for due schedules; the first one enqueues the run."""

from __future__ import annotations

import asyncio

from ..client.session import Session
from ..schedules.schedule import KIND
from ..schedules.service import Schedules


class Scheduler:
    """Writes the app's declared schedules to the store, then enqueues the runs that are due."""

    def __init__(self, schedules: Schedules, session: Session, poll: float) -> None:
        self._schedules = schedules
        self._outages = session.outages
        self._poll = poll
        self._changes = session.watched.changes(KIND, poll)
        self._task = asyncio.create_task(self._run())

    def stop(self) -> None:
        self._task.cancel()
        self._changes.close()

    async def _run(self) -> None:
        declared = False
        while True:
            pause = self._changes.pause
            try:
                if not declared:
                    await self._schedules.declare()
                    declared = True
                soon = await self._schedules.make_due_runs(self._changes.max_age)
                # Other processes may have changed the schedules: check at least once per poll interval.
                pause = pause if soon is None else min(pause, soon)
            except Exception as error:  # noqa: BLE001  # whatever a driver raises, the next round may work
                pause = self._outages.failed("checking schedules", error, self._poll)
            else:
                self._outages.worked("checking schedules")
            await self._changes.wait(pause)
