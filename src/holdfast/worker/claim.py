"""Claim loop: how many jobs to claim, when, and what wakes a worker that found none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ..client.session import Session
from ..client.watched_records import idle_pause
from ..core.errors import HoldfastError, StoreLost
from ..core.job import Record
from ..core.operations import Ask, Claims
from ..observe.outages import REFUSALS
from ..store.protocol import Listener
from .dependency_release import DependencyRelease
from .lease import Leases
from .prefetch import Prefetch
from .queue_rotation import QueueRotation
from .slots import Slots

LONGEST_CLAIM_PAUSE = 2.0
"""Seconds, at most, between claims while the store is unavailable, if `poll` is not longer: workers notice soon that
it is back."""
IDLE_POLL = 0.05
"""Seconds between claims of a worker that ends once it is idle (`until_idle`)."""


class Claimer:
    """Keeps the slots filled: claims as many jobs as there are free slots, and those that `Prefetch` adds.

    A quarantined job (its process crashed while it ran) runs only with other quarantined jobs, and alone after a crash
    together with them. With `isolate_quarantined` it gets its own process and is claimed like any other. Otherwise,
    while one waits for an idle process, this worker stops claiming until it is idle, at most for one lease.
    """

    def __init__(
        self,
        session: Session,
        slots: Slots,
        leases: Leases,
        begin: Callable[[Record], None],
        *,
        begin_ahead: Callable[[Record], None],
        prefetch: Prefetch,
        poll: float,
        rotation: QueueRotation,
        until_idle: bool,
        dependency_release: DependencyRelease,
    ) -> None:
        self._session = session
        self._slots = slots
        self._leases = leases
        self._lease = leases.holder.lease
        self._begin = begin
        self._begin_ahead = begin_ahead
        self._prefetch = prefetch
        self._poll = poll
        self._until_idle = until_idle
        self._dependency_release = dependency_release
        self._rotation = rotation
        self._draining_until = -self._lease
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
                await self._session.task_pauses.fresh()
                begin = self._begin_ahead if free > self._slots.free() else self._begin
                claims = await self._leases.claim(self._ask(free), begin)
            except StoreLost:
                raise  # the store will not come back: the worker ends
            except HoldfastError as error:
                if not claimed and isinstance(error, REFUSALS):
                    raise  # this worker can never claim
                faults += 1
                pause = outages.failed("claiming jobs", error, self._poll)
                if not isinstance(error, REFUSALS):
                    pause = min(max(self._poll, LONGEST_CLAIM_PAUSE), self._poll * 2 ** min(faults, 5))
                await asyncio.sleep(pause)
                continue
            faults, claimed = 0, True
            outages.worked("claiming jobs")
            self._drain_for_quarantined(claims)
            if claims.records:
                continue
            if quiet and await self._quiet():
                return
            await listener.wait(self._pause(claims, idle_pause(self._poll, notified=listener.reliable)))

    async def _quiet(self) -> bool:
        """Whether nothing here can make a job ready. If so before and after an empty claim, the worker is done."""
        return not self._slots and not self._slots.settling and await self._dependency_release.idle()

    def _ask(self, free: int) -> Ask:
        busy = bool(self._slots) and not self._slots.isolate_quarantined
        return Ask(self._leases.holder, self._rotation.next(), free, self._session.entropy.token(), None, busy)

    def _free(self) -> int:
        draining = self._slots and self._draining_until > self._now()
        return 0 if draining else self._prefetch.room()

    def _drain_for_quarantined(self, claims: Claims) -> None:
        lease, now = self._lease, self._now()
        if (
            claims.quarantined_waiting
            and self._slots
            and not self._slots.isolate_quarantined
            and now > self._draining_until + lease
        ):
            self._draining_until = now + lease
            self._loop.call_later(lease, self._slots.freed.set)

    def _pause(self, claims: Claims, poll: float) -> float:
        pause = poll if claims.due_in is None else min(poll, claims.due_in + 0.001)
        return min(pause, IDLE_POLL) if self._until_idle else pause

    def _now(self) -> float:
        return self._session.clock.monotonic()
