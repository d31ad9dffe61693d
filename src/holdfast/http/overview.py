"""Routes of the dashboard: search, count and bulk changes, error groups, time series, and the caller's access."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from ..client.bulk import CHANGE_LIMIT, Count
from ..client.bulk_change import Changed
from ..client.error_groups import Errors
from ..client.explain import Explanation
from ..client.failures import ErrorHistory, Failures
from ..client.latency import Comparison, Latency
from ..client.reasons import Reasons
from ..client.search import TEXT_LIMIT, Filter, Scope
from ..client.timeseries import Depth, Rate
from ..core.job import State
from ..core.validation import KEY_LIMIT, checked_text
from ..store.protocol import MINUTE_STATS_KEPT
from ..version import __version__
from ..views import Job, Progress, moment
from . import limits, scoping
from .call import Answer, Call, encode, json
from .problems import JOB_NOT_FOUND, NOT_FOUND, OUTCOME_UNKNOWN, UNAUTHORIZED, Refused
from .shapes import Body, Cursor, Limit, Name, PerSecond, StateWord, fields_of_job
from .tokens import ROLES

if TYPE_CHECKING:
    from .endpoint import Endpoint

ROW_TEXT = 200
"""Maximum characters of payload and error in a row of a list."""
ROW_TAGS = 10
"""Maximum tags in a row of a list."""

Text = Annotated[str, Meta(max_length=TEXT_LIMIT)]
Fingerprint = Annotated[str, Meta(max_length=64, description="As GET /v1/errors gives it.")]
Moment = Annotated[datetime, Meta(tz=True)]
Span = Annotated[int, Meta(ge=60, le=int(MINUTE_STATS_KEPT), description="Seconds until now.")]
Step = Annotated[int, Meta(ge=60, le=86400, multiple_of=60, description="Seconds.")]
JobId = Annotated[str, Meta(min_length=1, max_length=KEY_LIMIT)]


class JobFilter(Body, kw_only=True):
    """A filter of jobs; all given parts must match."""

    state: list[StateWord] | None = None
    """A state, or its alias such as `pending`; repeatable."""
    queue: Name | None = None
    type: Name | None = None
    tag: Name | None = None
    text: Text | None = None
    """Contained in id, key, type, error or payload."""
    error: Fingerprint | None = None
    """The group of its last error."""
    since: Moment | None = None
    """Enqueued at this time or later."""
    until: Moment | None = None
    """Enqueued at this time or earlier."""

    def filter(self, scope: Scope | None) -> Filter:
        """The filter for the app, restricted to a token's scope."""
        given = {name: getattr(self, name) for name in JobFilter.__struct_fields__ if name != "type"}
        return Filter(task=self.type, scope=scope, **given)


class CountQuery(JobFilter, kw_only=True):
    """Which jobs to count."""

    cursor: Cursor | None = None
    """As returned by the last step."""


class SearchQuery(JobFilter, kw_only=True):
    """Which jobs to find."""

    limit: Limit = limits.PAGE_DEFAULT
    cursor: Cursor | None = None


class JobRow(msgspec.Struct):
    """A job in a list, with few fields and long texts shortened."""

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


_cells = fields_of_job(JobRow)


class SearchOut(msgspec.Struct):
    """Matching jobs, newest first, and how many jobs were read to find them."""

    jobs: list[JobRow]
    cursor: str | None
    """Where to continue; null: there are no more."""
    looked: int
    """Number of jobs read."""
    back_to: datetime | None
    """When the last of them was enqueued."""
    exact: int
    """How many of the jobs, the first ones, the text names: by id, key or worker."""


