"""The rules of a lane: may a job of it start now, when may the next, and where does a new one stand. Pure.

A lane that does not let a job start holds it: the claim that meets it sets it aside, blocked, and goes on to the next,
so that a full lane costs nobody else anything. The gate says when it is worth looking at what is held: at a time, where
a rate or a rest is in the way; as soon as a job of the lane has left, where it was full; and after a while in any case,
for what was let go may stand in a queue that is paused, or that nobody serves.

Turns are start-time fair queueing: a job of a lane with a weight stands one step behind the last one of its lane, but
never before the head of its queue nor far behind its tail. So each lane has a job among the first, however many it has.
Turns fall behind the clock where jobs come faster than they go. Whatever stands by the clock (jobs without a lane, and
those that come back) would wait for as long as that goes on; so no turn lies more than a day back.
"""

from __future__ import annotations

import msgspec

from .clock import MICROS
from .job import Lane

STEP = 1000
"""Microseconds between the turns of two jobs of a lane of weight 1."""
LAG = 86400 * MICROS
"""How far back a turn may lie."""
LOOK_AGAIN = 60 * MICROS
"""After this a lane that holds jobs though it is not full lets more of them go."""
KEPT = 86400 * MICROS
"""For how long a gate is remembered that nobody needs any more."""
AT_ONCE = 0
"""When a gate opens that the next claim is to look at, whatever its clock says."""


class Gate(msgspec.Struct):
    """What is remembered of a lane. All times are in microseconds."""

    tat: int = 0
    """The theoretical arrival time of the next start (as in GCRA): one interval behind the last one's."""
    rest_until: int = 0
    """No job starts before."""
    finish: int = 0
    """The turn after that of its last job."""
    opens_at: int | None = None
    """When to look at what is held; None: when a job of it leaves, or never, where nothing is held."""

    def starts(self, lane: Lane, running: int, now: int) -> int:
        """How many jobs of the lane may start now, with so many running; at most 2**31."""
        many = 1 << 31
        if self.rest_until > now:
            return 0
        if lane.running:
            many = max(0, lane.running - running)
        if lane.interval:
            spare = (lane.burst - 1) * lane.interval - (max(self.tat, now) - now)
            many = min(many, 0 if spare < 0 else spare // lane.interval + 1)
        return many

    def started(self, lane: Lane, now: int) -> None:
        """One more has started."""
        if lane.interval:
            self.tat = max(self.tat, now) + lane.interval

    def next_look(self, lane: Lane, running: int, now: int) -> int | None:
        """When to look again at what is still held, once as many as could were let go."""
        if lane.running and running >= lane.running:
            return None
        when = self.rest_until
        if lane.interval:
            when = max(when, self.tat - (lane.burst - 1) * lane.interval)
        return when if when > now else now + (lane.interval or LOOK_AGAIN)

    def turn(self, lane: Lane, ends: tuple[int, int] | None, now: int) -> int:
        """Where a new job stands that is ready now; `ends`: the first and the last turn of its queue and priority."""
        step = max(1, STEP // lane.weight)
        turn = now if ends is None else max(min(max(ends[0], self.finish), ends[1] + step), now - LAG)
        self.finish = turn + step
        return turn

    def idle_since(self) -> int:
        """The last time that it says anything about."""
        return max(self.tat, self.rest_until, self.finish)
