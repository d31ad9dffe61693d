"""All declarations of the records and changes that a worker may write over HTTP, in one list."""

from __future__ import annotations

from .client import config, pauses, signals, store_id, timeseries
from .flows import worker_writes as flows
from .schedules import schedule
from .webhooks import service as webhooks

WORKER_WRITES = (
    config.WRITES,
    pauses.WRITES,
    signals.WRITES,
    store_id.WRITES,
    timeseries.WRITES,
    flows.WRITES,
    schedule.WRITES,
    webhooks.WRITES,
)
