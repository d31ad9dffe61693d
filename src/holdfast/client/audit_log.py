"""The audit log: one entry for each operator action, stored before it acts and completed after it.

Entries are shared records, in the kind `audit:SECOND` of the second in which the action began, by the store's clock.
The kind `audit_hour:HOUR` lists the seconds of an hour, the kind `audit_hour` the hours; an action begins after all
three are written. So a page of entries reads a few small kinds, however many there are, and nothing else reads them.

1. An action whose entry cannot be stored does not begin. An action whose outcome cannot be stored has happened.
2. While an action takes long, its process writes the time to its entry every `RENEW` seconds. An entry without an
   outcome that was not renewed for a minute, by the store's clock, is shown as `interrupted`: its
   process has ended, or could not reach the store. If that process continues and ends the action, the entry shows it.
3. Workers and servers remove entries after `audit_retention` seconds, whole hours at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec

from ..core.clock import MICROS
from ..core.errors import ConfigError, InvalidJob, OutcomeUnknown, StoreUnavailable
from ..core.job import UNDECODABLE
from ..core.undo import Version
from ..observe.actors import Actor
from ..store.group_commit import guard
from ..store.protocol import Store, Versioned, records_of
from ..store.worker_writes import RecordKind, RecordWrite, WorkerWrites, kind_in
from .runtime import Runtime, on_app_loop
from .session import Session
from .signals import FORGET_LIMIT

KIND, HOURS = "audit", "audit_hour"
HOUR = 3600 * MICROS
"""Microseconds."""
RENEW = 15.0
"""Seconds between two writes of an entry whose action has not ended."""
INTERRUPTED_AFTER = 60.0
"""Seconds after the last write of an entry without an outcome, from which on it is shown as interrupted."""
WATCHED = 3600.0
"""Seconds for which a process must have seen an hour before it removes its entries: its clock may be wrong."""
REMOVED_TOGETHER = 50
"""Records that are removed together."""
FIRST_KINDS, MOST_KINDS = 4, 64
"""Seconds that one read of a page takes: at the beginning, and at most (so many hours too)."""
STATUSES = ("done", "refused", "failed", "unknown")
"""How an action ended: it succeeded; nothing was done, because of the request or the state; it failed, and the error
says what was written; whether it was written is unknown."""


def kind_of(second: int | str) -> str:
    """The record kind of the entries that began in a second."""
    return kind_in(KIND, str(second))


ENTRIES = kind_of("")
"""The kind that declares those of all seconds."""


def kind_of_hour(hour: int | str) -> str:
    """The record kind that lists the seconds of an hour."""
    return kind_in(HOURS, str(hour))


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """An entry as stored."""

    action: str
    actor: str
    surface: str
    target: dict[str, Any]
    seen_at: int
    """When it was last written before its end, by the store's clock."""
    ended_at: int | None = None
    outcome: str | None = None
    count: int | None = None
    error: str | None = None
    before: dict[str, Any] = {}
    jobs: dict[str, list[str]] = {}
    versions: dict[str, list[Version | None]] = {}
    """Of `jobs`, in the same order: before the action."""
    left: str | None = None
    """The value of the record that the action wrote: a pause."""

    def encoded(self) -> bytes:
        return msgspec.json.encode(self, enc_hook=str)


class AuditLog:
    """Writes the entries of an app's operator actions."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    @on_app_loop
    async def begin(self, session: Session, action: str, actor: Actor, target: dict[str, Any]) -> Begun | None:
        """Store the intent of an action; None if the log is switched off (`audit_retention` is 0)."""
        if not session.settings.audit_retention:
            return None
        if (check := guard.get()) is not None:  # where other writes are refused, this one is too
            await check((), ())
        store = session.store
        at = await store.now()
        if session.audited_at - MICROS < at <= session.audited_at:  # keep this process's order
            at = session.audited_at + 1
        session.audited_at = at
        hour, second = at // HOUR, at // MICROS
        name = f"{at:016d}-{session.entropy.token() % 2**32:08x}"
        entry = Entry(action, actor.name, actor.surface, target, at)
        begun = Begun(name, second, entry)
        listed = session.audited
        writes = [store.put_record(kind_of(second), name, entry.encoded(), 0)]
        if second != listed[1]:
            writes.append(store.put_record(kind_of_hour(hour), str(second), b"{}", 0))
        if hour != listed[0]:
            writes.append(store.put_record(HOURS, str(hour), b"{}", 0))
        try:
            for done in await asyncio.gather(*writes, return_exceptions=True):
                if isinstance(done, BaseException):
                    raise done
        except (StoreUnavailable, OutcomeUnknown) as error:
            message = f"the action {action} was not begun, because its audit entry could not be stored: {error}"
            raise StoreUnavailable(message) from error
        session.audited = hour, second
        return begun

    @on_app_loop
    async def renew(self, session: Session, begun: Begun) -> None:
        """Write that the action is still running. With the version: a late write does not replace the outcome."""
        store = session.store
        if (kept := (await records_of(store, kind_of(begun.second))).get(begun.name)) is not None:
            seen = msgspec.structs.replace(begun.entry, seen_at=await store.now())
            await store.put_record(kind_of(begun.second), begun.name, seen.encoded(), kept.version)

    @on_app_loop
    async def end(self, session: Session, begun: Begun, **outcome: Any) -> None:
        """Store the outcome of an action."""
        ended = msgspec.structs.replace(begun.entry, ended_at=await session.store.now(), **outcome)
        await session.store.put_record(kind_of(begun.second), begun.name, ended.encoded())


class Begun(msgspec.Struct, frozen=True):
    """The stored intent of an action."""

    name: str
    second: int
    entry: Entry


class AuditMaintenance:
    """Removes entries after their retention. Once per call it removes up to FORGET_LIMIT of them."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._seen: dict[str, float] = {}
        """When each hour was first seen here, by the monotonic clock."""

    async def run(self, found: Mapping[str, Mapping[str, Versioned]] | None = None) -> None:
        """Run once. What it reads does not grow with the number of kept entries, but with the hours that have any.

        `found`: the records of `HOURS`, if they were read just now.
        """
        session = self._session
        store, now = session.store, session.clock.monotonic()
        hours = await records_of(store, HOURS) if found is None else found[HOURS]
        self._seen = {hour: self._seen.get(hour, now) for hour in hours}
        if not hours:
            return
        limit, left = await store.now() - int(session.settings.audit_retention * MICROS), FORGET_LIMIT
        for hour in sorted(hours, key=_number):
            if (_number(hour) + 1) * HOUR > limit or left <= 0:
                return
            if now - self._seen[hour] >= WATCHED:
                left -= await _forget(store, hour, hours[hour].version, left)