class Bulk(Body, kw_only=True):
    """A bulk operation on jobs with these ids, or on all that match a filter."""

    EITHER: ClassVar[tuple[tuple[str, str], ...]] = (("ids", "filter"),)
    EXAMPLE: ClassVar[dict[str, Any] | None] = {"action": "retry", "filter": {"state": ["dead"], "queue": "mail"}}
    action: Literal["cancel", "retry", "move", "delete"]
    to: Name | None = None
    """With `move`: the type that waiting and dead jobs get."""
    ids: Annotated[list[JobId], Meta(min_length=1, max_length=CHANGE_LIMIT)] | None = None
    filter: JobFilter | None = None
    rate: PerSecond | None = None
    """With `retry`: the jobs become due at this rate."""
    spaced: Annotated[int, Meta(ge=0, lt=2**53)] = 0
    """With `rate`: how many jobs the earlier steps have retried."""
    all: bool = False
    """All jobs. An empty filter, or one with only `until`, is refused without it."""
    cursor: Cursor | None = None
    """As returned by the last step."""
    dry_run: bool = False
    """Only count matching jobs; change nothing."""


class ErrorsQuery(Body):
    """Errors of all jobs, or only of dead ones."""

    dead: bool = False
    cursor: Cursor | None = None
    """With `dead`: as returned by the last step."""


class RatesQuery(Body):
    """Period, step, and whether to group by queue."""

    since: Span = 3600
    step: Step = 60
    queues: bool = False


class RatesOut(msgspec.Struct):
    """Number of ended claims by step, queue and outcome."""

    rates: list[Rate]


class LatencyQuery(Body):
    """Period and step."""

    since: Span = 3600
    step: Step = 60


class ErrorQuery(Body):
    """Period and step of the chart."""

    since: Span = 86400
    step: Step = 3600


class IncidentQuery(Body):
    """The span, up to 24 hours, extended to whole minutes."""

    start: Moment
    end: Moment


class IncidentOut(msgspec.Struct):
    """What ended, and what failed, within a span, and as long before and after it."""

    stats: Comparison
    failures: Failures


class DepthsQuery(Body):
    """Period and step."""

    since: Span = 3600
    step: Step = 60


class DepthsOut(msgspec.Struct):
    """Number of queued jobs over time, recorded by servers once a minute; no server, no value."""

    depths: list[Depth]


class Me(msgspec.Struct):
    """The caller's access, and the server."""

    roles: list[str]
    """Roles of the caller's token."""
    queues: list[str]
    """Queues in the token's scope, by name or pattern; empty: all. `tasks` likewise."""
    tasks: list[str]
    expires_at: datetime | None
    """When the token expires."""
    version: str
    store: str
    """The kind of store."""
    now: datetime
    """The server's time."""
    extras: list[str]
    """Additional operations of this server: `kill_worker` in the demo."""


async def search(call: Call, query: SearchQuery) -> Answer:
    """Search the next 10,000 jobs, newest first; matches in short form."""
    found = await call.app.bulk.search(query.filter(call.access.scope), limit=query.limit, cursor=query.cursor)
    return json(SearchOut([_row(job) for job in found.jobs], found.cursor, found.looked, found.back_to, found.exact))


async def count(call: Call, query: CountQuery) -> Answer:
    """Count matching jobs; `exact` is false if not all jobs were read: the cursor continues, with `until`."""
    return json(await call.app.bulk.count(query.filter(call.access.scope), cursor=query.cursor))


async def bulk(call: Call, body: Bulk) -> Answer:
    """Cancel, retry, move or delete many jobs in steps: repeat with the returned cursor until it is null."""
    scope = call.access.scope
    wanted = None if body.filter is None else body.filter.filter(scope)
    if wanted is None and body.all and not body.ids:
        wanted = Filter(scope=scope)
    return json(
        await call.app.bulk.change(
            body.action,
            wanted,
            ids=body.ids or (),
            all=body.all,
            to=body.to,
            rate=body.rate,
            spaced=body.spaced,
            cursor=body.cursor,
            dry_run=body.dry_run,
        )
    )


async def errors(call: Call, query: ErrorsQuery) -> Answer:
    """Jobs grouped by their last errors, with numbers and quoted parts masked."""
    return json(await call.app.errors.groups(dead=query.dead, cursor=query.cursor))


async def rates(call: Call, query: RatesQuery) -> Answer:
    """Number of ended claims over time, with wait and run times."""
    return json(RatesOut(await call.app.timeseries.rates(query.since, query.step, by_queue=query.queues)))


