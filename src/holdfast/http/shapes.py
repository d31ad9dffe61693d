"""What travels: the bodies, queries and answers of the API. They are decoded by these types and described by them."""

from __future__ import annotations

import functools
from datetime import datetime
from operator import attrgetter
from typing import Annotated, Any, Literal, cast

import msgspec
from msgspec import Meta

from ..core.errors import InvalidJob
from ..core.job import PRIORITY_MAX, PRIORITY_MIN, State
from ..core.lifecycle import DELAY_LIMIT
from ..core.settings import MANUAL_LEASE
from ..core.validation import KEY_LIMIT, NAME_LIMIT, TAGS_LIMIT, WEEK
from ..core.waiting import Waiting
from ..tasks.options import JOB_OPTIONS, JobOptions
from ..views import AttemptInfo, Job, LimitInfo, Progress, StepInfo, WorkerInfo
from . import limits

MAX_ATTEMPTS = 25
"""Attempts that a client of the API may ask for."""
REMOVED = "removed"
"""The status of a job that has ended and is gone, but for its key."""

Name = Annotated[str, Meta(min_length=1, max_length=NAME_LIMIT, description="Printable characters.")]
Key = Annotated[str, Meta(min_length=1, max_length=KEY_LIMIT, description="Printable characters.")]
Seconds = Annotated[float, Meta(ge=0, lt=DELAY_LIMIT, description="Seconds.")]
Fence = Annotated[int, Meta(ge=0, lt=2**53)]
Token = Annotated[str, Meta(min_length=1, max_length=16_384, description="As the claim gave it.")]
Limit = Annotated[int, Meta(ge=1, le=limits.PAGE_MOST)]
Cursor = Annotated[str, Meta(max_length=200, description="As the last page gave it.")]
Status = Annotated[str, Meta(extra_json_schema={"enum": [*(state.value for state in State), REMOVED]})]
Span = Annotated[float, Meta(gt=0, lt=DELAY_LIMIT, description="Seconds.")]
Unique = Literal["until_start", "until_end"] | Span
JsonObject = Annotated[msgspec.Raw, Meta(extra_json_schema={"type": "object"})]


class Body(msgspec.Struct, forbid_unknown_fields=True):
    """Something that a client sends; a field that there is not is refused, since it may be a typing error."""


class Work(Body, kw_only=True):
    """What every job that is submitted, and every schedule, says of its jobs."""

    type: Name
    payload: JsonObject
    """The arguments of the task, by name."""
    max_attempts: Annotated[int, Meta(ge=1, le=MAX_ATTEMPTS)] | None = None
    queue: Name | None = None
    priority: Annotated[int, Meta(ge=PRIORITY_MIN, le=PRIORITY_MAX)] | None = None
    timeout: Span | None = None
    tags: Annotated[list[Name], Meta(max_length=TAGS_LIMIT)] | None = None
    expires_in: Span | None = None
    """Too late to start, so many seconds after it was stored."""


class Wanted(Work, kw_only=True):
    """What every job that is submitted says of itself."""

    run_at: Annotated[datetime, Meta(tz=True)] | None = None
    delay: Seconds | None = None
    unique: Unique | None = None
    """One job for its key: while it is queued, while it is live (queued or running), or for so many seconds."""
    expires_at: Annotated[datetime, Meta(tz=True)] | None = None
    """Too late to start, at a time."""


class NewJob(Wanted, kw_only=True):
    """A job to be submitted; or, where the job of its key still waits, what that one is to do instead."""

    replace: bool = False
    debounce: Span | None = None
    """Replace it, and start so many seconds after the last request."""
    debounce_max: Span | None = None
    """But at most so many after the first."""


class NewJobInBatch(Wanted, kw_only=True):
    """A job of a batch; its key stands here, since there is only one header."""

    key: Key


class Batch(Body):
    """Jobs to be submitted together. Each is taken or refused on its own."""

    jobs: Annotated[list[msgspec.Raw], Meta(min_length=1, max_length=limits.BATCH_JOBS)]