async def _forget(store: Store, hour: str, version: int, limit: int) -> int:
    """Remove up to `limit` entries of an hour; after the last one the hour itself. Returns how many."""
    removed = 0
    seconds = await records_of(store, kind_of_hour(hour))
    for second, listed in sorted(seconds.items(), key=lambda one: _number(one[0])):
        entries = await records_of(store, kind_of(second))
        some = dict(islice(entries.items(), limit - removed))
        await _remove(store, kind_of(second), some)
        removed += len(some)
        if len(some) < len(entries) or removed >= limit:
            return removed
        await _remove(store, kind_of_hour(hour), {second: listed})
    await store.put_record(HOURS, hour, None, version)
    return removed


async def _remove(store: Store, kind: str, records: Mapping[str, Versioned]) -> None:
    """Remove records, several at once, each if it is unchanged."""
    rest = list(records.items())
    while some := rest[:REMOVED_TOGETHER]:
        await asyncio.gather(*(store.put_record(kind, name, None, kept.version) for name, kept in some))
        del rest[:REMOVED_TOGETHER]


async def pages(store: Store, before: str | None) -> AsyncIterator[list[tuple[str, Versioned]]]:
    """The entries before this one, newest first, some seconds at a time: the more, the fewer entries they have."""
    last = None if before is None else int(before.partition("-")[0])
    hours = _newest(await records_of(store, HOURS), None if last is None else last // HOUR)
    size = FIRST_KINDS
    async for seconds in _seconds(store, hours):
        wanted = _newest(seconds, None if last is None else last // MICROS)
        while wanted:
            some, wanted = wanted[:size], wanted[size:]
            found = await store.records([kind_of(second) for second in some])
            entries = [one for kind in found.values() for one in kind.items() if before is None or one[0] < before]
            yield sorted(entries, reverse=True)
            size = min(2 * size, MOST_KINDS)


async def _seconds(store: Store, hours: Sequence[int]) -> AsyncIterator[dict[str, Versioned]]:
    """The listed seconds of each hour, a growing number of hours per read."""
    at, size = 0, 1
    while at < len(hours):
        some = hours[at : at + size]
        found = await store.records([kind_of_hour(hour) for hour in some])
        for hour in some:
            yield found[kind_of_hour(hour)]
        at, size = at + size, min(2 * size, MOST_KINDS)


def _newest(names: Iterable[str], last: int | None) -> list[int]:
    """The numbers in these names, from `last` on down."""
    numbers = {number for name in names if (number := _number(name)) >= 0}
    return sorted((number for number in numbers if last is None or number <= last), reverse=True)


def _number(name: str) -> int:
    """The number of an hour or second; -1 for any other name."""
    return int(name) if name.isascii() and name.isdecimal() and len(name) < 16 else -1


def read(kept: Versioned) -> Entry | None:
    """The stored entry; None if it cannot be decoded."""
    return decoded(kept.value)


def decoded(value: bytes) -> Entry | None:
    """The entry with this value; None if it is none."""
    try:
        return msgspec.json.decode(value, type=Entry)
    except UNDECODABLE:
        return None


FINAL = (
    "was not changed: over HTTP, an entry of the audit log can be neither removed, nor changed once it has an outcome"
)


async def _not_removed(_: Store, write: RecordWrite) -> Sequence[Any]:
    """Over HTTP nothing is removed from the lists of entries."""
    if write.value is None:
        raise ConfigError(f"entry {write.name!r} {FINAL}")
    return ()


async def _only_added(store: Store, write: RecordWrite) -> Sequence[Any]:
    """Over HTTP an entry can be added, and written by its actor until it has an outcome; nothing is removed."""
    await _not_removed(store, write)
    kept = (await records_of(store, write.kind)).get(write.name)
    before = None if kept is None else read(kept)
    if before is not None and before.outcome is not None and kept is not None and kept.value != write.value:
        raise ConfigError(f"entry {write.name!r} {FINAL}")
    entry = None if write.value is None else decoded(write.value)
    if entry is None:
        raise InvalidJob(
            f"entry {write.name!r} of the audit log was not written: it cannot be decoded; use the same version of"
            " Holdfast as the server"
        )
    if before is not None and before.actor != entry.actor:
        raise InvalidJob(
            f"entry {write.name!r} of the audit log was not written: a stored entry of another actor has this name; add"
            " a new entry with another name"
        )
    return ()


WRITES = WorkerWrites(
    records=(
        RecordKind(ENTRIES, check=_only_added, worker_reads=False, audits=True),
        *(RecordKind(kind, check=_not_removed, worker_reads=False, audits=True) for kind in (HOURS, kind_of_hour(""))),
    )
)
"""The entries are read and written with the role `operate`."""
