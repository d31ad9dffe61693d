"""Following the log: join it, read to its head, and know when the state is verified.

The hole that this closes: a put-if-absent on a number that was written, applied by others and *cleaned away* succeeds.
A process that was paused that long would win a number that no other reads, or read one that such a process won. So:

- Proof of head at time t: the number after the last was not there, and *then* no snapshot at or beyond it was listed.
  Only this, or an own genuine commit, counts as fresh. Reading entries never does.
- When more than `verify_after` has passed since fresh, nothing that was read is believed, and no commit reported,
  before the snapshots were listed. Cleaning waits three times as long and more before it removes anything.

ADR 0041 has all the rules.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

from ...core.clock import Clock
from .elapsed_guard import Moment
from .replica import ChainBroken, Done, Replica, Snapshot, load
from .seam import Bucket
from .timings import Pace
from .wire import Damaged, Entry, decode, log_key, number_of, snapshot_key

T = TypeVar("T")
AHEAD = 64
"""Entries that are read at once, at the most; it begins with one and doubles while there are more."""
READ_AGAIN = (0.05, 0.2, 0.5)
"""Seconds before an object that looks damaged is read again: an answer may have been cut short."""


class Stale(Exception):
    """This process fell behind: its state is not, or not provably, the log's. Join again."""


class Read(NamedTuple):
    """An entry as it was read."""

    entry: Entry
    data: bytes


class Log:
    """One process's place in the log. Several tasks may read and write at once: an entry is applied by the first."""

    def __init__(
        self, bucket: Bucket, clock: Clock, pace: Pace, applied: Callable[[Replica, dict[tuple[str, int], Done]], None]
    ) -> None:
        self._bucket = bucket
        self._clock = clock
        self._pace = pace
        self._applied = applied
        self.replica = self._coming = Replica()
        """The state; and the one that takes its place once it is known to be the head's."""
        self.fresh: Moment | None = None
        self._joining = asyncio.Lock()

    # -- joining

    async def join(self, instead_of: Replica) -> None:
        """Take the highest snapshot, replay what follows, and prove that this is the head; unless another task has.

        Nobody sees the new state before that.
        """
        async with self._joining:
            if self.replica is instead_of:
                self.fresh = None
                with _uncollected():
                    self.replica, self.fresh = await self._anew()
                self.replica.jobs.records_transitions = instead_of.jobs.records_transitions
                self._applied(self.replica, {})

    async def _anew(self) -> tuple[Replica, Moment]:
        while True:
            self._coming = await self._start()
            self._coming.jobs.records_transitions = self.replica.jobs.records_transitions
            try:
                asked = await self._to_head(self._coming)
                await self.verify(self._coming, self._coming.position + 1)
            except Stale:
                continue
            return self._coming, asked

    async def _start(self) -> Replica:
        while listed := await self._bucket.list("snapshot/"):
            key = listed[-1].key
            found = await self.fetch(key, Snapshot)
            if found is not None:
                return load(found[0], len(found[1]))
        return Replica()

    # -- following

    async def follow(self) -> None:
        """Read on to the head, and make sure of it. Stale where this state has fallen behind what is kept."""
        replica = self.replica
        asked = await self._to_head(replica)
        if self._age() >= self._pace.verify_after * 0.8:
            await self.verify(replica, replica.position + 1)
            self.fresh = asked
        self.still(replica)

    async def _to_head(self, replica: Replica) -> Moment:
        """Read on until a number is not there; when that was asked."""
        window = 1
        while True:
            asked = Moment.of(self._clock)
            first = replica.position + 1
            found = await asyncio.gather(*(self.read(number) for number in range(first, first + window)))
            for number, read in enumerate(found, first):
                if read is None:
                    break
                self.apply(replica, number, read)
            else:
                window = min(AHEAD, window * 2)
                continue
            if replica.position < first + found.index(None):  # else another task was quicker
                return asked

    async def read(self, number: int) -> Read | None:
        found = await self.fetch(log_key(number), Entry)
        return None if found is None else Read(*found)

    async def fetch(self, key: str, kind: type[T]) -> tuple[T, bytes] | None:
        """An object of some kind, and its bytes; None where there is none."""
        for pause in (*READ_AGAIN, None):
            data = await self._bucket.get(key)
            if data is None:
                return None
            try:
                return decode(key, data, kind), data
            except Damaged:
                if pause is None:
                    raise
                await asyncio.sleep(pause)
        raise AssertionError

    def apply(self, replica: Replica, number: int, read: Read) -> None:
        """Apply an entry, unless another task has."""
        if not self._counts(replica):
            raise Stale
        if number <= replica.position:
            return
        try:
            done = replica.apply(number, read.entry, len(read.data))
        except ChainBroken as error:
            raise Stale from error
        self._applied(replica, done)

    def _counts(self, replica: Replica) -> bool:
        """Whether nobody has joined again since."""
        return replica is self.replica or replica is self._coming

    # -- believing

    def still(self, replica: Replica) -> None:
        """Stale where another task has joined again."""
        if self.replica is not replica:
            raise Stale

    def _age(self) -> float:
        return float("inf") if self.fresh is None else self.fresh.until(Moment.of(self._clock))

    @property
    def believable(self) -> bool:
        """Whether what was read can be believed as it is."""
        return self._age() <= self._pace.verify_after and self._pace.verify_after > 0

    async def verify(self, replica: Replica, number: int) -> None:
        """Make sure that `number` was never cleaned away; Stale where it may have been."""
        listed = await self._bucket.list("snapshot/", after=snapshot_key(number - 1))
        if not self._counts(replica) or any(number_of(each.key) >= number for each in listed):
            raise Stale

    async def trust(self) -> None:
        """Before anything that was read or written is reported."""
        if not self.believable:
            await self.verify(self.replica, self.replica.position + 1)

    async def won(self, replica: Replica, number: int, read: Read, first_put: Moment) -> None:
        """An own entry was created: apply it, once it is known to be genuine."""
        if not self.believable:
            await self.verify(replica, number)
        if self.fresh is None or first_put.monotonic > self.fresh.monotonic:
            self.fresh = first_put
        self.apply(replica, number, read)


@contextmanager
def _uncollected() -> Generator[None]:
    """Without the garbage collector, which would look through a million new jobs again and again, and find none."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
