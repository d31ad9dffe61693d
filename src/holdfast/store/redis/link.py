"""The link to the server: connects when it is first used and again when it was lost, runs scripts, explains errors."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ...errors import HoldfastError, OutcomeUnknown, StoreUnavailable
from . import trouble
from .address import Address, Node
from .connect import connect, moved_to, reach
from .scripts import Script
from .wire import Lost, Reply, ReplyError, Wire

Word = str | bytes | int
ATTEMPTS = 4
"""How often a call that was certainly not carried out is made again, where another server or another form may do."""


class Link:
    """One connection, made anew as often as it takes.

    1. A call that could not be sent is StoreUnavailable; one that was sent and not answered is OutcomeUnknown, or,
       where it only reads, made once more.
    2. A script that the server does not know (NOSCRIPT) is sent whole.
    3. A cluster's redirections are followed; a server that has become a replica is left.
    """

    def __init__(self, address: Address) -> None:
        self.address = address
        self.key = f"{{{address.prefix}}}:seq"
        self._wire: Wire | None = None
        self._connecting: asyncio.Lock = asyncio.Lock()
        self._node: Node | None = None
        self._open = True

    async def wire(self) -> Wire:
        """The connection, made where there is none."""
        if self._wire is not None and not self._wire.closed:
            return self._wire
        async with self._connecting:
            if not self._open:
                raise StoreUnavailable(f"the store at {self.address} is not open")
            if self._wire is None or self._wire.closed:
                self._wire = await connect(self.address, self.key, self._node)
            return self._wire

    def close(self) -> None:
        self._open = False
        if self._wire is not None:
            self._wire.close()

    def release(self) -> None:
        """The loop has ended."""
        self._open = False
        if self._wire is not None:
            self._wire.release()

    def forget(self) -> None:
        if self._wire is not None:
            self._wire.forget()

    async def command(self, *words: Word) -> Reply:
        """A plain command that changes nothing, made once more where the connection was lost under it."""
        for last in (False, True):
            wire = await self.wire()
            try:
                reply = await wire.call(*words)
            except Lost as error:
                if last:
                    raise StoreUnavailable(f"{self.address}: {error}") from error
                continue
            if isinstance(reply, ReplyError):
                raise trouble.translate(reply, str(self.address))
            return reply
        raise AssertionError

    async def read(self, script: Script, args: Sequence[Word] = ()) -> Reply:
        """Run a script that changes nothing."""
        try:
            return await self.run(script, args)
        except OutcomeUnknown:
            try:
                return await self.run(script, args)
            except OutcomeUnknown as error:
                raise StoreUnavailable(str(error)) from error

    async def run(self, script: Script, args: Sequence[Word] = (), *then: Word) -> Reply:
        """Run a script; `then` is a command that must follow it on the same connection (WAIT, WAITAOF).

        Without `then` the script's answer; with it, the pair of both answers.
        """
        form: tuple[Word, ...] = (b"EVALSHA", script.sha, b"1", self.key)
        asked: Node | None = None
        for _ in range(ATTEMPTS):
            wire = await (self.wire() if asked is None else self._visit(asked))
            if asked is not None:
                wire.call("ASKING")
            first = wire.call(*form, *args)
            second = wire.call(*then) if then else None
            try:
                reply = await first
                if not isinstance(reply, ReplyError):
                    return reply if second is None else (reply, await second)
            except Lost as error:
                raise OutcomeUnknown(f"{self.address}: {error}; the write may have happened") from error
            finally:
                if second is not None and not second.done():
                    second.add_done_callback(_seen)
                if asked is not None:
                    wire.close()
            asked = None
            word = trouble.code(reply)
            if word == "NOSCRIPT":
                form = (b"EVAL", script.text, b"1", self.key)
            elif word == "MOVED":
                self._leave(wire, moved_to(reply, ("", 0)))
            elif word == "ASK":
                asked, form = moved_to(reply, ("", 0)), (b"EVAL", script.text, b"1", self.key)
            else:
                if word in trouble.MOVING:
                    self._leave(wire, None)
                raise self._refused(reply, script)
        raise StoreUnavailable(f"{self.address}: the server keeps sending its callers elsewhere")

    async def _visit(self, node: Node) -> Wire:
        """A wire for one call, to a node that is about to take over the slot."""
        try:
            return await reach(self.address, node, None)
        except (OSError, Lost) as error:
            raise StoreUnavailable(f"{self.address}: {error}") from error

    def _leave(self, wire: Wire, node: Node | None) -> None:
        wire.close()
        self._node = node if node is None or node[0] else None

    def _refused(self, error: ReplyError, script: Script) -> HoldfastError:
        return trouble.translate(error, f"{self.address}, {script.name}")


def _seen(waiter: asyncio.Future[Reply]) -> None:
    if not waiter.cancelled():
        waiter.exception()
