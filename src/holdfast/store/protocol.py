"""The seam between the core and a store. Engines store; the core decides.

What an engine must keep, whatever it is made of:

1. `write` is one round trip for a batch of mixed operations. Each element is atomic and answered on its own, in order;
   kinds are applied in the order of `Batch`'s fields, so an ask sees what was settled and inserted beside it.
   `StoreUnavailable` means that nothing of the batch was written, `OutcomeUnknown` that it may have been; sending
   the same batch again (asks left out) is then safe: inserts are recognised by id and nonce, settlements by nonce.
2. Nothing ends or extends a claim unless fence *and* token are those of the claim.
3. A claim is one atomic step: it makes due jobs of its queues queued (at least 1,000 at a time), then takes the lowest
   (priority, run_at, seq) per queue, counts the attempt, and raises the fence. A paused queue gives nothing
   (records of kind `pause`, one per queue). A job whose limit key does not let it start is set aside, blocked, and made
   queued again by a later claim (`core/limiter.py` has the rules). An ask that finds nothing writes nothing.
   A quarantined job that comes first is taken only by a holder that is not busy, and only with quarantined jobs of its queue that have
   the same `crashes`: as many as there is room for at -2, COHORT at -1, none otherwise. One that is taken without
   company has 0 `crashes` from then on, if it had fewer.
4. A lease belongs to the holder and is measured by the store's own clock, never by the caller's. A holder that has
   running jobs is never forgotten.
5. A key is unique while it is remembered: for as long as its job lives, and `key_keep` seconds after its end.
6. What a job prints (`Note.output`) is kept in pieces, the newest within `keep` bytes, for as long as the job is kept.
7. Hints are only hints: everything works when none ever arrives.
8. What moves and what ends is told in the same commit: `transitions` while somebody watches, `minutes` always. A job that
   becomes due, is set aside by its limit key, or comes back from there, has not moved.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, runtime_checkable

import msgspec

from ..core.job import NewJob, Record
from ..core.operations import (
    Ask,
    Change,
    Claims,
    Found,
    HeartbeatReply,
    Holder,
    HolderInfo,
    Inserted,
    Lost,
    MinuteStats,
    Note,
    Printed,
    QueueStats,
    Settlement,
    Tidied,
    Transitions,
    Where,
)

PROMOTE_LIMIT = 1000
"""Due jobs that one claim makes queued per queue, at the least."""
HELD_LIMIT = 1000
"""Jobs that one claim sets aside because their limit keys are full, at the most."""
COHORT = 8
"""Quarantined jobs that run beside each other once they have died beside more: about the root of a large worker's slots."""
WATCH = 300.0
"""Seconds for which asking for moves has them kept."""
TRANSITIONS_KEPT = 10_000
"""Moves that are kept for whoever asks late, at the least."""
LARGE = 2**62
"""What is counted stays below this, so that every store can count on; what is stored at or above it is damaged."""
MINUTE_STATS_KEPT = 7 * 86400.0
"""Seconds for which minutes are kept."""


class Batch(msgspec.Struct, gc=False):
    """Operations that share one commit, applied in the order of these fields."""

    inserts: Sequence[NewJob] = ()
    notes: Sequence[Note] = ()
    settles: Sequence[Settlement] = ()
    changes: Sequence[Change] = ()
    asks: Sequence[Ask] = ()


class Answers(msgspec.Struct, gc=False):
    """One answer per operation of a Batch, in order. False: the claim has ended, or the job is not as it was seen."""

    inserts: Sequence[Inserted] = ()
    notes: Sequence[bool] = ()
    settles: Sequence[bool] = ()
    changes: Sequence[bool] = ()
    asks: Sequence[Claims] = ()


class Versioned(msgspec.Struct, frozen=True, gc=False):
    """A small shared record: its JSON value, and the version that a compare-and-set needs.

    Every set gives a version that the store has never given before, also after the record was removed.
    """

    value: bytes
    version: int


