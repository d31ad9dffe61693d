"""The store protocol: what the core calls, and what every store guarantees. Stores store; the core decides.

Guarantees:

1. `write` is one round trip for a batch of mixed operations. Each element is atomic and answered on its own, in order;
   kinds are applied in the order of `Batch`'s fields, so an ask sees the settlements and inserts of the same batch.
   `StoreUnavailable` means that nothing of the batch was written, `OutcomeUnknown` that it may have been; sending
   the same batch again (without asks) is then safe: inserts are recognised by id and nonce, settlements by nonce.
2. Nothing ends or extends a claim unless fence *and* token match the claim.
3. A claim is one atomic step: it makes due jobs of its queues queued (at least 1,000 at a time), then takes the lowest
   (priority, run_at, seq) per queue, counts the attempt, and raises the fence. A paused queue gives nothing
   (records of kind `pause`, one per queue). A job whose limit is reached is deferred: it is blocked, and a later claim
   makes it queued again (`core/limiter.py` has the rules). An ask that finds nothing writes nothing.
   A quarantined job that comes first is taken only by a holder without running jobs, and only with quarantined jobs of
   its queue that have the same `crashes`: up to the number asked for at -2, COHORT at -1, none otherwise. One that is
   taken alone has 0 `crashes` from then on, if it had fewer.
4. A lease belongs to the holder and is measured by the store's own clock, never by the caller's. A holder that has
   running jobs is never removed.
5. A key is unique while it is kept: until its job ends, and `key_keep` seconds longer.
6. The output of a job (`Note.output`) is kept in pieces, the newest within `keep` bytes, for as long as the job. So is
   its stream, apart from its output.
7. Notifications are hints: everything works if none ever arrives.
8. Transitions and ends are recorded in the commit that makes them: `transitions` while a client reads them, minute
   statistics always. That a job becomes due, is deferred by a limit, or is released again is not a transition.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, runtime_checkable

import msgspec

from ..core import operations as ops
from ..core.job import NewJob, Record

PROMOTE_LIMIT = 1000
"""Due jobs that one claim makes queued per queue, at the least."""
DEFER_LIMIT = 1000
"""Jobs that one claim defers because their limits are reached, at most."""
COHORT = 8
"""Quarantined jobs that run together after a crash among more: about the square root of a large worker's slots."""
WATCH = 300.0
"""Seconds for which transitions are recorded after the last call of `transitions`."""
TRANSITIONS_KEPT = 10_000
"""Transitions that are kept for readers that lag behind, at least."""
LARGE = 2**62
"""Counters stay below this, so that no store overflows; a stored value at or above it is damaged."""
CONTROL, CONTROL_REPLY = "control", "control_reply"
"""Kinds of records: requests to workers, each named WORKER/REQUEST, and their answers."""
NOTIFIED_KINDS = ("task_pause", "schedule", CONTROL_REPLY)
"""Kinds of records whose changes notify listeners: workers apply them at once."""
MINUTE_STATS_KEPT = 7 * 86400.0
"""Seconds for which minute statistics are kept."""


class Batch(msgspec.Struct, gc=False):
    """Operations that share one commit, applied in the order of these fields."""

    inserts: Sequence[NewJob] = ()
    notes: Sequence[ops.Note] = ()
    settles: Sequence[ops.Settlement] = ()
    changes: Sequence[ops.Change] = ()
    asks: Sequence[ops.Ask] = ()


class Answers(msgspec.Struct, gc=False):
    """One answer per operation of a Batch, in order. False: the claim has ended, or the job is not as it was seen."""

    inserts: Sequence[ops.Inserted] = ()
    notes: Sequence[bool] = ()
    settles: Sequence[bool] = ()
    changes: Sequence[bool] = ()
    asks: Sequence[ops.Claims] = ()


class Versioned(msgspec.Struct, frozen=True, gc=False):
    """A small shared record: its JSON value, and the version that a compare-and-set needs.

    Every set gives a version that the store has never given before, also after the record was removed.
    """

    value: bytes
    version: int


async def records_of(store: Store, kind: str) -> dict[str, Versioned]:
    """All small shared records of one kind, by name."""
    return (await store.records([kind]))[kind]


def holder_in(name: str) -> str:
    """The worker in the name of a request or an answer."""
    return name.rpartition("/")[0]


def record_topic(kind: str, name: str) -> str:
    """The topic that a change of a record notifies: a paused queue's, a worker's, or that of its kind; "" if none."""
    if kind == "pause":
        return f"queue/{name}"
    if kind == CONTROL:
        return f"holder/{holder_in(name)}"
    return f"record/{kind}" if kind in NOTIFIED_KINDS else ""


