"""The operations of a store and their results; all are frozen except those that a store fills."""

from __future__ import annotations

from typing import Any

import msgspec

from .histogram import Histogram
from .job import UNDECODABLE, Attempt, Record
from .waiting import Waiting


class Inserted(msgspec.Struct, frozen=True, gc=False):
    """The result of one NewJob: what happened, and the id of the job that the call got."""

    outcome: str
    """`created`; `existing` (same key); `conflict` (same key, other body); `exists` (id taken); `full`."""
    id: str


class Settlement(msgspec.Struct, frozen=True, gc=False):
    """The end of one claim. Written only if fence and token are still those of the claim.

    A settlement to a waiting state ends the job as `cancelled` instead if its cancellation was requested.
    """

    id: str
    seq: int
    fence: int
    token: int
    nonce: int
    """Identifies this settlement, so that a resent one is recognised (unless it removed the job: `keep=0`)."""
    state: str
    outcome: str
    """The outcome for the history, if the job has not ended; the last claim of an ended job stays in its record."""
    attempt: int
    delay: float | None = None
    """For a waiting state: due this many seconds from the store's current time; None keeps the due time."""
    quarantined: bool = False
    crashes: int = 0
    result: bytes | None = None
    error: str | None = None
    traceback: str | None = None
    keep: float | None = None
    """After the end: seconds until it may be removed; 0 removes it at once, None keeps it until it is purged."""
    cancelled_keep: float | None = None
    """The same, if it ends cancelled instead."""
    key: str | None = None
    key_keep: float = 0.0
    """Seconds for which the key is remembered after the end."""
    expected_heartbeat: int | None = None
    """For recovery: rejected if the holder has sent a heartbeat since."""
    waiting_for: Waiting | None = None
    """For a waiting state: what it waits for, besides its due time."""
    record_end: bool = False
    """If this ends the job, a record of kind `ended` with the job's id is written in the same commit."""
    task: str = ""
    """The task of the job, for the minute statistics of stores that do not read it at the end of a claim."""


class Output(msgspec.Struct, frozen=True, gc=False):
    """A chunk of a running job's output, to be stored."""

    at: int
    """Its offset, in bytes since this claim's output began. Chunks arrive in order; a gap is dropped output."""
    data: bytes
    keep: int
    """Bytes of the job's output to keep: the store drops the oldest whole chunks beyond these."""
    stream: bool = False
    """It belongs to the job's stream, which is kept like the output and apart from it."""


class Printed(msgspec.Struct, frozen=True, gc=False):
    """A chunk of a job's stored output."""

    position: int
    """Its offset, in bytes over all claims of the job: a claim's output follows that of the previous claim."""
    fence: int
    """The fence of the claim that printed it."""
    data: bytes
    stream: bool = False
    """As in an Output."""


class Note(msgspec.Struct, frozen=True, gc=False):
    """What a running job writes about itself, under its fence. UNSET leaves a field unchanged."""

    id: str
    seq: int
    fence: int
    token: int
    progress: bytes | msgspec.UnsetType = msgspec.UNSET
    checkpoint: bytes | msgspec.UnsetType = msgspec.UNSET
    """A new checkpoint resets the count of crashes."""
    saves: int = 0
    """The checkpoint's number. A checkpoint with a number not above the stored one is a resend, and is ignored."""
    pid: int | msgspec.UnsetType = msgspec.UNSET
    meta: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    """Merged into the stored meta."""
    output: Output | msgspec.UnsetType = msgspec.UNSET
    """Appended to the job's output; a chunk that is already stored is accepted and changes nothing."""
    rest: float | msgspec.UnsetType = msgspec.UNSET
    """Seconds for which no job of its limit key may start."""


