"""Calls Holdfast's HTTP service, an ASGI app, from blocking views.

The service runs on a separate loop, one per process: views run on any thread, under WSGI and ASGI servers alike, and
the state that the service shares between requests belongs to one loop.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import MutableMapping
from functools import cache
from typing import Any

import msgspec

from ..client.loop_calls import BackgroundLoop, held_lock, run_on_loop
from ..http.service import Service

EVENTS = b"text/event-stream"
Message = MutableMapping[str, Any]


class Reply(msgspec.Struct):
    """A complete answer of the service."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes


def ask(service: Service, scope: Message, body: bytes) -> Reply:
    """The service's answer to a request; blocks. A stream ends with its first events: the page polls."""
    with _starting:
        loop = _background().loop
    return run_on_loop(_Exchange(body).run(service, scope), loop, None, held_lock())


_starting = threading.Lock()


@cache
def _background() -> BackgroundLoop:
    return BackgroundLoop()


def _after_in_child() -> None:
    _background.cache_clear()  # its thread is the parent's
    _starting.release()


os.register_at_fork(before=_starting.acquire, after_in_parent=_starting.release, after_in_child=_after_in_child)


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
        events = dict(self._reply.headers).get(b"content-type", b"").startswith(EVENTS)
        if message.get("more_body") and (not events or b"\nid: " in self._reply.body):
            self._enough.set()
