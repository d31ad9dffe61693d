"""An app's services for blocking code."""

from __future__ import annotations

from typing import Any

from ..client.bulk import Bulk
from ..client.config import Config
from ..client.errors import ErrorGroups
from ..client.timeseries import Timeseries
from ..schedules.service import Schedules
from ..webhooks.service import Webhooks
from .blocking import Run, blocking
from .tasks import SyncHandle


class SyncConfig:
    """Settings kept in the store."""

    def __init__(self, run: Run, of: Config) -> None:
        self._run, self._of = run, of

    set = blocking(Config.set)
    get = blocking(Config.get)
    unset = blocking(Config.unset)
    list = blocking(Config.list)


class SyncBulk:
    """Many jobs at once."""

    def __init__(self, run: Run, of: Bulk) -> None:
        self._run, self._of = run, of

    search = blocking(Bulk.search)
    count = blocking(Bulk.count)
    change = blocking(Bulk.change)
    retry_dead = blocking(Bulk.retry_dead)
    purge = blocking(Bulk.purge)
    recover = blocking(Bulk.recover)


class SyncErrors:
    """The last errors of jobs, in groups."""

    def __init__(self, run: Run, of: ErrorGroups) -> None:
        self._run, self._of = run, of

    groups = blocking(ErrorGroups.groups)


class SyncTimeseries:
    """What charts show."""

    def __init__(self, run: Run, of: Timeseries) -> None:
        self._run, self._of = run, of

    minutes = blocking(Timeseries.minutes)
    rates = blocking(Timeseries.rates)
    depths = blocking(Timeseries.depths)
    note_depth = blocking(Timeseries.note_depth)


class SyncSchedules:
    """What is enqueued by the clock."""

    def __init__(self, run: Run, of: Schedules) -> None:
        self._run, self._of = run, of

    list = blocking(Schedules.list)
    get = blocking(Schedules.get)
    put = blocking(Schedules.put)
    pause = blocking(Schedules.pause)
    resume = blocking(Schedules.resume)
    delete = blocking(Schedules.delete)

    def run_now(self, name: str) -> SyncHandle[Any]:
        """Enqueue it once, beside its usual runs."""
        return SyncHandle(self._run, self._run(self._of.run_now, name))


class SyncWebhooks:
    """Who is told how jobs end."""

    def __init__(self, run: Run, of: Webhooks) -> None:
        self._run, self._of = run, of

    add = blocking(Webhooks.add)
    list = blocking(Webhooks.list)
    remove = blocking(Webhooks.remove)
    key = blocking(Webhooks.key)
