"""A schedule as stored in a record: the options of its jobs, its rule, its last and next run."""

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
"""Characters of an error that are stored."""
_UNSEEN = {"rule", "next", "last", "counted", "limit_key"}


class Schedule(msgspec.Struct, frozen=True, omit_defaults=True):
    """A task that is enqueued repeatedly by a cron or interval rule."""

    name: str
    task: str
    rule: Rule
    payload: msgspec.Raw = msgspec.Raw(b"{}")
    """The arguments, as the job's payload has them."""
    queue: str = "default"
    priority: int = 0
    max_attempts: int | None = None
    timeout: float | None = None
    stall_timeout: float | None = None
    retry: Backoff | None = None
    tags: tuple[str, ...] = ()
    in_code: bool = False
    """Declared by `app.cron`; a worker that starts with the code overwrites changes."""
    paused: bool = False
    next: int | None = None
    """When the next run is due, in microseconds since 1970."""
    last: int | None = None
    last_job: str | None = None
    expires: float | None = None
    """Seconds within which a run must start."""
    deadline: float | None = None
    """Seconds within which a run must end."""
    limit_key: LimitKey | None = None
    """The limit key of its jobs, for workers that do not know the task."""
    counted: int = 0
    """When `next` was computed, in microseconds of the store's clock."""
    error: str | None = None
    """Why the last run could not be enqueued; None after a run was enqueued."""

    def audit_target(self) -> dict[str, Any]:
        """Its definition for the audit log, without the arguments of its jobs."""
        rule = {name: value for name, value in msgspec.structs.asdict(self.rule).items() if value is not None}
        return {"name": self.name, "task": self.task, "queue": self.queue, "paused": self.paused, "rule": rule}

    @property
    def next_run(self) -> datetime | None:
        """When the next run is due; None while paused, and after its end."""
        return None if self.next is None or self.paused else moment(self.next)

    @property
    def last_run(self) -> datetime | None:
        """The due time of the last run that was enqueued."""
        return None if self.last is None else moment(self.last)

    @property
    def start(self) -> datetime | None:
        """Before this time no run is due."""
        return None if self.rule.start is None else moment(self.rule.start)

    @property
    def end(self) -> datetime | None:
        """After this time no run is due."""
        return None if self.rule.end is None else moment(self.rule.end)

    @property
    def words(self) -> str:
        """Its rule in English."""
        return schedule.in_words(self.rule)

    @property
    def limits(self) -> tuple[LimitInfo, ...]:
        """The limits of its jobs."""
        return limits_of(self.limit_key)

    def shown(self) -> dict[str, Any]:
        """Its public fields, including those of the rule and the run times."""
        return {
            **{name: getattr(self, name) for name in self.__struct_fields__ if name not in _UNSEEN},
            **msgspec.structs.asdict(self.rule),
            "start": self.start,
            "end": self.end,
            "words": self.words,
            "last_run": self.last_run,
            "next_run": self.next_run,
            "limits": self.limits,
        }

    def from_now(self, now: int) -> Schedule:
        """A copy whose next run is the first after `now`."""
        return msgspec.structs.replace(self, next=schedule.next_after(self.rule, now), counted=now)

    def troubled(self, error: Exception) -> Schedule:
        """A copy with the error of a run that could not be enqueued."""
        return msgspec.structs.replace(self, error=error_text(error)[:SCHEDULE_ERROR_LIMIT])

    def makes_the_same(self, other: Schedule) -> bool:
        """Whether the jobs of both have the same task, queue and payload, so the same limit key."""
        return (self.task, self.queue, bytes(self.payload)) == (other.task, other.queue, bytes(other.payload))


class DueFields(msgspec.Struct, frozen=True):
    """The fields of a schedule that decide whether it is due."""

    next: int | None = None
    counted: int = 0
    paused: bool = False


_decode = msgspec.json.Decoder(Schedule).decode
_decode_due_fields = msgspec.json.Decoder(DueFields).decode


def read(value: bytes) -> Schedule | None:
    """Decode a stored schedule; None if it cannot be decoded."""
    try:
        kept = _decode(value)
        schedule.checked(kept.rule)
    except UNDECODABLE:
        return None  # written by a newer version, whose workers enqueue its runs; or damaged
    return kept


def read_due_fields(value: bytes) -> DueFields | None:
    """Decode only the fields of `DueFields`: cheap, and the other fields are not validated."""
    try:
        return _decode_due_fields(value)
    except UNDECODABLE:
        return None


def _is_worker_update(before: bytes | None, after: bytes | None) -> bool:
    """Whether a write is one that workers make: advance a schedule after a run, or declare one from code."""
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
    if write.expect is None or write.expect > version:  # not a compare-and-set on a known version
        return False
    if write.expect not in (0, version):  # an old version: the store refuses the write
        return True
    return _is_worker_update(kept.value if kept is not None and write.expect else None, write.value)


async def _check(_store: Store, write: RecordWrite) -> Sequence[NewJob]:
    """The jobs of a schedule, to be checked: a worker's token must not schedule commands on other workers."""
    if write.value is None:
        return ()
    kept = read(write.value)
    if kept is None:
        raise InvalidJob(
            f"schedule {write.name!r:.200} was not stored: it cannot be decoded, or is never due. Use the same version"
            " of Holdfast in the worker and the server"
        )
    return [NewJob("", kept.task, kept.queue, bytes(kept.payload))]


WRITES = WorkerWrites(records=(RecordKind(KIND, worker=_worker_writes, check=_check),))
