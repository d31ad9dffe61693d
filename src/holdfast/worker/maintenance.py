"""Maintenance by every worker, without a leader: recover lost claims, release paused jobs, enforce retention."""

from __future__ import annotations

import asyncio
import math

from ..client import audit_log, control, signals
from ..client.claims import ManualClaims
from ..client.pauses import KIND
from ..client.session import TIDY_LIMIT, Session
from .processes import process_table

TIDIED_KINDS = (*signals.SIGNAL_KINDS, audit_log.HOURS, *control.CONTROL_KINDS)
TIDY_EVERY = 30.0
"""Seconds, on average, between removals of expired jobs; randomized, so that workers do not run together."""


class Maintenance:
    """Runs about once per poll interval, less often with reliable notifications; a round without work writes nothing.

    Claims with an expired lease are recovered from `first_look` seconds on: after a store outage, live workers can
    renew their leases before that. Claims of a process that provably ended are recovered at once. `lease` is the usual
    lease of workers, 0 if it may be short.
    """

    def __init__(
        self, session: Session, claims: ManualClaims, every: float, first_look: float, *, lease: float = 0.0
    ) -> None:
        self._session = session
        self._claims = claims
        self._every = every
        self._lease = lease
        self._changes = session.watched.changes(KIND, every)
        session.give_way(first_look)
        session.end_remains = process_table.sweep
        self._task = asyncio.create_task(self._run())

    def stop(self) -> None:
        self._task.cancel()
        self._changes.close()

    async def _run(self) -> None:
        session = self._session
        clock, entropy = session.clock, session.entropy
        parts = (
            signals.SignalMaintenance(session),
            audit_log.AuditMaintenance(session),
            control.ControlMaintenance(session),
        )
        tidy_at = clock.monotonic() + TIDY_EVERY * entropy.fraction()
        while True:
            pause, soonest = self._pause(), math.inf
            try:
                session.fresh_settings()
                sweeps = "sweeps" not in session.store.features  # else the server does it
                if sweeps:
                    await self._claims.recover(max_age=0.0 if pause == self._every else 2 * pause)
                    soonest = max(0.0, session.next_expiry())
                await session.task_pauses.refresh(self._changes.max_age)
                if sweeps and session.task_pauses.lifted:
                    await session.task_pauses.release_late()
                    pause = self._every
                if sweeps and clock.monotonic() >= tidy_at:
                    tidied = await session.store.tidy(TIDY_LIMIT)
                    found = await session.store.records(TIDIED_KINDS)
                    for part in parts:
                        await part.run(found)
                    full = max(tidied.jobs, tidied.keys) >= TIDY_LIMIT
                    tidy_at = clock.monotonic() + (0.0 if full else TIDY_EVERY * (0.5 + entropy.fraction()))
                    pause = self._every if full else pause
            except Exception as error:  # noqa: BLE001  # whatever a driver raises, the next round may work
                pause, soonest = session.outages.failed("maintenance", error, self._every), math.inf
            else:
                session.outages.worked("maintenance")
            # Spread out, so that workers started together do not sweep together.
            spread = 0.5 + entropy.fraction()
            await self._changes.wait(min(pause * spread, soonest + self._every * spread))

    def _pause(self) -> float:
        """Average seconds between two rounds. A new holder is listed within four of them, before its lease ends."""
        pause = self._changes.pause
        return pause if self._lease > 4 * pause else self._every
