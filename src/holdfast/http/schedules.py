"""Routes to list, create, change, pause, resume, run and delete schedules."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from ..core.cron import MAX_RUNS
from ..core.lifecycle import DELAY_LIMIT
from ..core.retry import Backoff
from ..schedules.schedule import Schedule
from ..schedules.service import RuleOptions, made_rule
from ..views import LimitInfo
from . import scoping
from .call import Answer, Call, json, nothing
from .endpoint import Endpoint
from .jobs import made_job, task_options
from .problems import OUTCOME_UNKNOWN, QUEUE_FULL, SCHEDULE_NOT_FOUND, SHELL_REFUSED, TASK_REFUSED
from .shapes import JsonObject, Moment, Name, Seconds, Work, chosen

CRON_LIMIT = 200
"""Maximum characters of a cron expression."""
CHANGED = (SCHEDULE_NOT_FOUND, OUTCOME_UNKNOWN)
REFUSED = (SHELL_REFUSED, TASK_REFUSED)


class NewSchedule(Work, kw_only=True):
    """A schedule to create or replace: its jobs and its rule. Omitted fields get their defaults.

    Read-only fields of `ScheduleOut` are accepted and ignored, so that an answer can be sent back.
    """

    EITHER: ClassVar[tuple[tuple[str, str], ...]] = (("cron", "every"),)
    EXAMPLE: ClassVar[dict[str, Any] | None] = {
        "type": "report",
        "payload": {},
        "cron": "0 3 * * *",
        "tz": "Europe/Oslo",
    }
    cron: Annotated[str, Meta(min_length=1, max_length=CRON_LIMIT)] | None = None
    """Five fields, or six with leading seconds, or @daily etc. Either this or `every`."""
    every: Annotated[float, Meta(gt=0, lt=DELAY_LIMIT, description="Seconds.")] | None = None
    tz: Name = "UTC"
    """Time zone of the cron expression, such as Europe/Oslo."""
    catch_up: Annotated[int, Meta(ge=0, le=MAX_RUNS)] = 1
    """Maximum number of missed runs to enqueue late."""
    jitter: Seconds = 0.0
    """Each run is delayed by up to this many seconds."""
    overlap: Literal["allow", "skip"] = "allow"
    """`skip`: no run while the job of the previous one has not ended."""
    start: Moment | None = None
    """No run is due before this time: a time with its zone, or seconds since 1970."""
    end: Moment | None = None
    """No run is due after this time."""
    retry: Backoff | None = None
    name: Any = None
    words: Any = None
    paused: Any = None
    in_code: Any = None
    last_run: Any = None
    next_run: Any = None
    last_job: Any = None
    limits: Any = None
    error: Any = None


class ScheduleOut(msgspec.Struct, kw_only=True):
    """A schedule."""

    name: str
    type: str
    payload: JsonObject
    queue: str
    priority: int
    max_attempts: int | None
    """Null: from the settings at each run. `retry` likewise."""
    timeout: float | None
    retry: Backoff | None
    tags: tuple[str, ...]
    expires_in: float | None
    deadline_in: float | None
    stall_timeout: float | None
    cron: str | None
    every: float | None
    tz: str
    words: str
    """Its rule in English."""
    catch_up: int
    jitter: float
    overlap: Literal["allow", "skip"]
    start: datetime | None
    """No run is due before this time."""
    end: datetime | None
    """No run is due after this time."""
    paused: bool
    in_code: bool
    """Declared in code; a worker that starts with the code overwrites changes."""
    last_run: datetime | None
    """The due time of the last run that was enqueued."""
    next_run: datetime | None
    """Null while paused, or if no run is due any more."""
    last_job: str | None
    """The job of the last run."""
    limits: tuple[LimitInfo, ...]
    """The limits of its jobs."""
    error: str | None
    """Why the last run could not be enqueued; null after a run was enqueued."""


class SchedulesOut(msgspec.Struct):
    """All schedules, sorted by name."""

    schedules: list[ScheduleOut]


class Ran(msgspec.Struct):
    """The job that was enqueued."""

    job_id: str


async def list_schedules(call: Call) -> Answer:
    """All schedules, with their last and next runs."""
    scope = call.access.scope
    found = [kept for kept in await call.app.schedules.list() if scope is None or scope.covers(kept.queue, kept.task)]
    return json(SchedulesOut([_out(kept) for kept in found]))


async def get_schedule(call: Call, name: str) -> Answer:
    """One schedule."""
    return json(_out(await call.app.schedules.get(name)))


async def put_schedule(call: Call, name: str, body: NewSchedule) -> Answer:
    """Create or change a schedule."""
    app, parts = call.app, call.parts
    await app.open()
    options = task_options(parts, body.type).changed(chosen(body))
    job = made_job(parts, body.type, bytes(body.payload), options)
    call.service.policy.check_job(job)
    scoping.check(call.access.scope, job.queue, job.task, "this schedule's job")
    rule = {option: getattr(body, option) for option in RuleOptions.__annotations__}
    return json(_out(await app.schedules.keep(app.schedules.of_job(name, job, options, made_rule(body.cron, **rule)))))


async def pause_schedule(call: Call, name: str) -> Answer:
    """Pause a schedule: no runs until it is resumed."""
    return json(_out(await call.app.schedules.pause(name)))


async def resume_schedule(call: Call, name: str) -> Answer:
    """Resume a schedule; runs missed during the pause are not enqueued."""
    return json(_out(await call.app.schedules.resume(name)))


async def run_schedule(call: Call, name: str) -> Answer:
    """Enqueue one extra run now."""
    return json(Ran((await call.app.schedules.run_now(name)).id))


async def delete_schedule(call: Call, name: str) -> Answer:
    """Delete a schedule; its jobs are kept."""
    await call.app.schedules.delete(name)
    return nothing()


def _out(kept: Schedule) -> ScheduleOut:
    parts = kept.shown()
    spans = {"expires_in": parts.pop("expires"), "deadline_in": parts.pop("deadline")}
    return ScheduleOut(type=parts.pop("task"), **spans, **parts)


def endpoints() -> list[Endpoint]:
    one, out = "/v1/schedules/{name}", {200: ScheduleOut}
    refusals, its = (*REFUSED, OUTCOME_UNKNOWN), scoping.schedule
    ran = (*CHANGED, QUEUE_FULL, *REFUSED)
    return [
        Endpoint("GET", "/v1/schedules", "read", list_schedules, {200: SchedulesOut}, within=scoping.listed),
        Endpoint("GET", one, "read", get_schedule, out, (SCHEDULE_NOT_FOUND,), its),
        Endpoint("PUT", one, "operate", put_schedule, out, refusals, scoping.kept_schedule),
        Endpoint("POST", f"{one}/pause", "operate", pause_schedule, out, CHANGED, its),
        Endpoint("POST", f"{one}/resume", "operate", resume_schedule, out, CHANGED, its),
        Endpoint("POST", f"{one}/run", "operate", run_schedule, {200: Ran}, ran, its),
        Endpoint("DELETE", one, "operate", delete_schedule, {204: None}, CHANGED, its),
    ]