class Listener(Protocol):
    """Waits for notifications about its topics. A notification is a hint: it may be missing, late or without cause."""

    @property
    def reliable(self) -> bool:
        """Whether notifications of all processes are known to arrive at present: its owner may poll less often."""
        ...

    async def wait(self, timeout: float) -> bool:
        """Return when a notification has arrived since the last wait (True), or after `timeout` seconds (False)."""
        ...

    def close(self) -> None:
        """Stop listening."""
        ...


class Store(Protocol):
    """A place for jobs. One object belongs to one event loop; `sibling()` makes another for another thread."""

    name: str
    features: frozenset[str]
    """What this store can do beyond the protocol: `durable`, `multi_process`, `transactional_enqueue`, …

    `long_leases`: a heartbeat costs money here, so the default lease is longer.
    `watched_leases`: its users share no clock; a process knows a holder's silence only since it began to watch.
    `sweeps`: it recovers lost leases and removes jobs past their retention; workers need not.
    """

    async def open(self) -> None:
        """Connect, and bring the schema up to date."""
        ...

    async def close(self) -> None:
        """Release all connections and threads; the object may be opened again."""
        ...

    def sibling(self) -> Store:
        """A second, unopened connection to the same place."""
        ...

    def release(self) -> None:
        """Release connections and threads without awaiting anything: the loop that it was opened on has ended."""
        ...

    def abandon(self) -> None:
        """In a forked child: forget the parent's connections without touching them."""
        ...

    async def write(self, batch: Batch) -> Answers:
        """Enqueue, note, settle, change and claim, in one commit."""
        ...

    async def heartbeat(self, holders: Sequence[ops.Holder]) -> list[ops.HeartbeatReply]:
        """Renew each holder's lease (creating the holder if missing) and list its claims. Waits for no other write."""
        ...

    async def leave(self, holders: Sequence[str]) -> None:
        """Deregister holders: remove them, or expire their leases now where they still have claims."""
        ...

    async def expired(self, limit: int, holder: str | None = None) -> list[ops.Lost]:
        """Claims whose holder's lease has expired; or all claims of one holder whose process is known to have ended."""
        ...

    async def tidy(self, limit: int) -> ops.Tidied:
        """Remove at most `limit` each of jobs past their retention, expired keys, and expired holders without jobs."""
        ...

    async def get(self, ids: Sequence[str]) -> list[Record | None]:
        """The jobs of these ids, in order."""
        ...

    async def find(self, where: ops.Where, cursor: str | None, limit: int) -> ops.Found:
        """A page of the jobs that match, newest first.

        A store that has no index for the filter may stop after some thousand jobs, with a shorter page and `looked`.
        """
        ...

    async def key_owners(self, keys: Sequence[str]) -> list[str | None]:
        """For each key, in order, the id of the job that has it and has not ended; None where there is none.

        An insert with this key and `unique="until_end"` would be answered with this job. Writes nothing, keeps no key.
        """
        ...

    async def output(self, id: str, position: int, limit: int, stream: bool = False) -> list[ops.Printed]:
        """The output (or `stream`) of a job from this position on, in order: whole pieces of at least `limit` bytes.

        A piece that begins before the position and ends after it is answered whole. [] if there is no more, or no job.
        """
        ...

    async def stats(self) -> list[ops.QueueStats]:
        """Every queue that has jobs or is paused, by name."""
        ...

    async def transitions(self, since: str | None, limit: int) -> ops.Transitions:
        """Transitions of jobs since the cursor of an earlier answer; None: from now on.

        At most `limit`, or to the end of the commit in which it is reached. Becoming due is not a transition. They are
        recorded for WATCH seconds after each call. If the last call is longer ago, or more than TRANSITIONS_KEPT came
        in between, the answer has `missed` set, and continues from now.
        """
        ...

    async def stats_by_minute(self, since: int) -> list[ops.MinuteStats]:
        """How many claims ended how, from this minute on: one per minute, queue, task and outcome, in any order."""
        ...

    async def holders(self) -> list[ops.HolderInfo]:
        """Every known holder, including expired ones that still have claims."""
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
        """A listener for these topics.

        `queue/NAME`: a job became ready. `job/ID`: it ended. `holder/ID`: a change requested the cancellation of one of
        its running jobs, or a record of kind `control` for it changed. `note/ID`: the job wrote progress, or to its
        stream. `record/KIND`: `put_record` changed one.
        """
        ...


@runtime_checkable
class Migrating(Protocol):
    """Implemented by stores with a schema."""

    async def migrate(self) -> list[int]:
        """Bring the schema up to date; the versions that were applied."""
        ...

    async def missing(self) -> list[int]:
        """The versions that are yet to be applied. Changes nothing, and does not need an open store."""
        ...

    def dump_sql(self) -> str:
        """The whole schema as SQL, to apply it by other means."""
        ...

    async def close(self) -> None:
        """As in Store."""
        ...


