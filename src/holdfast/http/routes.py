"""The route table: paths, methods, required roles and possible answers."""

from __future__ import annotations

from . import (
    audit,
    claims,
    control,
    events,
    flows,
    inspection,
    jobs,
    limits,
    metrics,
    overview,
    schedules,
    scoping,
    signals,
    token_routes,
    webhooks,
)
from .endpoint import EVENTS, Endpoint
from .problems import (
    BUSY,
    INVALID_STATE,
    JOB_NOT_FOUND,
    KEY_CONFLICT,
    LEASE_LOST,
    NOT_PAUSED,
    NOT_SET,
    OUTCOME_UNKNOWN,
    QUEUE_FULL,
    SHELL_REFUSED,
    TASK_REFUSED,
)
from .shapes import (
    BatchOut,
    Cancelled,
    ClaimsOut,
    Extended,
    Health,
    JobOut,
    JobsOut,
    LogsOut,
    Paused,
    PausedTasksOut,
    QueuesOut,
    Retried,
    Setting,
    SettingsOut,
    StatsOut,
    TaskPaused,
    WorkersOut,
)

READ, SUBMIT, WORK, OPERATE = "read", "submit", "work", "operate"
TEXT = "text/plain"
KEY = {"Idempotency-Key": "1 to 512 characters; a repeated key returns the same job."}
LAST = {"Last-Event-ID": "The last event id of an earlier stream, to resume it; without it, from now."}
RESUME = {"Last-Event-ID": "The id of the last chunk that was received, to continue after it; replaces `position`."}
WRITES = (OUTCOME_UNKNOWN,)
ONE = (JOB_NOT_FOUND,)
STREAMED = (JOB_NOT_FOUND, BUSY)
CHANGED = (JOB_NOT_FOUND, INVALID_STATE, OUTCOME_UNKNOWN)
RUN_AGAIN = (*CHANGED, SHELL_REFUSED, TASK_REFUSED)
HELD = (JOB_NOT_FOUND, LEASE_LOST, OUTCOME_UNKNOWN)


