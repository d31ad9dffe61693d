"""Leases without a shared clock: a lease expires once its holder was watched without a heartbeat for its full length.

Watching is done by a monotonic clock, and only time between two looks that succeeded counts: after an outage, in which
nobody could beat, nobody is found dead. A disk that is full can still be read, so a write that fails ends all watching,
and it begins anew. What one process has watched another can go on from: it is written to the log
(`Watched`), and counted there if the holder has not beaten since and nobody else has counted the same time.
"""

from __future__ import annotations

import msgspec

from ...core.clock import Clock
from ..reference.jobs import Holding
from .replica import Replica
from .wire import Watched

GAP = 0.25
"""The part of a lease that may lie between two looks."""


class _Sight(msgspec.Struct):
    heartbeat: int
    until: int
    """The watch of the log that this one goes on from."""
    since: int
    """The log's position when it began."""
    seconds: float = 0.0


class Watch:
    """What this process has seen of every holder."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._looked = clock.monotonic()
        self._sights: dict[str, _Sight] = {}

    def look(self, replica: Replica) -> None:
        """The state is the log's, now: count the time since the last look for whoever is silent still."""
        now = self._clock.monotonic()
        gap, self._looked = now - self._looked, now
        sights: dict[str, _Sight] = {}
        for id, known in replica.jobs.holders.items():
            sight, watched = self._sights.get(id), replica.seconds_watched(known)
            if sight is None or sight.heartbeat != known.heartbeat or sight.until != watched.until:
                sight = _Sight(known.heartbeat, watched.until, replica.position)
            elif gap <= known.lease * GAP:
                sight.seconds += gap
            sights[id] = sight
        self._sights = sights

    def begin_anew(self) -> None:
        """A write failed, so heartbeats may fail too: nothing that was seen so far speaks against a holder."""
        self._sights = {}

    def silent(self, replica: Replica, known: Holding) -> float:
        """Seconds for which a holder was seen to be silent, by everybody together."""
        watched, sight = replica.seconds_watched(known), self._sights.get(known.holder.id)
        goes_on = sight is not None and sight.heartbeat == known.heartbeat and sight.until == watched.until
        return watched.seconds + (sight.seconds if sight is not None and goes_on else 0.0)

    def ended(self, replica: Replica, known: Holding) -> bool:
        """Whether a holder's lease has ended."""
        return known.left or self.silent(replica, known) >= known.lease

    def worth_telling(self, replica: Replica, least: float) -> list[Watched]:
        """What was watched here and is not in the log yet, of holders whose lease may be ending."""
        found: list[Watched] = []
        for id, sight in self._sights.items():
            known = replica.jobs.holders.get(id)
            if known is not None and known.heartbeat == sight.heartbeat and not known.left and sight.seconds > least:
                found.append(Watched(id, sight.heartbeat, sight.since, sight.seconds))
        return found

    def long_silent(self, replica: Replica) -> list[Watched]:
        """The same for a process that lives on: a quarter of a lease at a time, once half of it is over."""
        return [
            watched
            for watched in self.worth_telling(replica, 0.0)
            if (known := replica.jobs.holders[watched.holder]).jobs
            and watched.seconds >= known.lease * GAP
            and known.lease / 2 <= self.silent(replica, known) < known.lease
        ]
