"""The HTTP service as an ASGI app: routing, authentication and the state that all requests share.

1. All reads and writes go through the app, as in the command line.
2. It opens the app at start and retries if that fails, so the server starts while the store is down.
3. `stop` ends streams and waiting claims, for a graceful stop; closing the service closes the app.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import Sequence
from itertools import groupby
from typing import Self
from urllib.parse import quote, unquote

from starlette.routing import Match, Route, Router
from starlette.types import Receive, Scope, Send

from ..app import Holdfast, parts_of
from ..observe.metrics import Depths, Metrics
from . import limits, pages
from .auth import Auth
from .budget import Budget
from .depth import recording_depth
from .endpoint import Endpoint, Resource
from .events import Feed
from .job_policy import JobPolicy
from .openapi import describe
from .routes import endpoints
from .store_rpc import StoreRpc
from .sweeper import sweeping

logger = logging.getLogger("holdfast.http")
WRITTEN = "holdfast.path"
"""Scope key of the path with its escapes as received."""


class Service:
    """An app over HTTP. If you mount it, enter it with `async with` in your lifespan."""

    def __init__(
        self,
        app: Holdfast,
        *,
        token: str | None = None,
        unguarded: bool = False,
        hosts: Sequence[str] = (),
        origins: Sequence[str] = (),
        allow_shell: frozenset[str] = frozenset(),
        trust: frozenset[str] = frozenset(),
        extra: Sequence[Endpoint] = (),
    ) -> None:
        self.app = app
        self.parts = parts = parts_of(app)
        runtime = parts.runtime
        self.extra = extra
        """Routes that are not part of the API: the demo's."""
        self.policy = JobPolicy(parts, allow_shell, trust)
        """The jobs that clients may write."""
        own = token or os.environ.get("HOLDFAST_TOKEN") or None
        self.auth = Auth(parts, token=own, unguarded=unguarded, hosts=hosts, origins=origins)
        self.listed = endpoints()
        """The routes of the API, as in the OpenAPI document."""
        self._described: bytes | None = None
        rpc = StoreRpc(parts, sweeps=True, policy=self.policy)
        self.endpoints = [*self.listed, *extra, *rpc.endpoints(), *pages.endpoints()]
        self.feed = Feed(app)
        self.metrics = Metrics(prefix=runtime.current_settings().metrics_prefix)
        self.depths = Depths(app.queues, runtime.clock)
        self.metrics.listen(parts.events)
        self.bodies = Budget(lambda: runtime.current_settings().request_memory)
        self.stopping = asyncio.Event()
        self.streams = 0
        """Number of open event streams."""
        self.waiting = 0
        """Number of claims waiting for jobs."""
        self._maintenance: asyncio.Task[None] | None = None
        self._router = Router(routes=self._routes(), redirect_slashes=False, default=Resource(self, "", []))

    def _routes(self) -> list[Route]:
        paths = groupby(sorted(self.endpoints, key=lambda one: self._first(one.path)), key=lambda one: one.path)
        return [_PathRoute(Resource(self, path, list(some))) for path, some in paths]

    def _first(self, path: str) -> int:
        return next(number for number, one in enumerate(self.endpoints) if one.path == path)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._router(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008, "reason": "websockets are not supported"})

    async def __aenter__(self) -> Self:
        self.stopping = asyncio.Event()
        self.parts.runtime.stay_here()
        self._maintenance = asyncio.create_task(self._keep_up())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stop()
        self.feed.close()
        if self._maintenance is not None:
            self._maintenance.cancel()
            await asyncio.wait([self._maintenance])
        await self.app.close()

    async def _keep_up(self) -> None:
        """Open the app, with retries, then sweep and record depths until the service stops."""
        while True:
            try:
                await self.app.open()
            except Exception as error:  # noqa: BLE001  # drivers may raise anything; retried
                await asyncio.sleep(self.parts.runtime.outages.failed("open", error, limits.OPEN_EVERY))
            else:
                self.parts.runtime.outages.worked("open")
                break
        async with sweeping(self.parts), recording_depth(self.parts):
            await self.stopping.wait()

    def stream_ended(self) -> None:
        self.streams -= 1

    def stop(self) -> None:
        """End streams and waiting claims; other requests finish, and new ones are still answered."""
        self.stopping.set()

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        async with self:
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})

    @property
    def openapi(self) -> bytes:
        if self._described is None:  # made at the first request for it
            self._described = describe(self.listed)
        return self._described

    @property
    def body_limit(self) -> int:
        """Maximum bytes of a body: the largest payload plus a margin for the other fields."""
        return self.parts.runtime.current_settings().max_payload + limits.BODY_MARGIN


class _PathRoute(Route):
    """A route that matches its own methods fully, and other methods only if no later route matches.

    The path is matched with its escapes, so that a job's id may contain a slash (`%2F`). A trailing slash is ignored.
    """

    def __init__(self, resource: Resource) -> None:
        super().__init__(resource.path or "/", resource)
        self._resource = resource
        self._pattern = re.compile(re.sub(r"{(\w+)}", r"(?P<\1>[^/]+)", resource.path.rstrip("/")) + "/?")

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        found = self._pattern.fullmatch(_written(scope))
        if found is None:
            return Match.NONE, {}
        match = Match.FULL if scope["method"] in self._resource.methods else Match.PARTIAL
        return match, {"path_params": {name: unquote(value) for name, value in found.groupdict().items()}}


def _written(scope: Scope) -> str:
    """A request's path below the mount point, with its escapes as received."""
    known: str | None = scope.get(WRITTEN)
    if known is None:
        raw: bytes | None = scope.get("raw_path")
        whole = quote(scope["path"]) if raw is None else raw.decode("latin-1")
        root = scope.get("root_path")
        known = scope[WRITTEN] = whole.removeprefix(quote(root)) if root else whole
    return known