async def latency(call: Call, query: LatencyQuery) -> Answer:
    """Outcomes, and percentiles of waiting and run times, by step, queue and task."""
    return json(await call.app.timeseries.latency(query.since, query.step))


async def incident(call: Call, query: IncidentQuery) -> Answer:
    """Queues, tasks, error groups, workers and versions within a span, and as long before and after it."""
    app, start, end = call.app, query.start, query.end
    failures, stats = await asyncio.gather(app.errors.compare(start, end), app.timeseries.compare(start, end))
    return json(IncidentOut(stats, failures))


async def error_group(call: Call, fingerprint: str, query: ErrorQuery) -> Answer:
    """One error group over time: attempts by step, queue, worker and version."""
    found = await call.app.errors.group(checked_text(fingerprint, "fingerprint"), query.since, query.step)
    if found is None:
        raise Refused(
            NOT_FOUND, f"no failed attempt is in the error group {fingerprint!r:.80}; its jobs may have been removed"
        )
    return json(found)


async def depths(call: Call, query: DepthsQuery) -> Answer:
    """Number of queued jobs over time."""
    return json(DepthsOut(await call.app.timeseries.depth_by_minute(query.since, query.step)))


async def explain(call: Call, id: str) -> Answer:
    """Explain why a job is not running."""
    return json(await call.app.explain(checked_text(id, "id")))


async def explain_store(call: Call) -> Answer:
    """Explain why jobs wait, over all queues: parts with counts and actions."""
    return json(await call.app.explain())


async def explain_queue(call: Call, name: str) -> Answer:
    """Explain why the jobs of a queue wait."""
    return json(await call.app.explain(queue=name))


async def me(call: Call) -> Answer:
    """The caller's roles and scope, and the server's version. Any valid token is accepted."""
    await call.admit()
    access, scope = call.access, call.access.scope or Scope()
    extras = [one.handler.__name__ for one in call.service.extra]
    store, now = call.parts.url.partition(":")[0], moment(call.parts.runtime.clock.now())
    ends = None if access.expires_at is None else moment(access.expires_at)
    roles = [role for role in ROLES if role in access.roles]
    return json(Me(roles, list(scope.queues), list(scope.tasks), ends, __version__, store, now, extras))


def _row(job: Job) -> JobRow:
    row = JobRow(*_cells(job))
    row.payload = encode(job.payload)[: ROW_TEXT * 4].decode(errors="ignore")[:ROW_TEXT]
    row.error = None if job.error is None else job.error[:ROW_TEXT]
    row.tags = job.tags[:ROW_TAGS]
    return row


def endpoints() -> list[Endpoint]:
    from .endpoint import Endpoint

    return [
        Endpoint("GET", "/v1/search", "read", search, {200: SearchOut}, within=scoping.filtered),
        Endpoint("GET", "/v1/count", "read", count, {200: Count}, within=scoping.filtered),
        Endpoint("POST", "/v1/bulk", "operate", bulk, {200: Changed}, (OUTCOME_UNKNOWN,), scoping.bulk),
        Endpoint("GET", "/v1/errors", "read", errors, {200: Errors}),
        Endpoint("GET", "/v1/errors/{fingerprint}", "read", error_group, {200: ErrorHistory}, (NOT_FOUND,)),
        Endpoint("GET", "/v1/incident", "read", incident, {200: IncidentOut}),
        Endpoint("GET", "/v1/latency", "read", latency, {200: Latency}),
        Endpoint("GET", "/v1/rates", "read", rates, {200: RatesOut}),
        Endpoint("GET", "/v1/depths", "read", depths, {200: DepthsOut}),
        Endpoint(
            "GET", "/v1/jobs/{id}/explain", "read", explain, {200: Explanation}, (JOB_NOT_FOUND,), scoping.one_job
        ),
        Endpoint("GET", "/v1/explain", "read", explain_store, {200: Reasons}),
        Endpoint(
            "GET", "/v1/queues/{name}/explain", "read", explain_queue, {200: Reasons}, within=scoping.whole_queues
        ),
        Endpoint("GET", "/v1/me", None, me, {200: Me}, (UNAUTHORIZED,)),
    ]
