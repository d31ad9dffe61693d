"""The parts of an app: every service, with its dependencies. Workers, servers and commands are built on these."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from .client.bulk import Bulk
from .client.claims import ManualClaims
from .client.config import Config
from .client.enqueue import Enqueue
from .client.errors import ErrorGroups
from .client.handles import Handles
from .client.inspection import Inspection
from .client.operations import Operations
from .client.records import Records
from .client.runtime import Runtime
from .client.session import Session
from .client.timeseries import Timeseries
from .codec import Signed
from .core.clock import Clock, Entropy
from .schedules.service import Schedules, is_scheduled
from .store.protocol import Store
from .sync.app import SyncApp
from .tasks.hooks import RunHooks
from .tasks.limits import Limit
from .tasks.options import Options
from .tasks.registry import Registry
from .webhooks.service import Feed, Webhooks

if TYPE_CHECKING:
    from .flows.service import Flows


class Parts:
    """The services of one app. `url` is where its store is; `trusted` names the modules whose functions may run."""

    sync: SyncApp
    """The app for blocking code, set by the app itself."""

    def __init__(
        self,
        url: str,
        store: Store,
        given: Mapping[str, Any],
        clock: Clock,
        entropy: Entropy | None,
        *,
        trusted: set[str],
        signed: Signed | None,
        queue_limits: Mapping[str, Limit],
    ) -> None:
        self.url = url
        self.runtime = runtime = Runtime(store, given, clock, entropy, feed=Feed)
        self.events = runtime.events
        self.hooks = RunHooks()
        self.registry = registry = Registry(trusted, signed)
        self.records = Records(runtime)
        self.operations = Operations(runtime, registry, flows=lambda: self.flows, is_scheduled=is_scheduled)
        self.handles = Handles(runtime, registry, self.operations, lambda: self.sync)
        self.enqueue = registry.client = Enqueue(runtime, registry, self.handles, queue_limits)
        self.claims = ManualClaims(runtime, registry)
        self.inspection = Inspection(runtime)
        self.bulk = Bulk(runtime, self.operations, self.claims, lambda: self.flows)
        self.errors = ErrorGroups(runtime)
        self.timeseries = Timeseries(runtime)
        self.config = Config(self.records)
        self.schedules = Schedules(runtime, self.records, registry, self.enqueue, self.handles)
        self.webhooks = Webhooks(runtime, self.records)
        registry.add(_noop, "noop", Options(), built_in=True)

    @property
    def session(self) -> Session:
        """The open session, on the app's loop."""
        return self.runtime.session

    @cached_property
    def flows(self) -> Flows:
        """Jobs that depend on each other."""
        from .flows.service import Flows  # late: most programs that enqueue have none

        return Flows(self.runtime, self.registry, self.enqueue, self.handles, self.inspection)


def _noop(*_: Any, **__: Any) -> None:
    """Does nothing with any arguments."""
