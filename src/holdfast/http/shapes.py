"""Types of the bodies, queries and answers of the API, used for decoding and for the OpenAPI document."""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import datetime
from operator import attrgetter
from typing import Annotated, Any, ClassVar, Literal, cast

import msgspec
from msgspec import Meta

from ..client.worker_log import EndedWorker
from ..core.errors import InvalidJob
from ..core.job import PRIORITY_MAX, PRIORITY_MIN, State
from ..core.lifecycle import DELAY_LIMIT
from ..core.log_lines import LogLine
from ..core.settings import MANUAL_LEASE, STORED_NAMES
from ..core.validation import EPOCH_LIMIT, KEY_LIMIT, MAX_RATE, NAME_LIMIT, TAGS_LIMIT, WEEK
from ..core.waiting import Waiting
from ..tasks.options import JOB_OPTIONS, JobOptions
from ..views import STATE_WORDS, AttemptInfo, Job, LimitInfo, Progress, StepInfo, WorkerInfo
from . import limits

MAX_ATTEMPTS = 25
"""Maximum of `max_attempts` over the API."""
REMOVED = "removed"
"""The status of a job that was removed after its end, while its key is still remembered."""

Name = Annotated[str, Meta(min_length=1, max_length=NAME_LIMIT, description="Printable characters.")]
Key = Annotated[str, Meta(min_length=1, max_length=KEY_LIMIT, description="Printable characters.")]
Seconds = Annotated[float, Meta(ge=0, lt=DELAY_LIMIT, description="Seconds.")]
Priority = Annotated[int, Meta(ge=PRIORITY_MIN, le=PRIORITY_MAX)]
PerSecond = Annotated[float, Meta(gt=0, le=MAX_RATE, description="Jobs per second.")]
Fence = Annotated[int, Meta(ge=0, lt=2**53)]
Token = Annotated[str, Meta(min_length=1, max_length=16_384, description="As returned by the claim.")]
Limit = Annotated[int, Meta(ge=1, le=limits.MAX_PAGE)]
Cursor = Annotated[str, Meta(max_length=200, description="As returned with the last page.")]
Status = Annotated[str, Meta(extra_json_schema={"enum": [*(state.value for state in State), REMOVED]})]
StateWord = Annotated[str, Meta(extra_json_schema={"enum": sorted({*(state.value for state in State), *STATE_WORDS})})]
Moment = Annotated[datetime, Meta(tz=True)] | Annotated[float, Meta(ge=0, lt=EPOCH_LIMIT, description="Since 1970.")]
"""A time with its zone, or seconds since 1970."""
Span = Annotated[float, Meta(gt=0, lt=DELAY_LIMIT, description="Seconds.")]
Unique = Literal["until_start", "until_end"] | Span
SettingName = Annotated[str, Meta(extra_json_schema={"enum": STORED_NAMES})]
JsonObject = Annotated[msgspec.Raw, Meta(extra_json_schema={"type": "object", "additionalProperties": True})]


class Body(msgspec.Struct, forbid_unknown_fields=True):
    """A body or query of a request; unknown fields are refused."""

    EITHER: ClassVar[tuple[tuple[str, str], ...]] = ()
    """Pairs of fields of which at most one may be given."""
    EXAMPLE: ClassVar[dict[str, Any] | None] = None
    """A valid request, for the OpenAPI document."""


class Work(Body, kw_only=True):
    """Fields of submitted jobs and of schedules."""

    type: Name
    payload: JsonObject
    """The arguments of the task, by name."""
    max_attempts: Annotated[int, Meta(ge=1, le=MAX_ATTEMPTS)] | None = None
    queue: Name | None = None
    priority: Priority | None = None
    timeout: Span | None = None
    tags: Annotated[list[Name], Meta(max_length=TAGS_LIMIT)] | None = None
    expires_in: Span | None = None
    """Latest start, in seconds after it was stored."""
    deadline_in: Span | None = None
    """Latest end over all attempts, in seconds after it was stored; then it is dead."""
    stall_timeout: Span | None = None
    """Maximum seconds of a run without progress, output or checkpoint."""


class Wanted(Work, kw_only=True):
    """Fields of submitted jobs."""

    EITHER: ClassVar[tuple[tuple[str, str], ...]] = (("run_at", "delay"), ("expires_in", "expires_at"))
    run_at: Moment | None = None
    """Earliest start: a time with its zone, or seconds since 1970."""
    delay: Seconds | None = None
    unique: Unique | None = None
    """One job per key: until it starts, until it ends, or for this many seconds."""
    expires_at: Annotated[datetime, Meta(tz=True)] | None = None
    """Latest start, as a time."""
    deadline_at: Annotated[datetime, Meta(tz=True)] | None = None
    """Latest end over all attempts, as a time."""
    on_success: Name | None = None
    """A task whose job is stored when this one has succeeded. Its argument is the id of this job."""
    on_dead: Name | None = None
    """The same when this one is dead."""