def endpoints() -> list[Endpoint]:
    """The table, most frequent first. Literal paths precede those with a parameter at the same position."""
    refusals = (KEY_CONFLICT, QUEUE_FULL, SHELL_REFUSED, TASK_REFUSED, OUTCOME_UNKNOWN)
    return [
        Endpoint(
            "POST",
            "/v1/jobs",
            SUBMIT,
            jobs.submit,
            {201: JobOut, 200: JobOut},
            refusals,
            scoping.made_jobs,
            headers=KEY,
        ),
        Endpoint("POST", "/v1/claims", WORK, claims.claim, {200: ClaimsOut}, (BUSY, OUTCOME_UNKNOWN), scoping.claim),
        Endpoint("POST", "/v1/claims/{job}/complete", WORK, claims.complete, {204: None}, HELD, scoping.one_job),
        Endpoint("POST", "/v1/claims/{job}/extend", WORK, claims.extend, {200: Extended}, HELD, scoping.one_job),
        Endpoint("POST", "/v1/claims/{job}/fail", WORK, claims.fail, {204: None}, HELD, scoping.one_job),
        Endpoint("POST", "/v1/claims/{job}/release", WORK, claims.release, {204: None}, HELD, scoping.one_job),
        Endpoint("GET", "/v1/jobs", READ, jobs.list_jobs, {200: JobsOut}, within=scoping.filtered),
        Endpoint(
            "POST",
            "/v1/jobs/batch",
            SUBMIT,
            jobs.submit_batch,
            {200: BatchOut},
            WRITES,
            scoping.made_jobs,
            max_body=limits.BATCH,
        ),
        Endpoint("POST", "/v1/jobs/{id}/cancel", OPERATE, jobs.cancel, {200: Cancelled}, CHANGED, scoping.changed_job),
        Endpoint("POST", "/v1/jobs/{id}/retry", OPERATE, jobs.retry, {200: JobOut}, RUN_AGAIN, scoping.changed_job),
        Endpoint("GET", "/v1/jobs/{id}/logs", READ, jobs.logs, {200: LogsOut}, ONE, scoping.one_job),
        Endpoint(
            "GET", "/v1/jobs/{id}/stream", READ, jobs.stream, {200: EVENTS}, STREAMED, scoping.one_job, headers=RESUME
        ),
        Endpoint("GET", "/v1/jobs/{id}/output", READ, jobs.output, {200: TEXT}, ONE, scoping.one_job),
        *overview.endpoints(),
        Endpoint("GET", "/v1/jobs/{id}", READ, jobs.get, {200: JobOut}, ONE, scoping.one_job),
        Endpoint("PATCH", "/v1/jobs/{id}", OPERATE, jobs.edit, {200: JobOut}, RUN_AGAIN, scoping.changed_job),
        Endpoint(
            "POST",
            "/v1/jobs/{id}/clone",
            OPERATE,
            jobs.clone,
            {201: JobOut},
            (JOB_NOT_FOUND, INVALID_STATE, *refusals),
            scoping.one_job,
        ),
        Endpoint("DELETE", "/v1/jobs/{id}", OPERATE, jobs.delete, {204: None}, CHANGED, scoping.changed_job),
        Endpoint("GET", "/v1/dlq", READ, jobs.list_dead, {200: JobsOut}, within=scoping.filtered),
        Endpoint("POST", "/v1/dlq/retry", OPERATE, jobs.retry_all_dead, {200: Retried}, WRITES),
        Endpoint("POST", "/v1/dlq/{id}/retry", OPERATE, jobs.retry_dead, {200: JobOut}, RUN_AGAIN, scoping.changed_job),
        Endpoint("GET", "/v1/stats", READ, inspection.stats, {200: StatsOut}, within=scoping.whole_queues),
        Endpoint("GET", "/v1/queues", READ, inspection.queues, {200: QueuesOut}, within=scoping.whole_queues),
        Endpoint(
            "POST", "/v1/queues/{name}/pause", OPERATE, inspection.pause, {200: Paused}, WRITES, scoping.whole_queues
        ),
        Endpoint(
            "POST", "/v1/queues/{name}/resume", OPERATE, inspection.resume, {200: Paused}, WRITES, scoping.whole_queues
        ),
        Endpoint("GET", "/v1/tasks/paused", READ, inspection.paused_tasks, {200: PausedTasksOut}),
        Endpoint(
            "POST",
            "/v1/tasks/{name}/pause",
            OPERATE,
            inspection.pause_task,
            {200: TaskPaused},
            WRITES,
            scoping.whole_task,
        ),
        Endpoint(
            "POST",
            "/v1/tasks/{name}/resume",
            OPERATE,
            inspection.resume_task,
            {200: TaskPaused},
            (NOT_PAUSED, OUTCOME_UNKNOWN),
            scoping.whole_task,
        ),
        Endpoint("GET", "/v1/workers", READ, inspection.workers, {200: WorkersOut}),
        *control.endpoints(),
        *schedules.endpoints(),
        *signals.endpoints(),
        *flows.endpoints(),
        *audit.endpoints(),
        *webhooks.endpoints(),
        *token_routes.endpoints(),
        Endpoint("GET", "/v1/config", READ, inspection.list_settings, {200: SettingsOut}),
        Endpoint("GET", "/v1/config/{key}", READ, inspection.get_setting, {200: Setting}, (NOT_SET,)),
        Endpoint("PUT", "/v1/config/{key}", OPERATE, inspection.put_setting, {200: Setting}, WRITES),
        Endpoint("DELETE", "/v1/config/{key}", OPERATE, inspection.delete_setting, {204: None}, WRITES),
        Endpoint("GET", "/v1/events", READ, events.events, {200: EVENTS}, (BUSY,), headers=LAST),
        Endpoint("GET", "/metrics", READ, metrics.metrics, {200: TEXT}, any_query=True),
        Endpoint("GET", "/health", None, inspection.health, {200: Health}),
        Endpoint("GET", "/ready", None, inspection.ready, {200: Health}),
        Endpoint("GET", "/openapi.json", None, inspection.openapi, {200: dict}),
    ]
