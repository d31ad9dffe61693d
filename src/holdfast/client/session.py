"""An open app: one loop, one store, one group commit, and the settings as they stand."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Protocol, TypeVar, cast

import msgspec

from ..core import damage
from ..core.clock import Clock, Entropy
from ..core.errors import ConfigError, HoldfastError, JobNotFound
from ..core.job import TERMINAL, UNDECODABLE, Record
from ..core.lifecycle import Outcome, too_late
from ..core.operations import Lost
from ..core.settings import Settings, combine, from_environment
from ..core.validation import checked_seconds
from ..observe.events import Events
from ..observe.outages import Outages
from ..store.group_commit import GroupCommit
from ..store.protocol import Listener, Store, Versioned
from .health import Health
from .loop_end import LoopEnd
from .pauses import TaskPauses
from .process_identity import is_gone
from .store_id import store_id
from .watched_records import WatchedRecords

R = TypeVar("R")
CLIENT_TIDY_EVERY = 60.0
"""Seconds between two removals of what is past its retention, by a client: a store may have no worker."""
TIDY_LIMIT = 1000
"""Jobs, and keys, that one removal takes: others want to write meanwhile."""
RECOVERY_DELAY = 3.0
"""Seconds after a store was away in which nobody is taken for lost, at the least: most heartbeats come within two. With
a long lease it is a third of it, because a heartbeat that hangs is given up and sent again only then."""
ABANDONED_EVERY = 5.0
"""Seconds between looks for claims whose process is gone; the first is made at once."""
CONFIG_MAX_AGE = 10.0
"""Seconds after which the store's config is read again."""


class WebhookFeed(Protocol):
    """Makes deliveries of the ends of jobs that webhooks are to be told of."""

    kind: str
    """Of the records that webhooks are kept as."""

    def follow(self, records: Mapping[str, Versioned]) -> None:
        """The store's webhooks, as they are now."""
        ...

    def once_there_are_any(self, tell: Callable[[], object]) -> None:
        """Call this when there is a webhook; at once where there is."""
        ...

    def close(self) -> Coroutine[Any, Any, None]:
        """Listen no more, and see what was heard stored."""
        ...


MakeFeed = Callable[["Session", Events], WebhookFeed]


class Moved(Exception):
    """The app has left this loop for another before the call did anything: it is to be made there."""