class JobOut(msgspec.Struct):
    """A job as it was when it was read. A new one's times are by the server's clock, later ones by the store's."""

    id: str
    type: str
    status: Status
    """`removed`: only its key is left, and the rest is as in the request."""
    attempts: int
    max_attempts: int
    payload: Any
    """The arguments by name; raw bytes show as {"$bytes": base64}."""
    run_at: datetime
    created_at: datetime
    updated_at: datetime
    """When it last came to another state or was changed: by an operator, or by its own progress, checkpoint or meta."""
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
    """Attempts of this life that failed or were lost."""
    last_error: str | None
    """The error of the last attempt that had one, whatever came of the job since."""
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
    """What it waits for besides its time."""
    expires_at: datetime | None
    """Too late to start, from then on."""
    limits: tuple[LimitInfo, ...]
    """The limits that apply to it."""
    flow: str | None
    """The flow that it belongs to."""
    steps: tuple[StepInfo, ...]
    """What it has done so far, where it does it in steps."""
    damage: dict[str, str]
    """The fields whose stored value cannot be decoded, each with that value as text. Such a job does not run."""


SPELLED = {"type": "task", "status": "state", "attempts": "attempt"}
"""Fields of `JobOut` that have another name in Python."""
_parts = attrgetter(*(SPELLED.get(name, name) for name in JobOut.__struct_fields__))


def job_out(job: Job) -> JobOut:
    """A job in the words of the API."""
    return JobOut(*_parts(job))


OPTIONS = {"run_at": "at", "expires_in": "expires", "expires_at": "expires"}
"""Fields of a body whose option has another name in Python."""


def chosen(body: Work) -> JobOptions:
    """The options that a body gives, as `using` takes them."""
    if getattr(body, "expires_in", None) is not None and getattr(body, "expires_at", None) is not None:
        raise InvalidJob("give either expires_in or expires_at, not both")
    given = {option: value for name, option in _options(type(body)) if (value := getattr(body, name)) is not None}
    if given.get("replace") is False:  # the default: not that its job must not be replaced
        del given["replace"]
    return cast("JobOptions", given)


@functools.cache
def _options(kind: type[Work]) -> list[tuple[str, str]]:
    named = [(name, OPTIONS.get(name, name)) for name in kind.__struct_fields__]
    return [(name, option) for name, option in named if option in JOB_OPTIONS]


class JobsQuery(Body):
    """Which jobs to list; every given part must match."""

    state: list[str] | None = None
    """A state or an everyday word for one, such as `pending`; may be given again."""
    queue: Name | None = None
    type: Name | None = None
    tag: Name | None = None
    limit: Limit = limits.PAGE_DEFAULT
    cursor: Cursor | None = None


class DeadQuery(Body):
    """Which dead letters to list."""

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
    """What became of one job of a batch: `status` as a request of its own would have had it."""

    status: int
    id: str | None = None
    """The job that stands for it now."""
    problem: Any = None
    """A problem document, where it was refused."""


class BatchOut(msgspec.Struct):
    """What became of the jobs of a batch, in their order."""

    jobs: list[BatchAnswer]


class Cancelled(msgspec.Struct):
    """What a cancellation did."""

    cancelled: bool
    """False: the job had ended already. A running job is asked to stop, and may still succeed."""
    job: JobOut


class RetryDead(Body):
    """Which dead letters to run again: all of them, or those of one queue."""

    queue: Name | None = None
    dry_run: bool = False
    """Say how many there are, and retry none."""


class Retried(msgspec.Struct):
    """How many jobs run again."""

    matched: int
    """Jobs that were dead."""
    retried: int
    """0 in a dry run."""
    skipped: int
    """Jobs that were left as they are; `reasons` says how many and why, as the answer of `POST /v1/bulk` does."""
    reasons: dict[str, int]


class OutputQuery(Body):
    """Where to begin to read, in bytes of all that the job has printed."""

    position: Annotated[int, Meta(ge=0, lt=2**53)] = 0


class QueueOut(msgspec.Struct):
    """One queue in numbers."""

    name: str
    counts: dict[str, int]
    """Jobs by state."""
    oldest: datetime | None
    """When its oldest queued job was due."""
    paused: bool
    listeners: int
    """Live workers that serve it."""


