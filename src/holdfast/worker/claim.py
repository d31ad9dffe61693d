"""CLAIM: how many jobs to ask for, when, and what wakes a worker that found none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ..client.session import Session
from ..core.errors import HoldfastError, StoreLost
from ..core.job import Record
from ..core.operations import Ask, Claims, Holder
from ..observe.outages import REFUSALS
from ..store.protocol import Listener
from .dependency_release import DependencyRelease
from .lease import Leases
from .queue_rotation import QueueRotation
from .slots import Slots

LONGEST_CLAIM_PAUSE = 2.0
"""Seconds between claims from a store that is away, if `poll` is not longer: jobs must not wait for a worker that
sleeps on after the store is back, and a claim now and then costs no more than when all is well."""
IDLE_LOOK = 0.05
"""Seconds between looks of a worker that is to end once it is idle."""


class Claimer:
    """Keeps the slots filled: as many jobs as there are free slots, never more.

    A quarantined job (a job whose process died under it) runs beside quarantined jobs only, and alone once it has died beside them.
    Where it gets a process of its own, it is claimed like any other. Else, while one waits for an idle process, this
    one stops claiming so that it runs empty; but not for longer than a lease, lest a long job keep all others waiting.
    """

    def __init__(
        self,
        session: Session,
        slots: Slots,
        leases: Leases,
        begin: Callable[[Record], None],
        *,
        poll: float,
        turns: QueueRotation,
        until_idle: bool,
        freeing: DependencyRelease,
    ) -> None:
        self._session = session
        self._slots = slots
        self._leases = leases
        self._holder: Holder = leases.holder
        self._begin = begin
        self._poll = poll
        self._until_idle = until_idle
        self._freeing = freeing
        self._turns = turns
        self._patient_until = -self._holder.lease
        self._loop = asyncio.get_running_loop()

    async def run(self, listener: Listener) -> None:
        """Claim until cancelled (or, with `until_idle`, until nothing is ready and nothing runs)."""
        faults, claimed, outages = 0, False, self._session.outages
        while True:
            free = self._free()
            if free <= 0:
                self._slots.freed.clear()
                await self._slots.freed.wait()
                continue
            quiet = self._until_idle and await self._quiet()
            try:
                await self._session.holds.fresh()
                claims = await self._leases.claim(self._ask(free), self._begin)
            except StoreLost:
                raise  # it will not come back: the worker ends
            except HoldfastError as error:
                if not claimed and isinstance(error, REFUSALS):
                    raise  # it cannot work at all
                faults += 1
                pause = outages.failed("claim", error, self._poll)
                if not isinstance(error, REFUSALS):
                    pause = min(max(self._poll, LONGEST_CLAIM_PAUSE), self._poll * 2 ** min(faults, 5))
                await asyncio.sleep(pause)
                continue
            faults, claimed = 0, True
            outages.worked("claim")
            self._mind_quarantined(claims)
            if claims.records:
                continue
            if quiet and await self._quiet():
                return
            await listener.wait(self._pause(claims))

    async def _quiet(self) -> bool:
        """Whether nothing here can make another job ready. It was so before a claim that found nothing: all is done."""
        return not self._slots and not self._slots.settling and await self._freeing.idle()

    def _ask(self, free: int) -> Ask:
        busy = bool(self._slots) and not self._slots.isolate_quarantined
        return Ask(self._holder, self._turns.next(), free, self._session.entropy.token(), None, busy)

    def _free(self) -> int:
        patient = self._slots and self._patient_until > self._now()
        return 0 if patient else self._slots.free()

    def _mind_quarantined(self, claims: Claims) -> None:
        lease, now = self._holder.lease, self._now()
        if (
            claims.quarantined_waiting
            and self._slots
            and not self._slots.isolate_quarantined
            and now > self._patient_until + lease
        ):
            self._patient_until = now + lease
            self._loop.call_later(lease, self._slots.freed.set)

    def _pause(self, claims: Claims) -> float:
        pause = self._poll if claims.due_in is None else min(self._poll, claims.due_in + 0.001)
        return min(pause, IDLE_LOOK) if self._until_idle else pause

    def _now(self) -> float:
        return self._session.clock.monotonic()
