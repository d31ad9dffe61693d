"""A store that writes requests and answers to a journal: a request before it is made, an answer after it came."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from itertools import count
from typing import Any, cast

import msgspec

from ...core import internal as extras
from ...core.errors import OutcomeUnknown, StoreUnavailable
from ...core.flow_rules import member
from ...core.job import LimitKey, NewJob, Record
from ...core.operations import Ask, Change, Claims, HeartbeatReply, Holder, Lost, Settlement
from ...store.protocol import Answers, Batch, Store
from .journal import Entry, Journal

UNSET = msgspec.UNSET
NO_LIMIT_KEY = LimitKey("")
_HIDDEN = frozenset({"transaction", "insert_bound", "write_blocking"})
"""Methods that write without `write`: they are not recorded, and so not available."""


class Recorded:
    """Any store, recorded. Use it as the store of an app: `Holdfast(recorded(store, journal))`."""

    def __init__(self, store: Store, journal: Journal, name: str) -> None:
        self._store = store
        self._journal = journal
        self._name = name
        self._calls = count(1)
        self._siblings = count(1)

    def __getattr__(self, name: str) -> Any:
        if name in _HIDDEN:
            raise AttributeError(name)
        return getattr(self._store, name)

    def sibling(self) -> Recorded:
        return Recorded(self._store.sibling(), self._journal, f"{self._name}.{next(self._siblings)}")

    async def write(self, batch: Batch) -> Answers:
        call = f"{self._name}-{next(self._calls)}"
        self._journal.write(*asked(batch, call))
        try:
            answers = await self._store.write(batch)
        except BaseException as error:
            self._journal.write(Entry("answered", call=call, says=_failure(error)))
            raise
        self._journal.write(*answered(answers, call))
        return answers

    async def heartbeat(self, holders: Sequence[Holder]) -> list[HeartbeatReply]:
        calls = [f"{self._name}-{next(self._calls)}" for _ in holders]
        named = list(zip(holders, calls, strict=True))
        self._journal.write(*(Entry("heartbeat", call=call, holder=one.id, lease=one.lease) for one, call in named))
        heartbeats = await self._store.heartbeat(holders)
        self._journal.write(*(Entry("answered", call=call, says="ok") for call in calls))
        return heartbeats

    async def leave(self, holders: Sequence[str]) -> None:
        self._journal.write(*(Entry("leave", holder=holder) for holder in holders))
        await self._store.leave(holders)

    async def expired(self, limit: int, holder: str | None = None) -> list[Lost]:
        if holder is not None:  # the caller knows that the process of this holder is dead
            self._journal.write(Entry("leave", holder=holder))
        return await self._store.expired(limit, holder)


def recorded(store: Store, journal: Journal, name: str = "store") -> Store:
    """The store, with all its requests and answers in the journal. `name` must be unique within the run."""
    return cast("Store", Recorded(store, journal, name))


def asked(batch: Batch, call: str) -> list[Entry]:
    """The events of a batch, one per operation."""
    return [
        *(_insert(new, call) for new in batch.inserts),
        *(Entry("note", call=call, job=note.id, fence=note.fence) for note in batch.notes),
        *(_settle(end, call) for end in batch.settles),
        *(_change(change, call) for change in batch.changes),
        *(_ask(ask, call) for ask in batch.asks),
    ]


def answered(answers: Answers, call: str) -> list[Entry]:
    """The events of the answers to a batch: one for all, and one for each claim."""
    line = Entry(
        "answered",
        call=call,
        says="ok",
        inserts=[f"{one.outcome} {one.id}" for one in answers.inserts] or None,
        notes=list(answers.notes) or None,
        settles=list(answers.settles) or None,
        changes=list(answers.changes) or None,
    )
    return [line, *(_claimed(record, call) for claims in answers.asks for record in _records(claims))]


def _records(claims: Claims) -> list[Record]:
    return claims.records


def _failure(error: BaseException) -> str:
    if isinstance(error, StoreUnavailable) and not isinstance(error, OutcomeUnknown):
        return "failed"
    # Also if the caller was cancelled, or a driver raised an unexpected error: the outcome is unknown.
    return "gone" if isinstance(error, asyncio.CancelledError) else "unknown"


def _insert(new: NewJob, call: str) -> Entry:
    later = new.delay > 0 or new.run_at is not None or new.waiting_for is not None
    about = extras.read(new.extra)
    return Entry(
        "insert", call=call, job=new.id, key=new.key or "", queue=new.queue, task=new.task,
        priority=new.priority, later=later, max_attempts=new.max_attempts,
        unique=new.unique, window=new.window,
        after=[(member(about.flow or "", number), on_dead) for number, on_dead in about.after] or None,
    )  # fmt: skip


def _settle(end: Settlement, call: str) -> Entry:
    return Entry(
        "settle", call=call, job=end.id, fence=end.fence, nonce=end.nonce, state=end.state, outcome=end.outcome,
        sweep=end.expected_heartbeat is not None, result=digest(end.result), what="" if end.keep != 0 else "removes",
    )  # fmt: skip


def _change(change: Change, call: str) -> Entry:
    patch = change.patch
    entry = Entry("change", call=call, job=change.id, fence=change.expected_fence, outcome=change.expected_state)
    if patch is None:
        entry.what = "delete"
    elif patch.state is not UNSET:
        entry.what, entry.state = "state", patch.state
        if patch.reset_count is not UNSET:
            entry.reset_count = patch.reset_count
    else:
        entry.what = "cancel" if patch.cancel is True else "other"
    return entry


def _ask(ask: Ask, call: str) -> Entry:
    return Entry("ask", call=call, holder=ask.holder.id, lease=ask.holder.lease, tasks=ask.tasks)


def _claimed(record: Record, call: str) -> Entry:
    limit_key = record.limit_key or NO_LIMIT_KEY
    return Entry(
        "claimed", call=call, job=record.id, fence=record.fence, reset_count=record.reset_count, attempt=record.attempt,
        max_attempts=record.max_attempts, holder=record.holder or "", queue=record.queue, task=record.task,
        priority=record.priority, run_at=record.run_at, seq=record.seq, started_at=record.started_at or 0,
        limit_key=limit_key.name, room=limit_key.concurrency, interval=limit_key.interval, burst=limit_key.burst,
    )  # fmt: skip


def digest(data: bytes | None) -> str:
    """A short digest of a result."""
    return "" if data is None else hashlib.blake2s(data, digest_size=8).hexdigest()
