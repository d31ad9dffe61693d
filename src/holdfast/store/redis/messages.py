"""The messages between client and scripts, and the stored form of a job: the fields of each, in their order.

The only definition of field positions. Arrays: a field's index is its position in the class. Mutable: a field's letter
is its `name`. The scripts use the field names; `names.py` replaces them with indexes and letters.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
from msgspec import field

from ...core.job import Attempt
from ...core.retry import Backoff

Index = int
"""The index of bytes among the arguments of a script, beside the message."""
Micros = int


class Message(msgspec.Struct, gc=False, array_like=True):
    """A MessagePack array."""


class BatchMessage(Message):
    """The operations of the write script. Its answer has the same positions."""

    inserts: list[PlainNewMessage] | None
    notes: list[NoteMessage] | None
    settles: list[PlainEndMessage] | None
    changes: list[ChangeMessage] | None
    asks: list[AskMessage] | None


class PlainNewMessage(Message):
    """A new job with no options but its body and its limit key."""

    id: str
    queue: str
    priority: int
    delay: Micros
    run_at: Micros | None
    body: Index
    nonce: str | None
    limit_key: str | None


class NewMessage(PlainNewMessage):
    """A new job with further options."""

    key: str | None
    fingerprint: str
    unique: str | None
    window: Micros
    max_depth: int | None
    waiting_for: str | None
    extra: Index | None


class CheckpointMessage(Message):
    """A checkpoint of a note."""

    number: int
    data: Index | None


class OutputMessage(Message):
    """A piece of a job's output in a note."""

    at: int
    data: Index | None
    keep: int
    stream: bool


class NoteMessage(Message):
    """A note of a running job: progress, checkpoint, output, meta."""

    seq: str
    fence: int
    token: str
    progress: Index | None
    checkpoint: CheckpointMessage | None
    pid: int | None
    meta: dict[str, str] | None
    output: OutputMessage | None
    rest: Micros | None
    """No job of its limit key starts for so long (a reported rate limit)."""
    notify: str | None
    """The id of the job, if listeners for its notes are notified."""


class PlainEndMessage(Message):
    """The end of a claim that succeeded without anything special, as most do: shorter, so faster to unpack."""

    seq: str
    fence: int
    token: str
    nonce: str
    id: str
    state: str
    attempt: int
    keep: Micros | None
    result: Index | None
    task: Index


class EndMessage(PlainEndMessage):
    """Any other end of a claim."""

    outcome: str
    cancelled_keep: Micros | None
    delay: Micros | None
    quarantined: bool | None
    crashes: int | None
    key_keep: Micros
    key: str | None
    expected_heartbeat: int | None
    error: str | None
    traceback: str | None
    waiting_for: str | None
    record_end: bool | None


class ChangeMessage(Message):
    """An operator's change. No patch: delete the job. `task`, `seq`, `reset_count` and `waiting_for`, if given, must
    match the job. `only_handled`: only remove the record of the job's end.
    """

    id: str
    state: str
    fence: int
    patch: dict[str, Any] | None
    task: str | None
    seq: str | None
    only_handled: bool | None
    reset_count: int | None
    waiting_for: str | None


class AskMessage(Message):
    """A claim request."""

    holder: str
    lease: Micros
    about: str
    queues: tuple[str, ...]
    limit: int
    token: str
    tasks: tuple[str, ...] | None
    busy: bool | None


class FindMessage(Message):
    """A search filter. An absent field matches everything; `limit_key`: the job is deferred by it."""

    before: int | None
    limit: int
    states: list[str] | None
    queue: str | None
    task: str | None
    tag: str | None
    finished_before: Micros | None
    waiting_for: str | None
    limit_key: str | None


# -- a stored job


class Body(Message):
    """The part of a stored job that does not change (except its payload). The script writes the first three fields."""

    created_at: Micros
    run_at: Micros
    priority: int
    id: str
    queue: str
    task: str
    tags: str | None
    key: str | None
    codec: str
    max_attempts: int
    timeout: float | None
    retry: Backoff | None
    meta: str | None
    payload: bytes
    limit_key: str | None = None


_NOTHING = msgspec.Raw()


class Mutable(msgspec.Struct, frozen=True, gc=False):
    """The part of a stored job that changes, beside its `Body`: a MessagePack map by letter, without default values."""

    run_at: Micros | None = field(default=None, name="u")
    attempt: int = field(default=0, name="a")
    reset_count: int = field(default=0, name="l")
    fence: int = field(default=0, name="f")
    token: str = field(default="0", name="t")
    holder: str | None = field(default=None, name="h")
    pid: int | None = field(default=None, name="i")
    quarantined: bool = field(default=False, name="p")
    crashes: int = field(default=0, name="d")
    cancel: bool = field(default=False, name="c")
    started_at: Micros | None = field(default=None, name="g")
    finished_at: Micros | None = field(default=None, name="z")
    expires_at: Micros | None = field(default=None, name="x")
    result: msgspec.Raw = field(default=_NOTHING, name="r")
    progress: msgspec.Raw = field(default=_NOTHING, name="o")
    error: str | None = field(default=None, name="e")
    traceback: str | None = field(default=None, name="b")
    meta: dict[str, str] | None = field(default=None, name="m")
    """Values as JSON, by name."""
    history: list[str] | None = field(default=None, name="y")
    """Lines of JSON."""
    waiting_for: str | None = field(default=None, name="W")
    extra: msgspec.Raw = field(default=_NOTHING, name="E")
    saves: int = field(default=0, name="S")
    """The number of its checkpoint."""
    changed_at: Micros | None = field(default=None, name="C")
    damage: msgspec.Raw = field(default=_NOTHING, name="D")
    """The bytes of an earlier mutable that a script could not read."""


