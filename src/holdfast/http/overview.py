"""All of it at once: search, count and change many, errors in groups, what charts show, and who asks."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from msgspec import Meta

from ..client.bulk import CHANGE_LIMIT, Count
from ..client.bulk_change import Changed
from ..client.error_groups import Errors
from ..client.explain import Explanation
from ..client.search import TEXT_LIMIT, Filter, Scope
from ..client.timeseries import Depth, Rate
from ..core.job import State
from ..core.validation import KEY_LIMIT, checked_text
from ..store.protocol import MINUTE_STATS_KEPT
from ..version import __version__
from ..views import Job, Progress, moment
from . import limits, scoping
from .call import Answer, Call, encode, json
from .problems import JOB_NOT_FOUND, OUTCOME_UNKNOWN, UNAUTHORIZED
from .shapes import Body, Cursor, Limit, Name
from .tokens import ROLES

if TYPE_CHECKING:
    from .endpoint import Endpoint

ROW_TEXT = 200
"""Characters of what may be long, in a row of a list."""
ROW_TAGS = 10
"""Tags of a job that a row of a list shows."""

Text = Annotated[str, Meta(max_length=TEXT_LIMIT)]
Fingerprint = Annotated[str, Meta(max_length=64, description="As GET /v1/errors gives it.")]
Moment = Annotated[datetime, Meta(tz=True)]
Span = Annotated[int, Meta(ge=60, le=int(MINUTE_STATS_KEPT), description="Seconds until now.")]
Step = Annotated[int, Meta(ge=60, le=86400, multiple_of=60, description="Seconds.")]
JobId = Annotated[str, Meta(min_length=1, max_length=KEY_LIMIT)]


class Which(Body, kw_only=True):
    """Which jobs are meant; every given part must match."""

    state: list[str] | None = None
    """A state or an everyday word for one; may be given again."""
    queue: Name | None = None
    type: Name | None = None
    tag: Name | None = None
    text: Text | None = None
    """Somewhere in id, key, type, error or payload."""
    error: Fingerprint | None = None
    """Its last error is of this group."""
    since: Moment | None = None
    """Enqueued then or later."""
    until: Moment | None = None
    """Enqueued then or before."""

    def filter(self, scope: Scope | None) -> Filter:
        """The same in the app's words, for a token of this scope."""
        return Filter(
            state=self.state,
            queue=self.queue,
            task=self.type,
            tag=self.tag,
            text=self.text,
            error=self.error,
            since=self.since,
            until=self.until,
            scope=scope,
        )


class CountQuery(Which, kw_only=True):
    """Which jobs to count."""


class SearchQuery(Which, kw_only=True):
    """Which jobs to find."""

    limit: Limit = limits.PAGE_DEFAULT
    cursor: Cursor | None = None


class JobRow(msgspec.Struct):
    """A job in a list: what is long is cut short, and most is left out."""

    id: str
    type: str
    status: State
    queue: str
    priority: int
    attempts: int
    max_attempts: int
    created_at: datetime
    run_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    worker: str | None
    payload: str
    """The beginning of its JSON."""
    error: str | None
    progress: Progress | None
    tags: tuple[str, ...]
    cancel_requested: bool


class SearchOut(msgspec.Struct):
    """Some jobs, newest first, and how far they were looked for."""

    jobs: list[JobRow]
    cursor: str | None
    """Goes on from here; null: there are no more."""
    looked: int
    """Jobs that were read."""
    back_to: datetime | None
    """When the last of these was enqueued."""


class Bulk(Body, kw_only=True):
    """What to do, and with which jobs: those of some ids, or all that match."""

    action: Literal["cancel", "retry", "delete"]
    ids: Annotated[list[JobId], Meta(min_length=1, max_length=CHANGE_LIMIT)] | None = None
    filter: Which | None = None
    all: bool = False
    """Every job. A filter that names nothing, or nothing but `until`, is refused without it."""
    cursor: Cursor | None = None
    """As the last step gave it."""
    dry_run: bool = False
    """Say what matches, and change nothing."""


class ErrorsQuery(Body):
    """Whose errors: of all jobs, or of the dead alone."""

    dead: bool = False


class RatesQuery(Body):
    """How far back, in which steps, and whether by queue."""

    since: Span = 3600
    step: Step = 60
    queues: bool = False


class RatesOut(msgspec.Struct):
    """How claims ended, by step, queue and outcome."""

    rates: list[Rate]


class DepthsQuery(Body):
    """How far back, and in which steps."""

    since: Span = 3600
    step: Step = 60


class DepthsOut(msgspec.Struct):
    """How many jobs stood queued. A server notes it once a minute; where none ran, there is a gap."""

    depths: list[Depth]


