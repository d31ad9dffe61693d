"""All declarations of the records and changes that a worker may write over HTTP, in one list."""

from __future__ import annotations

from .client import audit_log, claims, config, control, pauses, signals, store_id, timeseries, worker_log
from .flows import worker_writes as flows
from .schedules import schedule
from .webhooks import service as webhooks

WORKER_WRITES = (
    audit_log.WRITES,
    claims.WRITES,
    config.WRITES,
    control.WRITES,
    pauses.WRITES,
    signals.WRITES,
    store_id.WRITES,
    timeseries.WRITES,
    worker_log.WRITES,
    flows.WRITES,
    schedule.WRITES,
    webhooks.WRITES,
)
