"""Read-only snapshots of jobs and workers for users, with aware times and decoded values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from copy import deepcopy
from datetime import datetime
from typing import Any
from urllib.parse import unquote

import msgspec

from .codec import shown
from .core import step_log as steps
from .core.clock import moment
from .core.damage import STATES, damage_of
from .core.errors import InvalidJob
from .core.internal import deadline, expires_at, flow_of
from .core.internal import read as read_internal
from .core.job import UNDECODABLE, Attempt, LimitKey, Record, State
from .core.lifecycle import UNCHARGED, failures, history, number_of, updated_at
from .core.operations import Holder, HolderInfo, QueueStats
from .core.waiting import Waiting


class AttemptInfo(msgspec.Struct, frozen=True):
    """One attempt that has ended."""

    number: int
    fence: int
    reset_count: int
    worker: str | None
    started_at: datetime | None
    ended_at: datetime
    outcome: str
    error: str | None


class Progress(msgspec.Struct, frozen=True):
    """The progress that a job has reported."""

    done: float
    total: float | None = None
    note: str | None = None

    @property
    def share(self) -> float | None:
        """The finished part, from 0 to 1; None without a total."""
        return max(0.0, min(1.0, self.done / self.total)) if self.total else None


class StepInfo(msgspec.Struct, frozen=True):
    """A step of a job: finished, or in which it is suspended."""

    kind: str
    """`step`, `sleep` or `signal`."""
    name: str
    """A sleep is named by its number."""
    at: datetime | None
    """When it was finished; None for a sleep."""
    until: datetime | None
    """The end of the sleep, or of the timeout."""
    late: bool
    """The signal did not arrive before the timeout."""
    result: Any


class LimitInfo(msgspec.Struct, frozen=True):
    """A limit of a job: which one, and the key whose jobs share it."""

    name: str
    """The task that has the limit; `#queue` for a queue's, `@name` for a named one."""
    key: str | None
    """None where all jobs of the limit share it. A very long key is cut and ends in a digest."""


def limits_of(limit_key: LimitKey | None) -> tuple[LimitInfo, ...]:
    """The limits of a stored limit key."""
    if limit_key is None:
        return ()
    name, separator, key = limit_key.name.partition("/")
    return (LimitInfo(unquote(name), key if separator else None),)


def limits_text(limits: Iterable[LimitInfo]) -> str | None:
    """Limits on one line; None where there are none."""
    return ", ".join(limit.name if limit.key is None else f"{limit.name}: {limit.key}" for limit in limits) or None


class Job(msgspec.Struct, frozen=True):
    """A job as it was when it was read."""

    id: str
    queue: str
    task: str
    state: State
    priority: int
    payload: Any
    """The arguments by name; raw bytes show as {"$bytes": base64}."""
    attempt: int
    max_attempts: int
    timeout: float | None
    run_at: datetime
    created_at: datetime
    updated_at: datetime
    """When its state last changed or it was last written: by an operator, or by its progress, checkpoint or meta."""
    started_at: datetime | None
    finished_at: datetime | None
    worker: str | None
    node: str | None
    pid: int | None
    fence: int
    reset_count: int
    result: Any
    error: str | None
    traceback: str | None
    progress: Progress | None
    checkpoint: Any
    key: str | None
    tags: tuple[str, ...]
    meta: dict[str, Any]
    cancel_requested: bool
    quarantined: bool
    history: tuple[AttemptInfo, ...]
    waiting_for: Waiting | None = None
    """What it waits for, besides its due time."""
    expires_at: datetime | None = None
    """It expires if it has not started by then."""
    limits: tuple[LimitInfo, ...] = ()
    """The limits that apply to it."""
    flow: str | None = None
    """The flow that it belongs to."""
    steps: tuple[StepInfo, ...] = ()
    """Its steps so far, if it has any."""
    damage: dict[str, str] = {}
    """The fields whose stored value cannot be decoded, each with that value as text. Such a job does not run."""
    failures: int = 0
    """Attempts since the last reset that failed or were lost."""
    last_error: str | None = None
    """The error of the last attempt that had one, whatever happened since."""
    deadline_at: datetime | None = None
    """It is dead if it has not ended by then."""
    stall_timeout: float | None = None
    """Seconds without progress, output or checkpoint after which a run fails."""

    @property
    def estimated_end(self) -> datetime | None:
        """When it ends if the rest takes as long, in proportion, as the progress so far; None if that is unknown."""
        share = None if self.progress is None else self.progress.share
        if self.state != State.RUNNING or self.started_at is None or not share or self.updated_at <= self.started_at:
            return None
        try:
            return self.started_at + (self.updated_at - self.started_at) / share
        except OverflowError:
            return None


_UNCHANGED = (
    "id", "queue", "task", "priority", "attempt", "max_attempts", "timeout", "fence", "reset_count", "error",
    "traceback", "key", "tags", "quarantined", "waiting_for",
)  # fmt: skip
"""The fields of a Job that a Record has in the same form."""