class WholeMutable(Mutable, frozen=True, gc=False):
    """A mutable with the fields only scripts read. In a running job `due` and `limit_key` come first (settle.lua)."""

    state: str | None = field(default=None, name="s")
    nonce: str | None = field(default=None, name="n")
    """The nonce of the last settlement."""
    checkpoint: int | None = field(default=None, name="k")
    """1 if the job has a checkpoint."""
    printed: int | None = field(default=None, name="w")
    """1 if the job has output."""
    queue: str | None = field(default=None, name="q")
    due: Micros | None = field(default=None, name="v")
    """The run_at of a running job: a settlement does not read the body."""
    limit_key: str | None = field(default=None, name="L")
    """The name of the limit key of a running job."""


class Line(Attempt, frozen=True, gc=False, array_like=True):
    """A line of a job's history, as a JSON array."""


# -- the arguments of scripts that take no message


class OneArguments(NamedTuple):
    """Arguments of enqueue_one.lua: a single plain job."""

    id: str
    queue: str
    priority: int
    body: bytes
    nonce: str | bytes


class RecordArguments(NamedTuple):
    """Arguments of record.lua. `expected` is empty for any version; `put` is 1 to set, 0 to remove; `topic` is empty
    if no listener is notified.
    """

    kind: str
    name: str
    expected: str
    put: str
    value: bytes
    topic: str


class TidyArguments(NamedTuple):
    """Arguments of tidy.lua: the maximum per kind, and how long minute stats and limiter state are kept."""

    limit: int
    minutes: Micros
    limit_keys: Micros


class TransitionsArguments(NamedTuple):
    """Arguments of transitions.lua. `since` is empty to begin; transitions are kept for `watch` from now."""

    since: str | bytes
    limit: int
    watch: Micros


class OutputArguments(NamedTuple):
    """Arguments of output.lua: the start position, the bytes after which to stop, and `output` or `stream`."""

    id: str
    position: int
    limit: int
    kind: str


# -- what scripts answer


class JobRow(NamedTuple):
    """The answer of get, find and expired for each job."""

    seq: bytes
    state: bytes
    body: bytes
    mutable: bytes | None
    checkpoint: bytes | None


class ClaimHead(NamedTuple):
    """The beginning of a claim's answer, before its jobs."""

    waiting: int
    """1 if a quarantined job had to be skipped."""
    due_in: Micros
    """-1: nothing is due."""
    now: bytes


class ClaimedRow(NamedTuple):
    """The answer of a claim for each job."""

    seq: bytes
    body: bytes
    mutable: bytes
    checkpoint: bytes | None


class FoundHead(NamedTuple):
    """The beginning of a page, before its jobs."""

    before: bytes | None
    """Where the next step begins; None at the end."""
    looked: int
    """Jobs that this step has read."""


class TransitionsHead(NamedTuple):
    """The beginning of the answer of transitions.lua."""

    missed: int
    """1 if some transitions were missed."""
    cursor: bytes


# -- small arrays that only scripts read: answers of Redis, and their own variables


class ServerTime(NamedTuple):
    """The answer of TIME."""

    seconds: str
    micros: str


class StoredJob(NamedTuple):
    """The fields of a job that are read together."""

    body: bytes | None
    mutable: bytes | None


class StoredHolder(NamedTuple):
    """The fields of a holder."""

    about: str | None
    heartbeat: str | None
    at: str | None


class StoredWatch(NamedTuple):
    """The fields of the watch: when it ends, and the number of the last transition."""

    ends: str | None
    upto: str | None


class ScoredMember(NamedTuple):
    """The first member of a sorted set with its score, and the member after it."""

    member: str | None
    score: str | None
    following: str | None


class StreamEntry(NamedTuple):
    """An entry of a stream; `fields` has alternating names and values."""

    id: str
    fields: list[str]


class TransitionFields(NamedTuple):
    """The fields of an entry of the stream `transitions`."""

    number: int
    at: Micros
    moved: bytes


class PickedJobs(NamedTuple):
    """Jobs of one queue that a claim has chosen."""

    queue: str
    seqs: list[str]


class KnownSet(NamedTuple):
    """A set with the jobs of a state, and how its members begin."""

    key: str
    begins: str


class EndSums(NamedTuple):
    """How many claims ended in the same way; their times, added up."""

    number: int
    waited: Micros
    ran: Micros
    waits: msgspec.Raw
    """How many waited how long, by bucket from 1: a map, or an array."""
    runs: msgspec.Raw


class PositionRange(NamedTuple):
    """The first and the last position of the ready jobs of a queue and priority."""

    first: Micros
    last: Micros
