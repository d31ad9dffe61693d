"""Heartbeats without the state: a supervisor writes to the log, and keeps only its head.

The last entry of the log is enough to write the next one. A heartbeat needs no answer here: the worker's own heartbeats
have it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ...core.clock import Clock, Entropy, fresh_entropy
from ...core.errors import StoreUnavailable
from ...core.operations import Holder
from .folder import Folder
from .log import Log, from_snapshot
from .log_format import Batched, log_key, number_of
from .protocol import Bucket
from .replica import Done, Replica
from .requests import Counted
from .timings import Timings
from .writer import Writer


async def from_last_entry(log: Log) -> Replica:
    """The position of the last entry, without jobs.

    The last entry is part of the log: cleaning deletes only entries below the last snapshot but one, and `join` proves
    that there is no snapshot beyond it.
    """
    while True:
        snapshots = await log.bucket.list("snapshot/")
        first = number_of(snapshots[-1].key) if snapshots else 1
        entries = await log.bucket.list("log/", after=log_key(first - 1))
        if not entries and snapshots:
            return await from_snapshot(log)  # the entry of the snapshot was deleted by another program
        head = Replica(keeps_jobs=False)
        if not entries:
            return head
        number = number_of(entries[-1].key)
        if (read := await log.read(number)) is not None:
            head.position, head.nonce = number, read.entry.nonce
            return head


class HeadWriter:
    """Writes heartbeats, on one event loop."""

    def __init__(self, bucket: Bucket, clock: Clock, entropy: Entropy, timings: Timings) -> None:
        self._bucket = Counted(bucket)
        self._clock = clock
        self.log = Log(self._bucket, clock, timings, self._applied, from_last_entry)
        self._writer = Writer(self._bucket, self.log, clock, entropy)

    def _applied(self, replica: Replica, done: dict[tuple[str, int], Done]) -> None:
        self._writer.applied(replica, done)

    async def join(self) -> None:
        """Join the log; creates a missing folder."""
        if isinstance(self._bucket.inner, Folder):
            self._bucket.inner.make()
        await self.log.join(self.log.replica)

    async def write(self, holders: Sequence[Holder]) -> None:
        """Write one heartbeat of each of these holders."""
        refused = "old"
        while refused:
            base, now, spent = self.log.replica.position, self._clock.now(), self._bucket.take()
            refused = (await self._writer.write(Batched("", 0, base, now, heartbeats=[*holders], spent=spent))).refused
        await self._writer.close()


class BucketHeartbeat:
    """Sends heartbeats from a separate thread: a slow disk does not block the supervisor."""

    def __init__(self, bucket: Bucket, clock: Clock, timings: Timings) -> None:
        self._bucket = bucket
        self._clock = clock
        self._timings = timings
        self._thread = ThreadPoolExecutor(1, "holdfast-bucket")
        self._runner = asyncio.Runner()
        self._writer: HeadWriter | None = None

    async def open(self) -> None:
        await self._run(self._joined)

    async def heartbeat(self, holders: Sequence[Holder]) -> None:
        async def write() -> None:
            await (await self._joined()).write(holders)

        await self._run(write)

    async def close(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._runner.close)
        self._thread.shutdown(wait=False)

    async def _joined(self) -> HeadWriter:
        if self._writer is None:
            writer = HeadWriter(self._bucket, self._clock, fresh_entropy(), self._timings)
            await writer.join()
            self._writer = writer
        return self._writer

    async def _run(self, work: Callable[[], Coroutine[Any, Any, object]]) -> None:
        async def limited() -> None:
            try:
                async with asyncio.timeout(self._timings.patience):
                    await work()
            except TimeoutError:
                patience = self._timings.patience
                said = f"{self._bucket} did not answer a heartbeat in {patience:g} s: check the bucket"
                raise StoreUnavailable(said) from None

        await asyncio.get_running_loop().run_in_executor(self._thread, lambda: self._runner.run(limited()))
