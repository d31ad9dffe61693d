"""Declarations of what each service lets workers write through the HTTP store API: records, changes, own jobs.

A client with a token for the role `work` may send what no worker sends. So every write that is not declared as a
worker's needs the role `operate`. A check that depends on a feature is declared by that feature; `http/` reads
`Declarations`, and knows no feature by name.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence

import msgspec

from ..core.clock import Entropy
from ..core.job import NewJob, State
from ..core.operations import Change, Patch
from .protocol import Store

RESTING = (State.BLOCKED, State.SCHEDULED)


def kind_in(family: str, name: str = "") -> str:
    """The record kind for one name of a family; without a name, the kind that declares the whole family."""
    return f"{family}:{name}"


def name_in(kind: str) -> str:
    """The name in a kind that `kind_in` made."""
    return kind.partition(":")[2]


class RecordWrite(msgspec.Struct, frozen=True):
    """A record to set or to remove: the arguments of `Store.put_record`."""

    kind: str
    name: str
    value: bytes | None
    expect: int | None


async def any_worker(_store: Store, _write: RecordWrite) -> bool:
    """Workers may make every write of this kind."""
    return True


async def no_worker(_store: Store, _write: RecordWrite) -> bool:
    """Workers may make no write of this kind."""
    return False


async def _unchecked(_store: Store, _write: RecordWrite) -> Sequence[NewJob]:
    return ()


async def _unprepared(_store: Store) -> None: ...


class RecordKind(msgspec.Struct, frozen=True):
    """A kind of record that a service keeps. By default every role reads it, and only `operate` writes it."""

    kind: str
    """Its name; that of a family (`kind_in`) covers all kinds of the family."""
    worker: Callable[[Store, RecordWrite], Awaitable[bool]] = no_worker
    """Whether a worker makes this write without an operator, so that it does not need the role `operate`."""
    check: Callable[[Store, RecordWrite], Awaitable[Sequence[NewJob]]] = _unchecked
    """Raises if the write is invalid. Returns the jobs that workers will make from the record: they are checked too."""
    before_read: Callable[[Store], Awaitable[object]] = _unprepared
    """Raises if the record must not be read."""
    worker_reads: bool = True
    """Whether the role `work` may read it; else the role `operate` is needed too."""
    for_holder: bool = False
    """Its records are named HOLDER/…, and a worker writes only those of the holders whose heartbeats it sends."""
    audits: bool = False
    """It is part of the audit log: no entry tells of its writes."""
    notifies_end: bool = False
    """Setting such a record announces the end of the job that has its name."""


class WorkerWrites(msgspec.Struct, frozen=True):
    """What one service declares."""

    records: tuple[RecordKind, ...] = ()
    change: Callable[[Change], bool] | None = None
    """Whether a change of a job is one that workers make for this service."""
    check_inserts: Callable[[Store, Entropy, Sequence[NewJob]], Awaitable[None]] | None = None
    """Raises if one of the jobs is an invalid job of the service."""


def resumes(*fields: str) -> Callable[[Change], bool]:
    """A rule for changes: a job that waits is released or continues to wait, and otherwise only `fields` change."""

    def allows(change: Change) -> bool:
        patch = change.patch
        if patch is None or change.expected_state not in RESTING or patch.state not in (*RESTING, State.QUEUED):
            return False
        return patch == Patch(state=patch.state, **{name: getattr(patch, name) for name in fields})

    return allows


class Declarations:
    """The declarations of all services."""

    def __init__(self, services: Iterable[WorkerWrites]) -> None:
        self._services = tuple(services)
        self.kinds = {kind.kind: kind for service in self._services for kind in service.records}

    def of(self, kind: str) -> RecordKind:
        """The declaration of a kind of record; an undeclared kind needs the role `operate`."""
        family, colon, _ = kind.partition(":")
        return self.kinds.get(kind_in(family) if colon else kind) or RecordKind(kind)

    def worker_changes(self, changes: Iterable[Change]) -> bool:
        """Whether workers make all of these changes."""
        rules = [service.change for service in self._services if service.change is not None]
        return all(any(allows(change) for allows in rules) for change in changes)

    async def check_inserts(self, store: Store, entropy: Entropy, jobs: Sequence[NewJob]) -> None:
        """Raise if a service rejects one of these jobs."""
        for service in self._services:
            if service.check_inserts is not None:
                await service.check_inserts(store, entropy, jobs)
