"""A job as it is enqueued (frozen) and as a store keeps it (mutable record)."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from .retry import Backoff
from .waiting import Waiting


class State(StrEnum):
    """The states of a job's lifecycle."""

    BLOCKED = "blocked"
    SCHEDULED = "scheduled"
    QUEUED = "queued"
    RUNNING = "running"
    FAILED = "failed"
    SUCCEEDED = "succeeded"
    DEAD = "dead"
    CANCELLED = "cancelled"


WAITING = frozenset({State.BLOCKED, State.SCHEDULED, State.QUEUED, State.FAILED})
UNTIMED = frozenset({State.BLOCKED})
"""The waiting states that no due time ends: only a Change does."""
TERMINAL = frozenset({State.SUCCEEDED, State.DEAD, State.CANCELLED})
PRIORITY_MIN, PRIORITY_MAX = -32768, 32767
"""The range of a 16-bit integer: a database's `smallint`."""
SHELL_TASK = "shell"
"""The built-in task whose jobs are shell commands."""
HISTORY_LIMIT = 50
"""Attempts kept in a job's history; the oldest are dropped first."""


class Attempt(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One entry of a job's history: a claim that has ended."""

    number: int
    """Charged attempts since the last reset. A claim that was released is not charged."""
    fence: int
    reset_count: int
    worker: str | None
    started_at: int | None
    ended_at: int
    outcome: str
    error: str | None = None


class LimitKey(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What jobs with the same key share over all workers: concurrency, start rate and fair order.

    0 means unlimited. Each job carries the numbers that were configured when it was enqueued.
    """

    name: str
    concurrency: int = 0
    """Maximum number of running jobs."""
    interval: int = 0
    """Microseconds between two starts, on average."""
    burst: int = 1
    """Starts allowed at once after an idle time of as many intervals."""
    weight: int = 0
    """Jobs served for each job of a limit key of weight 1, while both have ready jobs in one queue and priority."""


class NewJob(msgspec.Struct, frozen=True, gc=False):
    """A job to insert. The store adds its number, its times and its state."""

    id: str
    task: str
    queue: str
    payload: bytes
    codec: str = "json"
    priority: int = 0
    delay: float = 0.0
    """Seconds from the store's current time; ignored if `run_at` is given."""
    run_at: int | None = None
    """Microseconds; a past time means now."""
    max_attempts: int = 5
    """Charged starts including the first; 0 is unlimited."""
    timeout: float | None = None
    key: str | None = None
    fingerprint: str = ""
    """Identifies the call that the key belongs to: a digest of task and payload."""
    nonce: int = 0
    """Set for an id that the user chose, to distinguish the client's own retry from another job."""
    max_depth: int | None = None
    tags: tuple[str, ...] = ()
    meta: dict[str, Any] = {}
    retry: Backoff | None = None
    unique: str = ""
    """For how long a key belongs to its job, if not for as long as it is remembered: `until_start` (until that job is
    first claimed), `until_end` (until it ends), or `window` (for `window` seconds from its creation)."""
    window: float = 0.0
    waiting_for: Waiting | None = None
    """What it waits for: it is inserted as blocked, and stays so until a Change releases it."""
    limit_key: LimitKey | None = None
    extra: bytes | None = None
    """Internal metadata (`internal.py`): kept and returned by stores, never decoded."""


class Record(msgspec.Struct, gc=False):
    """A job as a store keeps it. A running job is a claim, identified by `holder`, `fence` and `token`."""

    seq: int
    """The store's own number: insertion order, and a fast lookup of the job."""
    id: str
    queue: str
    task: str
    state: str
    priority: int
    run_at: int
    payload: bytes
    codec: str
    max_attempts: int
    timeout: float | None
    key: str | None
    created_at: int
    attempt: int = 0
    reset_count: int = 0
    """Manual retries and replacements of the job so far: each starts its attempts again."""
    fence: int = 0
    token: int = 0
    holder: str | None = None
    pid: int | None = None
    quarantined: bool = False
    """It ran in a process that crashed: its next run is alone in its process."""
    crashes: int = 0
    """Crashes in a row while no other job ran. Below 0: this many more may happen beside other quarantined jobs."""
    cancel: bool = False
    """Its cancellation was requested while it ran."""
    started_at: int | None = None
    finished_at: int | None = None
    expires_at: int | None = None
    result: bytes | None = None
    error: str | None = None
    traceback: str | None = None
    progress: bytes | None = None
    checkpoint: bytes | None = None
    tags: tuple[str, ...] = ()
    meta: dict[str, Any] = {}
    retry: Backoff | None = None
    history: tuple[Attempt, ...] = ()
    waiting_for: Waiting | None = None
    """What it waits for, besides its due time."""
    limit_key: LimitKey | None = None
    extra: bytes | None = None
    saves: int = 0
    """The number of its checkpoint, increasing over all its claims."""
    changed_at: int | None = None
    """When it was last written without a transition: by a Change, or by a Note of progress, checkpoint, pid or meta.
    """
    damage: dict[str, str] | None = None
    """Set by the reader, never stored: the fields whose stored value cannot be decoded, each with that value as text.
    Such a field has a default. `damage.py` adds the fields that stores do not decode."""


def ended_attempt(record: Record, ended_at: int, outcome: str, error: str | None) -> Attempt:
    """The entry of a job's history for its claim, which ends now or was its last."""
    claim = (record.attempt, record.fence, record.reset_count, record.holder, record.started_at)
    return Attempt(*claim, ended_at, outcome, error)


STORED = tuple(name for name in Record.__struct_fields__ if name != "damage")
"""The fields of a Record that stores keep, in order."""


UNDECODABLE = (ValueError, TypeError, RecursionError)
"""What decoding a stored value can raise; msgspec's errors and UnicodeDecodeError are ValueErrors."""


def raw_text(value: object) -> str:
    """A stored value that cannot be decoded, as text."""
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
