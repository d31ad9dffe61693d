"""Calls the HTTP service, an ASGI app, from blocking views: one complete answer, no streams.

The service runs on a loop of its own, one per process: views run on any thread, and the state that requests of the
service share belongs to one loop.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import MutableMapping
from functools import cache
from typing import Any

from ..client.loop_calls import BackgroundLoop, held_lock, run_on_loop
from ..http.call import Answer, problem
from ..http.problems import NO_STREAMS, Refused
from ..http.service import Service

Message = MutableMapping[str, Any]


def ask(service: Service, scope: Message, body: bytes) -> Answer:
    """The service's answer to a request; blocks. A stream is refused: the dashboard then polls."""
    return run_on_loop(_ask(service, scope, body), _background().loop, None, held_lock())


@cache
def _background() -> BackgroundLoop:
    return BackgroundLoop()


os.register_at_fork(after_in_child=_background.cache_clear)  # its thread is the parent's


async def _ask(service: Service, scope: Message, body: bytes) -> Answer:
    unread, answer = [body], Answer(500, b"")

    async def receive() -> Message:
        if not unread:
            await asyncio.Event().wait()  # a blocking view does not learn that the client has disconnected
        return {"type": "http.request", "body": unread.pop(), "more_body": False}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            answer.status, answer.headers = message["status"], list(message["headers"])
        elif message.get("more_body"):
            raise _Streamed
        else:
            answer.body += message.get("body", b"")

    try:
        await service(scope, receive, send)
    except _Streamed:
        path = scope["path"]
        return problem(Refused(NO_STREAMS, f"{path!r:.200} is a stream: poll, or use `holdfast serve` for it"))
    return answer


class _Streamed(Exception):
    """The answer is a stream."""
