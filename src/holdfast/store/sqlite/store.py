"""The SQLite store: the methods of the store protocol, each of which runs on a thread."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ...core import operations as ops
from ...core.clock import Clock, SystemClock
from ...core.errors import ConfigError, HoldfastError, StoreUnavailable
from ...core.job import NewJob, Record
from ..protocol import Answers, Batch, Finding, Listener, Versioned
from ..stalls import Stalls
from . import bound, claim, doctor, limits, observe, output, schema, sql, transitions
from . import connection as connections
from . import holders as leases
from .change import change_all
from .enqueue import insert_all
from .files import Files
from .reader import Reader
from .settle import note, settle_all
from .step import Step
from .thread import OperationThread, Ticket
from .wake import Listeners
from .writer import Writer

if TYPE_CHECKING:
    from .transaction import Transactions

T = TypeVar("T")

SYNCHRONOUS = frozenset({"full", "normal"})
FREE_LOCK_WAIT = 0.01
"""Seconds that a write takes at most if no other process holds the lock."""
HEARTBEAT_HEAD_START = 0.1
"""Seconds for heartbeats that waited for the lock, before a lease counts as expired."""


class SqliteStore:
    """Jobs in one SQLite file, shared by the processes of one machine.

    1. One thread writes: each `write` is one transaction there, behind the file's lock (`writer.py`).
    2. Another reads, so that a long listing never delays a settle (`reader.py`). An ask that finds nothing only reads.
    3. A third watches for other processes' commits, only while a listener waits (`wake.py`).
    """

    name = "sqlite"
    features = frozenset({"durable", "multi_process", "transactional_enqueue", "transactional_completion"})
    blocking_transactions = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        synchronous: str = "full",
        clock: Clock | None = None,
        busy_timeout: float = 60.0,
    ) -> None:
        if synchronous not in SYNCHRONOUS:
            raise ConfigError(f"?synchronous= must be full or normal, not {synchronous!r}")
        self.path: str = os.path.realpath(os.fspath(path))
        self._synchronous = synchronous
        self._clock = clock or SystemClock()
        self._stalls = Stalls()
        self._busy_timeout = busy_timeout
        self._writer: Writer | None = None
        self._thread: OperationThread | None = None
        self._reader: Reader | None = None
        self._listeners: Listeners | None = None
        self._transactions: Transactions | None = None

    # -- lifetime

    async def open(self) -> None:
        if self._thread is not None:
            return
        patience = self._busy_timeout
        blocked = (
            f"a write to {self.path} could not begin within {patience:g} s; nothing was written. Another process holds"
            f" {self.path}-lock, or an earlier write still waits: find that process with lsof, or try again"
        )
        files = Files(self.path)
        writer = Writer(files, self._clock, patience, self._synchronous)
        thread = OperationThread(
            "holdfast-sqlite-write",
            writer.fork_lock,
            patience=patience,
            blocked=blocked,
            close=writer.close,
            after=writer.maintain,
            due=writer.is_log_long,
        )
        try:
            await thread.run(writer.open)
        except BaseException:
            thread.end()
            raise
        self._writer, self._thread = writer, thread
        connect = partial(connections.connect_reader, self.path, self._busy_timeout)
        self._listeners = Listeners(files, connect)
        self._reader = Reader(files, self._clock, self._busy_timeout)

    async def close(self) -> None:
        thread, writer, reader, listeners = self._thread, self._writer, self._reader, self._listeners
        transactions, self._transactions = self._transactions, None
        self._thread = self._writer = self._reader = self._listeners = None
        if thread is None or writer is None:
            return
        try:
            if transactions is not None:
                await transactions.close()
            if listeners is not None:
                await listeners.close()
            if reader is not None:
                await reader.close()
            await thread.run(writer.close)
        finally:
            thread.end()

    def sibling(self) -> SqliteStore:
        return SqliteStore(self.path, synchronous=self._synchronous, clock=self._clock, busy_timeout=self._busy_timeout)

    def release(self) -> None:
        for part in (self._transactions, self._listeners, self._reader, self._thread):
            if part is not None:
                part.end()
        self._thread = self._writer = self._reader = self._listeners = self._transactions = None

    def abandon(self) -> None:
        if self._writer is not None:
            self._writer.forget()
        if self._reader is not None:
            self._reader.forget()
        if self._listeners is not None:
            self._listeners.forget()
        if self._transactions is not None:
            self._transactions.forget()
        connections.forget(self._thread, self._reader, self._listeners, self._transactions)
        self._thread = self._writer = self._reader = self._listeners = self._transactions = None

    async def migrate(self) -> list[int]:
        """Open the store, which brings its schema up to date; the versions that were applied."""
        await self.open()
        return [] if self._writer is None else self._writer.applied

    async def exists(self) -> bool:
        return await asyncio.to_thread(schema.found, self.path, self._busy_timeout) > 0

    async def missing(self) -> list[int]:
        return await asyncio.to_thread(schema.missing, self.path, self._busy_timeout)

    def dump_sql(self) -> str:
        return schema.dump()

    async def examine(self) -> list[Finding]:
        findings = await asyncio.to_thread(doctor.examine, self.path, self._busy_timeout)
        if findings[0].fine:  # else opening it would change its schema
            findings.append(await self._try_writing())
        return findings

    async def _try_writing(self) -> Finding:
        """Commit a small write, like that of a job."""
        probe = self.sibling()
        try:
            await probe.open()
            try:
                await probe.seal()
            finally:
                await probe.close()
        except HoldfastError as error:
            return Finding(False, f"a test write failed: {error}", "correct this error before you enqueue jobs")
        return Finding(True, "a test write was committed")

    # -- writing

    async def _write(self, work: Callable[[Step], T]) -> T:
        thread, writer, listeners = self._thread, self._writer, self._listeners
        if thread is None or writer is None or listeners is None:
            raise self._not_open()
        answer, notified = await thread.run(partial(writer.write, work))
        if notified and listeners:
            listeners.notify(notified)
        return answer

    def _not_open(self) -> StoreUnavailable:
        return StoreUnavailable.not_open(self.path)

    async def write(self, batch: Batch) -> Answers:
        if batch.asks and not (batch.inserts or batch.notes or batch.settles or batch.changes):
            return Answers(asks=await self._ask(batch.asks))
        return await self._write(partial(_apply, batch))

    def write_blocking(self, batch: Batch) -> Answers | None:
        """Write for a blocking caller without the event loop: on its thread, else on the write thread."""
        thread, writer, listeners = self._thread, self._writer, self._listeners
        if thread is None or writer is None or listeners is None:
            return None
        work = partial(_apply, batch)
        try:
            done = thread.run_here(partial(writer.write_here, work))
            if done is None:
                done = thread.run_blocking(partial(writer.write, work))
        except HoldfastError:
            raise
        except (sqlite3.Error, OverflowError, TypeError, ValueError):  # it was rolled back: `write` reports the error
            return None
        if done is None:
            return None
        answers, notified = done
        if notified and listeners:
            listeners.notify_soon(notified)
        return answers

    async def _ask(self, asks: Sequence[ops.Ask]) -> list[ops.Claims]:
        thread, writer = self._thread, self._writer
        if thread is None or writer is None:
            raise self._not_open()
        return await thread.run(partial(_look_then_claim, writer, asks))

    async def heartbeat(self, holders: Sequence[ops.Holder]) -> list[ops.HeartbeatReply]:
        return await self._write(lambda step: [leases.heartbeat(step, holder) for holder in holders])

    async def leave(self, holders: Sequence[str]) -> None:
        await self._write(lambda step: leases.leave(step, holders))

    async def tidy(self, limit: int) -> ops.Tidied:
        boot, waiting = await self._read(lambda step: (step.boot, limits.waiting_for_rates(step)))
        if stalled := self._stalls.over(waiting, boot):
            await self._write(lambda step: limits.free_rates(step, stalled))
        if not await self._read(leases.anything_to_tidy):
            return ops.Tidied()
        return await self._write(lambda step: leases.tidy(step, limit))

    async def put_record(self, kind: str, name: str, value: bytes | None, expect: int | None = None) -> bool:
        return await self._write(lambda step: observe.put_record(step, kind, name, value, expect))

    async def check_bound(self, connection: Any) -> None:
        await bound.check(connection, self.path)

    async def insert_bound(self, connection: Any, jobs: Sequence[NewJob]) -> list[ops.Inserted]:
        return await bound.insert_bound(connection, self.path, self._clock, jobs)

    @asynccontextmanager
    async def transaction(
        self, end: Callable[[], ops.Settlement], notes: Callable[[], Sequence[ops.Note]] = tuple
    ) -> AsyncGenerator[sqlite3.Connection, None]:
        if self._writer is None or self._listeners is None:
            raise self._not_open()
        if self._transactions is None:
            from .transaction import Transactions  # only with the first: most programs have none

            files, notify = self._writer.files, self._listeners.notify
            self._transactions = Transactions(files, self._clock, self._busy_timeout, self._synchronous, notify)
        async with self._transactions.begin(end, notes) as connection:
            yield connection

    async def seal(self) -> None:
        """Commit a write that changes nothing."""
        await self._write(lambda step: step.connection.execute(sql.SEAL))

    # -- reading

    async def _read(self, work: Callable[[Step], T]) -> T:
        if self._reader is None:
            raise self._not_open()
        return await self._reader.read(work)

    async def expired(self, limit: int, holder: str | None = None) -> list[ops.Lost]:
        lost = await self._read(lambda step: leases.expired(step, limit, holder))
        if lost and holder is None and await self._kept_waiting():
            await asyncio.sleep(HEARTBEAT_HEAD_START)
            lost = await self._read(lambda step: leases.expired(step, limit, holder))
        return lost

    async def _kept_waiting(self) -> bool:
        """Whether a write had to wait for the lock: then heartbeats of running workers wait for it too."""
        asked = self._clock.monotonic()
        await self._write(lambda _: None)
        return self._clock.monotonic() - asked > FREE_LOCK_WAIT

    async def get(self, ids: Sequence[str]) -> list[Record | None]:
        return await self._read(lambda step: observe.get(step, ids))

    async def find(self, where: ops.Where, cursor: str | None, limit: int) -> ops.Found:
        return await self._read(lambda step: observe.find(step, where, cursor, limit))

    async def key_owners(self, keys: Sequence[str]) -> list[str | None]:
        return await self._read(lambda step: observe.key_owners(step, keys))

    async def output(self, id: str, position: int, limit: int, stream: bool = False) -> list[ops.Printed]:
        return await self._read(lambda step: output.read(step, id, position, limit, stream))

    async def stats(self) -> list[ops.QueueStats]:
        return await self._read(observe.stats)

    async def transitions(self, since: str | None, limit: int) -> ops.Transitions:
        found, renew = await self._read(lambda step: transitions.transitions(step, since, limit))
        begun = await self._write(transitions.watch) if renew else ""
        return ops.Transitions([], begun, missed=since is not None) if found is None else found

    async def stats_by_minute(self, since: int) -> list[ops.MinuteStats]:
        return await self._read(lambda step: transitions.stats_by_minute(step, since))

    async def holders(self) -> list[ops.HolderInfo]:
        return await self._read(leases.seen)

    async def records(self, kinds: Sequence[str]) -> dict[str, dict[str, Versioned]]:
        return await self._read(lambda step: observe.records(step, kinds))

    async def now(self) -> int:
        return self._clock.now()

    def listen(self, topics: Iterable[str]) -> Listener:
        if self._listeners is None:
            raise self._not_open()
        return self._listeners.make(topics)


def _apply(batch: Batch, step: Step) -> Answers:
    """Apply one batch in one transaction, kind by kind in the order of its fields."""
    answers = Answers(
        insert_all(step, batch.inserts) if batch.inserts else (),
        [note(step, new) for new in batch.notes] if batch.notes else (),
        settle_all(step, batch.settles) if batch.settles else (),
        change_all(step, batch.changes) if batch.changes else (),
        [claim.claim(step, ask) for ask in batch.asks] if batch.asks else (),
    )
    transitions.write(step)
    return answers


def _look_then_claim(writer: Writer, asks: Sequence[ops.Ask], ticket: Ticket[list[ops.Claims]]) -> list[ops.Claims]:
    """Claim jobs. If a read finds none, it is the answer, and nothing is locked or written."""
    seen = writer.look(lambda step: [claim.look(step, ask) for ask in asks])
    found = [claims for claims in seen if claims is not None]
    if len(found) == len(asks):
        return found
    answers, _ = writer.write(partial(_apply, Batch(asks=asks)), ticket)
    return list(answers.asks)