class NewJob(Wanted, kw_only=True):
    """A job to be submitted, or the replacement of the waiting job of its key."""

    EXAMPLE: ClassVar[dict[str, Any] | None] = {
        "type": "send_invoice",
        "payload": {"order_id": 42},
        "queue": "mail",
        "delay": 30,
        "max_attempts": 5,
    }
    replace: bool = False
    debounce: Span | None = None
    """Replace the waiting job, and start this many seconds after the last request."""
    debounce_max: Span | None = None
    """Maximum seconds since the first debounced request."""


class NewJobInBatch(Wanted, kw_only=True):
    """A job of a batch, with its key, because the request has only one Idempotency-Key header."""

    key: Key


class EditJob(Body, kw_only=True):
    """What a waiting job gets; omitted fields stay."""

    payload: JsonObject = msgspec.field(default_factory=msgspec.Raw)
    """All arguments of the task, by name."""
    queue: Name | None = None
    priority: Priority | None = None
    run_at: Moment | None = None
    """Earliest start: a time with its zone, or seconds since 1970."""
    delay: Seconds | None = None


class CloneJob(EditJob, kw_only=True):
    """What the new job gets instead of the values of the original; omitted fields are copied."""

    max_attempts: Annotated[int, Meta(ge=1, le=MAX_ATTEMPTS)] | None = None
    timeout: Span | None = None
    tags: Annotated[list[Name], Meta(max_length=TAGS_LIMIT)] | None = None
    key: Key | None = None
    """Its idempotency key, so that a repeated request makes no second job."""


class Batch(Body):
    """Jobs to be submitted together. Each is stored or refused individually."""

    EXAMPLE: ClassVar[dict[str, Any] | None] = {
        "jobs": [
            {"type": "send_invoice", "payload": {"order_id": 42}, "key": "invoice-42"},
            {"type": "send_invoice", "payload": {"order_id": 43}, "key": "invoice-43"},
        ]
    }
    jobs: Annotated[list[msgspec.Raw], Meta(min_length=1, max_length=limits.BATCH_JOBS)]


class JobOut(msgspec.Struct):
    """A job. Times of a new job are from the server's clock, later ones from the store's."""

    id: str
    type: str
    status: Status
    """`removed`: only its key is left; the other fields are from the request."""
    attempts: int
    max_attempts: int
    payload: Any
    """The arguments by name; raw bytes as {"$bytes": base64}."""
    run_at: datetime
    created_at: datetime
    updated_at: datetime
    """Time of the last transition, operator's change, or write of progress, checkpoint or meta."""
    queue: str
    priority: int
    timeout: float | None
    started_at: datetime | None
    finished_at: datetime | None
    worker: str | None
    node: str | None
    pid: int | None
    fence: int
    reset_count: int
    result: Any
    error: str | None
    failures: int
    """Attempts since the last reset that failed or were lost."""
    last_error: str | None
    """The error of the last attempt that had one, also if the job succeeded since."""
    traceback: str | None
    progress: Progress | None
    checkpoint: Any
    key: str | None
    tags: tuple[str, ...]
    meta: dict[str, Any]
    cancel_requested: bool
    quarantined: bool
    history: tuple[AttemptInfo, ...]
    waiting_for: Waiting | None
    """What it waits for besides `run_at`."""
    expires_at: datetime | None
    """Latest start."""
    limits: tuple[LimitInfo, ...]
    """The limits that apply to it."""
    flow: str | None
    """The flow that it belongs to."""
    steps: tuple[StepInfo, ...]
    """Its durable steps so far."""
    damage: dict[str, str]
    """Fields whose stored value cannot be decoded, with that value as text. Such a job does not run."""
    deadline_at: datetime | None
    """Latest end; then it is dead."""
    stall_timeout: float | None


SPELLED = {"type": "task", "status": "state", "attempts": "attempt"}
"""Fields of `JobOut` with another name in Python."""


def fields_of_job(kind: type[msgspec.Struct]) -> Callable[[Job], tuple[Any, ...]]:
    """Reads the fields of an answer from a job."""
    return attrgetter(*(SPELLED.get(name, name) for name in kind.__struct_fields__))


_parts = fields_of_job(JobOut)


def job_out(job: Job) -> JobOut:
    """A job as the API returns it."""
    return JobOut(*_parts(job))


