"""An app's services for blocking code. `Service` makes each of them an attribute of the app."""

from __future__ import annotations

from typing import Any

from ..client.audit import Audit
from ..client.bulk import Bulk
from ..client.config import Config
from ..client.control import Workers
from ..client.errors import ErrorGroups
from ..client.timeseries import Timeseries
from ..schedules.service import Schedules
from ..webhooks.service import Webhooks
from .blocking import blocking
from .tasks import SyncHandle


class SyncConfig:
    """Settings kept in the store."""

    set = blocking(Config.set)
    get = blocking(Config.get)
    unset = blocking(Config.unset)
    list = blocking(Config.list)


class SyncBulk:
    """Operations on many jobs."""

    paused_tasks = blocking(Bulk.paused_tasks)
    search = blocking(Bulk.search)
    count = blocking(Bulk.count)
    change = blocking(Bulk.change)
    retry_dead = blocking(Bulk.retry_dead)
    purge = blocking(Bulk.purge)
    move = blocking(Bulk.move)
    recover = blocking(Bulk.recover)


class SyncAudit:
    """The audit log."""

    list = blocking(Audit.list)
    undo = blocking(Audit.undo)


class SyncWorkers:
    """The live workers, and requests to them."""

    __call__ = blocking(Workers.__call__)
    quiet = blocking(Workers.quiet)
    resume = blocking(Workers.resume)
    drain = blocking(Workers.drain)
    stop = blocking(Workers.stop)
    restart = blocking(Workers.restart)
    concurrency = blocking(Workers.concurrency)
    stacks = blocking(Workers.stacks)


class SyncErrors:
    """The last errors of jobs, in groups."""

    groups = blocking(ErrorGroups.groups)
    compare = blocking(ErrorGroups.compare)
    group = blocking(ErrorGroups.group)
    refused = blocking(ErrorGroups.refused)


class SyncTimeseries:
    """What happened over time."""

    transitions = blocking(Timeseries.transitions)
    stats_by_minute = blocking(Timeseries.stats_by_minute)
    rates = blocking(Timeseries.rates)
    latency = blocking(Timeseries.latency)
    compare = blocking(Timeseries.compare)
    ended_workers = blocking(Timeseries.ended_workers)
    record_workers = blocking(Timeseries.record_workers)
    depth_by_minute = blocking(Timeseries.depth_by_minute)
    record_depth = blocking(Timeseries.record_depth)


class SyncSchedules:
    """Cron schedules and intervals."""

    list = blocking(Schedules.list)
    get = blocking(Schedules.get)
    put = blocking(Schedules.put)
    pause = blocking(Schedules.pause)
    resume = blocking(Schedules.resume)
    delete = blocking(Schedules.delete)
    run_now = blocking(Schedules.run_now, SyncHandle[Any])


class SyncWebhooks:
    """HTTP notifications of the ends of jobs."""

    add = blocking(Webhooks.add)
    list = blocking(Webhooks.list)
    remove = blocking(Webhooks.remove)
    key = blocking(Webhooks.key)
