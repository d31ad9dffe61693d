"""Which client sends the heartbeats of a holder: records for that holder are not for other clients."""

from __future__ import annotations

from collections.abc import Iterable

from ..core.clock import Clock
from ..core.operations import Holder
from ..observe.actors import current_actor


class Senders:
    """The clients of one server, by the holders whose heartbeats it has received from them.

    A holder stays with its client until its lease expires, so that no other client takes it over by a heartbeat. A
    holder whose heartbeats go to other servers is unknown here.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[str, tuple[str, float]] = {}
        """By the holder's id: the sender's name, and when the lease expires (monotonic clock)."""

    def heard(self, holders: Iterable[Holder]) -> None:
        """The current sender has renewed these leases."""
        now, sender = self._clock.monotonic(), current_actor().name
        for holder in holders:
            if holder.id not in self._known:
                self._known = {id: kept for id, kept in self._known.items() if kept[1] > now}
            known, until = self._known.get(holder.id, (sender, 0.0))
            if known == sender or until <= now:
                self._known[holder.id] = sender, now + holder.lease

    def allows(self, holder: str) -> bool:
        """Whether the current sender may write for this holder: another one is not known to send its heartbeats."""
        known, until = self._known.get(holder, ("", 0.0))
        return until <= self._clock.monotonic() or known == current_actor().name