class Patch(msgspec.Struct, frozen=True, gc=False):
    """The fields that a change sets. UNSET leaves a field unchanged."""

    state: str | msgspec.UnsetType = msgspec.UNSET
    delay: float | msgspec.UnsetType = msgspec.UNSET
    """Due this many seconds from the store's current time."""
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
    """Merged into the stored meta."""
    keep: float | msgspec.UnsetType | None = msgspec.UNSET
    """Set with a terminal state: as in a Settlement. Setting a waiting state clears the end times.
    Set alone on an ended job: seconds from now."""
    key_keep: float = 0.0
    waiting_for: Waiting | msgspec.UnsetType | None = msgspec.UNSET
    """Cleared by any change of state that does not set it."""
    payload: bytes | msgspec.UnsetType = msgspec.UNSET
    fingerprint: str = ""
    """Set with a payload: the new digest of the job's key; empty: it stays."""
    checkpoint: bytes | msgspec.UnsetType | None = msgspec.UNSET
    extra: bytes | msgspec.UnsetType | None = msgspec.UNSET
    record_end: bool = False
    """As in a Settlement."""
    task: str | msgspec.UnsetType = msgspec.UNSET
    queue: str | msgspec.UnsetType = msgspec.UNSET
    """Another queue, and `priority` another priority: only for a job that waits, before and after the change."""
    priority: int | msgspec.UnsetType = msgspec.UNSET
    handled: bool = False
    """The job's end is processed: its `ended` record is removed, unless something was added to it
    (its value is no longer `{}`)."""


HANDLED = Patch(handled=True)
"""A patch that removes the record of an end and leaves the job unchanged."""


class Change(msgspec.Struct, frozen=True, gc=False):
    """A change of one job, written only if its state and fence are still the expected ones."""

    id: str
    expected_state: str
    expected_fence: int
    patch: Patch | None
    """None deletes the job. The key of a job that had not ended is freed."""
    expected_task: str | None = None
    """If given: written only if this is its task. Another job may have the same id since."""
    expected_seq: int | None = None
    """The same for its `seq`, which is unique in a store."""
    expected_reset_count: int | None = None
    """The same for its `reset_count`: a change decided before a retry is not written after it."""
    expected_waiting_for: Waiting | None = None
    """The same for what it waits for: a change decided for one wait is not written after another has begun.
    Not of kind `limit`: stores begin and end those waits themselves."""

    def matches(self, job: Record) -> bool:
        """Whether the job is still the expected one."""
        return (
            job.state == self.expected_state
            and job.fence == self.expected_fence
            and self.expected_task in (None, job.task)
            and self.expected_seq in (None, job.seq)
            and self.expected_reset_count in (None, job.reset_count)
            and self.expected_waiting_for in (None, job.waiting_for)
        )


class Holder(msgspec.Struct, frozen=True, gc=False):
    """The owner of claims under one lease: a worker process, or one manual claim."""

    id: str
    """`node:pid:random`, so that two machines with the same name do not collide."""
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
    """The process whose end releases its claims, as `client/process_identity.py` identifies it; "" if unknown, or if
    a supervisor releases them."""
    release: str = ""
    """The setting `release`: the version of the application."""
    cpu: float = 0.0
    """Cores that the process used since the heartbeat before, at the last one."""
    memory: int = 0
    """Bytes that the process used at the last heartbeat; 0: unknown."""
    state: str = "active"
    """active, quiet (claims no more jobs), draining (and stops when idle) or stopping."""


_holder = msgspec.json.Decoder(Holder).decode


def holder_of(id: str, about: str | bytes) -> Holder:
    """A holder from its stored JSON; an undecodable one gets the kind `damaged`."""
    try:
        return _holder(about)
    except UNDECODABLE:
        return Holder(id, 0.0, "damaged")


class HolderInfo(msgspec.Struct, frozen=True, gc=False):
    """A holder as the store knows it."""

    holder: Holder
    heartbeat: int
    age: float
    """Seconds since its last heartbeat, by the store's clock."""
    alive: bool
    jobs: tuple[str, ...]


class HeldClaim(msgspec.Struct, frozen=True, gc=False):
    """One claim of a holder, according to the store."""

    id: str
    seq: int
    fence: int
    token: int
    cancel: bool


class HeartbeatReply(msgspec.Struct, frozen=True, gc=False):
    """The answer to a heartbeat: its number, and every claim that the holder still has."""

    heartbeat: int
    held: tuple[HeldClaim, ...]
    requests: bool = True
    """False: no operator's request to any worker was stored when this was written."""


