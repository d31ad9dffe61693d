"""The parts of an app: every service, with its dependencies. Workers, servers and commands are built on these."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from .client.audit import Audit
from .client.claims import ManualClaims
from .client.config import Config
from .client.enqueue import Enqueue
from .client.handles import Handles
from .client.operations import Operations
from .client.records import Records
from .client.runtime import Runtime
from .client.session import Session
from .codec import Signed
from .core.clock import Clock, Entropy
from .core.errors import ConfigError
from .core.operations import Where
from .core.settings import Settings, combine, from_environment
from .core.url import redact
from .store.open import open_store
from .store.protocol import Store
from .tasks.hooks import RunHooks
from .tasks.limits import Limit
from .tasks.options import Codec, Options
from .tasks.registry import Registry
from .webhooks.service import Feed, Webhooks

if TYPE_CHECKING:
    from .client.bulk import Bulk
    from .client.control import Workers
    from .client.edits import Edits
    from .client.errors import ErrorGroups
    from .client.inspection import Inspection
    from .client.timeseries import Timeseries
    from .flows.service import Flows
    from .schedules.service import Schedules
    from .sync.app import AsyncApp, SyncApp


class Parts:
    """The services of one app. `store`: None: as the settings name it; `trusted`: modules whose functions may run.

    `imports`: the modules that are imported when a worker, a server or a command starts, because they define tasks.

    A service that a program which only enqueues does not need is imported on its first use.
    """

    def __init__(
        self,
        store: Store | None,
        given: dict[str, Any],
        clock: Clock,
        entropy: Entropy | None,
        *,
        app: AsyncApp,
        trusted: set[str],
        imports: Sequence[str],
        queue_limits: Mapping[str, Limit],
        codec: Codec | None,
    ) -> None:
        self._app = app
        self._given_store = store
        self._given = given
        self._clock = clock
        self._url: str | None = None
        self._find_url: Callable[[], str] | None = None
        """Finds the URL of the store when it is first needed: the settings of a framework may come late."""
        self.imports = list(imports)
        self.runtime = runtime = Runtime(self._made_store, given, clock, entropy, feed=Feed)
        self.events = runtime.events
        self.hooks = RunHooks()
        self.registry = registry = Registry(trusted, self._signed, codec)
        self.records = Records(runtime)
        self.operations = Operations(runtime, registry, flows=lambda: self.flows, is_scheduled=_is_scheduled)
        self.claims = ManualClaims(runtime, registry)
        self.handles = Handles(
            runtime, registry, self.operations, self.claims, blocking=lambda: self.sync, edits=lambda: self.edits
        )
        self.enqueue = registry.client = Enqueue(runtime, registry, self.handles, queue_limits)
        self.config = Config(runtime, self.records)
        self.webhooks = Webhooks(runtime, self.records)
        registry.add(_noop, "noop", Options(), built_in=True)

    @property
    def url(self) -> str:
        """Where the store is; until it is made, where it would be."""
        if self._url is not None:
            return self._url
        if self._given_store is not None:
            return f"{self._given_store.name}://"
        return self._settings().url if self._find_url is None else self._find_url()

    @url.setter
    def url(self, url: str) -> None:
        self._url = url

    def set_up(self, store: Store | None, settings: Mapping[str, Any]) -> None:
        """Change the store and the settings of an unused app."""
        if not self.runtime.unused:
            raise ConfigError(
                f"the app is in use with {redact(self.url)}: call setup before its first use, or close the app first"
            )
        before = dict(self._given), self._given_store, self._find_url
        if store is not None or "url" in settings:
            self._given_store, self._find_url = store, None
        self._given.update(settings)
        try:
            self._forget_place()
            combine(self._given, {}, {})
            if store is not None or "url" in settings:
                self.settle()
        except BaseException:
            self._given.clear()
            self._given.update(before[0])
            self._given_store, self._find_url = before[1:]
            self._forget_place()
            raise

    def configure(self, find_url: Callable[[], str], settings: Mapping[str, Any]) -> None:
        """Take the store and the settings of a framework, instead of all before; closes the app if it is open."""
        combine(dict(settings), {}, {})
        here = asyncio._get_running_loop()  # pyright: ignore[reportPrivateUsage]  # noqa: SLF001  # no error to catch
        if here is not None and self.runtime.live_loop() is here:
            self.runtime.disconnect()  # on this loop, which cannot wait
        else:
            self.runtime.close_blocking()
        self._given.clear()
        self._given.update(settings)
        self._find_url = find_url
        self._forget_place()

    def _forget_place(self) -> None:
        if not self.runtime.in_test:  # else the store stays that of the test
            self._url = None
            self.runtime.place_again()
        self.registry.settings_changed()

    def settle(self) -> None:
        """Read the environment and make the store now; ConfigError if they are wrong."""
        self._signed()
        _ = self.runtime.store

    def _settings(self) -> Settings:
        return combine(self._given, from_environment(os.environ), {})

    def _made_store(self) -> Store:
        self._url = self.url
        return open_store(self._url, self._clock) if self._given_store is None else self._given_store

    def _signed(self) -> Signed | None:
        settings = self._settings()
        if not settings.cloudpickle:
            return None
        if not settings.secret:
            raise ConfigError(
                "the cloudpickle codec needs a secret to sign payloads: set HOLDFAST_SECRET or Holdfast(…, secret=…)"
            )
        return Signed(settings.secret)

    @property
    def session(self) -> Session:
        """The open session, on the app's loop."""
        return self.runtime.session

    @cached_property
    def sync(self) -> SyncApp:
        """The app for blocking code."""
        from .sync.app import SyncApp

        return SyncApp(self._app, self.runtime, self.registry, self.enqueue, self.claims)

    @cached_property
    def inspection(self) -> Inspection:
        """Reads of jobs, queues and workers."""
        from .client.inspection import Inspection

        return Inspection(self.runtime)

    @cached_property
    def bulk(self) -> Bulk:
        """Operations on many jobs."""
        from .client.bulk import Bulk

        return Bulk(self.runtime, self.operations, self.claims, lambda: self.flows)

    @cached_property
    def edits(self) -> Edits:
        """Edits and clones of jobs."""
        from .client.edits import Edits

        return Edits(self.runtime, self.registry, self.enqueue, self.operations)

    @cached_property
    def audit(self) -> Audit:
        """The audit log."""
        return Audit(self.runtime)

    @cached_property
    def workers(self) -> Workers:
        """The live workers, and requests to them."""
        from .client.control import Workers

        return Workers(self.runtime, self.inspection)

    @cached_property
    def errors(self) -> ErrorGroups:
        """The last errors of jobs, in groups."""
        from .client.errors import ErrorGroups

        return ErrorGroups(self.runtime)

    @cached_property
    def timeseries(self) -> Timeseries:
        """What happened over time."""
        from .client.timeseries import Timeseries

        return Timeseries(self.runtime)

    @cached_property
    def schedules(self) -> Schedules:
        """Cron schedules and intervals."""
        from .schedules.service import Schedules

        return Schedules(self.runtime, self.records, self.registry, self.enqueue, self.handles)

    @cached_property
    def flows(self) -> Flows:
        """Jobs that depend on each other."""
        from .flows.service import Flows

        return Flows(self.runtime, self.registry, self.enqueue, self.handles, self.inspection)


def _noop(*_: Any, **__: Any) -> None:
    """Does nothing with any arguments."""


async def _is_scheduled(session: Session, where: Where) -> bool:
    from .schedules.service import is_scheduled

    return await is_scheduled(session, where)
