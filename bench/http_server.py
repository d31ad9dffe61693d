"""Servers that are measured: the service as its users have it, and a Starlette hello-world on the same uvicorn."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from holdfast import Holdfast
from holdfast.http import asgi
from holdfast.http.serve import bind, run
from holdfast.observe.logs import set_up

from . import child


def holdfast() -> dict[str, Any]:
    set_up("INFO", "auto")  # as `holdfast serve` does: a line for every job
    run(asgi(Holdfast()), "127.0.0.1", 0, lambda address: child.say(port=int(address.rpartition(":")[2])), 5.0)
    return {}


def hello() -> dict[str, Any]:
    async def greet(_: Request) -> JSONResponse:
        return JSONResponse({"hello": "world"})

    application = Starlette(routes=[Route("/", greet)])
    config = uvicorn.Config(application, access_log=False, log_level=logging.WARNING)
    bound = bind("127.0.0.1", 0)
    child.say(port=bound.getsockname()[1])
    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        runner.run(uvicorn.Server(config).serve([bound]))
    return {}


if __name__ == "__main__":
    commands: dict[str, Callable[..., dict[str, Any]]] = {"holdfast": holdfast, "hello": hello}
    child.serve(commands)
