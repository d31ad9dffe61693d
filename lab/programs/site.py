"""The web application that servers load: each request enqueues one job, and is answered with its id."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from holdfast import Holdfast

app = Holdfast(os.environ["LAB_URL"])
if os.environ.get("LAB_USED_AT_IMPORT"):  # what `--preload` forks is an app that is open
    app.sync.stats()


def wsgi(_: dict[str, Any], start: Callable[..., object]) -> Iterable[bytes]:
    """Blocking code."""
    job = app.sync.enqueue("noop")
    start("200 OK", [("Content-Type", "text/plain")])
    return [job.id.encode()]


async def asgi(scope: dict[str, Any], _: object, send: Callable[[dict[str, Any]], Awaitable[None]]) -> None:
    """Handlers of an application that never opens the app itself."""
    if scope["type"] == "http":
        job = await app.enqueue("noop")
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": job.id.encode()})
