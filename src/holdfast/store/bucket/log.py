"""Following the log: join it, read to its head, and know when the state is verified.

A put-if-absent succeeds on a number that was written, applied by others and *deleted by cleaning*. A process that was
paused that long would win a number that no other process reads, or read one that such a process won. So:

- Proof of head at time t: the number after the last was missing, and *then* no snapshot at or beyond it was listed.
  Only this, or a verified commit of this process, counts as fresh. Reading entries never does.
- When more than `verify_after` has passed since fresh, nothing that was read is used, and no commit reported, before
  the snapshots were listed. Cleaning waits at least three times as long before it deletes anything.

ADR 0041 has all the rules.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

from ...core.clock import Clock
from .elapsed_guard import Instant
from .log_format import Damaged, Entry, decode, log_key, number_of, snapshot_key, unpacking
from .protocol import Bucket
from .replica import ChainBroken, Done, Replica, Snapshot, load
from .timings import Timings

T = TypeVar("T")
AHEAD = 64
"""Entries that are read at once, at most; the first read takes one, and each further read twice as many."""
FELL_BEHIND = (
    "this process fell behind the log of %s and reads it again from the newest snapshot; if this repeats, look for long"
    " pauses of this process or its network"
)
READ_AGAIN = (0.05, 0.2, 0.5)
"""Seconds before an object that looks damaged is read again: the answer may have been truncated."""


class Stale(Exception):
    """This process fell behind: its state may differ from that of the log. Join again."""


class Read(NamedTuple):
    """An entry as it was read."""

    entry: Entry
    data: bytes


class Log:
    """The position of one process in the log. Tasks may read and write concurrently; the first one applies an entry."""

    def __init__(
        self,
        bucket: Bucket,
        clock: Clock,
        timings: Timings,
        applied: Callable[[Replica, dict[tuple[str, int], Done]], None],
        start: Callable[[Log], Awaitable[Replica]],
    ) -> None:
        self.bucket = bucket
        self._clock = clock
        self._timings = timings
        self._applied = applied
        self._start = start
        self.replica = self._coming = Replica()
        """The state; and the one that replaces it once it is proven to be that of the head."""
        self.fresh: Instant | None = None
        self._joining = asyncio.Lock()

    # -- joining

    async def join(self, instead_of: Replica) -> None:
        """Start at a state of the log, replay later entries, and prove that this is the head; unless another task has.

        The new state is not used before that.
        """
        async with self._joining:
            if self.replica is instead_of:
                self.fresh = None
                with _uncollected():
                    self.replica, self.fresh = await self._anew()
                self.replica.jobs.records_transitions = instead_of.jobs.records_transitions
                self._applied(self.replica, {})

    async def _anew(self) -> tuple[Replica, Instant]:
        while True:
            self._coming = await self._start(self)
            self._coming.jobs.records_transitions = self.replica.jobs.records_transitions
            try:
                asked = await self._to_head(self._coming)
                await self.verify(self._coming, self._coming.position + 1)
            except Stale:
                continue
            return self._coming, asked

    # -- following

    async def follow(self) -> None:
        """Read to the head, and prove that it is the head. Stale if entries after this state were deleted."""
        replica = self.replica
        asked = await self._to_head(replica)
        if self._age() >= self._timings.verify_after * 0.8:
            await self.verify(replica, replica.position + 1)
            self.fresh = asked
        self.still(replica)

    async def _to_head(self, replica: Replica) -> Instant:
        """Read until a number is missing; the time before that request."""
        window = 1
        while True:
            asked = Instant.of(self._clock)
            first = replica.position + 1
            found = await asyncio.gather(*(self.read(number) for number in range(first, first + window)))
            for number, read in enumerate(found, first):
                if read is None:
                    break
                self.apply(replica, number, read)
            else:
                window = min(AHEAD, window * 2)
                continue
            if replica.position < first + found.index(None):  # else another task applied them first
                return asked

    async def read(self, number: int) -> Read | None:
        found = await self.fetch(log_key(number), Entry)
        return None if found is None else Read(*found)

    async def fetch(self, key: str, kind: type[T]) -> tuple[T, bytes] | None:
        """A decoded object, and its bytes; None if it is missing."""
        for pause in (*READ_AGAIN, None):
            data = await self.bucket.get(key)
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
        """Apply an entry, unless another task has applied it."""
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
        """Whether no task has joined again since."""
        return replica is self.replica or replica is self._coming

    # -- verification

    def still(self, replica: Replica) -> None:
        """Raise Stale if another task has joined again."""
        if self.replica is not replica:
            raise Stale

    def _age(self) -> float:
        return float("inf") if self.fresh is None else self.fresh.until(Instant.of(self._clock))

    @property
    def believable(self) -> bool:
        """Whether what was read can be used without listing the snapshots."""
        return self._age() <= self._timings.verify_after and self._timings.verify_after > 0

    async def verify(self, replica: Replica, number: int) -> None:
        """Prove that entry `number` was not deleted; Stale if it may have been."""
        listed = await self.bucket.list("snapshot/", after=snapshot_key(number - 1))
        if not self._counts(replica) or any(number_of(each.key) >= number for each in listed):
            raise Stale

    async def trust(self) -> None:
        """Verify the state if needed; called before anything that was read or written is reported."""
        if not self.believable:
            await self.verify(self.replica, self.replica.position + 1)

    async def won(self, replica: Replica, number: int, read: Read, first_put: Instant) -> None:
        """An entry of this process was created: apply it, once it is verified that its number was new."""
        if not self.believable:
            await self.verify(replica, number)
        if self.fresh is None or first_put.monotonic > self.fresh.monotonic:
            self.fresh = first_put
        self.apply(replica, number, read)


async def from_snapshot(log: Log) -> Replica:
    """The state of the highest snapshot."""
    while listed := await log.bucket.list("snapshot/"):
        found = await log.fetch(listed[-1].key, Snapshot)
        if found is not None:
            with unpacking(listed[-1].key, found[1]):
                return load(found[0], len(found[1]))
    return Replica()


@contextmanager
def _uncollected() -> Generator[None]:
    """Without the garbage collector, which would scan a million new jobs repeatedly, and free nothing."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
