"""Schedules over HTTP: look, make and change, pause and resume, run at once, delete."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from ..core.cron import MOST_RUNS
from ..core.lifecycle import DELAY_LIMIT
from ..core.retry import Backoff
from ..schedules.schedule import Schedule
from ..schedules.service import made_rule
from ..views import LimitInfo
from . import scoping
from .call import Answer, Call, json, nothing
from .endpoint import Endpoint
from .jobs import made_job, task_options
from .problems import OUTCOME_UNKNOWN, QUEUE_FULL, SCHEDULE_NOT_FOUND, SHELL_REFUSED, TASK_REFUSED
from .shapes import JsonObject, Name, Seconds, Work, chosen

CRON_LIMIT = 200
"""Characters of a cron line."""
CHANGED = (SCHEDULE_NOT_FOUND, OUTCOME_UNKNOWN)
REFUSED = (SHELL_REFUSED, TASK_REFUSED)


class NewSchedule(Work, kw_only=True):
    """A schedule as it shall be: the job that it makes, and when. What is left out is as if it had never been set.

    What an answer says besides may stand here too, and is passed over: an answer can be put back.
    """

    cron: Annotated[str, Meta(min_length=1, max_length=CRON_LIMIT)] | None = None
    """Five fields, or six with seconds in front, or @daily and the like. Either this or `every`."""
    every: Annotated[float, Meta(gt=0, lt=DELAY_LIMIT, description="Seconds.")] | None = None
    tz: Name = "UTC"
    """Where the clock hangs that the cron line is read on, such as Europe/Oslo."""
    catch_up: Annotated[int, Meta(ge=0, le=MOST_RUNS)] = 1
    """Missed runs that are made up for."""
    jitter: Seconds = 0.0
    """Each run is put off by up to so much."""
    overlap: Literal["allow", "skip"] = "allow"
    """`skip`: no run while the job of the last one has not ended."""
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
    """Null: what the settings say when a run is made. The same holds for `retry`."""
    timeout: float | None
    retry: Backoff | None
    tags: tuple[str, ...]
    expires_in: float | None
    cron: str | None
    every: float | None
    tz: str
    words: str
    """When it runs, as one would say it."""
    catch_up: int
    jitter: float
    overlap: str
    paused: bool
    in_code: bool
    """Declared by code; what the code says counts at the next start of a worker."""
    last_run: datetime | None
    """When the last run that was made was due."""
    next_run: datetime | None
    """Null while it is paused, or where it is never due again."""
    last_job: str | None
    """The job of the last run."""
    limits: tuple[LimitInfo, ...]
    """The limits of its jobs, where the task or the queue has one."""
    error: str | None
    """Why the last run could not be made; null once one was."""


class SchedulesOut(msgspec.Struct):
    """Every schedule, by name."""

    schedules: list[ScheduleOut]


class Ran(msgspec.Struct):
    """The job that was enqueued."""

    job_id: str


async def list_schedules(call: Call) -> Answer:
    """Every schedule, with its last and next runs."""
    scope = call.access.scope
    found = [kept for kept in await call.app.schedules.list() if scope is None or scope.covers(kept.queue, kept.task)]
    return json(SchedulesOut([_out(kept) for kept in found]))


async def get_schedule(call: Call, name: str) -> Answer:
    """One schedule."""
    return json(_out(await call.app.schedules.get(name)))


async def put_schedule(call: Call, name: str, body: NewSchedule) -> Answer:
    """Make a schedule, or change the one of this name."""
    app, parts = call.app, call.parts
    await app.open()
    options = task_options(parts, body.type).changed(chosen(body))
    job = made_job(parts, body.type, bytes(body.payload), options)
    call.service.policy.check_job(job)
    scoping.check(call.access.scope, job.queue, job.task, "this schedule's job")
    rule = made_rule(
        body.cron, body.every, tz=body.tz, catch_up=body.catch_up, jitter=body.jitter, overlap=body.overlap
    )
    return json(_out(await app.schedules.keep(app.schedules.of_job(name, job, options, rule))))


async def pause_schedule(call: Call, name: str) -> Answer:
    """Make no more runs until it is resumed."""
    return json(_out(await call.app.schedules.pause(name)))


async def resume_schedule(call: Call, name: str) -> Answer:
    """Make its runs again, from now on."""
    return json(_out(await call.app.schedules.resume(name)))


async def run_schedule(call: Call, name: str) -> Answer:
    """Enqueue it once, beside its usual runs."""
    return json(Ran((await call.app.schedules.run_now(name)).id))


async def delete_schedule(call: Call, name: str) -> Answer:
    """Forget a schedule; jobs that it made stay."""
    await call.app.schedules.delete(name)
    return nothing()


def _out(kept: Schedule) -> ScheduleOut:
    parts = kept.shown()
    return ScheduleOut(type=parts.pop("task"), expires_in=parts.pop("expires"), **parts)


def endpoints() -> list[Endpoint]:
    """Their part of the route table."""
    one, out = "/v1/schedules/{name}", {200: ScheduleOut}
    refusals, its = (*REFUSED, OUTCOME_UNKNOWN), scoping.schedule
    ran = (*CHANGED, QUEUE_FULL, *REFUSED)
    return [
        Endpoint("GET", "/v1/schedules", "read", list_schedules, {200: SchedulesOut}, within=scoping.listed_schedules),
        Endpoint("GET", one, "read", get_schedule, out, problems=(SCHEDULE_NOT_FOUND,), within=its),
        Endpoint("PUT", one, "operate", put_schedule, out, problems=refusals, within=scoping.kept_schedule),
        Endpoint("POST", f"{one}/pause", "operate", pause_schedule, out, problems=CHANGED, within=its),
        Endpoint("POST", f"{one}/resume", "operate", resume_schedule, out, problems=CHANGED, within=its),
        Endpoint("POST", f"{one}/run", "operate", run_schedule, {200: Ran}, problems=ran, within=its),
        Endpoint("DELETE", one, "operate", delete_schedule, {204: None}, problems=CHANGED, within=its),
    ]
