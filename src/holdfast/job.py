"""The values that travel between the core and a store: frozen where they are words, plain where they are records."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from .retry import Backoff


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
HISTORY_LIMIT = 50
"""Lines of history kept per job; the oldest go first."""


class Attempt(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One line of a job's history: a claim that has ended."""

    number: int
    """Charged attempts of this life so far. A claim that was given back is not charged."""
    fence: int
    life: int
    worker: str | None
    started_at: int | None
    ended_at: int
    outcome: str
    error: str | None = None


class Lane(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What jobs of one name share, whoever runs them: how many may run, how often one may start, whose turn it is.

    0 means that there is no such bound. Each job carries the numbers that held when it was enqueued.
    """

    name: str
    running: int = 0
    """Claims at one time."""
    interval: int = 0
    """Microseconds between two starts, in the long run."""
    burst: int = 1
    """Starts that may come at once, after as long a rest."""
    weight: int = 0
    """Jobs that the lane gets for one of a lane of weight 1, while both have jobs ready in one queue and priority."""


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
    once: str = ""
    """For how long a key stands for the job that has it, where not for as long as it is remembered: `queued` (until
    that job is first claimed), `live` (until it ends), or `window` (for `window` seconds from its creation)."""
    window: float = 0.0
    waits: str | None = None
    """What it waits for: it begins blocked, and stays so until a Change says otherwise."""
    lane: Lane | None = None
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
    life: int = 1
    fence: int = 0
    token: int = 0
    holder: str | None = None
    pid: int | None = None
    suspect: bool = False
    """Was in flight when its process died: its next run is alone in its process."""
    deaths: int = 0
    """Silent deaths in a row while alone. Below 0: so many more may happen beside other suspects."""
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
    waits: str | None = None
    """What it waits for, besides its time; `lane:NAME` where its lane is full."""
    lane: Lane | None = None
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


class Inserted(msgspec.Struct, frozen=True, gc=False):
    """The answer to one NewJob: what became of it, and the id of the job that stands for it now."""

    outcome: str
    """`created`; `existing` (same key); `conflict` (same key, other body); `exists` (id taken); `full`."""
    id: str


class Settlement(msgspec.Struct, frozen=True, gc=False):
    """How one claim ends. Written only while fence and token are those of the claim, else it is refused.

    A settlement that would leave a job waiting ends it `cancelled` instead where its cancellation was asked for.
    """

    id: str
    seq: int
    fence: int
    token: int
    nonce: int
    """Marks this settlement, so that sending it again is recognised (unless it removed the job: `keep=0`)."""
    state: str
    outcome: str
    """The word for the history, where the job lives on; the last claim of an ended job stays in its record."""
    attempt: int
    delay: float | None = None
    """For a waiting state: due this many seconds from the store's now; None keeps the time it was due."""
    suspect: bool = False
    deaths: int = 0
    result: bytes | None = None
    error: str | None = None
    traceback: str | None = None
    keep: float | None = None
    """Once ended: seconds until it may be removed; 0 removes it at once, None keeps it until it is purged."""
    cancelled_keep: float | None = None
    """The same, where it ends cancelled instead."""
    key: str | None = None
    key_keep: float = 0.0
    """Seconds for which the key is remembered after the end."""
    seen_beat: int | None = None
    """The sweeper's: refused if the holder has beaten since."""
    waits: str | None = None
    """For a waiting state: what it waits for besides."""
    tell: bool = False
    """Where this ends the job, a record of kind `ended` by the job's id is put in the same commit."""


class Output(msgspec.Struct, frozen=True, gc=False):
    """A piece of what a running job prints, on its way to the store."""

    at: int
    """Where it begins, in bytes since this claim began to print. Pieces come in order; a gap is what was let go."""
    data: bytes
    keep: int
    """Bytes of the job's output to keep: the store lets the oldest whole pieces go that are not needed for these."""


class Printed(msgspec.Struct, frozen=True, gc=False):
    """A piece of a job's kept output."""

    position: int
    """Where it begins, in bytes over all claims of the job: the next claim's output follows behind the last one's."""
    fence: int
    """Of the claim that printed it."""
    data: bytes


class Note(msgspec.Struct, frozen=True, gc=False):
    """What a running job says of itself, under its fence. UNSET leaves a field as it is."""

    id: str
    seq: int
    fence: int
    token: int
    progress: bytes | msgspec.UnsetType = msgspec.UNSET
    checkpoint: bytes | msgspec.UnsetType = msgspec.UNSET
    """A new checkpoint starts the count of silent deaths again."""
    saves: int = 0
    """The checkpoint's number. One that is not above the kept one's was sent again, or comes late, and is let be."""
    pid: int | msgspec.UnsetType = msgspec.UNSET
    meta: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    """Merged into what is there."""
    output: Output | msgspec.UnsetType = msgspec.UNSET
    """Appended to what the job has printed; a piece that is there already, sent again, is taken and changes nothing."""
    rest: float | msgspec.UnsetType = msgspec.UNSET
    """Seconds for which no job of its lane is to start."""


class Patch(msgspec.Struct, frozen=True, gc=False):
    """What an operator's change sets. UNSET leaves a field as it is."""

    state: str | msgspec.UnsetType = msgspec.UNSET
    delay: float | msgspec.UnsetType = msgspec.UNSET
    """Due this many seconds from the store's now."""
    attempt: int | msgspec.UnsetType = msgspec.UNSET
    life: int | msgspec.UnsetType = msgspec.UNSET
    suspect: bool | msgspec.UnsetType = msgspec.UNSET
    deaths: int | msgspec.UnsetType = msgspec.UNSET
    cancel: bool | msgspec.UnsetType = msgspec.UNSET
    result: bytes | msgspec.UnsetType | None = msgspec.UNSET
    error: str | msgspec.UnsetType | None = msgspec.UNSET
    traceback: str | msgspec.UnsetType | None = msgspec.UNSET
    progress: bytes | msgspec.UnsetType | None = msgspec.UNSET
    history: tuple[Attempt, ...] | msgspec.UnsetType = msgspec.UNSET
    meta: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    """Merged into what is there."""
    keep: float | msgspec.UnsetType | None = msgspec.UNSET
    """Set with a terminal state: as in a Settlement. Setting a waiting state clears the times of the end.
    Set alone on an ended job: seconds from now."""
    key_keep: float = 0.0
    waits: str | msgspec.UnsetType | None = msgspec.UNSET
    """Setting any state without it clears it."""
    payload: bytes | msgspec.UnsetType = msgspec.UNSET
    fingerprint: str = ""
    """Set with a payload: what the job's key stands for from now on."""
    checkpoint: bytes | msgspec.UnsetType | None = msgspec.UNSET
    extra: bytes | msgspec.UnsetType | None = msgspec.UNSET
    tell: bool = False
    """As in a Settlement."""


class Change(msgspec.Struct, frozen=True, gc=False):
    """An operator's change of one job, made only if state and fence are still those that were seen."""

    id: str
    seen_state: str
    seen_fence: int
    patch: Patch | None
    """None deletes the job. The key of one that had not ended is forgotten with it."""
    seen_task: str | None = None
    """Where given: made only if this is its task. Another job may have got its id since."""


class Holder(msgspec.Struct, frozen=True, gc=False):
    """Whoever holds claims under one lease: a worker process, or one claim made by hand."""

    id: str
    """`node:pid:random`, so that two machines with one name do not collide."""
    lease: float
    kind: str = "worker"
    node: str = ""
    pid: int = 0
    queues: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    slots: int = 0
    version: str = ""
    started_at: int = 0
    process: str = ""
    """The process whose end ends its claims, as `process_identity.py` names it; "" where it is not known, or where a
    supervisor gives them back."""


_holder = msgspec.json.Decoder(Holder).decode


def holder_of(id: str, about: str | bytes) -> Holder:
    """A holder from its stored JSON; one that cannot be decoded is of the kind `damaged`."""
    try:
        return _holder(about)
    except UNDECODABLE:
        return Holder(id, 0.0, "damaged")


class HolderSeen(msgspec.Struct, frozen=True, gc=False):
    """A holder as the store knows it."""

    holder: Holder
    beat: int
    age: float
    """Seconds since its last beat, by the store's clock."""
    alive: bool
    jobs: tuple[str, ...]


class Held(msgspec.Struct, frozen=True, gc=False):
    """One claim that the store says a holder has."""

    id: str
    seq: int
    fence: int
    token: int
    cancel: bool


class Beat(msgspec.Struct, frozen=True, gc=False):
    """The answer to a heartbeat: its number, and every claim that the holder still has."""

    beat: int
    held: tuple[Held, ...]


class Ask(msgspec.Struct, frozen=True, gc=False):
    """A wish for jobs. Making it renews the holder's lease where half of it is spent."""

    holder: Holder
    queues: tuple[str, ...]
    """Tried in this order; no order is promised between queues."""
    limit: int
    token: int
    tasks: tuple[str, ...] | None = None
    busy: bool = False
    """The holder runs other jobs: suspects, which run apart, are passed over."""


class Claims(msgspec.Struct, gc=False):
    """The answer to an Ask."""

    records: list[Record]
    suspect_waiting: bool = False
    """A suspect was passed over that stood before the last job taken (or slots stayed empty)."""
    due_in: float | None = None
    """Where nothing was found: seconds until the next job of these queues is due."""


class Lost(msgspec.Struct, frozen=True, gc=False):
    """A claim whose holder's lease has ended, with the beat that was seen."""

    record: Record
    beat: int


class Where(msgspec.Struct, frozen=True, gc=False):
    """A filter for jobs; every given part must match."""

    states: tuple[str, ...] = ()
    queue: str | None = None
    task: str | None = None
    tag: str | None = None
    finished_before: int | None = None
    waits: str | None = None
    """What they wait for, exactly; found without a look at other jobs."""


class Found(msgspec.Struct, gc=False):
    """One page of jobs, newest first."""

    records: list[Record]
    cursor: str | None


class QueueStats(msgspec.Struct, frozen=True, gc=False):
    """One queue in numbers."""

    name: str
    counts: dict[str, int]
    oldest: int | None = None
    """When its oldest queued job was due."""
    paused: bool = False
    listeners: int = 0
    """Live workers that serve it. Counted by the app; a store leaves it at 0."""


class Tidied(msgspec.Struct, frozen=True, gc=False):
    """What one bounded step of tidying removed."""

    jobs: int = 0
    keys: int = 0
    holders: int = 0


class Move(msgspec.Struct, frozen=True, gc=False):
    """A job came to another state, or was `deleted`."""

    id: str
    state: str
    at: int


class Moves(msgspec.Struct, frozen=True, gc=False):
    """What jobs did since a moment, in the order of their commits, and the moment to ask from next."""

    moves: list[Move]
    cursor: str
    missed: bool = False
    """The moment that was asked from is too long ago: what happened since is not all told. Look at everything again."""


class Minute(msgspec.Struct, frozen=True, gc=False):
    """How many claims of a queue ended in one way within one minute."""

    at: int
    """Its beginning."""
    queue: str
    outcome: str
    """As in a Settlement."""
    count: int
    waited: int
    """Microseconds from when each was due to when it was claimed, added up."""
    ran: int
    """Microseconds from claim to end, added up."""