OPTIONS = {
    "run_at": "at",
    **dict.fromkeys(("expires_in", "expires_at"), "expires"),
    **dict.fromkeys(("deadline_in", "deadline_at"), "deadline"),
}
"""Fields of a body with another option name in Python."""


def chosen(body: Work | EditJob) -> JobOptions:
    """The options of a body, as `using` takes them."""
    for name in ("expires", "deadline"):
        if getattr(body, f"{name}_in", None) is not None and getattr(body, f"{name}_at", None) is not None:
            raise InvalidJob(f"nothing was stored: give either {name}_in or {name}_at, not both")
    options, values = _options(type(body))
    given = {option: value for option, value in zip(options, values(body), strict=True) if value is not None}
    if given.get("replace") is False:  # the default; it must not override the task's option
        del given["replace"]
    return cast("JobOptions", given)


@functools.cache
def _options(kind: type[Body]) -> tuple[list[str], Callable[[Body], tuple[Any, ...]]]:
    """The options that a body can have, and a function that reads their values."""
    named = {name: OPTIONS.get(name, name) for name in kind.__struct_fields__}
    names = [name for name, option in named.items() if option in JOB_OPTIONS]
    return [named[name] for name in names], attrgetter(*names)


class JobsQuery(Body):
    """A filter of jobs to list; all given parts must match."""

    state: list[StateWord] | None = None
    """A state, or its alias such as `pending`; repeatable."""
    queue: Name | None = None
    type: Name | None = None
    tag: Name | None = None
    limit: Limit = limits.PAGE_DEFAULT
    cursor: Cursor | None = None


class DeadQuery(Body):
    """A filter of dead jobs to list."""

    queue: Name | None = None
    type: Name | None = None
    tag: Name | None = None
    limit: Limit = limits.PAGE_DEFAULT
    cursor: Cursor | None = None


class JobsOut(msgspec.Struct):
    """A page of jobs, newest first; `cursor` is null on the last."""

    jobs: list[JobOut]
    cursor: str | None


class BatchAnswer(msgspec.Struct, omit_defaults=True):
    """The result of one job of a batch; `status` is the HTTP status that a single request would get."""

    status: int
    id: str | None = None
    """The stored or existing job."""
    problem: Any = None
    """A problem document, if it was refused."""


class BatchOut(msgspec.Struct):
    """The results of the jobs of a batch, in their order."""

    jobs: list[BatchAnswer]


class Cancelled(msgspec.Struct):
    """The result of a cancellation."""

    cancelled: bool
    """False: the job had already ended. A running job is asked to stop, and may still succeed."""
    job: JobOut


class RetryDead(Body):
    """The dead jobs to retry: all of them, or those of one queue."""

    queue: Name | None = None
    rate: PerSecond | None = None
    """The jobs become due at this rate."""
    dry_run: bool = False
    """Only count them; retry none."""


class Retried(msgspec.Struct):
    """Numbers of retried jobs."""

    matched: int
    """Dead jobs found."""
    retried: int
    """0 in a dry run."""
    skipped: int
    """Jobs not changed; `reasons` has the number of each reason, as in the answer of `POST /v1/bulk`."""
    reasons: dict[str, int]


class OutputQuery(Body):
    """Where to start, in bytes of the job's whole output or stream."""

    position: Annotated[int, Meta(ge=0, lt=2**53)] = 0


class StreamQuery(OutputQuery):
    """Where to start in the job's stream."""

    follow: bool = True
    """False: only stored chunks, without an end."""


class LogsOut(msgspec.Struct):
    """Lines that a job printed and logged."""

    lines: list[LogLine]
    """About 1 MiB at a time; none: there are no more yet."""
    position: int
    """Where to continue."""


class StreamEnd(msgspec.Struct):
    """The last event of a job's stream: `end`."""

    status: Status


class QueueOut(msgspec.Struct):
    """Statistics of one queue."""

    name: str
    counts: dict[str, int]
    """Jobs by state."""
    oldest: datetime | None
    """When its oldest queued job was due."""
    paused: bool
    listeners: int
    """Live workers that serve it."""


class QueuesOut(msgspec.Struct):
    """All queues that have jobs, are paused or have live workers, sorted by name."""

    queues: list[QueueOut]


class StoreWarning(msgspec.Struct):
    """A property of the store that may lose jobs."""

    what: str
    advice: str


class RefusedOut(msgspec.Struct):
    """Waiting jobs that workers refused, because they do not know the type or its arguments."""

    queue: str
    type: str
    count: int
    exact: bool
    """False: there are at least this many."""
    error: str
    """Why the newest of them was refused."""


