"""A job as it is enqueued and as a store keeps it: frozen where it is a word, plain where it is a record."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from .retry import Backoff
from .waiting import Waiting


class State(StrEnum):
    """Where a job is in its life."""

    BLOCKED = "blocked"
    SCHEDULED = "scheduled"
    QUEUED = "queued"
    RUNNING = "running"
    FAILED = "failed"
    SUCCEEDED = "succeeded"
    DEAD = "dead"
    CANCELLED = "cancelled"


WAITING = frozenset({State.BLOCKED, State.SCHEDULED, State.QUEUED, State.FAILED})
TERMINAL = frozenset({State.SUCCEEDED, State.DEAD, State.CANCELLED})
PRIORITY_MIN, PRIORITY_MAX = -32768, 32767
"""Whole numbers of 16 bits: a database's `smallint`."""
HISTORY_LIMIT = 50
"""Lines of history kept per job; the oldest go first."""


class Attempt(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One line of a job's history: a claim that has ended."""

    number: int
    """Charged attempts of this life so far. A claim that was given back is not charged."""
    fence: int
    reset_count: int
    worker: str | None
    started_at: int | None
    ended_at: int
    outcome: str
    error: str | None = None


class LimitKey(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What jobs of one name share, whoever runs them: how many may run, how often one may start, whose turn it is.

    0 means that there is no such bound. Each job carries the numbers that held when it was enqueued.
    """

    name: str
    concurrency: int = 0
    """Claims at one time."""
    interval: int = 0
    """Microseconds between two starts, in the long run."""
    burst: int = 1
    """Starts that may come at once, after as long a rest."""
    weight: int = 0
    """Jobs that the limit key gets for one of a limit key of weight 1, while both have jobs ready in one queue and priority."""


class NewJob(msgspec.Struct, frozen=True, gc=False):
    """A job as it is asked for. The store adds its number, its times and its state."""

    id: str
    task: str
    queue: str
    payload: bytes
    codec: str = "json"
    priority: int = 0
    delay: float = 0.0
    """Seconds from the store's now; ignored where `run_at` is given."""
    run_at: int | None = None
    """Microseconds; the past means now."""
    max_attempts: int = 5
    """Charged starts, the first included; 0 is unlimited."""
    timeout: float | None = None
    key: str | None = None
    fingerprint: str = ""
    """What a key stands for: a digest of task and payload."""
    nonce: int = 0
    """Set for an id that the user chose, so that the client's own retry is told apart from another's job."""
    max_depth: int | None = None
    tags: tuple[str, ...] = ()
    meta: dict[str, Any] = {}
    retry: Backoff | None = None
    unique: str = ""
    """For how long a key stands for the job that has it, where not for as long as it is remembered: `queued` (until
    that job is first claimed), `live` (until it ends), or `window` (for `window` seconds from its creation)."""
    window: float = 0.0
    waiting_for: Waiting | None = None
    """What it waits for: it begins blocked, and stays so until a Change says otherwise."""
    limit_key: LimitKey | None = None
    extra: bytes | None = None
    """The core's own words about the job: kept and given back by stores, never read."""


class Record(msgspec.Struct, gc=False):
    """A job as a store keeps it. In state running it is a claim: `holder`, `fence` and `token` say whose."""

    seq: int
    """The store's own number: insertion order, and the quick way back to the job."""
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
    """Was in flight when its process died: its next run is alone in its process."""
    crashes: int = 0
    """Crashes in a row while alone. Below 0: so many more may happen beside other quarantined jobs."""
    cancel: bool = False
    """Somebody asked for its cancellation while it ran."""
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
    """What it waits for, besides its time."""
    limit_key: LimitKey | None = None
    extra: bytes | None = None
    saves: int = 0
    """The number of its checkpoint: they rise over all its claims."""
    changed_at: int | None = None
    """When it was last written between two transitions: by a Change, or by a Note of progress, checkpoint, pid or meta.
    """
    damage: dict[str, str] | None = None
    """Made by the reader, never stored: the fields whose stored value cannot be decoded, each with that value as text.
    The field itself has a default then. `damage.py` adds what only the core can decode."""


STORED = tuple(name for name in Record.__struct_fields__ if name != "damage")
"""The fields of a Record that stores keep, in order."""


UNDECODABLE = (ValueError, TypeError, RecursionError)
"""What decoding a stored value can raise: msgspec's errors and UnicodeDecodeError are ValueErrors."""


def raw_text(value: object) -> str:
    """A stored value that cannot be decoded, as text."""
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
