"""What travels between the client and the scripts, and how a job is stored: the fields of each, in their order.

The one place that says where a field stands. Arrays: the place of a field is its place in its class. Mutable: the letter
of a field is its `name`. The scripts are written with the names of the fields; `names.py` puts in what stands here.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
from msgspec import field

from ...core.retry import Backoff

Index = int
"""Where bytes stand among the arguments of a script, beside the message."""
Micros = int


class Message(msgspec.Struct, gc=False, array_like=True):
    """A MessagePack array."""


class BatchMessage(Message):
    """What the write script is to do. Its answer has the same places."""

    inserts: list[PlainNewMessage] | None
    notes: list[NoteMessage] | None
    settles: list[PlainEndMessage] | None
    changes: list[ChangeMessage] | None
    asks: list[AskMessage] | None


class PlainNewMessage(Message):
    """A new job that only its body and its limit key tell apart from others."""

    id: str
    queue: str
    priority: int
    delay: Micros
    run_at: Micros | None
    body: Index
    nonce: str | None
    limit_key: str | None


class NewMessage(PlainNewMessage):
    """A new job with anything more."""

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
    """What a note has printed."""

    at: int
    data: Index | None
    keep: int


class NoteMessage(Message):
    """What a running job says of itself."""

    seq: str
    fence: int
    token: str
    progress: Index | None
    checkpoint: CheckpointMessage | None
    pid: int | None
    meta: dict[str, str] | None
    output: OutputMessage | None
    rest: Micros | None
    """For so long no job of its limit key is to start."""


class PlainEndMessage(Message):
    """The end of a claim that plainly succeeded, as most do: unpacking costs by length."""

    seq: str
    fence: int
    token: str
    nonce: str
    id: str
    state: str
    attempt: int
    keep: Micros | None
    result: Index | None


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
    """An operator's change. No patch deletes; a task or a seq: only where the job has it. `only_handled`: it removes
    the record of the job's end, and changes nothing else.
    """

    id: str
    state: str
    fence: int
    patch: dict[str, Any] | None
    task: str | None
    seq: str | None
    only_handled: bool | None


class AskMessage(Message):
    """An ask for jobs."""

    holder: str
    lease: Micros
    about: str
    queues: tuple[str, ...]
    limit: int
    token: str
    tasks: tuple[str, ...] | None
    busy: bool | None


class FindMessage(Message):
    """Which jobs are looked for. What is absent matches everything; `limit_key` names the one that holds the job."""

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
    """What never changes of a job (but for its payload). The script writes the first three, at fixed places."""

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
    """What a mutable has changed of a job: a MessagePack map by letter. What is not in it is as at the start."""

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
    """The bytes of a mutable that a script could not read."""


class WholeMutable(Mutable, frozen=True, gc=False):
    """A mutable with what only scripts read. While a job runs, `due` and `limit_key` stand in front (see settle.lua)."""

    state: str | None = field(default=None, name="s")
    nonce: str | None = field(default=None, name="n")
    """Of the last settlement."""
    checkpoint: int | None = field(default=None, name="k")
    """1 where it has one."""
    printed: int | None = field(default=None, name="w")
    """1 where it has printed."""
    queue: str | None = field(default=None, name="q")
    due: Micros | None = field(default=None, name="v")
    """The run_at of a job that runs: a settlement does not read what never changes."""
    limit_key: str | None = field(default=None, name="L")
    """The name of the limit key of a job that runs."""


class Line(Message):
    """A line of a job's history, as JSON."""

    number: int
    fence: int
    reset_count: int
    worker: str | None
    started_at: Micros | None
    ended_at: Micros
    outcome: str
    error: str | None


# -- the arguments of scripts that take no message


class OneArguments(NamedTuple):
    """Of enqueue_one.lua: a lone plain job."""

    id: str
    queue: str
    priority: int
    body: bytes
    nonce: str | bytes


class RecordArguments(NamedTuple):
    """Of record.lua. `expected` is empty for any version; `put` is 1 to set, 0 to remove."""

    kind: str
    name: str
    expected: str
    put: str
    value: bytes


class TidyArguments(NamedTuple):
    """Of tidy.lua: at most so many of a kind, and for how long minutes and limit keys are kept."""

    limit: int
    minutes: Micros
    limit_keys: Micros


class TransitionsArguments(NamedTuple):
    """Of moves.lua. `since` is empty to begin; moves are kept for `watch` from now."""

    since: str | bytes
    limit: int
    watch: Micros


class OutputArguments(NamedTuple):
    """Of output.lua: from a position on, and after how many bytes to stop."""

    id: str
    position: int
    limit: int


# -- what scripts answer


class JobRow(NamedTuple):
    """Of get, find and expired, for each job."""

    seq: bytes
    state: bytes
    body: bytes
    mutable: bytes | None
    checkpoint: bytes | None


class ClaimHead(NamedTuple):
    """What stands before the jobs of a claim."""

    waiting: int
    """1 where a quarantined job was passed over."""
    due_in: Micros
    """-1: nothing is due."""
    now: bytes


class ClaimedRow(NamedTuple):
    """Of a claim, for each job."""

    seq: bytes
    body: bytes
    mutable: bytes
    checkpoint: bytes | None


class FoundHead(NamedTuple):
    """What stands before the jobs of a page."""

    before: bytes | None
    """Where the next step begins; None where there is no more."""


class MovesHead(NamedTuple):
    """What stands before the moves."""

    missed: int
    """1 where some were missed."""
    cursor: bytes


# -- small arrays that only scripts read: what Redis answers them, and what they keep while they run


class ServerTime(NamedTuple):
    """What TIME answers."""

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
    """The fields of the watch: when it ends, and the number of the last move."""

    ends: str | None
    upto: str | None


class ScoredMember(NamedTuple):
    """The first member of a sorted set with its score, and the member after it."""

    member: str | None
    score: str | None
    following: str | None


class StreamEntry(NamedTuple):
    """An entry of a stream; `fields` has names and values in turn."""

    id: str
    fields: list[str]


class MovedFields(NamedTuple):
    """The fields of an entry of the stream of moves."""

    number: int
    at: Micros
    moved: bytes


class PickedJobs(NamedTuple):
    """Jobs of one queue that a claim has chosen."""

    queue: str
    seqs: list[str]


class KnownSet(NamedTuple):
    """A set that knows the jobs of a state, and how its members begin."""

    key: str
    begins: str


class EndSums(NamedTuple):
    """How many claims ended in the same way; their times, added up."""

    number: int
    waited: Micros
    ran: Micros


class TurnRange(NamedTuple):
    """The first and the last turn of what is ready."""

    first: Micros
    last: Micros
