"""What every worker does on the side, with no leader: recover lost claims, free and remove what is due."""

from __future__ import annotations

import asyncio

from ..client.claims import ManualClaims
from ..client.session import TIDY_LIMIT, Session
from ..client.signals import SignalMaintenance
from .processes import process_table

TIDY_EVERY = 30.0
"""Seconds between two removals of what is past its retention, about: chance spreads those of many workers."""


class Maintenance:
    """Looks about once per poll interval; looking writes nothing unless there is something to do.

    Claims whose lease has run out are lost from `first_look` seconds on: if the store was away until now, heartbeats that
    live come first. Those of a process that is proven to be gone are lost at once.
    """

    def __init__(self, session: Session, claims: ManualClaims, every: float, first_look: float) -> None:
        self._session = session
        self._claims = claims
        self._every = every
        session.give_way(first_look)
        session.end_remains = process_table.sweep
        self._task = asyncio.create_task(self._run())

    def stop(self) -> None:
        """No more maintenance."""
        self._task.cancel()

    async def _run(self) -> None:
        session = self._session
        clock, entropy = session.clock, session.entropy
        signals, tidy_at = SignalMaintenance(session), clock.monotonic() + TIDY_EVERY * entropy.fraction()
        while True:
            pause = self._every
            try:
                session.fresh_settings()
                sweeps = "sweeps" not in session.store.features  # else whoever has the store does
                if sweeps:
                    await self._claims.recover()
                await session.holds.refresh(self._every / 2)
                if sweeps:
                    await session.holds.release_late()
                if sweeps and clock.monotonic() >= tidy_at:
                    tidied = await session.store.tidy(TIDY_LIMIT)
                    await signals.run()
                    full = max(tidied.jobs, tidied.keys) >= TIDY_LIMIT
                    tidy_at = clock.monotonic() + (0.0 if full else TIDY_EVERY * (0.5 + entropy.fraction()))
            except Exception as error:  # noqa: BLE001  # whatever a driver raises, the next look may fare better
                pause = session.outages.failed("maintenance", error, self._every)
            else:
                session.outages.worked("maintenance")
            # Spread out, so that workers started together do not sweep together.
            await asyncio.sleep(pause * (0.5 + entropy.fraction()))