class Finding(msgspec.Struct, frozen=True):
    """The result of one check of a store."""

    fine: bool
    what: str
    advice: str = ""


@runtime_checkable
class Examining(Protocol):
    """Implemented by stores that can check themselves, for `holdfast doctor`."""

    async def examine(self) -> list[Finding]:
        """Run all checks; the findings in the order in which they are shown. Does not need an open store."""
        ...


@runtime_checkable
class Warns(Protocol):
    """Implemented by stores that can become unsafe while they are open."""

    name: str

    async def warnings(self) -> Sequence[Finding]:
        """Present conditions that may lose jobs; cheap enough for twice a minute. Needs an open store."""
        ...


class Cost(msgspec.Struct, frozen=True):
    """The requests that all processes together have made to a bucket, and for how many jobs."""

    jobs: int
    gets: int
    puts: int
    lists: int

    @property
    def requests_per_job(self) -> float:
        return (self.gets + self.puts + self.lists) / max(1, self.jobs)

    @property
    def dollars_per_million(self) -> float:
        """Dollars for a million such jobs at S3 prices: $5 per million puts and lists, $0.40 per million gets."""
        return (5.0 * (self.puts + self.lists) + 0.4 * self.gets) / max(1, self.jobs)


@runtime_checkable
class Replayable(Protocol):
    """Implemented by stores that are a log."""

    def replay(self, first: int) -> AsyncIterator[tuple[int, bytes]]:
        """The log entries that are kept, from number `first` on, each as JSON. Does not need an open store."""
        ...


@runtime_checkable
class Costing(Protocol):
    """Implemented by stores that are billed per request."""

    async def cost(self) -> Cost:
        """The requests so far, as far as they are known."""
        ...


@runtime_checkable
class Existing(Protocol):
    """Implemented by stores that `open` creates if they are missing."""

    async def exists(self) -> bool:
        """Whether the store exists. Creates nothing, and does not need an open store."""
        ...


@runtime_checkable
class ListsCalls(Protocol):
    """Implemented by stores whose server lists waiting calls (`worker/waiting_calls.py`)."""

    def waiting_calls(self, queue: str | None) -> AsyncGenerator[ops.WaitingCalls]:
        """The calls of schedules and waiting jobs, page by page. Does not need an open store."""
        ...


class HeartbeatOnly(Protocol):
    """Sends heartbeats, and can do nothing else."""

    async def open(self) -> None:
        """Connect; the first heartbeat does it too."""
        ...

    async def heartbeat(self, holders: Sequence[ops.Holder]) -> None:
        """Renew the leases of these holders."""
        ...

    async def close(self) -> None:
        """Disconnect."""
        ...


@runtime_checkable
class Replicated(Protocol):
    """Implemented by stores of which each open store object has all jobs in memory."""

    def heartbeat_only(self) -> HeartbeatOnly:
        """Heartbeats of this store without the jobs, not connected yet."""
        ...


@runtime_checkable
class Binding(Protocol):
    """Implemented by stores that can enqueue inside the user's own transaction (`transactional_enqueue`)."""

    async def check_bound(self, connection: Any) -> None:
        """Raise ConfigError where opening this store would wait for the user's own transaction, or is useless.

        Called before the store is opened. It uses only this connection, as `insert_bound` does.
        """
        ...

    async def insert_bound(self, connection: Any, jobs: Sequence[NewJob]) -> list[ops.Inserted]:
        """Insert with the user's connection; the jobs exist if and only if its transaction commits.

        With a blocking connection it never yields to an event loop, so that blocking code can run it on its own thread.
        """
        ...


@runtime_checkable
class BlockingWrites(Protocol):
    """Implemented by stores that can insert for a blocking caller without their event loop."""

    def write_blocking(self, batch: Batch) -> Answers | None:
        """As `write`, from any thread. None: nothing was written, and the caller must use `write`.

        It waits for no other caller of this process, and may raise OutcomeUnknown.
        """
        ...


@runtime_checkable
class Transacting(Protocol):
    """Implemented by stores that end a job together with the task's own writes (`transactional_completion`)."""

    blocking_transactions: bool
    """Whether the connection blocks: plain functions can use it, and all other writes wait for its transaction."""

    def transaction(
        self, end: Callable[[], ops.Settlement], notes: Callable[[], Sequence[ops.Note]] = tuple
    ) -> AbstractAsyncContextManager[Any]:
        """A connection inside a transaction. At the end of the block, it commits with `notes()` and last `end()`.

        Raises LeaseLost, and rolls back, if the claim has already ended.
        """
        ...