async def records_of(store: Store, kind: str) -> dict[str, Versioned]:
    """All small shared records of one kind, by name."""
    return (await store.records([kind]))[kind]


class Listener(Protocol):
    """Rings when something that it listens for may have happened; a hint, never a promise."""

    async def wait(self, timeout: float) -> None:
        """Return when it was notified since the last wait, or after `timeout` seconds."""
        ...

    def close(self) -> None:
        """Stop listening."""
        ...


class Store(Protocol):
    """A place for jobs. One object belongs to one event loop; `sibling()` makes another for another thread."""

    name: str
    features: frozenset[str]
    """What this store can do beyond the protocol: `durable`, `multi_process`, `transactional_enqueue`, …

    `long_leases`: a heartbeat has its price here, so leases are longer where nobody says otherwise.
    `watched_leases`: it has no clock that all its users share; how long a holder is silent is known as far as somebody
    watched.
    `sweeps`: it looks for lost leases and past retention by itself; nobody else needs to.
    """

    async def open(self) -> None:
        """Connect, and bring the schema up to date."""
        ...

    async def close(self) -> None:
        """Let everything go; the object may be opened again."""
        ...

    def sibling(self) -> Store:
        """A second, unopened connection to the same place."""
        ...

    def release(self) -> None:
        """The loop that it was opened on has ended: let go of connections and threads without awaiting anything."""
        ...

    def abandon(self) -> None:
        """In a forked child: forget the parent's connections without touching them."""
        ...

    async def write(self, batch: Batch) -> Answers:
        """Enqueue, note, settle, change and claim, in one commit."""
        ...

    async def heartbeat(self, holders: Sequence[Holder]) -> list[HeartbeatReply]:
        """Renew each holder (making it if need be) and say what it holds. Waits for no other write."""
        ...

    async def leave(self, holders: Sequence[str]) -> None:
        """The holders are gone: forget them, or, where they still hold jobs, end their leases now."""
        ...

    async def expired(self, limit: int, holder: str | None = None) -> list[Lost]:
        """Claims whose holder's lease has ended; or all of one holder's, whose process is known to be dead."""
        ...

    async def tidy(self, limit: int) -> Tidied:
        """Remove at most `limit` each of jobs past their retention, forgotten keys, and holders gone without jobs."""
        ...

    async def get(self, ids: Sequence[str]) -> list[Record | None]:
        """The jobs of these ids, in order."""
        ...

    async def find(self, where: Where, cursor: str | None, limit: int) -> Found:
        """A page of the jobs that match, newest first."""
        ...

    async def key_owners(self, keys: Sequence[str]) -> list[str | None]:
        """For each key, in order, the id of the job that has it and has not ended; None where there is none.

        It is what an insert with this key and `unique="until_end"` would be told; it writes nothing, and keeps no key.
        """
        ...

    async def output(self, id: str, position: int, limit: int) -> list[Printed]:
        """What a job has printed from this position on, in order: whole pieces of at least `limit` bytes together.

        A piece that reaches beyond the position is answered whole. [] where there is no more, or no such job.
        """
        ...

    async def stats(self) -> list[QueueStats]:
        """Every queue that has jobs or is paused, by name."""
        ...

    async def transitions(self, since: str | None, limit: int) -> Transitions:
        """What jobs did since the cursor of an earlier answer; None: from now on.

        At most `limit`, or to the end of the commit in which it is reached. A job that became due has not moved. Moves
        are kept only while somebody asks: an ask keeps them for WATCH seconds, and where nobody asked for longer,
        or more than TRANSITIONS_KEPT came in between, the answer says `missed`, and goes on from now.
        """
        ...

    async def stats_by_minute(self, since: int) -> list[MinuteStats]:
        """How claims ended, minute by minute from this time on, by (minute, queue, outcome)."""
        ...

    async def holders(self) -> list[HolderInfo]:
        """Every holder that is known, the dead that still hold jobs included."""
        ...

    async def records(self, kinds: Sequence[str]) -> dict[str, dict[str, Versioned]]:
        """All small shared records of these kinds, by kind and name; {} for a kind that has none."""
        ...

    async def put_record(self, kind: str, name: str, value: bytes | None, expect: int | None = None) -> bool:
        """Set a record (None removes it), only if its version is still `expect` where given (0: there is none)."""
        ...

    async def now(self) -> int:
        """The store's own wall clock, in microseconds."""
        ...

    def listen(self, topics: Iterable[str]) -> Listener:
        """A listener for `queue/NAME` (a job became ready) and `job/ID` (a job ended)."""
        ...


