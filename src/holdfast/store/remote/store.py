"""The remote store: the protocol's methods, each one call to a server's `/v1/store` routes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Sequence

from ...core import operations as ops
from ...core.clock import Clock, fresh_entropy
from ...core.errors import HoldfastError, StoreUnavailable
from ...core.job import Record
from .. import rpc
from ..protocol import Answers, Batch, Finding, Listener, Versioned
from . import doctor, trouble
from .address import Address
from .link import Link
from .wake import Listeners


class RemoteStore:
    """The store of a server, whatever kind it is.

    1. Every call is one request; a lost answer is queried again by the request id (`link.py`).
    2. Notifications come through one stream, only while there are listeners (`wake.py`).
    3. Time, order and leases come from the server's store; nothing is kept here.
    """

    name = "remote"

    def __init__(self, address: Address, clock: Clock) -> None:
        self.address = address
        self.features: frozenset[str] = frozenset()
        """The features of the server's store, once this one was opened."""
        self._clock = clock
        self._link: Link | None = None
        self._listeners: Listeners | None = None

    # -- lifetime

    async def open(self) -> None:
        if self._link is not None:
            return
        link = Link(self.address, fresh_entropy())
        try:
            self.features = frozenset((await link.call(rpc.HELLO)).features)
        except GeneratorExit:  # its loop has ended: nothing can be awaited
            link.release()
            raise
        except BaseException:
            await link.close()
            raise
        self._link, self._listeners = link, Listeners(link)

    async def close(self) -> None:
        link, listeners = self._link, self._listeners
        self._link = self._listeners = None
        if listeners is not None:
            await listeners.close()
        if link is not None:
            await link.close()

    async def warnings(self) -> list[Finding]:
        return await self._open().call(rpc.WARNINGS)

    def sibling(self) -> RemoteStore:
        return RemoteStore(self.address, self._clock)

    def release(self) -> None:
        if self._link is not None:
            self._link.release()
        self._link = self._listeners = None

    def abandon(self) -> None:
        if self._link is not None:
            self._link.forget()
        self._link = self._listeners = None

    def _open(self) -> Link:
        if self._link is None:
            raise StoreUnavailable.not_open(f"at {self.address}")
        return self._link

    async def examine(self) -> list[Finding]:
        link = Link(self.address, fresh_entropy())
        try:
            return await doctor.examine(link, self.address, self._clock)
        except (HoldfastError, trouble.Failed) as error:
            return [Finding(False, str(error), "check that `holdfast serve` runs there, and the token")]
        finally:
            await link.close()

    async def waiting_calls(self, queue: str | None) -> AsyncGenerator[ops.WaitingCalls]:
        link, cursor = Link(self.address, fresh_entropy()), None
        try:
            while True:
                page = await link.call(rpc.WAITING_CALLS, queue, cursor)
                yield page
                if (cursor := page.cursor) is None:
                    return
        finally:
            await link.close()

    # -- writing

    async def write(self, batch: Batch) -> Answers:
        return await self._open().call(rpc.WRITE, batch)

    async def heartbeat(self, holders: Sequence[ops.Holder]) -> list[ops.HeartbeatReply]:
        return await self._open().call(rpc.HEARTBEAT, holders)

    async def leave(self, holders: Sequence[str]) -> None:
        await self._open().call(rpc.LEAVE, holders)

    async def tidy(self, limit: int) -> ops.Tidied:
        return await self._open().call(rpc.TIDY, limit)

    async def put_record(self, kind: str, name: str, value: bytes | None, expect: int | None = None) -> bool:
        return await self._open().call(rpc.PUT_RECORD, kind, name, value, expect)

    # -- reading

    async def expired(self, limit: int, holder: str | None = None) -> list[ops.Lost]:
        return await self._open().call(rpc.EXPIRED, limit, holder)

    async def get(self, ids: Sequence[str]) -> list[Record | None]:
        return await self._open().call(rpc.GET, ids)

    async def find(self, where: ops.Where, cursor: str | None, limit: int) -> ops.Found:
        return await self._open().call(rpc.FIND, where, cursor, limit)

    async def key_owners(self, keys: Sequence[str]) -> list[str | None]:
        return await self._open().call(rpc.KEY_OWNERS, keys)

    async def output(self, id: str, position: int, limit: int, stream: bool = False) -> list[ops.Printed]:
        return await self._open().call(rpc.OUTPUT, id, position, limit, stream)

    async def stats(self) -> list[ops.QueueStats]:
        return await self._open().call(rpc.STATS)

    async def transitions(self, since: str | None, limit: int) -> ops.Transitions:
        return await self._open().call(rpc.TRANSITIONS, since, limit)

    async def stats_by_minute(self, since: int) -> list[ops.MinuteStats]:
        return await self._open().call(rpc.STATS_BY_MINUTE, since)

    async def holders(self) -> list[ops.HolderInfo]:
        return await self._open().call(rpc.HOLDERS)

    async def records(self, kinds: Sequence[str]) -> dict[str, dict[str, Versioned]]:
        return await self._open().call(rpc.RECORDS, kinds)

    async def now(self) -> int:
        return await self._open().call(rpc.NOW)

    def listen(self, topics: Iterable[str]) -> Listener:
        if self._listeners is None:
            raise StoreUnavailable.not_open(f"at {self.address}")
        return self._listeners.make(topics)