class Ask(msgspec.Struct, frozen=True, gc=False):
    """A request for jobs. It renews the holder's lease if half of it has passed."""

    holder: Holder
    queues: tuple[str, ...]
    """Tried in this order; the order between queues is not guaranteed."""
    limit: int
    token: int
    tasks: tuple[str, ...] | None = None
    busy: bool = False
    """The holder runs other jobs: quarantined jobs, which run alone, are skipped."""


class Claims(msgspec.Struct, gc=False):
    """The answer to an Ask."""

    records: list[Record]
    quarantined_waiting: bool = False
    """A quarantined job was skipped that was ahead of the last job taken (or slots stayed empty)."""
    due_in: float | None = None
    """If nothing was found: seconds until the next job of these queues is due."""


class Lost(msgspec.Struct, frozen=True, gc=False):
    """A claim whose holder's lease has expired, with the heartbeat number that was read."""

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
    """What they wait for, exactly; an indexed lookup."""


class Found(msgspec.Struct, gc=False):
    """One page of jobs, newest first."""

    records: list[Record]
    cursor: str | None
    looked: int | None = None
    """Jobs that were read, if the store stopped before the page was full; the cursor continues."""


class QueueStats(msgspec.Struct, frozen=True, gc=False):
    """The counts of one queue."""

    name: str
    counts: dict[str, int]
    oldest: int | None = None
    """When its oldest queued job was due."""
    paused: bool = False
    listeners: int = 0
    """Live workers that serve it. Counted by the app; a store leaves it at 0."""


class Tidied(msgspec.Struct, frozen=True, gc=False):
    """What one bounded step of cleanup removed."""

    jobs: int = 0
    keys: int = 0
    holders: int = 0


class WaitingCall(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The call of a job that has not started, of one of its follow-ups, or of a schedule."""

    id: str
    """The job's id, or the schedule's name."""
    task: str
    payload: bytes
    codec: str = "json"
    schedule: bool = False
    follow_up: bool = False
    """It is stored when the job with this id has ended."""
    withheld: bool = False
    """It is pickled, and was not sent to a client that may only read."""
    takes_results: bool = False
    """Its arguments contain results of other jobs: those that exist are in the payload."""
    open: bool = False
    """Some of these results do not exist yet, or are too large for a page: the payload has placeholders for them."""
    broken: str | None = None
    """Why no worker can run it, whatever its code: it is damaged, or a result was deleted."""


class CallsCursor(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Where a page of waiting calls begins: after a schedule, or among the jobs."""

    after_schedule: str | None = None
    jobs: str | None = None
    """A cursor of `Store.find`."""


class WaitingCalls(msgspec.Struct, frozen=True, gc=False):
    """A page of waiting calls: the schedules, then jobs, newest first."""

    calls: list[WaitingCall]
    cursor: CallsCursor | None
    """Continues from here; None: there are no more."""
    store_id: str | None = None
    """On the first page: the id of the store, if it has one."""


class Transition(msgspec.Struct, frozen=True, gc=False):
    """A job changed its state, or was `deleted`."""

    id: str
    state: str
    at: int


class Transitions(msgspec.Struct, frozen=True, gc=False):
    """The transitions since a cursor, in commit order, and the cursor for the next call."""

    transitions: list[Transition]
    cursor: str
    missed: bool = False
    """The cursor is too old: some transitions since then are missing. Read everything again."""


class MinuteStats(msgspec.Struct, frozen=True, gc=False):
    """How many claims of a queue and task ended with one outcome within one minute."""

    at: int
    """Start of the minute."""
    queue: str
    task: str
    outcome: str
    """As in a Settlement."""
    count: int
    waited: int
    """Sum of the microseconds from due to claimed."""
    ran: int
    """Sum of the microseconds from claimed to ended."""
    waits: Histogram = ()
    """How many waited how long; see `core/histogram.py`."""
    runs: Histogram = ()
    """How many ran how long."""