def job_view(record: Record) -> Job:
    node, pid = split_holder(record.holder)
    memory = steps.read(record.checkpoint)
    attempts = tuple(_attempt(line) for line in history(record))
    return Job(
        **{name: getattr(record, name) for name in _UNCHANGED},
        state=known_state(record.state),
        payload=shown(record.payload, record.codec),
        run_at=moment(record.run_at),
        created_at=moment(record.created_at),
        updated_at=moment(updated_at(record)),
        started_at=_maybe(record.started_at),
        finished_at=_maybe(record.finished_at),
        worker=record.holder,
        node=node,
        pid=record.pid if record.pid is not None else pid,
        result=None if record.result is None else shown(record.result, _result_codec(record)),
        progress=progress_of(record.progress),
        checkpoint=None if memory.value is msgspec.UNSET else shown(bytes(memory.value), "json"),
        meta=deepcopy(record.meta) if record.meta else {},  # the caller's own: a store may share it between jobs
        cancel_requested=record.cancel,
        history=attempts,
        expires_at=_maybe(expires_at(record)),
        limits=limits_of(record.limit_key),
        flow=flow_of(record),
        steps=tuple(_step(step) for step in memory.steps),
        damage=damage_of(record),
        failures=failures(record),
        last_error=record.error or next((line.error for line in reversed(attempts) if line.error), None),
        deadline_at=_maybe(deadline(record)),
        stall_timeout=read_internal(record.extra).stall_timeout,
    )


def known_state(state: str) -> State:
    """A stored state; an invalid one is shown as blocked."""
    return State(state) if state in STATES else State.BLOCKED


class WorkerInfo(msgspec.Struct, frozen=True):
    """A live worker process, or a manual claim."""

    id: str
    kind: str
    node: str
    pid: int
    queues: tuple[str, ...]
    tasks: tuple[str, ...]
    slots: int
    version: str
    started_at: datetime
    last_heartbeat: float
    """Seconds since its last heartbeat."""
    lease: float
    jobs: tuple[str, ...]
    release: str = ""
    """The version of the application: the setting `release` of the worker."""
    cpu: float = 0.0
    """Cores that its process used between its last two heartbeats. `memory`: bytes; 0: unknown."""
    memory: int = 0
    state: str = "active"
    """active, quiet (claims no more jobs), draining (and stops when idle) or stopping."""


def worker_info(seen: HolderInfo) -> WorkerInfo:
    holder = seen.holder
    same = (
        "id",
        "kind",
        "node",
        "pid",
        "queues",
        "tasks",
        "slots",
        "version",
        "lease",
        "release",
        "cpu",
        "memory",
        "state",
    )
    times: dict[str, Any] = {"started_at": moment(holder.started_at), "last_heartbeat": seen.age}
    return WorkerInfo(**{name: getattr(holder, name) for name in same}, **times, jobs=seen.jobs)


def with_listeners(queues: Sequence[QueueStats], workers: Sequence[Holder]) -> list[QueueStats]:
    """The queues with the number of their workers, by name; and queues that have only workers."""
    listeners = Counter(queue for worker in workers for queue in dict.fromkeys(worker.queues))
    known = {queue.name: msgspec.structs.replace(queue, listeners=listeners[queue.name]) for queue in queues}
    known |= {name: QueueStats(name, {}, listeners=count) for name, count in listeners.items() if name not in known}
    return [known[name] for name in sorted(known)]


STATE_WORDS = {
    "pending": State.QUEUED,
    "processing": State.RUNNING,
    "in_progress": State.RUNNING,
    "reserved": State.RUNNING,
    "started": State.RUNNING,
    "completed": State.SUCCEEDED,
    "complete": State.SUCCEEDED,
    "success": State.SUCCEEDED,
}
"""Aliases of states, accepted as input."""


def states_named(given: str | Sequence[str] | None) -> tuple[str, ...]:
    """States from their names or aliases; InvalidJob for any other."""
    one = isinstance(given, str) or not isinstance(given, Iterable)
    words: tuple[Any, ...] = () if given is None else (given,) if one else tuple(given)
    found: list[str] = []
    for word in words:
        lower = word.lower() if isinstance(word, str) else ""
        if lower in STATE_WORDS:
            found.append(STATE_WORDS[lower])
        elif lower in State._value2member_map_:
            found.append(State(lower))
        else:
            raise InvalidJob(f"unknown state {word!r}; known states: {', '.join([*State, *STATE_WORDS])}")
    return tuple(found)


def split_holder(holder: str | None) -> tuple[str | None, int | None]:
    """Node and pid out of a holder's id."""
    if holder is None or holder.count(":") < 2:
        return None, None
    node, pid, _ = holder.rsplit(":", 2)
    return node, int(pid) if pid.isascii() and pid.isdigit() and len(pid) < 20 else None


def _maybe(micros: int | None) -> datetime | None:
    return None if micros is None else moment(micros)


def _attempt(line: Attempt) -> AttemptInfo:
    back = line.outcome in UNCHARGED
    return AttemptInfo(
        number_of(line),
        line.fence,
        line.reset_count,
        line.worker,
        _maybe(line.started_at),
        moment(line.ended_at),
        line.outcome,
        None if back and line.outcome != "refused" else line.error,  # it keeps that of an earlier attempt
    )


def _step(step: steps.Step) -> StepInfo:
    return StepInfo(
        step.kind, step.name, _maybe(step.at), _maybe(step.until), step.late, shown(bytes(step.result), "json")
    )


def progress_of(raw: bytes | None) -> Progress | None:
    """Stored progress; None if there is none, or it cannot be decoded."""
    if raw is None:
        return None
    try:
        return msgspec.json.decode(raw, type=Progress)
    except UNDECODABLE:
        return None


def _result_codec(record: Record) -> str:
    return "json" if record.codec == "bytes" else record.codec