class StatsOut(msgspec.Struct):
    """Statistics of a store."""

    counts: dict[str, int]
    """Jobs by state in all queues, including zeros."""
    workers: int
    """Live worker processes."""
    queues: list[QueueOut]
    warnings: list[StoreWarning]
    """Current durability warnings of the store."""
    refused: list[RefusedOut]
    """Refused jobs by queue and type."""


class Paused(msgspec.Struct):
    """Whether a queue is paused now."""

    name: str
    paused: bool
    known: bool = True
    """False if no job, live worker or schedule uses this queue; it is paused anyway."""


class TaskJobs(Body):
    """The jobs of a task with all these arguments; without arguments, all jobs of the task."""

    EXAMPLE: ClassVar[dict[str, Any] | None] = {"where": {"customer_id": 42}}
    where: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])


class TaskPaused(msgspec.Struct):
    """Whether a task, or its jobs with these arguments, is paused now."""

    task: str
    where: dict[str, Any]
    paused: bool
    known: bool = True
    """False if no job, live worker or schedule has this task; it is paused anyway."""


class PausedTask(msgspec.Struct):
    """A task that is paused, or its jobs with these arguments."""

    task: str
    where: dict[str, Any]
    since: datetime


class PausedTasksOut(msgspec.Struct):
    """All current pauses of tasks."""

    paused: list[PausedTask]


class WorkersOut(msgspec.Struct):
    """The live workers and manual claims, sorted by node and pid; and the workers that ended within the last hour."""

    workers: list[WorkerInfo]
    ended: list[EndedWorker]
    """The last ones first, as far as a running server has noticed them."""


class Setting(msgspec.Struct):
    """A setting stored in the store."""

    key: SettingName
    value: Any


class SettingsOut(msgspec.Struct):
    """All settings stored in the store."""

    settings: dict[str, Any]


class NewValue(Body):
    """A setting's new value."""

    EXAMPLE: ClassVar[dict[str, Any] | None] = {"value": 5}
    value: str | int | float | None


class NewClaim(Body):
    """A request to claim jobs."""

    EXAMPLE: ClassVar[dict[str, Any] | None] = {"queues": ["mail"], "limit": 10, "lease": 60, "wait": 20}
    queues: Annotated[list[Name], Meta(min_length=1, max_length=20)] = msgspec.field(
        default_factory=lambda: ["default"]
    )
    types: Annotated[list[Name], Meta(min_length=1, max_length=1000)] | None = None
    limit: Annotated[int, Meta(ge=1, le=limits.MAX_CLAIMS)] = 1
    lease: Annotated[float, Meta(ge=1, le=WEEK, description="Seconds.")] = MANUAL_LEASE
    wait: Annotated[float, Meta(ge=0, le=limits.MAX_CLAIM_WAIT, description="Seconds.")] = 0.0
    """How long to wait if there are no jobs."""


class ClaimOut(msgspec.Struct):
    """A job claimed until its lease expires. Fence and token prove the claim."""

    job: JobOut
    fence: int
    token: str
    lease: float
    """Seconds from now, unless it is extended."""


class ClaimsOut(msgspec.Struct):
    """The claimed jobs; empty if none became available in time."""

    claims: list[ClaimOut]


class Extend(Body):
    """The claim to extend; all claims made in the same call are extended with it."""

    fence: Fence
    token: Token


class Complete(Body):
    """The claim to end as succeeded."""

    EXAMPLE: ClassVar[dict[str, Any] | None] = {"fence": 7, "token": "as returned by the claim", "result": {"sent": 1}}
    fence: Fence
    token: Token
    result: Any = None


class Fail(Body):
    """The claim to end as failed."""

    EXAMPLE: ClassVar[dict[str, Any] | None] = {
        "fence": 7,
        "token": "as returned by the claim",
        "error": "mail server refused the connection",
        "retry_in": 60,
    }
    fence: Fence
    token: Token
    error: Annotated[str, Meta(min_length=1)]
    retry_in: Seconds | None = None
    """Delay of the retry, instead of the job's backoff."""
    dead: bool = False
    """Do not retry: the job is dead."""


class Release(Body):
    """The claim to release without using an attempt."""

    fence: Fence
    token: Token
    delay: Seconds | None = None


class Extended(msgspec.Struct):
    """The renewed lease."""

    lease: float
    """Seconds from now."""
    cancel_requested: bool
    """Cancellation was requested: stop, and release the job."""


class Health(msgspec.Struct):
    """The result of a health check."""

    status: str
    service: str


class TransitionOut(msgspec.Struct):
    """A transition of a job to another state, or to `deleted`."""

    id: str
    status: str
    at: datetime
