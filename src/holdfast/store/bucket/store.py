"""The bucket store: the protocol's methods, each one hop to the engine's thread and back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from copy import copy
from itertools import islice
from typing import Any, TypeVar

from ...core import operations as ops
from ...core.clock import MICROS, Clock, SystemClock, fresh_entropy
from ...core.errors import ConfigError
from ...core.job import TERMINAL, Record
from ..protocol import Answers, Batch, Cost, Finding, Listener, Versioned
from ..reference.jobs import Holding, read_output
from .contents import Gone
from .doctor import examine
from .engine import Engine
from .folder import Folder
from .heartbeat import BucketHeartbeat
from .log_format import Put, Tidy, log_key, number_of
from .protocol import Bucket
from .replica import Replica
from .requests import Counted
from .thread import Shared
from .timings import FOLDER, Timings
from .write_request import WriteRequest

T = TypeVar("T")


class BucketStore:
    """Jobs in a bucket, shared by all processes that can access it.

    Every commit is one new object, `log/<number>`, created with put-if-absent; every process replays the log through
    the same pure state machine. A sibling shares this store's engine.
    """

    name = "bucket"

    def __init__(
        self,
        bucket: Bucket,
        timings: Timings | None = None,
        *,
        clock: Clock | None = None,
        _shared: Shared | None = None,
    ) -> None:
        if not isinstance(bucket, Bucket):  # pyright: ignore[reportUnnecessaryIsInstance]
            missing = [name for name in ("get", "put_if_absent", "list", "delete") if not hasattr(bucket, name)]
            raise ConfigError(
                f"a {type(bucket).__name__} cannot be a bucket: add the methods {', '.join(missing)} to it"
            )
        self.features = frozenset({"durable", "multi_process", "watched_leases"})
        if not isinstance(bucket, Folder):
            self.features |= {"long_leases"}
        timings = timings or (FOLDER if isinstance(bucket, Folder) else Timings())
        if timings.verify_after * 3 > timings.clean_after:
            raise ConfigError(
                f"clean_after ({timings.clean_after:g} s) must be at least three times verify_after"
                f" ({timings.verify_after:g} s)"
            )
        self._shared = _shared or Shared(bucket, clock or SystemClock(), timings)
        self._open = False

    # -- lifetime

    async def open(self) -> None:
        if not self._open:
            await self._shared.open()
            self._open = True

    async def exists(self) -> bool:
        bucket = self._shared.bucket
        return not isinstance(bucket, Folder) or bucket.path.is_dir()

    async def close(self) -> None:
        if self._open:
            self._open = False
            await self._shared.close()

    def sibling(self) -> BucketStore:
        return BucketStore(self._shared.bucket, _shared=self._shared)

    def heartbeat_only(self) -> BucketHeartbeat:
        shared = self._shared
        bucket = Folder(str(shared.bucket.path)) if isinstance(shared.bucket, Folder) else shared.bucket
        return BucketHeartbeat(bucket, shared.clock, shared.timings)  # another thread: a Folder is for one

    def release(self) -> None:
        if self._open:
            self._open = False
            self._shared.release()

    def abandon(self) -> None:
        """A forked child has no engine: its thread stayed with the parent."""
        self._shared = self._shared.anew()
        self._open = False

    async def examine(self) -> list[Finding]:
        shared = self._shared
        if not await self.exists():  # the checks would create it
            return [Finding(False, f"{shared.bucket} does not exist", "the first enqueue or worker creates it")]
        return await examine(Counted(shared.bucket), fresh_entropy(), shared.clock)

    async def replay(self, first: int) -> AsyncIterator[tuple[int, bytes]]:
        bucket = Counted(self._shared.bucket)
        for listed in await bucket.list("log/", after=log_key(first - 1)):
            data = await bucket.get(listed.key)
            if data is not None:  # else it was deleted meanwhile
                yield number_of(listed.key), data

    async def cost(self) -> Cost:
        async def work(engine: Engine) -> Cost:
            replica = await engine.view()
            spent = replica.spent
            return Cost(replica.jobs.seq, spent.gets, spent.puts, spent.lists)

        return await self._shared.run(work)

    # -- writing

    async def write(self, batch: Batch) -> Answers:
        async def work(engine: Engine) -> Answers:
            return (await engine.write(WriteRequest(batch))).answers

        return await self._shared.run(work)

    async def heartbeat(self, holders: Sequence[ops.Holder]) -> list[ops.HeartbeatReply]:
        async def work(engine: Engine) -> list[ops.HeartbeatReply]:
            return (await engine.write(WriteRequest(heartbeats=list(holders)))).heartbeats

        return await self._shared.run(work) if holders else []

    async def leave(self, holders: Sequence[str]) -> None:
        async def work(engine: Engine) -> None:
            known = (await engine.view()).jobs.holders
            if leaves := [holder for holder in holders if holder in known]:
                await engine.write(WriteRequest(leaves=leaves))

        await self._shared.run(work)

    async def tidy(self, limit: int) -> ops.Tidied:
        async def work(engine: Engine) -> ops.Tidied:
            replica, now = await engine.recent(), engine.clock.now()
            holders = replica.jobs.holders.values()
            gone = [(h.holder.id, h.heartbeat) for h in holders if not h.jobs and engine.watch.ended(replica, h)]
            jobs, keys = replica.jobs.over(now, 1)
            over = any((each.expires_at or now + 1) <= now for each in replica.archived.values())
            late = replica.jobs.ready_queues.waiting_for_rates(now)
            stalled = engine.stalls.over(late, int(engine.clock.monotonic() * MICROS))
            if not (gone or jobs or keys or over or stalled):
                return ops.Tidied()
            return (await engine.write(WriteRequest(tidies=[Tidy(limit, gone, stalled)]))).tidied[0]

        return await self._shared.run(work)

    async def put_record(self, kind: str, name: str, value: bytes | None, expect: int | None = None) -> bool:
        async def work(engine: Engine) -> bool:
            return (await engine.write(WriteRequest(records=[Put(kind, name, value, expect)]))).records[0]

        return await self._shared.run(work)

    # -- leases

    async def expired(self, limit: int, holder: str | None = None) -> list[ops.Lost]:
        async def work(engine: Engine) -> list[ops.Lost]:
            replica = await (engine.recent() if holder is None else engine.view())

            def ended(known: Holding) -> bool:
                return engine.watch.ended(replica, known) if holder is None else known.holder.id == holder

            lost = replica.jobs.lost(ended, limit)
            await engine.contents.fill([each.record for each in lost])
            return lost

        return await self._shared.run(_again(work))

    async def holders(self) -> list[ops.HolderInfo]:
        async def work(engine: Engine) -> list[ops.HolderInfo]:
            replica, watch = await engine.view(), engine.watch
            return [
                ops.HolderInfo(
                    h.holder, h.heartbeat, watch.silent(replica, h), not watch.ended(replica, h), tuple(h.jobs)
                )
                for h in replica.jobs.holders.values()
            ]

        return await self._shared.run(work)

    # -- reading

    async def get(self, ids: Sequence[str]) -> list[Record | None]:
        async def work(engine: Engine) -> list[Record | None]:
            replica = await engine.view()
            jobs = replica.jobs.jobs
            found = [copy(record) if (record := jobs.get(id)) else await _ended(engine, replica, id) for id in ids]
            await engine.contents.fill([record for record in found if record is not None])
            return found

        return await self._shared.run(_again(work))

    async def find(self, where: ops.Where, cursor: str | None, limit: int) -> ops.Found:
        async def work(engine: Engine) -> ops.Found:
            replica = await engine.view()
            before = int(cursor) if cursor is not None else None
            page = [copy(record) for record in islice(replica.jobs.newest(where, before), limit + 1)]
            if replica.archived and (not where.states or TERMINAL.intersection(where.states)):
                page += await engine.contents.newest_ended(replica, where, before, limit + 1)
                page = sorted(page, key=lambda record: record.seq, reverse=True)[: limit + 1]
            await engine.contents.fill(page[:limit])
            return ops.Found(page[:limit], str(page[limit - 1].seq) if len(page) > limit else None)

        return await self._shared.run(_again(work))

    async def key_owners(self, keys: Sequence[str]) -> list[str | None]:
        async def work(engine: Engine) -> list[str | None]:
            jobs = (await engine.view()).jobs
            return [jobs.key_owner(key) for key in keys]

        return await self._shared.run(work)

    async def output(self, id: str, position: int, limit: int, stream: bool = False) -> list[ops.Printed]:
        async def work(engine: Engine) -> list[ops.Printed]:
            replica = await engine.view()
            if id in replica.jobs.jobs:
                return replica.jobs.output(id, position, limit, stream)
            ended = await engine.contents.ended(replica, id)
            return [] if ended is None else read_output(ended[3], position, limit, stream)

        return await self._shared.run(_again(work))

    async def stats(self) -> list[ops.QueueStats]:
        async def work(engine: Engine) -> list[ops.QueueStats]:
            replica = await engine.view()
            found = {queue.name: queue for queue in replica.jobs.stats()}
            for archived in replica.archived.values():
                for name, counts in archived.counts.items():
                    known = found.get(name) or ops.QueueStats(name, {})
                    total = {s: known.counts.get(s, 0) + counts.get(s, 0) for s in {*known.counts, *counts}}
                    found[name] = ops.QueueStats(name, total, known.oldest, known.paused)
            return [found[name] for name in sorted(found)]

        return await self._shared.run(work)

    async def transitions(self, since: str | None, limit: int) -> ops.Transitions:
        async def work(engine: Engine) -> ops.Transitions:
            replica = await engine.view()
            answer = replica.jobs.transitions_since(since, limit)
            engine.record_transitions()
            return answer

        return await self._shared.run(work)

    async def stats_by_minute(self, since: int) -> list[ops.MinuteStats]:
        async def work(engine: Engine) -> list[ops.MinuteStats]:
            return (await engine.view()).jobs.minutes_since(since)

        return await self._shared.run(work)

    async def records(self, kinds: Sequence[str]) -> dict[str, dict[str, Versioned]]:
        async def work(engine: Engine) -> dict[str, dict[str, Versioned]]:
            return (await engine.recent()).jobs.records(kinds)

        return await self._shared.run(work)

    async def now(self) -> int:
        return self._shared.clock.now()

    def listen(self, topics: Iterable[str]) -> Listener:
        return self._shared.listeners.make(frozenset(topics))


def _again(work: Callable[[Engine], Coroutine[Any, Any, T]]) -> Callable[[Engine], Coroutine[Any, Any, T]]:
    """Read once more if a job was moved during the read."""

    async def twice(engine: Engine) -> T:
        try:
            return await work(engine)
        except Gone:
            return await work(engine)

    return twice


async def _ended(engine: Engine, replica: Replica, id: str) -> Record | None:
    found = await engine.contents.ended(replica, id)
    return None if found is None else found[1]
