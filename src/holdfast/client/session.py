"""An open app: one loop, one store, one group commit, and the current settings."""

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
from ..core.lifecycle import Outcome, overdue, too_late
from ..core.operations import HolderInfo, Lost
from ..core.settings import Settings, combine, from_environment
from ..core.validation import checked_seconds
from ..observe.events import Events
from ..observe.outages import Outages
from ..store.group_commit import GroupCommit
from ..store.protocol import BlockingWrites, Listener, Store, Versioned
from .health import Health
from .loop_end import LoopEnd
from .pauses import TaskPauses
from .process_identity import is_gone
from .store_id import store_id
from .watched_records import WatchedRecords

R = TypeVar("R")
CLIENT_TIDY_EVERY = 60.0
"""Seconds between two cleanups by a client: a store may have no worker."""
TIDY_LIMIT = 1000
"""Jobs, and keys, that one cleanup removes, so that it does not block other writes."""
RECOVERY_DELAY = 3.0
"""Minimum seconds after a store outage in which no lease counts as expired: most heartbeats arrive within two. For a
long lease it is a third of it, because a hanging heartbeat is aborted and resent only then."""
ABANDONED_EVERY = 5.0
"""Seconds between checks for claims whose process has ended; the first is made at once."""
EXPIRED_EVERY = 60.0
"""Seconds between two checks for expired leases, also if the list of holders shows none: an entry may be damaged."""
CONFIG_MAX_AGE = 10.0
"""Seconds after which the store's config is read again."""


class WebhookFeed(Protocol):
    """Creates webhook deliveries for the ends of jobs."""

    kind: str
    """The record kind of webhooks."""

    def follow(self, records: Mapping[str, Versioned]) -> None: ...

    def on_first_webhook(self, callback: Callable[[], object]) -> None: ...

    def close(self) -> Coroutine[Any, Any, None]: ...


MakeFeed = Callable[["Session", Events], WebhookFeed]


class Moved(Exception):
    """The app has moved to another loop before the call did anything: repeat it there."""


