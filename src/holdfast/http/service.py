"""The service itself, as an ASGI app: the route table behind its door, and what all requests share.

1. Everything it says or does goes through the app, like the command line.
2. It opens the app when it starts, and goes on where that fails: a store that is down now may be up in a minute.
3. `stop` ends streams and waiting claims, so that a server can end in order; closing it closes the app.
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
from .auth import Door
from .budget import Budget
from .depth import recording_depth
from .endpoint import Endpoint, Place
from .events import Feed
from .job_policy import JobPolicy
from .openapi import describe
from .routes import endpoints
from .store_rpc import Seam
from .sweeper import sweeping

logger = logging.getLogger("holdfast.http")
WRITTEN = "holdfast.path"
"""Where a scope keeps its path as it was written."""


class Service:
    """An app over HTTP. `async with` it in your own lifespan where you mount it."""

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
        """Routes that are no part of the API: the demo's."""
        self.policy = JobPolicy(parts, allow_shell, trust)
        """Which jobs its clients may write."""
        own = token or os.environ.get("HOLDFAST_TOKEN") or None
        self.door = Door(parts, token=own, unguarded=unguarded, hosts=hosts, origins=origins)
        self.listed = endpoints()
        """The API, as it is described."""
        self._described: bytes | None = None
        seam = Seam(parts, sweeps=True, policy=self.policy)
        self.endpoints = [*self.listed, *extra, *seam.endpoints(), *pages.endpoints()]
        self.feed = Feed(app)
        self.metrics = Metrics(prefix=runtime.current_settings().metrics_prefix)
        self.depths = Depths(app.queues, runtime.clock)
        self.metrics.listen(parts.events)
        self.bodies = Budget(lambda: runtime.current_settings().request_memory)
        self.stopping = asyncio.Event()
        self.streams = 0
        """Streams of events that are open."""
        self.waiting = 0
        """Claims that wait for jobs."""
        self._maintenance: asyncio.Task[None] | None = None
        self._router = Router(routes=self._routes(), redirect_slashes=False, default=Place(self, "", []))

    def _routes(self) -> list[Route]:
        paths = groupby(sorted(self.endpoints, key=lambda one: self._first(one.path)), key=lambda one: one.path)
        return [_Way(Place(self, path, list(some))) for path, some in paths]

    def _first(self, path: str) -> int:
        return next(number for number, one in enumerate(self.endpoints) if one.path == path)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._router(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008, "reason": "there are no websockets here"})

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
        """Open the app, however long that takes, and sweep for those who reach the store through here."""
        while True:
            try:
                await self.app.open()
            except Exception as error:  # noqa: BLE001  # whatever a driver raises, the next try may fare better
                await asyncio.sleep(self.parts.runtime.outages.failed("open", error, limits.OPEN_EVERY))
            else:
                self.parts.runtime.outages.worked("open")
                break
        async with sweeping(self.parts), recording_depth(self.parts):
            await self.stopping.wait()

    def stream_ended(self) -> None:
        """One stream of events less."""
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
        """The description of the API, as JSON."""
        if self._described is None:  # made at the first request for it
            self._described = describe(self.listed)
        return self._described

    @property
    def body_limit(self) -> int:
        """Bytes of a body: the largest payload, and room for what stands around it."""
        return self.parts.runtime.current_settings().max_payload + limits.BODY_MARGIN


class _Way(Route):
    """A path that answers for its own methods first, and for all others if no later one does.

    It is compared as the client wrote it, so that a job's id may hold a slash (`%2F`) and still be one step of the way.
    A slash at its end changes nothing.
    """

    def __init__(self, place: Place) -> None:
        super().__init__(place.path or "/", place)
        self._place = place
        self._pattern = re.compile(re.sub(r"{(\w+)}", r"(?P<\1>[^/]+)", place.path.rstrip("/")) + "/?")

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        found = self._pattern.fullmatch(_written(scope))
        if found is None:
            return Match.NONE, {}
        match = Match.FULL if scope["method"] in self._place.methods else Match.PARTIAL
        return match, {"path_params": {name: unquote(value) for name, value in found.groupdict().items()}}


def _written(scope: Scope) -> str:
    """A request's path below the place where the service is mounted, its escapes as they came."""
    known: str | None = scope.get(WRITTEN)
    if known is None:
        raw: bytes | None = scope.get("raw_path")
        whole = quote(scope["path"]) if raw is None else raw.decode("latin-1")
        root = scope.get("root_path")
        known = scope[WRITTEN] = whole.removeprefix(quote(root)) if root else whole
    return known