class Me(msgspec.Struct):
    """Who asks, and whom."""

    roles: list[str]
    """What the caller may do."""
    queues: list[str]
    """Those that its token is for, by name or pattern; empty: all. The same holds for `tasks`."""
    tasks: list[str]
    expires_at: datetime | None
    """When its token ends."""
    version: str
    store: str
    """What kind of store it is."""
    now: datetime
    """By the server's clock."""
    extras: list[str]
    """What this server does beyond the API: `kill_worker` in the demo's."""


async def search(call: Call, query: SearchQuery) -> Answer:
    """Jobs that match, newest first, among the next 10,000; in short form."""
    found = await call.app.bulk.search(query.filter(call.access.scope), limit=query.limit, cursor=query.cursor)
    return json(SearchOut([_row(job) for job in found.jobs], found.cursor, found.looked, found.back_to))


async def count(call: Call, query: CountQuery) -> Answer:
    """How many jobs match; `exact` is false where there are more than were looked at."""
    return json(await call.app.bulk.count(query.filter(call.access.scope)))


async def bulk(call: Call, body: Bulk) -> Answer:
    """Cancel, retry or delete many jobs, a step at a time: call again with the cursor until it is null."""
    scope = call.access.scope
    wanted = None if body.filter is None else body.filter.filter(scope)
    if wanted is None and body.all and not body.ids:
        wanted = Filter(scope=scope)
    return json(
        await call.app.bulk.change(
            body.action, wanted, ids=body.ids or (), all=body.all, cursor=body.cursor, dry_run=body.dry_run
        )
    )


async def errors(call: Call, query: ErrorsQuery) -> Answer:
    """Jobs grouped by their last errors, with numbers and quoted parts masked."""
    return json(await call.app.errors.groups(dead=query.dead))


async def rates(call: Call, query: RatesQuery) -> Answer:
    """How claims ended over time, with the time they waited and ran."""
    return json(RatesOut(await call.app.timeseries.rates(query.since, query.step, by_queue=query.queues)))


async def depths(call: Call, query: DepthsQuery) -> Answer:
    """How many jobs stood queued over time."""
    return json(DepthsOut(await call.app.timeseries.depth_by_minute(query.since, query.step)))


async def explain(call: Call, id: str) -> Answer:
    """Why a job is not running, in words."""
    return json(await call.app.explain(checked_text(id, "id")))


async def me(call: Call) -> Answer:
    """What the caller may do, and which server this is. Any token will do."""
    await call.admit()
    access, scope = call.access, call.access.scope or Scope()
    extras = [one.handler.__name__ for one in call.service.extra]
    store, now = call.parts.url.partition(":")[0], moment(call.parts.runtime.clock.now())
    ends = None if access.expires_at is None else moment(access.expires_at)
    roles = [role for role in ROLES if role in access.roles]
    return json(Me(roles, list(scope.queues), list(scope.tasks), ends, __version__, store, now, extras))


def _row(job: Job) -> JobRow:
    return JobRow(
        job.id,
        job.task,
        job.state,
        job.queue,
        job.priority,
        job.attempt,
        job.max_attempts,
        job.created_at,
        job.run_at,
        job.started_at,
        job.finished_at,
        job.worker,
        encode(job.payload)[: ROW_TEXT * 4].decode(errors="ignore")[:ROW_TEXT],
        None if job.error is None else job.error[:ROW_TEXT],
        job.progress,
        job.tags[:ROW_TAGS],
        job.cancel_requested,
    )


def endpoints() -> list[Endpoint]:
    """Their part of the route table."""
    from .endpoint import Endpoint

    return [
        Endpoint("GET", "/v1/search", "read", search, {200: SearchOut}, within=scoping.filtered),
        Endpoint("GET", "/v1/count", "read", count, {200: Count}, within=scoping.filtered),
        Endpoint(
            "POST",
            "/v1/bulk",
            "operate",
            bulk,
            {200: Changed},
            problems=(OUTCOME_UNKNOWN,),
            within=scoping.bulk,
        ),
        Endpoint("GET", "/v1/errors", "read", errors, {200: Errors}),
        Endpoint("GET", "/v1/rates", "read", rates, {200: RatesOut}),
        Endpoint("GET", "/v1/depths", "read", depths, {200: DepthsOut}),
        Endpoint(
            "GET",
            "/v1/jobs/{id}/explain",
            "read",
            explain,
            {200: Explanation},
            problems=(JOB_NOT_FOUND,),
            within=scoping.one_job,
        ),
        Endpoint("GET", "/v1/me", None, me, {200: Me}, problems=(UNAUTHORIZED,)),
    ]