@runtime_checkable
class Migrating(Protocol):
    """The companion of stores with a schema."""

    async def migrate(self) -> list[int]:
        """Bring the schema up to date; the versions that were applied."""
        ...

    async def missing(self) -> list[int]:
        """The versions that are yet to be applied. Changes nothing, and does not need an open store."""
        ...

    def dump_sql(self) -> str:
        """The whole schema as SQL, for whoever applies it by other means."""
        ...

    async def close(self) -> None:
        """As in Store."""
        ...


class Finding(msgspec.Struct, frozen=True):
    """One thing about a store that was looked at."""

    fine: bool
    what: str
    advice: str = ""


@runtime_checkable
class Examining(Protocol):
    """The companion of stores that can say what may be wrong with them."""

    async def examine(self) -> list[Finding]:
        """Look at everything, in the order in which a person would want to read it. Does not need an open store."""
        ...


@runtime_checkable
class Warns(Protocol):
    """The companion of stores that can become unsafe while they are open."""

    name: str

    async def warnings(self) -> Sequence[Finding]:
        """What may lose jobs as the store is now; cheap enough for twice a minute. Needs an open store."""
        ...


class Cost(msgspec.Struct, frozen=True):
    """The requests that all processes together have made of a bucket, and for how many jobs."""

    jobs: int
    gets: int
    puts: int
    lists: int

    @property
    def requests_per_job(self) -> float:
        return (self.gets + self.puts + self.lists) / max(1, self.jobs)

    @property
    def dollars_per_million(self) -> float:
        """For a million jobs like these, by the prices of S3: $5 per million puts and lists, $0.40 per million gets."""
        return (5.0 * (self.puts + self.lists) + 0.4 * self.gets) / max(1, self.jobs)


@runtime_checkable
class Replayable(Protocol):
    """The companion of stores that are a log, and can show it."""

    def replay(self, first: int) -> AsyncIterator[tuple[int, bytes]]:
        """The entries that are kept, from a number on, each as JSON. Does not need an open store."""
        ...


@runtime_checkable
class Costing(Protocol):
    """The companion of stores that are paid for by the request."""

    async def cost(self) -> Cost:
        """What was spent so far, as far as it is known."""
        ...


@runtime_checkable
class Existing(Protocol):
    """The companion of stores that opening makes where there is none."""

    async def exists(self) -> bool:
        """Whether there is a store to open; asked of one that is not open, and makes nothing."""
        ...


@runtime_checkable
class Binding(Protocol):
    """The companion of stores that can enqueue inside the user's own transaction (`transactional_enqueue`)."""

    def check_bound(self, connection: Any) -> None:
        """Raise ConfigError where opening this store would wait for the user's own transaction, or can be of no use.

        Asked before the store is opened. It uses this connection alone, and never waits.
        """
        ...

    async def insert_bound(self, connection: Any, jobs: Sequence[NewJob]) -> list[Inserted]:
        """Insert with the user's connection; the jobs exist if and only if its transaction commits.

        With a blocking connection it never really waits, so that blocking code can run it on its own thread.
        """
        ...


@runtime_checkable
class Transacting(Protocol):
    """The companion of stores that end a job together with the task's own writes (`transactional_completion`)."""

    def transaction(self, end: Callable[[], Settlement]) -> AbstractAsyncContextManager[Any]:
        """A connection inside a transaction. As the block ends, `end()` is written, last of all, and all commits.

        LeaseLost, and nothing is kept, where the claim has been ended by somebody else.
        """
        ...
