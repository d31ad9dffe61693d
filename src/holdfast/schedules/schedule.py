"""A schedule as a record of the store keeps it: the jobs that it makes, when, and how far it has come."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from ..core import cron as schedule
from ..core.cron import Rule
from ..core.errors import InvalidJob
from ..core.job import UNDECODABLE, LimitKey, NewJob
from ..core.retry import Backoff
from ..core.validation import error_text
from ..store.protocol import Store, records_of
from ..store.worker_writes import RecordKind, RecordWrite, WorkerWrites
from ..views import LimitInfo, limits_of, moment

KIND = "schedule"
SCHEDULE_ERROR_LIMIT = 1000
"""Characters of an error that are kept."""
_UNSEEN = {"rule", "next", "last", "counted", "limit_key"}


class Schedule(msgspec.Struct, frozen=True, omit_defaults=True):
    """A task that is enqueued again and again."""

    name: str
    task: str
    rule: Rule
    payload: msgspec.Raw = msgspec.Raw(b"{}")
    """The arguments, as the job's payload has them."""
    queue: str = "default"
    priority: int = 0
    max_attempts: int | None = None
    timeout: float | None = None
    retry: Backoff | None = None
    tags: tuple[str, ...] = ()
    in_code: bool = False
    """Declared by `app.cron`; what the code says counts at the next start of a worker."""
    paused: bool = False
    next: int | None = None
    """When the next run is due, in microseconds since 1970."""
    last: int | None = None
    last_job: str | None = None
    expires: float | None = None
    """Seconds within which a run must start."""
    limit_key: LimitKey | None = None
    """Where its jobs stand, for those who do not know the task."""
    counted: int = 0
    """When `next` was found, by the store's clock."""
    error: str | None = None
    """Why the last run could not be made; None once one was."""

    @property
    def next_run(self) -> datetime | None:
        """When it is due next; None while it is paused."""
        return None if self.next is None or self.paused else moment(self.next)

    @property
    def last_run(self) -> datetime | None:
        """When the last run that was made was due."""
        return None if self.last is None else moment(self.last)

    @property
    def words(self) -> str:
        """Its rule as one would say it."""
        return schedule.in_words(self.rule)

    @property
    def limits(self) -> tuple[LimitInfo, ...]:
        """The limits of its jobs."""
        return limits_of(self.limit_key)

    def shown(self) -> dict[str, Any]:
        """What people see of it, its rule and its times included."""
        return {
            **{name: getattr(self, name) for name in self.__struct_fields__ if name not in _UNSEEN},
            **msgspec.structs.asdict(self.rule),
            "words": self.words,
            "last_run": self.last_run,
            "next_run": self.next_run,
            "limits": self.limits,
        }

    def from_now(self, now: int) -> Schedule:
        """The same, due next after this moment."""
        return msgspec.structs.replace(self, next=schedule.next_after(self.rule, now), counted=now)

    def troubled(self, error: Exception) -> Schedule:
        """The same, saying why a run could not be made."""
        return msgspec.structs.replace(self, error=error_text(error)[:SCHEDULE_ERROR_LIMIT])

    def makes_the_same(self, other: Schedule) -> bool:
        """Whether the jobs of both would stand in one limit key, whatever the limits are."""
        return (self.task, self.queue, bytes(self.payload)) == (other.task, other.queue, bytes(other.payload))


class Glance(msgspec.Struct, frozen=True):
    """The little of a schedule that says whether there is something to do."""

    next: int | None = None
    counted: int = 0
    paused: bool = False


_decode = msgspec.json.Decoder(Schedule).decode
_glance = msgspec.json.Decoder(Glance).decode


def read(value: bytes) -> Schedule | None:
    """A schedule as it is kept; None for what cannot be read."""
    try:
        kept = _decode(value)
        schedule.checked(kept.rule)
    except UNDECODABLE:
        return None  # written by a newer version, which makes its runs; or by somebody who should not have
    return kept


def glance(value: bytes) -> Glance | None:
    """The same at a glance, which costs little and promises nothing of the rest."""
    try:
        return _glance(value)
    except UNDECODABLE:
        return None


def _moves_on(before: bytes | None, after: bytes | None) -> bool:
    """Whether this is what a worker does by itself: it makes runs of a schedule, and declares those of its code."""
    old = None if before is None else read(before)
    new = None if after is None else read(after)
    if new is None:
        return False
    if new.in_code and (old is None or old.in_code):
        return new.paused == (old is not None and old.paused)
    return old is not None and old == msgspec.structs.replace(
        new,
        next=old.next,
        counted=old.counted,
        last=old.last,
        last_job=old.last_job,
        limit_key=old.limit_key,
        error=old.error,
    )


async def _worker_writes(store: Store, write: RecordWrite) -> bool:
    kept = (await records_of(store, KIND)).get(write.name)
    version = 0 if kept is None else kept.version
    if write.expect is None or write.expect > version:  # whatever is there by then
        return False
    if write.expect not in (0, version):  # a version never comes again: the store refuses it
        return True
    return _moves_on(kept.value if kept is not None and write.expect else None, write.value)


async def _check(_store: Store, write: RecordWrite) -> Sequence[NewJob]:
    """Its jobs: a worker's token must not have the server's own workers run any command, by the clock."""
    if write.value is None:
        return ()
    kept = read(write.value)
    if kept is None:
        raise InvalidJob(f"schedule {write.name!r:.200} cannot be read, or can never be due")
    return [NewJob("", kept.task, kept.queue, bytes(kept.payload))]


WRITES = WorkerWrites(records=(RecordKind(KIND, worker=_worker_writes, check=_check),))