class CallsInProgress:
    """The calls that are under way on a loop which the app may leave: it leaves when they have ended."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any] | None] = set()

    async def run(self, call: Callable[[], Awaitable[R]]) -> R:
        """Make a call, alone or as a part of another."""
        task = asyncio.current_task()
        if task in self._tasks:
            return await call()
        self._tasks.add(task)
        try:
            return await call()
        finally:
            self._tasks.discard(task)

    async def pause(self, wait: Awaitable[R]) -> R:
        """A call that only waits keeps nobody from leaving."""
        task = asyncio.current_task()
        known = task in self._tasks
        self._tasks.discard(task)
        try:
            return await wait
        finally:
            if known:
                self._tasks.add(task)

    async def ended(self, limit: float) -> None:
        """Wait until all have ended, for `limit` seconds at the most."""
        deadline = asyncio.get_running_loop().time() + limit
        while self._tasks and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110  # it happens seldom
            await asyncio.sleep(0.001)


class _Left:
    """Stands for the store of a closed session."""

    def __getattr__(self, name: str) -> Any:
        raise ConfigError("the app was closed, or moved to another event loop, while it was used")


class Session:
    """Everything that exists only between opening and closing."""

    def __init__(
        self,
        store: Store,
        given: Mapping[str, Any],
        clock: Clock,
        entropy: Entropy,
        events: Events,
        *,
        feed: MakeFeed,
        outages: Outages,
    ) -> None:
        self.store: Store = store
        self.clock = clock
        self.entropy = entropy
        self.outages = outages
        self.loop = asyncio.get_running_loop()
        self.commit: GroupCommit = GroupCommit(store, entropy)
        self.settings = Settings()
        self.rules = self.settings.rules
        self._given = given
        self._read_at = -CONFIG_MAX_AGE
        self._refreshing: asyncio.Task[None] | None = None
        self._tidy_at = clock.monotonic() + CLIENT_TIDY_EVERY
        self._gives_way_until = clock.monotonic()
        self._looks_are_slow = False
        self._abandoned_at = clock.monotonic()
        self.end_remains: Callable[[], object] | None = None
        """Ends the processes that jobs of workers that are gone left on this machine. Set by those who know how."""
        self._wanted: dict[str, asyncio.Future[Record | None]] = {}
        self.watched = WatchedRecords(store)
        """The records that workers look at again and again."""
        self.holds = TaskPauses(store, self.commit, clock, self.watched)
        """Which tasks are paused."""
        self.health = Health(store, clock)
        """What may lose jobs in the store as it is now."""
        self.feed = feed(self, events)
        """What webhooks are told."""
        self.store_id: str | None = None
        """Once `identify` was asked for it, or the app has the cloudpickle codec."""
        self.moved = False
        """The app leaves it for another loop."""
        self.calls_in_progress: CallsInProgress | None = None
        """Where the app may leave it."""
        self._loop_end: LoopEnd | None = None

    async def open(self) -> None:
        """Connect, and read the store's config. Where that fails, the store is left as it is."""
        await self.store.open()
        await self.refresh()
        if self.settings.cloudpickle:
            await self.identify()
        await self.health.warnings()

    async def identify(self) -> str:
        """The store's own id, which signatures are bound to."""
        if self.store_id is None:
            self.store_id = await store_id(self.store)
        return self.store_id

    async def close_with_loop(self, close: Callable[[], Awaitable[object]]) -> None:
        """Have `close` called when the loop ends before this is closed."""
        self._loop_end = LoopEnd(close)
        await self._loop_end.watch()

    async def close(self) -> None:
        """Let what was handed in be written, then disconnect."""
        if self._loop_end is not None:
            self._loop_end.cancel()
        await self.feed.close()
        await self.commit.drain()
        if self._refreshing is not None:
            self._refreshing.cancel()
        await self.store.close()
        # A call that is still under way has this session, and its store may be open on another loop by now.
        self.store, self.commit = cast("Store", _Left()), cast("GroupCommit", _Left())

    async def refresh(self) -> None:
        """Read the store's config again."""
        records = await self.store.records(["config", self.feed.kind])
        self.settings = combine(self._given, from_environment(os.environ), readable(records["config"]))
        self.rules = self.settings.rules
        self._read_at = self.clock.monotonic()
        self.feed.follow(records[self.feed.kind])

    async def refresh_after_a_write(self) -> None:
        """The same, for whoever has just changed it: that is done, so where it cannot be read now, it is soon."""
        try:
            await self.refresh()
        except HoldfastError:
            self._read_at = -math.inf

    def fresh_settings(self) -> Settings:
        """The settings, read again in the background where they are old: an enqueue never waits for it."""
        if self.clock.monotonic() - self._read_at > CONFIG_MAX_AGE and self._refreshing is None:
            self._read_at = self.clock.monotonic()
            self.loop.call_soon_threadsafe(self._start_refresh)  # this may be another thread
        return self.settings

    def _start_refresh(self) -> None:
        if self._refreshing is None:
            self._refreshing = self.loop.create_task(self._refresh_quietly())

    async def _refresh_quietly(self) -> None:
        try:
            await self.refresh()
            await self.health.warnings()
        except Exception:  # noqa: BLE001, S110  # the settings stay as they were; the store's next write says what is wrong
            pass
        finally:
            self._refreshing = None

    async def tidy_now_and_then(self) -> None:
        """For consumers by hand, who may have no worker that does it."""
        now = self.clock.monotonic()
        if now >= self._tidy_at:
            self._tidy_at = now + CLIENT_TIDY_EVERY
            await self.store.tidy(TIDY_LIMIT)
            await self.holds.release_late()

    async def lost(self, limit: int) -> list[Lost]:
        """The claims whose lease has run out; none for a moment after the store was away."""
        asked = self.clock.monotonic()
        try:
            found = await self.store.expired(limit)
        except Exception:
            self.give_way()
            raise
        slow, known = self.clock.monotonic() - asked > RECOVERY_DELAY, self._looks_are_slow
        self._looks_are_slow = slow
        if slow and not known:  # it hung; if the next look is slow too, then that is how this store is
            self.give_way()
        return found if self.clock.monotonic() >= self._gives_way_until else []

    async def abandoned(self, limit: int) -> list[Lost]:
        """The claims of a process that is proven to be gone, though their lease may go on. A worker's too, where
        `end_remains` is known.

        Not those on which another process works, as `Claim.started` told, or a task in a child: that one may live.
        """
        now = self.clock.monotonic()
        if now < self._abandoned_at:
            return []
        self._abandoned_at = now + ABANDONED_EVERY
        found: list[Lost] = []
        for seen in await self.store.holders():
            holder = seen.holder
            if not (seen.jobs and is_gone(holder.pid, holder.process, self.clock)):
                continue
            if holder.kind == "hand" or (holder.kind == "worker" and await self._remains_ended()):
                claims = await self.store.expired(limit, holder.id)
                found += [one for one in claims if one.record.pid in (None, holder.pid)]
        return found

    async def _remains_ended(self) -> bool:
        if self.end_remains is None:
            return False
        with ThreadPoolExecutor(1) as thread:  # not `to_thread`: its threads may all be busy with the user's own work
            await self.loop.run_in_executor(thread, self.end_remains)
        return True

    def give_way(self, seconds: float | None = None) -> None:
        """The store is away, so no heartbeat can beat: for a moment nobody is to be taken for lost. From any thread."""
        if seconds is None:
            seconds = max(RECOVERY_DELAY, (self.settings.lease or 30.0) / 3)
        self._gives_way_until = self.clock.monotonic() + seconds

    def may_start(self, record: Record) -> bool:
        """Whether a claimed job may run; else `refusal` says how its claim ends at once."""
        return damage.refusal(record) is None and too_late(record) is None and not self.holds.covers(record)

    async def refusal(self, record: Record) -> Outcome:
        """How the claim of a job ends that is not to run: it is damaged, too late, or paused."""
        return damage.refusal(record) or too_late(record) or await self.holds.confirm(record)

    # -- looking

    async def record(self, id: str) -> Record:
        """One job; JobNotFound where there is none. Concurrent callers share one read."""
        if not (isinstance(id, str) and id.isprintable()):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise JobNotFound(id)  # no job can have it, and those who share the read must not suffer from it
        waiter = self._wanted.get(id)
        if waiter is None:
            if not self._wanted:
                self.loop.create_task(self._load()).add_done_callback(_seen)
            waiter = self._wanted[id] = self.loop.create_future()
        record = await asyncio.shield(waiter)
        if record is None:
            raise JobNotFound(id)
        return record

    async def _load(self) -> None:
        wanted, self._wanted = self._wanted, {}
        try:
            found = await self.store.get(list(wanted))
        except Exception as error:  # noqa: BLE001  # handed to every caller that waits
            for waiter in wanted.values():
                waiter.set_exception(error)
                waiter.exception()
        else:
            for waiter, record in zip(wanted.values(), found, strict=True):
                waiter.set_result(record)

    async def ended(self, id: str, timeout: float | None) -> Record:
        """The job once it has ended; TimeoutError where it has not in time."""
        if timeout is None:
            timeout = self.settings.default_result_timeout
        # In the waiter's own time: a clock that a test has stopped must not make it wait for ever.
        limit = None if timeout is None else checked_seconds(timeout, "timeout")
        deadline = None if limit is None else self.loop.time() + limit
        listener = self.store.listen([f"job/{id}"])
        try:
            while True:
                record = await self.record(id)
                if record.state in TERMINAL:
                    return record
                left = self.settings.poll if deadline is None else deadline - self.loop.time()
                if left <= 0:
                    raise TimeoutError(f"job {id!r} is still {record.state} after {limit:g} s")
                await self.wait(listener, min(left, self.settings.poll))
        finally:
            listener.close()

    async def wait(self, listener: Listener, seconds: float) -> None:
        """Wait for a notification. Raises Moved where the app leaves meanwhile."""
        if self.calls_in_progress is None:
            await listener.wait(seconds)
            return
        if not self.moved:
            await self.calls_in_progress.pause(listener.wait(seconds))
        if self.moved:
            raise Moved


def readable(records: Mapping[str, Versioned]) -> dict[str, Any]:
    """Stored settings by name; what is no JSON is left out, never fatal."""
    found: dict[str, Any] = {}
    for name, kept in sorted(records.items()):
        with suppress(*UNDECODABLE):
            found[name] = msgspec.json.decode(kept.value)
    return found


def _seen(task: asyncio.Task[None]) -> None:
    """Errors of the shared read went to its callers."""
    if not task.cancelled():
        task.exception()
