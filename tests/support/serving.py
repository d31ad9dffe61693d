"""A server of a store on the test's own loop: the routes that `http://` as a store calls, and nothing else."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Self

import uvicorn
from starlette.routing import Mount, Route, Router

from holdfast import Holdfast
from holdfast.app import parts_of
from holdfast.http.budget import Budget
from holdfast.http.endpoint import Resource
from holdfast.http.job_policy import JobPolicy
from holdfast.http.problems import UNAUTHORIZED, Refused
from holdfast.http.store_rpc import StoreRpc
from holdfast.http.sweeper import sweeping
from holdfast.http.tokens import Access

from .quick_server import QuickServer

ALL = frozenset({"read", "submit", "work", "operate"})


class Auth:
    """Accepts each known token with its roles, or every request if there is no token."""

    def __init__(self, roles: dict[str, frozenset[str]] | None) -> None:
        self.roles = roles

    async def admit(self, headers):
        if self.roles is None:
            return Access(ALL)
        given = dict(headers).get(b"authorization", b"").decode().removeprefix("Bearer ")
        if given not in self.roles:
            raise Refused(UNAUTHORIZED, "this token is not known here")
        return Access(self.roles[given], label=given)


class Serving:
    """One server in front of an app, and as much of a service as the routes need."""

    def __init__(
        self, app: Holdfast, *, port: int = 0, roles=None, sweeps: bool = False, below="", tls=None, **seam
    ) -> None:
        self.app = app
        self.parts = parts_of(app)
        self.auth = Auth(roles)
        self.bodies = Budget(lambda: 256 * 1024**2)
        self.stopping = asyncio.Event()
        self.calls: list[str] = []
        """The methods that were called, in order."""
        self._sweeps = sweeps
        self._stack = AsyncExitStack()
        self.policy = JobPolicy(parts_of(app), seam.pop("allow_shell", frozenset()), seam.pop("trust", frozenset()))
        endpoints = StoreRpc(parts_of(app), sweeps=sweeps, policy=self.policy, **seam).endpoints()
        routes = [Route(each.path, Resource(self, each.path, [each])) for each in endpoints]
        self._router = Router([Mount(below, routes=routes)])
        options = {} if tls is None else {"ssl_certfile": tls[0], "ssl_keyfile": tls[1]}
        options |= {"interface": "asgi3", "log_level": "error", "lifespan": "off", "ws": "none"}
        options["timeout_keep_alive"] = 600  # seconds; uvicorn has 5, and a busy machine takes longer
        config = uvicorn.Config(self._answer, "127.0.0.1", port, **options)
        self._server = QuickServer(config)
        self._runs = False

    @property
    def url(self) -> str:
        return f"{'https' if self._server.config.is_ssl else 'http'}://127.0.0.1:{self.port}"

    async def _answer(self, scope, receive, send) -> None:
        self.calls.append(scope["path"].rpartition("/")[2])
        await self._router(scope, receive, send)

    async def start(self) -> Self:
        await self.app.open()
        if self._sweeps:
            await self._stack.enter_async_context(sweeping(parts_of(self.app), first_sweep=0.0))
        # Its own `serve` looks whether it is to stop every tenth of a second: too slow for a thousand tests.
        config = self._server.config
        config.load()
        self._server.lifespan = config.lifespan_class(config)
        await self._server.startup()
        self.port = self._server.servers[0].sockets[0].getsockname()[1]
        self._runs = True
        return self

    async def stop(self) -> None:
        if self._runs:
            self._runs = False
            self.stopping.set()
            await self._server.shutdown()
            await self._stack.aclose()
            await self.app.close()
