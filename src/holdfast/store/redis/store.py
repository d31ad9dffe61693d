"""The Redis store: the protocol's methods, each one script on the server."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable, Sequence
from typing import Any

from ...core import operations as ops
from ...core.errors import HoldfastError, StoreUnavailable
from ...core.job import TERMINAL, NewJob, Record
from ...core.limiter import KEPT
from ..blocking import BlockingConnection, NoAnswer
from ..protocol import MINUTE_STATS_KEPT, WATCH, Answers, Batch, Finding, Listener, Versioned, record_topic
from . import checks, trouble, unpack
from .address import Address
from .connect import connect
from .link import Link
from .messages import OutputArguments, RecordArguments, TidyArguments, TransitionsArguments
from .pack import about, is_plain, micros, pack_batch, pack_one, pack_where
from .resp import ReplyReader, pack_command
from .scripts import KINDS, Script, lone_script, script, write_script
from .wait import Wait
from .wake import Listeners

GET_STEP = 500
"""Ids or keys that one script reads."""
DECODED = 2000
"""Minute statistics decoded in one go, about 2 ms: other calls of the event loop continue between."""
MAX_READ = 20_000
"""Jobs that are read for one page, if no set has those that match: about 0.1 s."""
_ENQUEUE_ONE = lone_script("enqueue_one")
_HEARTBEAT = script("heartbeat")
_LEAVE = script("leave")
_EXPIRED = script("expired")
_TIDY = script("tidy")
_GET = script("get")
_FIND = script("find")
_KEY_OWNERS = script("key_owners")
_OUTPUT = script("output")
_STATS = script("stats")
_TRANSITIONS = script("transitions")
_HOLDERS = script("holders")
_RECORD = script("record")
_RECORDS = lone_script("records")


class RedisStore:
    """A store in Redis or Valkey, shared by any number of machines.

    1. Every operation is one Lua script, so it is atomic and uses the server's clock (`lua/`).
    2. They share one connection, reopened after a loss; an error says whether anything was written (`link.py`).
    3. Another connection receives notifications, only while there are listeners (`wake.py`).
    4. Blocking callers may insert over a separate connection (`store/blocking.py`); not with TLS, sentinels, or a
       durability that waits.
    """

    name = "redis"
    features = frozenset({"durable", "multi_process"})

    def __init__(self, address: Address) -> None:
        self.address = address
        self._link: Link | None = None
        self._listeners: Listeners | None = None
        self._blocking: BlockingConnection | None = None
        self._checked = False
        self._waiting_for = address.durability in ("fsync", "replicated")

    # -- lifetime

    async def open(self) -> None:
        if self._link is not None:
            return
        listeners: Listeners | None = None
        link = Link(self.address, lambda: listeners.leave() if listeners is not None else None)
        try:
            await link.connection()
            if not self._checked:
                await checks.check(link)
                self._checked = True
        except GeneratorExit:  # its loop has ended: nothing can be awaited
            link.release()
            raise
        except BaseException:
            await link.close()
            raise
        listeners = Listeners(self.address, link.key)
        self._link, self._listeners = link, listeners
        if not (self._waiting_for or self.address.tls or self.address.master):
            self._blocking = BlockingConnection(self._connect_blocking, self.address.timeout)

    async def _connect_blocking(self) -> socket.socket:
        return (await connect(self.address, self._open().key)).taken()

    async def close(self) -> None:
        link, listeners, blocking = self._link, self._listeners, self._blocking
        self._link = self._listeners = self._blocking = None
        if blocking is not None:
            blocking.close()
        if listeners is not None:
            await listeners.close()
        if link is not None:
            await link.close()

    async def examine(self) -> list[Finding]:
        """The findings of `holdfast doctor` about this store."""
        link = Link(self.address)
        try:
            return await checks.examine(link)
        except HoldfastError as error:
            return [Finding(False, str(error), "check the URL, and that the server is running")]
        finally:
            await link.close()

    async def warnings(self) -> list[Finding]:
        return await checks.warnings(self._open())

    def sibling(self) -> RedisStore:
        made = RedisStore(self.address)
        made._checked = self._checked
        return made

    def release(self) -> None:
        link, listeners, blocking = self._link, self._listeners, self._blocking
        self._link = self._listeners = self._blocking = None
        if blocking is not None:
            blocking.close()
        for part in (link, listeners):
            if part is not None:
                part.release()

    def abandon(self) -> None:
        for part in (self._link, self._listeners, self._blocking):
            if part is not None:
                part.forget()
        self._link = self._listeners = self._blocking = None

    def _open(self) -> Link:
        if self._link is None:
            raise StoreUnavailable.not_open(f"at {self.address}")
        return self._link

    # -- writing

    async def write(self, batch: Batch) -> Answers:
        link = self._open()
        parts = (batch.inserts, batch.notes, batch.settles, batch.changes, batch.asks)
        kinds = [kind for kind, operations in zip(KINDS, parts, strict=True) if operations]
        if not kinds:
            return Answers()
        if kinds == ["enqueue"] and _is_lone(batch.inserts):
            return await self._enqueue_one(link, batch.inserts[0])
        try:
            reply = await self._run(link, batch, kinds)
        except trouble.OutOfMemory as error:
            if batch.inserts and len(kinds) > 1:
                # Only new jobs need memory: settlements and claims succeed on their own.
                raise trouble.Full(str(error)) from error
            raise
        made, noted, settled, changed, claims = reply
        answers = Answers(
            unpack.inserted(batch.inserts, made) if batch.inserts else (),
            [answer == 1 for answer in noted] if batch.notes else (),
            [answer == 1 for answer in settled] if batch.settles else (),
            [answer == 1 for answer in changed] if batch.changes else (),
            [unpack.claimed(row) for row in claims] if batch.asks else (),
        )
        self._notify(batch)
        return answers

    async def _enqueue_one(self, link: Link, new: NewJob) -> Answers:
        made = await self._durably(link, _ENQUEUE_ONE, pack_one(new))
        if self._listeners is not None:
            self._listeners.notify((f"queue/{new.queue}",))
        return Answers([_inserted_one(new, made)])

    def write_blocking(self, batch: Batch) -> Answers | None:
        """Insert over the blocking connection. Listeners of this process get the server's notification."""
        blocking, link, jobs = self._blocking, self._link, batch.inserts
        if blocking is None or link is None:
            return None
        what, lone = (_ENQUEUE_ONE, True) if _is_lone(jobs) else (write_script("enqueue"), False)

        def request() -> bytes:
            args = pack_one(jobs[0]) if lone else pack_batch(batch)
            return pack_command((b"EVALSHA", what.sha, *link.declared, *args))

        try:
            reply = blocking.exchange(request, ReplyReader().read)
        except NoAnswer as error:
            raise trouble.unknown(self.address, error) from error
        if reply is None:
            return None
        return Answers([_inserted_one(jobs[0], reply)] if lone else unpack.inserted(jobs, reply[0]))

    async def _run(self, link: Link, batch: Batch, kinds: list[str]) -> Any:
        what, args = write_script(*kinds), pack_batch(batch)
        if kinds == ["claim"]:
            # A claim that is lost with its server is made again: only other writes wait for durability.
            return await link.run(what, args, fenced=True)
        return await self._durably(link, what, args)

    async def _durably(self, link: Link, what: Script, args: Sequence[str | bytes | int]) -> Any:
        """Run a script that writes, and wait as `durability` requires."""
        if not self._waiting_for:
            return await link.run(what, args, fenced=True)
        wait = Wait(self.address)
        reply, waited = await link.run(what, args, wait, fenced=True)
        wait.check(waited)
        return reply

    def _notify(self, batch: Batch) -> None:
        """Notify listeners of this process before the server's notification arrives."""
        listeners = self._listeners
        if not listeners:
            return
        topics = {f"queue/{new.queue}" for new in batch.inserts}
        if listeners.wait_for_jobs:
            topics.update(f"job/{end.id}" for end in batch.settles if end.state in TERMINAL)
        listeners.notify(topics)

    async def heartbeat(self, holders: Sequence[ops.Holder]) -> list[ops.HeartbeatReply]:
        if not holders:
            return []
        args = [part for one in holders for part in (one.id, about(one), micros(one.lease))]
        link = self._open()
        try:
            return unpack.heartbeats(await link.run(_HEARTBEAT, args))
        except asyncio.CancelledError:
            link.drop_if_silent()  # the next one must not wait for the same connection; others may use it
            raise

    async def leave(self, holders: Sequence[str]) -> None:
        if holders:
            await self._open().run(_LEAVE, holders)

    async def tidy(self, limit: int) -> ops.Tidied:
        return ops.Tidied(*await self._open().run(_TIDY, TidyArguments(limit, micros(MINUTE_STATS_KEPT), KEPT)))

    async def put_record(self, kind: str, name: str, value: bytes | None, expect: int | None = None) -> bool:
        expected = "" if expect is None else str(expect)
        topic = record_topic(kind, name)
        wanted = RecordArguments(kind, name, expected, "0" if value is None else "1", value or b"", topic)
        reply = await self._open().run(_RECORD, wanted)
        if self._listeners and topic:
            self._listeners.notify([topic])
        return reply == 1

    # -- reading

    async def expired(self, limit: int, holder: str | None = None) -> list[ops.Lost]:
        return unpack.lost(await self._open().read(_EXPIRED, (limit,) if holder is None else (limit, holder)))

    async def get(self, ids: Sequence[str]) -> list[Record | None]:
        found: list[Record | None] = []
        for first in range(0, len(ids), GET_STEP):
            found += unpack.records(await self._open().read(_GET, ids[first : first + GET_STEP]))
        return found

    async def find(self, where: ops.Where, cursor: str | None, limit: int) -> ops.Found:
        """A page; reads one job more than its size, to know whether there is a next page."""
        page: list[Record] = []
        before, looked = cursor, 0
        while True:
            wanted = pack_where(where, before, limit + 1 - len(page))
            following, read, *rows = await self._open().read(_FIND, (wanted,))
            page += [record for record in unpack.records(rows) if record is not None]
            if following is None or len(page) > limit:
                break
            before, looked = following.decode(), looked + read
            if looked >= MAX_READ:
                return ops.Found(page, before, looked)
        return ops.Found(page[:limit], str(page[limit - 1].seq) if len(page) > limit else None)

    async def key_owners(self, keys: Sequence[str]) -> list[str | None]:
        owners: list[str | None] = []
        for first in range(0, len(keys), GET_STEP):
            owners += unpack.texts(await self._open().read(_KEY_OWNERS, keys[first : first + GET_STEP]))
        return owners

    async def output(self, id: str, position: int, limit: int, stream: bool = False) -> list[ops.Printed]:
        wanted = OutputArguments(id, position, limit, "stream" if stream else "output")
        return unpack.printed(await self._open().read(_OUTPUT, wanted), stream)

    async def stats(self) -> list[ops.QueueStats]:
        return unpack.stats(await self._open().read(_STATS))

    async def transitions(self, since: str | None, limit: int) -> ops.Transitions:
        # It writes only the end of the watch, so it may be repeated like a read.
        return unpack.transitions(
            await self._open().read(_TRANSITIONS, TransitionsArguments(since or b"", limit, micros(WATCH)))
        )

    async def stats_by_minute(self, since: int) -> list[ops.MinuteStats]:
        """Reads hour by hour, so that a long range does not block the server."""
        link, head = self._open(), f"{{{self.address.prefix}}}:"
        since = max(since, await self.now() - micros(MINUTE_STATS_KEPT))
        found, text = list[ops.MinuteStats](), unpack.Texts()
        for hour in await link.command("ZRANGEBYSCORE", f"{head}hours", since // unpack.HOUR, "+inf"):
            flat = await link.command("HGETALL", f"{head}minutes:{hour.decode()}")
            for at in range(0, len(flat), 2 * DECODED):
                found += unpack.stats_by_minute(int(hour), flat[at : at + 2 * DECODED], since, text)
                await asyncio.sleep(0)
        return found

    async def holders(self) -> list[ops.HolderInfo]:
        return unpack.holders(await self._open().read(_HOLDERS))

    async def records(self, kinds: Sequence[str]) -> dict[str, dict[str, Versioned]]:
        answers = await self._open().read(_RECORDS, kinds)
        return {kind: unpack.versioned(flat) for kind, flat in zip(kinds, answers, strict=True)}

    async def now(self) -> int:
        seconds, micro = await self._open().command("TIME")
        return int(seconds) * 1_000_000 + int(micro)

    def listen(self, topics: Iterable[str]) -> Listener:
        if self._listeners is None:
            raise StoreUnavailable.not_open(f"at {self.address}")
        return self._listeners.make(topics)


def _is_lone(jobs: Sequence[NewJob]) -> bool:
    return len(jobs) == 1 and is_plain(jobs[0])


def _inserted_one(new: NewJob, made: int) -> ops.Inserted:
    return ops.Inserted("created" if made == 1 else "exists", new.id)