class QueuesOut(msgspec.Struct):
    """Every queue that has jobs, is paused or has live workers, by name."""

    queues: list[QueueOut]


class StoreWarning(msgspec.Struct):
    """Something about the store that may lose jobs."""

    what: str
    advice: str


class StatsOut(msgspec.Struct):
    """A store in numbers."""

    counts: dict[str, int]
    """Jobs by state, over all queues, zeros included."""
    workers: int
    """Live worker processes."""
    queues: list[QueueOut]
    warnings: list[StoreWarning]
    """What may lose jobs as the store is now."""


class Paused(msgspec.Struct):
    """Whether a queue is paused now."""

    name: str
    paused: bool
    known: bool = True
    """False where no job, live worker or schedule has this queue: it is paused all the same."""


class Which(Body):
    """Which jobs of a task: those that have all these arguments; all of them where there are none."""

    where: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])


class TaskPaused(msgspec.Struct):
    """Whether a task, or its jobs with these arguments, is paused now."""

    task: str
    where: dict[str, Any]
    paused: bool
    known: bool = True
    """False where no job, live worker or schedule has this task: it is paused all the same."""


class PausedTask(msgspec.Struct):
    """A task that is paused, or its jobs with these arguments."""

    task: str
    where: dict[str, Any]
    since: datetime


class PausedTasksOut(msgspec.Struct):
    """Every pause of a task that holds."""

    paused: list[PausedTask]


class WorkersOut(msgspec.Struct):
    """The live workers, and claims by hand, by node and pid."""

    workers: list[WorkerInfo]


class Setting(msgspec.Struct):
    """A setting that is kept in the store."""

    key: str
    value: Any


class SettingsOut(msgspec.Struct):
    """Every setting that is kept in the store."""

    settings: dict[str, Any]


class NewValue(Body):
    """A setting's new value."""

    value: str | int | float | None


class NewClaim(Body):
    """A wish for jobs."""

    queues: Annotated[list[Name], Meta(min_length=1, max_length=20)] = msgspec.field(
        default_factory=lambda: ["default"]
    )
    types: Annotated[list[Name], Meta(min_length=1, max_length=1000)] | None = None
    limit: Annotated[int, Meta(ge=1, le=limits.CLAIMS_MOST)] = 1
    lease: Annotated[float, Meta(ge=1, le=WEEK, description="Seconds.")] = MANUAL_LEASE
    wait: Annotated[float, Meta(ge=0, le=limits.CLAIM_WAIT_MOST, description="Seconds.")] = 0.0
    """How long to wait for jobs where there are none."""


class ClaimOut(msgspec.Struct):
    """A job that is yours until its lease ends. Fence and token prove it."""

    job: JobOut
    fence: int
    token: str
    lease: float
    """Seconds from now, unless it is extended."""


class ClaimsOut(msgspec.Struct):
    """The claimed jobs; none where there were none in time."""

    claims: list[ClaimOut]


class Extend(Body):
    """The claim to extend; those that were made in the same call are extended with it."""

    fence: Fence
    token: Token


class Complete(Body):
    """The claim whose work is done."""

    fence: Fence
    token: Token
    result: Any = None


class Fail(Body):
    """The claim whose work failed."""

    fence: Fence
    token: Token
    error: Annotated[str, Meta(min_length=1)]
    retry_in: Seconds | None = None
    """Instead of the usual back-off."""
    dead: bool = False
    """Another attempt would be pointless."""


class Release(Body):
    """The claim that is given back, uncharged."""

    fence: Fence
    token: Token
    delay: Seconds | None = None


class Extended(msgspec.Struct):
    """The lease holds again."""

    lease: float
    """Seconds from now."""
    cancel_requested: bool
    """Somebody asked for the job's end: stop, and release it."""


class Health(msgspec.Struct):
    """The server is alive."""

    status: str
    service: str


class Moved(msgspec.Struct):
    """A job came to another state, or was `deleted`."""

    id: str
    status: str
    at: datetime
