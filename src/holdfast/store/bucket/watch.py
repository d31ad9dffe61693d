"""Leases without a shared clock: a lease expires once its holder was watched without a heartbeat for its full length.

A process watches by its monotonic clock, and counts only the time between two successful reads: an outage, in which no
heartbeat could be written, expires no lease. A full disk can still be read, so a failed write restarts all watching.
Another process continues from what one has watched: it is written to the log (`Watched`), and counted there if the
holder has sent no heartbeat since and no other process has counted the same time.
"""

from __future__ import annotations

import msgspec

from ...core.clock import Clock
from ..reference.jobs import Holding
from .log_format import Watched
from .replica import Replica

GAP = 0.25
"""The part of a lease that may pass between two reads."""


class _Sight(msgspec.Struct):
    heartbeat: int
    until: int
    """The watch in the log from which this one continues."""
    since: int
    """The log's position when it began."""
    seconds: float = 0.0


class Watch:
    """What this process has observed of every holder."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._looked = clock.monotonic()
        self._sights: dict[str, _Sight] = {}

    def look(self, replica: Replica) -> None:
        """The state has just been read: count the time since the last read for each holder without a new heartbeat."""
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
        """A write failed, so heartbeats may fail too: forget the time counted so far."""
        self._sights = {}

    def silent(self, replica: Replica, known: Holding) -> float:
        """Seconds for which all processes together have watched a holder without a heartbeat."""
        watched, sight = replica.seconds_watched(known), self._sights.get(known.holder.id)
        goes_on = sight is not None and sight.heartbeat == known.heartbeat and sight.until == watched.until
        return watched.seconds + (sight.seconds if sight is not None and goes_on else 0.0)

    def ended(self, replica: Replica, known: Holding) -> bool:
        """Whether a holder's lease has expired."""
        return known.left or self.silent(replica, known) >= known.lease

    def worth_recording(self, replica: Replica, least: float) -> list[Watched]:
        """The time watched here that is not in the log yet, where it is more than `least` seconds."""
        found: list[Watched] = []
        for id, sight in self._sights.items():
            known = replica.jobs.holders.get(id)
            if known is not None and known.heartbeat == sight.heartbeat and not known.left and sight.seconds > least:
                found.append(Watched(id, sight.heartbeat, sight.since, sight.seconds))
        return found

    def long_silent(self, replica: Replica) -> list[Watched]:
        """The same while this process runs: a quarter of a lease at a time, once half of it is over."""
        return [
            watched
            for watched in self.worth_recording(replica, 0.0)
            if (known := replica.jobs.holders[watched.holder]).jobs
            and watched.seconds >= known.lease * GAP
            and known.lease / 2 <= self.silent(replica, known) < known.lease
        ]
