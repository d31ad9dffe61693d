"""What is asked of a store and what it answers, one operation each; all but what it reads into are frozen."""

from __future__ import annotations

from typing import Any

import msgspec

from .job import UNDECODABLE, Attempt, Record
from .waiting import Waiting


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
    quarantined: bool = False
    crashes: int = 0
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
    expected_heartbeat: int | None = None
    """The sweeper's: refused if the holder has beaten since."""
    waiting_for: Waiting | None = None
    """For a waiting state: what it waits for besides."""
    record_end: bool = False
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
    """A new checkpoint starts the count of crashes again."""
    saves: int = 0
    """The checkpoint's number. One that is not above the kept one's was sent again, or comes late, and is let be."""
    pid: int | msgspec.UnsetType = msgspec.UNSET
    meta: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    """Merged into what is there."""
    output: Output | msgspec.UnsetType = msgspec.UNSET
    """Appended to what the job has printed; a piece that is there already, sent again, is taken and changes nothing."""
    rest: float | msgspec.UnsetType = msgspec.UNSET
    """Seconds for which no job of its limit key is to start."""


class Patch(msgspec.Struct, frozen=True, gc=False):
    """What an operator's change sets. UNSET leaves a field as it is."""

    state: str | msgspec.UnsetType = msgspec.UNSET
    delay: float | msgspec.UnsetType = msgspec.UNSET
    """Due this many seconds from the store's now."""
    attempt: int | msgspec.UnsetType = msgspec.UNSET
    reset_count: int | msgspec.UnsetType = msgspec.UNSET
    quarantined: bool | msgspec.UnsetType = msgspec.UNSET
    crashes: int | msgspec.UnsetType = msgspec.UNSET
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
    waiting_for: Waiting | msgspec.UnsetType | None = msgspec.UNSET
    """Setting any state without it clears it."""
    payload: bytes | msgspec.UnsetType = msgspec.UNSET
    fingerprint: str = ""
    """Set with a payload: what the job's key stands for from now on."""
    checkpoint: bytes | msgspec.UnsetType | None = msgspec.UNSET
    extra: bytes | msgspec.UnsetType | None = msgspec.UNSET
    record_end: bool = False
    """As in a Settlement."""
    handled: bool = False
    """What follows from the job's end is done: the record that tells of it is removed, unless something was added to it
    (its value is no longer `{}`)."""


HANDLED = Patch(handled=True)
"""A patch that removes the record of an end, and leaves the job as it is."""


class Change(msgspec.Struct, frozen=True, gc=False):
    """An operator's change of one job, made only if state and fence are still those that were seen."""

    id: str
    expected_state: str
    expected_fence: int
    patch: Patch | None
    """None deletes the job. The key of one that had not ended is forgotten with it."""
    expected_task: str | None = None
    """Where given: made only if this is its task. Another job may have got its id since."""
    expected_seq: int | None = None
    """The same for its `seq`, which no two jobs of a store share."""


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
    """The process whose end ends its claims, as `client/process_identity.py` names it; "" where it is not known, or
    where a supervisor gives them back."""


_holder = msgspec.json.Decoder(Holder).decode


def holder_of(id: str, about: str | bytes) -> Holder:
    """A holder from its stored JSON; one that cannot be decoded is of the kind `damaged`."""
    try:
        return _holder(about)
    except UNDECODABLE:
        return Holder(id, 0.0, "damaged")


class HolderInfo(msgspec.Struct, frozen=True, gc=False):
    """A holder as the store knows it."""

    holder: Holder
    heartbeat: int
    age: float
    """Seconds since its last beat, by the store's clock."""
    alive: bool
    jobs: tuple[str, ...]


class HeldClaim(msgspec.Struct, frozen=True, gc=False):
    """One claim that the store says a holder has."""

    id: str
    seq: int
    fence: int
    token: int
    cancel: bool


class HeartbeatReply(msgspec.Struct, frozen=True, gc=False):
    """The answer to a heartbeat: its number, and every claim that the holder still has."""

    heartbeat: int
    held: tuple[HeldClaim, ...]


class Ask(msgspec.Struct, frozen=True, gc=False):
    """A wish for jobs. Making it renews the holder's lease where half of it is spent."""

    holder: Holder
    queues: tuple[str, ...]
    """Tried in this order; no order is promised between queues."""
    limit: int
    token: int
    tasks: tuple[str, ...] | None = None
    busy: bool = False
    """The holder runs other jobs: quarantined jobs, which run apart, are passed over."""


class Claims(msgspec.Struct, gc=False):
    """The answer to an Ask."""

    records: list[Record]
    quarantined_waiting: bool = False
    """A quarantined job was passed over that stood before the last job taken (or slots stayed empty)."""
    due_in: float | None = None
    """Where nothing was found: seconds until the next job of these queues is due."""


class Lost(msgspec.Struct, frozen=True, gc=False):
    """A claim whose holder's lease has ended, with the beat that was seen."""

    record: Record
    heartbeat: int


class Where(msgspec.Struct, frozen=True, gc=False):
    """A filter for jobs; every given part must match."""

    states: tuple[str, ...] = ()
    queue: str | None = None
    task: str | None = None
    tag: str | None = None
    finished_before: int | None = None
    waiting_for: Waiting | None = None
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


class Transition(msgspec.Struct, frozen=True, gc=False):
    """A job came to another state, or was `deleted`."""

    id: str
    state: str
    at: int


class Transitions(msgspec.Struct, frozen=True, gc=False):
    """What jobs did since a moment, in the order of their commits, and the moment to ask from next."""

    transitions: list[Transition]
    cursor: str
    missed: bool = False
    """The moment that was asked from is too long ago: what happened since is not all told. Look at everything again."""


class MinuteStats(msgspec.Struct, frozen=True, gc=False):
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
