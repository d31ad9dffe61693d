"""The rules of a limit key, without I/O: may a job start now, when may the next, and its place in the fair order.

A claim defers a job that its limit key does not allow to start: the job is blocked, and the claim continues with the
next, so a full limit key delays no other job. The limiter states when to release deferred jobs: at a time, if a rate or
a reported rate limit is in effect; when a job of the limit key ends, if it was full; and after LOOK_AGAIN in any case,
because released jobs may be in a queue that is paused or not served.

The fair order is start-time fair queueing: a job is placed one step after the last job of its limit key, but not before
the head of its queue nor far behind its tail. So each limit key has a job near the head, however many jobs it has.
Places fall behind the clock when jobs arrive faster than they run. Jobs that are ordered by time (those without a limit
key, and retries) would starve then, so no place lies more than LAG in the past.
"""

from __future__ import annotations

import msgspec

from .clock import MICROS
from .job import LimitKey

STEP = 1000
"""Microseconds between the places of two jobs of a limit key of weight 1."""
LAG = 86400 * MICROS
"""How far in the past a place may lie."""
LOOK_AGAIN = 60 * MICROS
"""After this, a limit key with deferred jobs that is not full releases more of them."""
KEPT = 86400 * MICROS
"""How long an unused limiter is remembered."""
AT_ONCE = 0
"""Value of `opens_at` that makes the next claim release jobs, whatever its clock shows."""


class Limiter(msgspec.Struct):
    """The stored state of a limit key. All times are in microseconds."""

    tat: int = 0
    """The theoretical arrival time of the next start (GCRA): one interval after that of the last start."""
    rest_until: int = 0
    """No job starts before this time."""
    finish: int = 0
    """The place after that of its last job."""
    opens_at: int | None = None
    """When to release deferred jobs; None: when a job of the key ends, or never, if none is deferred."""

    def starts(self, limit_key: LimitKey, running: int, now: int) -> int:
        """How many jobs of the limit key may start now, with `running` jobs running; at most 2**31."""
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
        if limit_key.interval:
            self.tat = max(self.tat, now) + limit_key.interval

    def next_look(self, limit_key: LimitKey, running: int, now: int) -> int | None:
        """When to release deferred jobs again, after as many as possible were released."""
        if limit_key.concurrency and running >= limit_key.concurrency:
            return None
        when = self.rest_until
        if limit_key.interval:
            when = max(when, self.tat - (limit_key.burst - 1) * limit_key.interval)
        return when if when > now else now + (limit_key.interval or LOOK_AGAIN)

    def position(self, limit_key: LimitKey, ends: tuple[int, int] | None, now: int) -> int:
        """The fair position of a new, ready job; `ends`: the first and last position in its queue and priority."""
        step = max(1, STEP // limit_key.weight)
        position = now if ends is None else max(min(max(ends[0], self.finish), ends[1] + step), now - LAG)
        self.finish = position + step
        return position

    def idle_since(self) -> int:
        """The latest time that this state depends on."""
        return max(self.tat, self.rest_until, self.finish)
