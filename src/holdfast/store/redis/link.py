"""The connection to the server: opened at first use, reopened after a loss; runs scripts and translates errors."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from ...core.errors import ConfigError, HoldfastError, OutcomeUnknown, StoreUnavailable
from . import trouble
from .address import Address, Node
from .connect import connect, moved_to
from .resp import Connection, Lost, Reply, ReplyError
from .scripts import Script, script
from .sentinel import Sentinels

Word = str | bytes | int
CALL_ATTEMPTS = 4
"""Attempts of a call that was certainly not executed, if another server or another form may accept it."""
SLOT_PAUSE = 0.1
"""Seconds between two attempts while a slot is being migrated."""
_FENCES = script("fences")


class Then(Protocol):
    """A command that waits for the durability of a write."""

    def command(self, replicas: int) -> tuple[Word, ...]:
        """The command, if so many replicas must have the write to survive a failover."""
        ...


class Link:
    """One connection, reopened as often as needed.

    1. A call that could not be sent raises StoreUnavailable; one that was sent and not answered raises OutcomeUnknown,
       or is repeated once if it only reads.
    2. A script that the server does not know (NOSCRIPT) is sent as text.
    3. It leaves a server that has become a replica, and a primary that the sentinels replace.
    4. It follows redirections of a cluster. While the slot is migrated, calls wait and nothing is written: every script
       declares a key that never exists, so that the node which has the slot runs none of them until all keys are on
       one node again. (The scripts compute most of their keys.)
    """

    def __init__(self, address: Address, moved: Callable[[], None] | None = None) -> None:
        self.address = address
        self.key = f"{{{address.prefix}}}:seq"
        self.declared: tuple[Word, ...] = (b"2", self.key, f"{{{address.prefix}}}:never")
        """The keys that every script declares, after their number."""
        self._connection: Connection | None = None
        self._connecting: asyncio.Lock = asyncio.Lock()
        self._node: Node | None = None
        self._open = True
        self._moved = moved
        self._sentinels = None if address.master is None else Sentinels(address, self._replaced)

    @property
    def replicas(self) -> int:
        """How many replicas must have a write, so that it survives a failover."""
        return 1 if self._sentinels is None else self._sentinels.replicas

    async def connection(self) -> Connection:
        """The connection, opened if needed; waits for the end of a failover."""
        while True:
            if self._sentinels is not None and self._sentinels.failing_over:
                await self._sentinels.settled()
            if self._connection is not None and not self._connection.closed:
                return self._connection
            async with self._connecting:
                if not self._open:
                    raise StoreUnavailable.not_open(f"at {self.address}")
                if self._connection is None or self._connection.closed:
                    self._connection = await self._connect()

    async def _connect(self) -> Connection:
        if self._sentinels is not None:
            while True:
                node = await self._sentinels.primary()
                connection = await connect(self.address, self.key, node)
                if node == self._sentinels.named:
                    return connection
                connection.close()  # replaced meanwhile
        patience = _Patience(self.address.timeout)
        while True:
            try:
                return await connect(self.address, self.key, self._node)
            except trouble.SlotMoving:
                if not await patience.pause():
                    raise

    def _replaced(self) -> None:
        """The sentinels have another primary: pending writes may be made and lost."""
        self.drop()
        if self._moved is not None:
            self._moved()

    def drop(self) -> None:
        """Close the connection; the next call opens another."""
        if self._connection is not None:
            self._connection.close()

    def drop_if_silent(self) -> None:
        """The same if the server has not answered for a while; else it is slow with one call alone."""
        if self._connection is not None and self._connection.silent:
            self.drop()

    async def close(self) -> None:
        self._open = False
        self.drop()
        if self._sentinels is not None:
            await self._sentinels.close()

    def release(self) -> None:
        """The loop has ended."""
        self._open = False
        if self._connection is not None:
            self._connection.release()
        if self._sentinels is not None:
            self._sentinels.release()

    def forget(self) -> None:
        if self._connection is not None:
            self._connection.forget()
        if self._sentinels is not None:
            self._sentinels.forget()

    async def command(self, *words: Word) -> Reply:
        """Run a command that changes nothing; repeated once if the connection is lost."""
        lost = 0
        retries = _Retries(self, str(self.address))
        while True:
            connection = await self.connection()
            try:
                reply = await connection.call(*words)
            except Lost as error:
                lost += 1
                if lost > 1:
                    raise StoreUnavailable(f"{self.address}: {error}; try again") from error
                continue
            if not isinstance(reply, ReplyError):
                return reply
            await retries.after(reply, connection)

    async def read(self, script: Script, args: Sequence[Word] = ()) -> Reply:
        """Run a script that changes nothing."""
        try:
            return await self.run(script, args)
        except OutcomeUnknown:
            try:
                return await self.run(script, args)
            except OutcomeUnknown as error:
                raise StoreUnavailable(f"{self.address}: {error.__cause__}; try again") from error

    async def run(
        self, script: Script, args: Sequence[Word] = (), then: Then | None = None, *, fenced: bool = False
    ) -> Reply:
        """Run a script; `then` gives a command that must follow it on the same connection (WAIT, WAITAOF).

        Returns the script's answer; with `then`, both answers. A `fenced` script gets the answer of fences.lua as its
        last argument, which is read first where it is not known.
        """
        form: tuple[Word, ...] = (b"EVALSHA", script.sha)
        retries: _Retries | None = None
        while True:
            connection = await self.connection()
            if fenced:
                if not connection.fences:
                    await self._learn_fences(connection)
                    continue
                first = connection.call(*form, *self.declared, *args, connection.fences)
            else:
                first = connection.call(*form, *self.declared, *args)
            second = connection.call(*then.command(self.replicas)) if then is not None else None
            try:
                reply = await first
                if not isinstance(reply, ReplyError):
                    return reply if second is None else (reply, await second)
            except Lost as error:
                raise trouble.unknown(self.address, error) from error
            finally:
                if second is not None:
                    second.add_done_callback(_seen)
            retries = retries or _Retries(self, f"{self.address}, {script.name}")
            word = trouble.code(reply)
            if word == "NOSCRIPT" and form[0] == b"EVALSHA":
                form = (b"EVAL", script.text)
            elif word == "NEWSERVER" and retries.once_more():
                await self._learn_fences(connection)
            else:
                await retries.after(reply, connection)

    async def _learn_fences(self, connection: Connection) -> None:
        """Identify the server by run id and replication id: a new one gives higher fences."""
        try:
            info: bytes = await self.command("INFO", "server", "replication")
        except ConfigError:
            info = b""  # the user of the URL may not run INFO
        facts = dict(line.split(":", 1) for line in info.decode(errors="replace").splitlines() if ":" in line)
        name = f"{facts['run_id'][:12]}:{facts['master_replid'][:12]}" if "master_replid" in facts else ""
        connection.fences = await self.run(_FENCES, (name,))

    def leave(self, connection: Connection, node: Node | None = None) -> None:
        """Reconnect for the next call, to `node` first if it is given."""
        if self._connection is connection:
            self._connection = None
            self._node = node if node is None or node[0] else None
        connection.retire()

    @property
    def watched(self) -> bool:
        return self._sentinels is not None


class _Patience:
    """A bounded wait, in steps of SLOT_PAUSE."""

    def __init__(self, seconds: float) -> None:
        self._left = seconds

    async def pause(self) -> bool:
        """Wait one step; False if the time is over."""
        if self._left <= 0:
            return False
        self._left -= SLOT_PAUSE
        await asyncio.sleep(SLOT_PAUSE)
        return True


class _Retries:
    """Decides about repeats of one call after errors that mean that nothing was written."""

    def __init__(self, link: Link, what: str) -> None:
        self._link = link
        self._what = what
        self._attempts = CALL_ATTEMPTS
        self._patience = _Patience(link.address.timeout)

    async def after(self, error: ReplyError, connection: Connection) -> None:
        """Return if the call may be repeated, else raise the translated error."""
        word = trouble.code(error)
        if word in trouble.HALF_MOVED:
            if await self._patience.pause():
                return
            raise self._refused(error)
        if word == "MOVED" and self.once_more():
            self._link.leave(connection, moved_to(error, ("", 0)))
            return
        if word in trouble.MOVING:
            self._link.leave(connection)
            if self._link.watched and self.once_more():
                return  # the sentinels may name another server by now
        raise self._refused(error)

    def once_more(self) -> bool:
        self._attempts -= 1
        return self._attempts > 0

    def _refused(self, error: ReplyError) -> HoldfastError:
        return trouble.translate(error, self._what, watched=self._link.watched)


def _seen(waiter: asyncio.Future[Reply]) -> None:
    if not waiter.cancelled():
        waiter.exception()
