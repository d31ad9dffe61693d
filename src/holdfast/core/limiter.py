"""The rules of a limit key: may a job of it start now, when may the next, and where does a new one stand. Pure.

A limit key that does not let a job start holds it: the claim that meets it sets it aside, blocked, and goes on to the next,
so that a full limit key costs nobody else anything. The limiter says when it is worth looking at what is held: at a time, where
a rate or a rest is in the way; as soon as a job of the limit key has left, where it was full; and after a while in any case,
for what was let go may stand in a queue that is paused, or that nobody serves.

Turns are start-time fair queueing: a job of a limit key with a weight stands one step behind the last one of its limit key, but
never before the head of its queue nor far behind its tail. So each limit key has a job among the first, however many it has.
Turns fall behind the clock where jobs come faster than they go. Whatever stands by the clock (jobs without a limit key, and
those that come back) would wait for as long as that goes on; so no turn lies more than a day back.
"""

from __future__ import annotations

import msgspec

from .clock import MICROS
from .job import LimitKey

STEP = 1000
"""Microseconds between the turns of two jobs of a limit key of weight 1."""
LAG = 86400 * MICROS
"""How far back a turn may lie."""
LOOK_AGAIN = 60 * MICROS
"""After this a limit key that holds jobs though it is not full lets more of them go."""
KEPT = 86400 * MICROS
"""For how long a limiter is remembered that nobody needs any more."""
AT_ONCE = 0
"""When a limiter opens that the next claim is to look at, whatever its clock says."""


class Limiter(msgspec.Struct):
    """What is remembered of a limit key. All times are in microseconds."""

    tat: int = 0
    """The theoretical arrival time of the next start (as in GCRA): one interval behind the last one's."""
    rest_until: int = 0
    """No job starts before."""
    finish: int = 0
    """The turn after that of its last job."""
    opens_at: int | None = None
    """When to look at what is held; None: when a job of it leaves, or never, where nothing is held."""

    def starts(self, limit_key: LimitKey, running: int, now: int) -> int:
        """How many jobs of the limit key may start now, with so many running; at most 2**31."""
        many = 1 << 31
        if self.rest_until > now:
            return 0
        if limit_key.concurrency:
            many = max(0, limit_key.concurrency - running)
        if limit_key.interval:
            spare = (limit_key.burst - 1) * limit_key.interval - (max(self.tat, now) - now)
            many = min(many, 0 if spare < 0 else spare // limit_key.interval + 1)
        return many

    def started(self, limit_key: LimitKey, now: int) -> None:
        """One more has started."""
        if limit_key.interval:
            self.tat = max(self.tat, now) + limit_key.interval

    def next_look(self, limit_key: LimitKey, running: int, now: int) -> int | None:
        """When to look again at what is still held, once as many as could were let go."""
        if limit_key.concurrency and running >= limit_key.concurrency:
            return None
        when = self.rest_until
        if limit_key.interval:
            when = max(when, self.tat - (limit_key.burst - 1) * limit_key.interval)
        return when if when > now else now + (limit_key.interval or LOOK_AGAIN)

    def turn(self, limit_key: LimitKey, ends: tuple[int, int] | None, now: int) -> int:
        """Where a new job stands that is ready now; `ends`: the first and the last turn of its queue and priority."""
        step = max(1, STEP // limit_key.weight)
        turn = now if ends is None else max(min(max(ends[0], self.finish), ends[1] + step), now - LAG)
        self.finish = turn + step
        return turn

    def idle_since(self) -> int:
        """The last time that it says anything about."""
        return max(self.tat, self.rest_until, self.finish)
