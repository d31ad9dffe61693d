"""Calls Holdfast's HTTP service, an ASGI app, from blocking Django views.

The service runs on a loop of its own, one per process: views run on any thread, under WSGI and ASGI servers alike, and
the state that the service shares between requests belongs to one loop.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import MutableMapping
from functools import cache
from typing import Any

import msgspec

from ...client.loop_calls import BackgroundLoop, held_lock, run_on_loop
from ...http.service import Service

EVENTS = b"text/event-stream"
Message = MutableMapping[str, Any]


class Reply(msgspec.Struct):
    """A complete answer of the service."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes


def ask(service: Service, scope: Message, body: bytes) -> Reply:
    """The service's answer to a request; blocks. An event stream ends with its first events: the page polls."""
    return run_on_loop(_Exchange(body).run(service, scope), _background().loop, None, held_lock())


@cache
def _background() -> BackgroundLoop:
    return BackgroundLoop()


os.register_at_fork(after_in_child=_background.cache_clear)  # its thread is the parent's


class _Exchange:
    """One request: hands the body to the service, and collects its answer."""

    def __init__(self, body: bytes) -> None:
        self._body: bytes | None = body
        self._reply = Reply(500, [], b"")
        self._enough = asyncio.Event()

    async def run(self, service: Service, scope: Message) -> Reply:
        await service(scope, self._receive, self._send)
        return self._reply

    async def _receive(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._enough.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._reply.status, self._reply.headers = message["status"], list(message["headers"])
            return
        self._reply.body += message.get("body", b"")
        if b"\nid: " in self._reply.body and dict(self._reply.headers)[b"content-type"].startswith(EVENTS):
            self._enough.set()
