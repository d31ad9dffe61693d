"""What each service lets clients of the HTTP store API write: its records, its changes of jobs, its own jobs.

With a token for the role `work` anybody can pretend to be a worker, and send what no worker would. So whatever is not
declared as a worker's needs the role `operate`. Where a check needs to know a feature, the feature declares the check.
`http/` asks `Declarations`, and knows no feature by name.
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
    """The kind of the records that belong to one name of a family; without a name, what declares the whole family."""
    return f"{family}:{name}"


def name_in(kind: str) -> str:
    """The name that `kind_in` made a kind of."""
    return kind.partition(":")[2]


class RecordWrite(msgspec.Struct, frozen=True):
    """A record to be set, or removed: the arguments of `Store.put_record`."""

    kind: str
    name: str
    value: bytes | None
    expect: int | None


async def any_worker(_store: Store, _write: RecordWrite) -> bool:
    """Every write of this kind is a worker's."""
    return True


async def no_worker(_store: Store, _write: RecordWrite) -> bool:
    """No write of this kind is a worker's."""
    return False


async def _unchecked(_store: Store, _write: RecordWrite) -> Sequence[NewJob]:
    return ()


async def _unprepared(_store: Store) -> None: ...


class RecordKind(msgspec.Struct, frozen=True):
    """A kind of record that a service keeps. By default anybody reads it, and operators alone write it."""

    kind: str
    """Its name; that of a family (`kind_in`) stands for all kinds of the family."""
    worker: Callable[[Store, RecordWrite], Awaitable[bool]] = no_worker
    """Whether a worker writes this by itself, so that it does not need the role `operate`."""
    check: Callable[[Store, RecordWrite], Awaitable[Sequence[NewJob]]] = _unchecked
    """Raises what is wrong with a write. The jobs that the record has workers make, for they must be allowed too."""
    before_read: Callable[[Store], Awaitable[object]] = _unprepared
    """Raises where nobody may read it."""
    tells_end: bool = False
    """A record that is set tells of the end of the job that has its name."""


class WorkerWrites(msgspec.Struct, frozen=True):
    """What one service declares."""

    records: tuple[RecordKind, ...] = ()
    change: Callable[[Change], bool] | None = None
    """Whether a change of a job is one that workers make for this service."""
    check_inserts: Callable[[Store, Entropy, Sequence[NewJob]], Awaitable[None]] | None = None
    """Raises what is wrong with jobs that are the service's own."""


def resumes(*fields: str) -> Callable[[Change], bool]:
    """A rule for changes: a job that waits for something goes on, or waits on, and of the rest only `fields` change."""

    def allows(change: Change) -> bool:
        patch = change.patch
        if patch is None or change.expected_state not in RESTING or patch.state not in (*RESTING, State.QUEUED):
            return False
        return patch == Patch(state=patch.state, **{name: getattr(patch, name) for name in fields})

    return allows


class Declarations:
    """What all services declare."""

    def __init__(self, services: Iterable[WorkerWrites]) -> None:
        self._services = tuple(services)
        self.kinds = {kind.kind: kind for service in self._services for kind in service.records}

    def of(self, kind: str) -> RecordKind:
        """What was declared of a kind of record; one that nobody declared is an operator's."""
        family, colon, _ = kind.partition(":")
        return self.kinds.get(kind_in(family) if colon else kind) or RecordKind(kind)

    def worker_changes(self, changes: Iterable[Change]) -> bool:
        """Whether workers make all of these changes."""
        rules = [service.change for service in self._services if service.change is not None]
        return all(any(allows(change) for allows in rules) for change in changes)

    async def check_inserts(self, store: Store, entropy: Entropy, jobs: Sequence[NewJob]) -> None:
        """Raise what a service finds wrong with these jobs."""
        for service in self._services:
            if service.check_inserts is not None:
                await service.check_inserts(store, entropy, jobs)
