"""Maintenance by every worker, without a leader: recover lost claims, release paused jobs, enforce retention."""

from __future__ import annotations

import asyncio

from ..client.claims import ManualClaims
from ..client.session import TIDY_LIMIT, Session
from ..client.signals import SignalMaintenance
from .processes import process_table

TIDY_EVERY = 30.0
"""Seconds, on average, between removals of expired jobs; randomized, so that workers do not run together."""


class Maintenance:
    """Runs about once per poll interval; a round without work writes nothing.

    Claims with an expired lease are recovered from `first_look` seconds on: after a store outage, live workers can
    renew their leases before that. Claims of a process that provably ended are recovered at once.
    """

    def __init__(self, session: Session, claims: ManualClaims, every: float, first_look: float) -> None:
        self._session = session
        self._claims = claims
        self._every = every
        session.give_way(first_look)
        session.end_remains = process_table.sweep
        self._task = asyncio.create_task(self._run())

    def stop(self) -> None:
        self._task.cancel()

    async def _run(self) -> None:
        session = self._session
        clock, entropy = session.clock, session.entropy
        signals, tidy_at = SignalMaintenance(session), clock.monotonic() + TIDY_EVERY * entropy.fraction()
        while True:
            pause = self._every
            try:
                session.fresh_settings()
                sweeps = "sweeps" not in session.store.features  # else the server does it
                if sweeps:
                    await self._claims.recover()
                await session.task_pauses.refresh(self._every / 2)
                if sweeps:
                    await session.task_pauses.release_late()
                if sweeps and clock.monotonic() >= tidy_at:
                    tidied = await session.store.tidy(TIDY_LIMIT)
                    await signals.run()
                    full = max(tidied.jobs, tidied.keys) >= TIDY_LIMIT
                    tidy_at = clock.monotonic() + (0.0 if full else TIDY_EVERY * (0.5 + entropy.fraction()))
            except Exception as error:  # noqa: BLE001  # whatever a driver raises, the next round may work
                pause = session.outages.failed("maintenance", error, self._every)
            else:
                session.outages.worked("maintenance")
            # Spread out, so that workers started together do not sweep together.
            await asyncio.sleep(pause * (0.5 + entropy.fraction()))