class CallsInProgress:
    """The calls in progress on a loop that the app may leave: it leaves after they have ended."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any] | None] = set()

    async def run(self, call: Callable[[], Awaitable[R]]) -> R:
        """Make a call, alone or as part of another."""
        task = asyncio.current_task()
        if task in self._tasks:
            return await call()
        self._tasks.add(task)
        try:
            return await call()
        finally:
            self._tasks.discard(task)

    async def pause(self, wait: Awaitable[R]) -> R:
        """Exclude a waiting call: the app may leave meanwhile."""
        task = asyncio.current_task()
        known = task in self._tasks
        self._tasks.discard(task)
        try:
            return await wait
        finally:
            if known:
                self._tasks.add(task)

    async def ended(self, limit: float) -> None:
        """Wait until all have ended, for at most `limit` seconds."""
        deadline = asyncio.get_running_loop().time() + limit
        while self._tasks and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110  # rare
            await asyncio.sleep(0.001)


class _Left:
    """Replaces the store of a closed session."""

    def __getattr__(self, name: str) -> Any:
        raise ConfigError(
            "the app was closed, or opened on another event loop, during the call;"
            " keep the app open until all calls return"
        )


class Session:
    """The state of an app between opening and closing."""

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
        self.blocking_writes: BlockingWrites | None = store if isinstance(store, BlockingWrites) else None
        """The store, if blocking callers may insert on their own threads."""
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
        self._holders: list[HolderInfo] = []
        self._listed_at = self._expired_at = self._first_expiry = -math.inf
        """When the holders were listed, when to look for expired leases anyway, and when a listed one may expire."""
        self.end_remains: Callable[[], object] | None = None
        """Ends the processes that jobs of ended workers left on this machine. Set by the worker package."""
        self.signal_hour: tuple[str, float] = ("", -math.inf)
        """The hour of signals that this process has listed last, and when."""
        self.audited: tuple[int, int] = (-1, -1)
        """The hour and the second of audit entries that this process has listed last."""
        self.audited_at = 0
        """The time of its last audit entry."""
        self._wanted: dict[str, asyncio.Future[Record | None]] = {}
        self.watched = WatchedRecords(store)
        """The records that workers read repeatedly."""
        self.task_pauses = TaskPauses(store, self.commit, clock, self.watched)
        """Which tasks are paused."""
        self.health = Health(store, clock)
        """Current conditions of the store that may lose jobs."""
        self.feed = feed(self, events)
        """The webhook deliveries."""
        self.store_id: str | None = None
        """Set after `identify` was called, or if the app has the cloudpickle codec."""
        self.moved = False
        """The app is leaving this loop for another."""
        self.calls_in_progress: CallsInProgress | None = None
        """The calls in progress, if the app may leave this loop."""
        self._loop_end: LoopEnd | None = None

    async def open(self) -> None:
        """Connect, and read the store's config. If that fails, the store is left as it is."""
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
        """Call `close` if the loop ends before this is closed."""
        self._loop_end = LoopEnd(close)
        await self._loop_end.watch()

    async def close(self) -> None:
        """Write all accepted operations, then disconnect."""
        if self._loop_end is not None:
            self._loop_end.cancel()
        await self.feed.close()
        await self.commit.drain()
        if self._refreshing is not None:
            self._refreshing.cancel()
        await self.store.close()
        # A call in progress still has this session, and its store may be open on another loop by now.
        self.blocking_writes = None
        self.store, self.commit = cast("Store", _Left()), cast("GroupCommit", _Left())

    async def refresh(self, max_age: float = 0.0) -> None:
        """Read the store's config and webhooks, or take them from a read that is at most `max_age` seconds old."""
        self.watched.watch(self.feed.kind)
        config = await self.watched.of("config", max_age)
        self.settings = combine(self._given, from_environment(os.environ), readable(config))
        self.rules = self.settings.rules
        self._read_at = self.clock.monotonic()
        self.feed.follow(await self.watched.of(self.feed.kind, CONFIG_MAX_AGE))

    async def refresh_after_a_write(self) -> None:
        """The same after a change of the config. If the read fails, it is repeated soon: the change is stored."""
        try:
            await self.refresh()
        except HoldfastError:
            self._read_at = -math.inf

    def fresh_settings(self) -> Settings:
        """The settings, read again in the background if they are old: an enqueue never waits for it."""
        if self.clock.monotonic() - self._read_at > CONFIG_MAX_AGE and self._refreshing is None:
            self._read_at = self.clock.monotonic()
            self.loop.call_soon_threadsafe(self._start_refresh)  # this may be another thread
        return self.settings

    def _start_refresh(self) -> None:
        if self._refreshing is None:
            self._refreshing = self.loop.create_task(self._refresh_quietly())

    async def _refresh_quietly(self) -> None:
        try:
            await self.refresh(0.8 * CONFIG_MAX_AGE if self.watched.notified else 0.0)
            await self.health.warnings()
        except Exception:  # noqa: BLE001, S110  # the settings stay; the next write raises the error
            pass
        finally:
            self._refreshing = None

    async def tidy_now_and_then(self) -> None:
        """For manual consumers, which may have no worker that does it."""
        now = self.clock.monotonic()
        if now >= self._tidy_at:
            self._tidy_at = now + CLIENT_TIDY_EVERY
            await self.store.tidy(TIDY_LIMIT)
            await self.task_pauses.release_late()

    async def lost(self, limit: int, max_age: float = 0.0) -> list[Lost]:
        """The claims whose lease has expired; none for a short time after a store outage.

        `max_age`: seconds for which the list of holders may be used to find out whether a lease may have expired.
        """
        asked = self.clock.monotonic()
        try:
            if max_age and not await self._may_have_expired(asked, max_age):
                return []
            found = await self.store.expired(limit)
        except Exception:
            self.give_way()
            raise
        slow, known = self.clock.monotonic() - asked > RECOVERY_DELAY, self._looks_are_slow
        self._looks_are_slow = slow
        if slow and not known:  # it hung; if the next read is slow too, the store is always slow
            self.give_way()
        gives_way = self.clock.monotonic() < self._gives_way_until
        if len(found) < (1 if gives_way else limit):  # else the next look asks again
            self._expired_at = asked + EXPIRED_EVERY
        return [] if gives_way else found

    async def _may_have_expired(self, now: float, max_age: float) -> bool:
        if now >= min(self._listed_at + max_age, self._first_expiry):
            await self._list_holders(now)
        return now >= self._expired_at or any(one.jobs and not one.alive for one in self._holders)

    async def _list_holders(self, now: float) -> None:
        self._holders, self._listed_at = await self.store.holders(), now
        left = [one.holder.lease - one.age if one.alive else 0.0 for one in self._holders if one.alive or one.jobs]
        self._first_expiry = now + min(left, default=math.inf)

    def next_expiry(self) -> float:
        """Seconds until a lease may expire, by the last list of holders."""
        return self._first_expiry - self.clock.monotonic()

    async def abandoned(self, limit: int, max_age: float = 0.0) -> list[Lost]:
        """The claims of a process that has provably ended, though their lease has not expired. Also a worker's, if
        `end_remains` is set.

        Not those that another process runs, as set by `Claim.started`, or a child process: it may be alive.
        """
        now = self.clock.monotonic()
        if now < self._abandoned_at:
            return []
        self._abandoned_at = now + ABANDONED_EVERY
        found: list[Lost] = []
        listed = self._listed_at + max_age > now
        if not listed:
            await self._list_holders(now)
        for seen in self._holders:
            holder = seen.holder
            if not ((seen.jobs or listed) and is_gone(holder.pid, holder.process, self.clock)):
                continue
            if holder.kind == "manual" or (holder.kind == "worker" and await self._remains_ended()):
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
        """After a store failure: for a short time no lease counts as expired. From any thread."""
        if seconds is None:
            seconds = max(RECOVERY_DELAY, (self.settings.lease or 30.0) / 3)
        self._gives_way_until = self.clock.monotonic() + seconds

    def may_start(self, record: Record) -> bool:
        """Whether a claimed job may run; else `refusal` has the outcome of its claim."""
        late = record.extra is not None and (too_late(record) or overdue(record)) is not None
        return not late and damage.refusal(record) is None and not self.task_pauses.covers(record)

    async def refusal(self, record: Record) -> Outcome:
        """The outcome of a claim whose job may not run: it is damaged, expired, past its deadline, or paused."""
        late = too_late(record) or overdue(record)
        return damage.refusal(record) or late or await self.task_pauses.confirm(record)

    # -- reads

    async def record(self, id: str) -> Record:
        """One job; JobNotFound if there is none. Concurrent callers share one read."""
        if not (isinstance(id, str) and id.isprintable()):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise JobNotFound(id)  # no job can have it, and it must not break the shared read
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
        """The job after it has ended; TimeoutError if it has not ended in time."""
        if timeout is None:
            timeout = self.settings.default_result_timeout
        # In real time: a clock that a test has stopped must not make it wait for ever.
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
                    raise TimeoutError(
                        f"job {id!r} has not ended after {limit:g} s, its state is {record.state}; it was not"
                        f" cancelled: wait again, or call app.explain({id!r})"
                    )
                await self.wait(listener, min(left, self.settings.poll))
        finally:
            listener.close()

    async def wait(self, listener: Listener, seconds: float) -> None:
        """Wait for a notification. Raises Moved if the app leaves meanwhile."""
        if self.calls_in_progress is None:
            await listener.wait(seconds)
            return
        if not self.moved:
            await self.calls_in_progress.pause(listener.wait(seconds))
        if self.moved:
            raise Moved


def readable(records: Mapping[str, Versioned]) -> dict[str, Any]:
    """Stored settings by name; undecodable values are left out."""
    found: dict[str, Any] = {}
    for name, kept in sorted(records.items()):
        with suppress(*UNDECODABLE):
            found[name] = msgspec.json.decode(kept.value)
    return found


def _seen(task: asyncio.Task[None]) -> None:
    """Retrieve errors of the shared read, which its callers got."""
    if not task.cancelled():
        task.exception()
