"""Schedules over HTTP: look, make and change, pause and resume, run at once, delete."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from ..checks import TAGS_LIMIT
from ..job import PRIORITY_MAX, PRIORITY_MIN
from ..lifecycle import DELAY_LIMIT
from ..schedule import MOST_RUNS
from ..schedules import Schedule, made_rule
from .call import Answer, Call, json, nothing
from .endpoint import Endpoint
from .jobs import task_options
from .problems import OUTCOME_UNKNOWN, QUEUE_FULL, SCHEDULE_NOT_FOUND, SHELL_REFUSED
from .shapes import MAX_ATTEMPTS, Body, JsonObject, Name, Seconds
from .shell import check_shell

CRON_LIMIT = 200
CHANGED = (SCHEDULE_NOT_FOUND, OUTCOME_UNKNOWN)


class NewSchedule(Body, kw_only=True):
    """A schedule as it shall be: the job that it makes, and when. What is left out is as if it had never been set."""

    type: Name
    payload: JsonObject
    """The arguments of the task, by name."""
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
    queue: Name | None = None
    priority: Annotated[int, Meta(ge=PRIORITY_MIN, le=PRIORITY_MAX)] | None = None
    max_attempts: Annotated[int, Meta(ge=1, le=MAX_ATTEMPTS)] | None = None
    timeout: Annotated[float, Meta(gt=0, lt=DELAY_LIMIT)] | None = None
    tags: Annotated[list[Name], Meta(max_length=TAGS_LIMIT)] | None = None


class ScheduleOut(msgspec.Struct):
    """A schedule."""

    name: str
    type: str
    queue: str
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


class SchedulesOut(msgspec.Struct):
    """Every schedule, by name."""

    schedules: list[ScheduleOut]


class Ran(msgspec.Struct):
    """The job that was enqueued."""

    job_id: str


async def list_schedules(call: Call) -> Answer:
    """Every schedule, with its last and next runs."""
    return json(SchedulesOut([_out(kept) for kept in await call.app.schedules.list()]))


async def get_schedule(call: Call, name: str) -> Answer:
    """One schedule."""
    return json(_out(await call.app.schedules.get(name)))


async def put_schedule(call: Call, name: str, body: NewSchedule) -> Answer:
    """Make a schedule, or change the one of this name."""
    app = call.app
    await app.open()
    options = task_options(app, body.type).changed(
        queue=body.queue,
        priority=body.priority,
        max_attempts=body.max_attempts,
        timeout=body.timeout,
        tags=body.tags,
    )
    job = app.submission(app.session.fresh_settings(), body.type, bytes(body.payload), options, json=True)
    check_shell([job], call.service.allow_shell)
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
    rule = kept.rule
    return ScheduleOut(
        kept.name,
        kept.task,
        kept.queue,
        rule.cron,
        rule.every,
        rule.tz,
        kept.words,
        rule.catch_up,
        rule.jitter,
        rule.overlap,
        kept.paused,
        kept.in_code,
        kept.last_run,
        kept.next_run,
        kept.last_job,
    )


def endpoints() -> list[Endpoint]:
    """Their part of the route table."""
    one, out = "/v1/schedules/{name}", {200: ScheduleOut}
    return [
        Endpoint("GET", "/v1/schedules", "read", list_schedules, {200: SchedulesOut}),
        Endpoint("GET", one, "read", get_schedule, out, problems=(SCHEDULE_NOT_FOUND,)),
        Endpoint("PUT", one, "operate", put_schedule, out, problems=(SHELL_REFUSED, OUTCOME_UNKNOWN)),
        Endpoint("POST", f"{one}/pause", "operate", pause_schedule, out, problems=CHANGED),
        Endpoint("POST", f"{one}/resume", "operate", resume_schedule, out, problems=CHANGED),
        Endpoint("POST", f"{one}/run", "operate", run_schedule, {200: Ran}, problems=(*CHANGED, QUEUE_FULL)),
        Endpoint("DELETE", one, "operate", delete_schedule, {204: None}, problems=CHANGED),
    ]
