"""The Postgres store: the methods of the store protocol, each one round trip on a connection of its pool."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from ...core import operations as ops
from ...core.clock import MICROS
from ...core.errors import HoldfastError, StoreUnavailable
from ...core.job import NewJob, Record
from ..blocking import BlockingConnection, NoAnswer
from ..checked_pages import next_span
from ..json_columns import to_json
from ..protocol import Answers, Batch, Finding, Listener, Versioned, record_topic, records_of
from . import bound, doctor, observe, round_trips, schema, sql, transitions, trouble
from .address import Address, from_url
from .blocking import AnswerReader, connect_blocking, insert_request, is_plain
from .call import Call, inserted_one, is_lone, lone_arguments
from .driver import asyncpg
from .generations import Generations
from .minutes import minute_stats
from .pool import STATEMENT_TIMEOUT, Link, Pool, connect
from .rows import record
from .transaction import Transactions
from .wake import HintSource, Listeners, NoHints, PostgresHints, kind_of, topic

T = TypeVar("T")
logger = logging.getLogger("holdfast")

BATCH_ATTEMPTS = 5
"""Attempts of a batch that the server rolls back because of a concurrent one (deadlock, serialization failure)."""


class PostgresStore:
    """Jobs in one schema of a Postgres database.

    1. Each `write` is one call of a function in the schema: one round trip, one transaction (`call.py`).
    2. Reads, heartbeats and sweeps use other connections of the pool, and wait for no write (`pool.py`).
    3. A separate connection listens for hints, once there is a listener (`wake.py`).
    4. Every time is read from the server's clock.
    5. Blocking callers may insert plain jobs over a separate connection (`blocking.py`); not with TLS, a shared
       connection of pgbouncer, or notifications through Redis.
    """

    name = "postgres"
    features = frozenset({"durable", "multi_process", "transactional_enqueue", "transactional_completion"})
    blocking_transactions = False

    def __init__(self, address: str | Address) -> None:
        self.address = from_url(address) if isinstance(address, str) else address
        self._write_statement, self._insert_statement = self._say(sql.WRITE), self._say(sql.INSERT_ONE)
        self._pool: Pool | None = None
        self._listeners: Listeners | None = None
        self._generations: Generations | None = None
        self._transactions: Transactions | None = None
        self._blocking: BlockingConnection | None = None
        self._signal: Any = None
        self._applied: list[int] = []
        self._identity = ""

    # -- lifetime

    async def open(self) -> None:
        if self._pool is not None:
            return
        pool = Pool(self.address, self.address.pool, setting=sql.READ_COMMITTED)
        try:
            async with pool.link() as link:
                self._applied, self._identity = await self._migrate(link)
                plain = is_plain(link.raw)
        except GeneratorExit:  # its loop has ended: nothing can be awaited
            pool.release()
            raise
        except BaseException:
            await pool.close()
            raise
        self._pool = pool
        source: HintSource = NoHints() if self.address.shared else PostgresHints(self.address)
        if self.address.signal is not None:
            from .signal import RedisSignal

            self._signal = source = RedisSignal(self.address.signal, self.address.channel)
        self._listeners = Listeners(source, self.address.shown)
        self._generations = Generations(self.address.shown, self._say, self._run)
        if plain and not (self.address.shared or self._signal):
            self._blocking = BlockingConnection(
                lambda: connect_blocking(self.address, self._insert_statement), STATEMENT_TIMEOUT
            )

    async def _migrate(self, link: Link) -> tuple[list[int], str]:
        try:
            return await schema.migrate(link.raw, self.address)
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
            meaning = trouble.reading(error, self.address.shown)
            if meaning is None:
                raise
            raise meaning from error

    async def close(self) -> None:
        pool, listeners, generations, signal = self._pool, self._listeners, self._generations, self._signal
        self._pool = self._listeners = self._generations = self._signal = None
        self._end_blocking()
        if generations is not None:
            await generations.close()
        if listeners is not None:
            await listeners.close()
        if signal is not None:
            await signal.close()
        if self._transactions is not None:
            transactions, self._transactions = self._transactions, None
            await transactions.close()
        if pool is not None:
            await pool.close()

    def sibling(self) -> PostgresStore:
        return PostgresStore(self.address)

    def release(self) -> None:
        parts = (self._pool, self._transactions, self._listeners)
        self._pool = self._transactions = self._listeners = self._generations = self._signal = None
        self._end_blocking()
        for part in parts:
            if part is not None:
                part.release()

    def _end_blocking(self) -> None:
        blocking, self._blocking = self._blocking, None
        if blocking is not None:
            blocking.close()

    def abandon(self) -> None:
        if self._pool is not None:
            self._pool.forget()
        if self._listeners is not None:
            self._listeners.forget()
        if self._transactions is not None:
            self._transactions.forget()
            self._transactions = None
        if self._blocking is not None:
            self._blocking.forget()
            self._blocking = None
        self._pool = self._listeners = self._generations = self._signal = None

    async def migrate(self) -> list[int]:
        """Open the store, which brings its schema up to date; the versions that were applied."""
        await self.open()
        return self._applied

    async def exists(self) -> bool:
        return await self._aside(lambda connection, address: schema.version(connection, address.schema)) > 0

    async def missing(self) -> list[int]:
        """The versions of the schema that are yet to be applied, without applying them."""
        return await self._aside(schema.missing)

    def dump_sql(self) -> str:
        return schema.dump(self.address.schema)

    async def examine(self) -> list[Finding]:
        """The findings of `holdfast doctor`."""
        return await self._aside(doctor.examine)

    async def _aside(self, look: Callable[[Any, Address], Awaitable[T]]) -> T:
        """Read from the database on a separate connection; the store need not be open."""
        connection = await connect(self.address)
        try:
            return await look(connection, self.address)
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
            raise (trouble.reading(error, self.address.shown) or error) from error
        finally:
            await connection.close()

    # -- statements

    def _say(self, statement: str) -> str:
        """A statement in this store's schema."""
        return sql.for_schema(statement, self.address.schema)

    def _open_pool(self) -> Pool:
        if self._pool is None:
            raise StoreUnavailable.not_open(self.address.shown)
        return self._pool

    async def _read(self, work: Callable[[Link], Awaitable[T]]) -> T:
        """Run statements that write nothing; again on another connection if the first was closed."""
        pool = self._open_pool()
        for last in (False, True):
            try:
                async with pool.link() as link:
                    return await work(link)
            except HoldfastError:
                raise
            except Exception as error:
                if trouble.is_gone(error) and not last:
                    continue
                if (meaning := trouble.reading(error, self.address.shown)) is not None:
                    raise meaning from error
                raise
        raise AssertionError

    async def _fetch(self, statement: str, *values: Any) -> list[Any]:
        said = self._say(statement)
        return await self._read(lambda link: link.fetch(said, *values))

    async def _run(self, work: Callable[[Link], Awaitable[T]]) -> T:
        """Run statements that may write: once, and again only if the server has rolled them back."""
        pool = self._open_pool()
        for attempt in range(BATCH_ATTEMPTS):
            link: Link | None = None
            try:
                async with pool.link() as link:
                    link.answered = False
                    return await work(link)
            except HoldfastError:
                raise
            except Exception as error:
                if isinstance(error, trouble.AGAIN) and attempt < BATCH_ATTEMPTS - 1:
                    await asyncio.sleep(0.01 * attempt)
                    continue
                first = link is not None and not link.answered
                if (meaning := trouble.writing(error, self.address.shown, first=first)) is not None:
                    raise meaning from error
                raise
        raise AssertionError

    # -- writing

    async def write(self, batch: Batch) -> Answers:
        if is_lone(batch):
            return Answers([await self._insert_one(batch.inserts[0])])
        if batch.changes or len(batch.asks) > 1:
            return await self._step_by_step(batch)
        answers, again = await self._call(batch)
        if again:
            # A claim and a settlement in concurrent transactions could not see each other; a second claim can.
            try:
                answers.asks = (await self._call(Batch(asks=batch.asks)))[0].asks
            except HoldfastError as error:
                text = "%s: a claim failed after its batch was written; workers will claim again: %s"
                logger.debug(text, self.address.shown, error)
        return answers

    async def _call(self, batch: Batch) -> tuple[Answers, bool]:
        """The answers, and whether to ask again."""
        call = Call(batch, with_hint=self._signal is not None)
        rows = await self._run(lambda link: link.fetch(self._write_statement, *call.arguments))
        return self._answer(call, rows)

    async def _step_by_step(self, batch: Batch) -> Answers:
        with_hint = self._signal is not None
        answers, done, hint = await self._run(
            lambda link: round_trips.write(link, self._say, batch, with_hint=with_hint)
        )
        for call, rows in done:
            self._answer(call, rows)
        if hint is not None and self._signal is not None:
            self._signal.publish(hint)
        return answers

    async def _insert_one(self, new: NewJob) -> ops.Inserted:
        values = lone_arguments(new, with_hint=self._signal is not None)
        [(answer,)] = await self._run(lambda link: link.fetch(self._insert_statement, *values))
        if answer is not None and answer != "exists" and self._signal is not None:
            self._signal.publish(answer.removeprefix("hint "))
        return inserted_one(new, answer)

    def write_blocking(self, batch: Batch) -> Answers | None:
        """Insert a plain job over the blocking connection."""
        blocking, (new, *_) = self._blocking, batch.inserts
        if blocking is None or not is_lone(batch):
            return None
        try:
            answer = blocking.exchange(
                lambda: insert_request(lone_arguments(new, with_hint=False)), AnswerReader().read
            )
        except NoAnswer as error:
            raise trouble.unknown(error, self.address.shown) from error
        return None if answer is None else Answers([inserted_one(new, answer[0])])

    def _answer(self, call: Call, rows: Sequence[Any]) -> tuple[Answers, bool]:
        answers, hint, worn, again = call.answers(rows)
        if hint is not None and self._signal is not None:
            self._signal.publish(hint)
        if worn and self._generations is not None:
            self._generations.worn(call.queues)
        return answers, again

    async def check_bound(self, connection: Any) -> None:
        bound.check(connection, self.address)

    async def insert_bound(self, connection: Any, jobs: Sequence[NewJob]) -> list[ops.Inserted]:
        return await bound.insert_bound(connection, self.address, self._identity, jobs)

    @asynccontextmanager
    async def transaction(
        self, end: Callable[[], ops.Settlement], notes: Callable[[], Sequence[ops.Note]] = tuple
    ) -> AsyncGenerator[Any, None]:
        self._open_pool()
        if self._transactions is None:
            self._transactions = Transactions(self.address)
        async with self._transactions.begin(end, notes) as connection:
            yield connection

    async def heartbeat(self, holders: Sequence[ops.Holder]) -> list[ops.HeartbeatReply]:
        ids = [holder.id for holder in holders]
        values = ids, [to_json(holder).decode() for holder in holders], [holder.lease for holder in holders]
        rows = await self._run(lambda link: link.fetch(self._say(sql.HEARTBEAT), *values))
        held: dict[str, list[ops.HeldClaim]] = {id: [] for id in ids}
        for row in rows[len(ids) :]:
            held[row[0]].append(ops.HeldClaim(*row[3:]))
        renewed = {id: (number, requests) for id, number, requests, *_ in rows[: len(ids)]}
        return [ops.HeartbeatReply(renewed[id][0], tuple(held[id]), renewed[id][1]) for id in ids]

    async def leave(self, holders: Sequence[str]) -> None:
        async def work(link: Link) -> None:
            await link.fetch(self._say(sql.LEAVE), list(holders))
            await link.fetch(self._say(sql.FORGET_HOLDERS), list(holders))

        await self._run(work)

    async def tidy(self, limit: int) -> ops.Tidied:
        [row] = await self._run(lambda link: link.fetch(self._say(sql.TIDY), limit))
        if self._generations is not None:
            await self._generations.tidy()
        return ops.Tidied(*row)

    async def put_record(self, kind: str, name: str, value: bytes | None, expect: int | None = None) -> bool:
        async def work(link: Link) -> bool:
            if value is not None:
                done = bool(await link.fetch(self._say(sql.PUT_RECORD), kind, name, value, expect))
            elif await link.fetch(self._say(sql.REMOVE_RECORD), kind, name, expect):
                done = True
            else:
                there = await link.fetch(self._say(sql.RECORD_VERSION), kind, name)
                done = not there if not expect else False
            if done and (about := record_topic(kind, name)):
                if self._signal is not None:
                    self._signal.publish(topic(about))
                else:
                    await link.fetch(self._say(sql.HINT_ABOUT_RECORD), topic(about), kind_of(about))
            return done

        return await self._run(work)

    # -- reading

    async def expired(self, limit: int, holder: str | None = None) -> list[ops.Lost]:
        rows = await self._fetch(sql.LOST if holder is None else sql.LOST_OF, limit, holder)
        return [ops.Lost(record(row), row[-1]) for row in rows]

    async def get(self, ids: Sequence[str]) -> list[Record | None]:
        if not ids:
            return []
        found = {kept.id: kept for kept in map(record, await self._fetch(sql.GET, list(ids)))}
        return [found.get(id) for id in ids]

    async def find(self, where: ops.Where, cursor: str | None, limit: int) -> ops.Found:
        rows: list[Any] = []
        before: int | None = None if cursor is None else int(cursor)
        checked = 0
        while size := next_span(checked):
            last: int | None = None
            if observe.checks_each_job(where):
                statement, values = observe.last_of(where, before, size)
                last = next((seq for (seq,) in await self._fetch(statement, *values)), None)
            statement, values = observe.page(where, before, last, limit + 1 - len(rows))
            rows += await self._fetch(statement, *values)
            before, checked = last, checked + size
            if last is None or len(rows) > limit:
                break
        found = [record(row) for row in rows[:limit]]
        if len(rows) > limit:
            return ops.Found(found, str(rows[limit - 1][0]))
        return ops.Found(found, None) if before is None else ops.Found(found, str(before), checked)

    async def key_owners(self, keys: Sequence[str]) -> list[str | None]:
        if not keys:
            return []
        found = dict[str, str](await self._fetch(sql.KEY_OWNERS, list(keys)))
        return [found.get(key) for key in keys]

    async def output(self, id: str, position: int, limit: int, stream: bool = False) -> list[ops.Printed]:
        return [ops.Printed(*row, stream=stream) for row in await self._fetch(sql.OUTPUT, id, position, limit, stream)]

    async def stats(self) -> list[ops.QueueStats]:
        paused = set(await records_of(self, "pause"))
        counts: dict[str, dict[str, int]] = {name: {} for name in paused}
        oldest: dict[str, int] = {}
        for queue, state, count, first in await self._fetch(sql.STATS):
            counts.setdefault(queue, {})[state] = count
            if first is not None:
                oldest[queue] = first
        return [ops.QueueStats(name, counts[name], oldest.get(name), name in paused) for name in sorted(counts)]

    async def transitions(self, since: str | None, limit: int) -> ops.Transitions:
        return await self._read(lambda link: transitions.transitions(link, self._say, since, limit))

    async def stats_by_minute(self, since: int) -> list[ops.MinuteStats]:
        return minute_stats(await self._fetch(sql.MINUTES, since))

    async def holders(self) -> list[ops.HolderInfo]:
        async def work(link: Link) -> tuple[list[Any], list[Any]]:
            async with link.raw.transaction(isolation="repeatable_read", readonly=True):
                known = await link.fetch(self._say(sql.HOLDERS))
                return known, await link.fetch(self._say(sql.CLAIMS_OF), [row[4] for row in known])

        known, rows = await self._read(work)
        jobs: dict[str, list[str]] = {}
        for row in rows:
            jobs.setdefault(row[0], []).append(row[1])
        return [
            ops.HolderInfo(ops.holder_of(id, about), heartbeat, max(0, age) / MICROS, alive, tuple(jobs.get(id, ())))
            for about, heartbeat, age, alive, id in known
        ]

    async def records(self, kinds: Sequence[str]) -> dict[str, dict[str, Versioned]]:
        found: dict[str, dict[str, Versioned]] = {kind: {} for kind in kinds}
        for kind, name, value, version in await self._fetch(sql.RECORDS, list(kinds)):
            found[kind][name] = Versioned(value, version)
        return found

    async def now(self) -> int:
        return (await self._fetch(sql.NOW))[0][0]

    def listen(self, topics: Iterable[str]) -> Listener:
        if self._listeners is None:
            raise StoreUnavailable.not_open(self.address.shown)
        return self._listeners.make(topics)
