"""Holdfast in a FastAPI application: a lifespan, a dependency, and the dashboard behind your own dependencies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from ..app import Holdfast
from ..core.errors import SERVER, ConfigError, requires
from ..http import asgi

with requires("holdfast.contrib.fastapi", "fastapi", "fastapi", *SERVER):
    from fastapi import APIRouter, Depends, params
    from starlette.requests import HTTPConnection
    from starlette.responses import Response
    from starlette.types import Receive, Scope, Send

    from ..http.service import Service
    from .starlette import lifespan, serving, stream_response

__all__ = ["HoldfastDep", "dashboard", "get_app", "lifespan", "stream_response"]


async def get_app(connection: HTTPConnection) -> Holdfast:
    """A dependency: the app that the lifespan has opened."""
    app: Holdfast | None = getattr(connection.state, "holdfast", None)
    if app is None:
        raise ConfigError(
            "Holdfast's lifespan has not run: create the application with FastAPI(lifespan=lifespan(queue)), and in"
            " tests use `with TestClient(…) as client`"
        )
    return app


HoldfastDep = Annotated[Holdfast, Depends(get_app)]
"""The type of a parameter that gets the app."""


def dashboard(
    queue: Holdfast, *, dependencies: Sequence[Any], hosts: Sequence[str] = (), origins: Sequence[str] = ()
) -> APIRouter:
    """The dashboard and the HTTP API as a router: `web.include_router(dashboard(…), prefix="/queue")`.

    `dependencies` authenticate each request, and refuse it by raising HTTPException: `[Depends(admin)]`. Who passes
    may do everything; `request.scope["holdfast.actor"] = …` names them for the audit log. `hosts`, `origins`: see
    `holdfast.http.asgi`.
    """
    if not dependencies or not all(isinstance(one, params.Depends) for one in dependencies):
        raise ConfigError(
            "dashboard(…) needs at least one dependency that authenticates requests: dependencies=[Depends(…)]"
        )
    service = asgi(queue, unguarded=True, hosts=hosts, origins=origins)
    router = APIRouter(dependencies=dependencies, lifespan=serving(service), include_in_schema=False)

    @router.api_route("/{path:path}", methods=["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"])
    async def handle(path: str) -> Response:  # pyright: ignore[reportUnusedFunction]
        return _Handled(service, path)

    return router


class _Handled(Response):
    """The service's answer to the request, sent after the dependencies have passed."""

    def __init__(self, service: Service, path: str) -> None:
        super().__init__()
        self._service = service
        self._path = path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        root = scope["path"].removesuffix(self._path).removesuffix("/")
        await self._service({**scope, "root_path": root}, receive, send)
        if self.background is not None:
            await self.background()
