"""The HTTP service as an ASGI app: routing, authentication and the state that all requests share.

1. All reads and writes go through the app, as in the command line.
2. It opens the app at start and retries if that fails, so the server starts while the store is down.
3. `stop` ends streams and waiting claims, for a graceful stop; closing the service closes the app.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from typing import Self

from starlette.types import Receive, Scope, Send

from ..app import Holdfast, parts_of
from ..client.errors import RefusedJobs
from ..observe.metrics import Depths, Metrics
from . import limits, pages
from .auth import Auth
from .budget import Budget
from .depth import recording_depth
from .endpoint import Endpoint, Resource
from .events import Feed
from .job_policy import JobPolicy
from .openapi import describe
from .router import Router
from .routes import endpoints
from .store_rpc import StoreRpc
from .sweeper import sweeping

logger = logging.getLogger("holdfast.http")


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
        self._refused: tuple[float, list[RefusedJobs]] | None = None
        """The refused jobs, and the monotonic time at which they were read."""
        self._maintenance: asyncio.Task[None] | None = None
        by_path: dict[str, list[Endpoint]] = {}
        for endpoint in self.endpoints:
            by_path.setdefault(endpoint.path, []).append(endpoint)
        self._router = Router([Resource(self, path, some) for path, some in by_path.items()], Resource(self, "", []))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._router.find(scope)(scope, receive, send)
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
                await asyncio.sleep(self.parts.runtime.outages.failed("opening the store", error, limits.OPEN_EVERY))
            else:
                self.parts.runtime.outages.worked("opening the store")
                break
        async with sweeping(self.parts), recording_depth(self.parts):
            await self.stopping.wait()

    async def refused(self) -> list[RefusedJobs]:
        """The refused jobs, read again after `REFUSED_AGE`."""
        now = self.parts.runtime.clock.monotonic()
        if self._refused is None or now - self._refused[0] >= limits.REFUSED_AGE:
            self._refused = now, await self.app.errors.refused()
        return self._refused[1]

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
