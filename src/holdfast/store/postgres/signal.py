"""Hints through Redis (`?signal=redis://…`): all jobs are in Postgres, and an outage of Redis loses only hints.

A hint is published after the commit, by a separate task: no enqueue waits for Redis.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from ...core.errors import requires
from ...core.url import redact

logger = logging.getLogger("holdfast")

HINTS_WAITING = 1000
"""Hints that may wait to be published; beyond it the oldest are dropped, as polling finds the jobs anyway."""
LIMIT = 2.0
"""Seconds that one publication may take."""
SUBSCRIPTION_PROBE = 15.0
"""Seconds between two checks that the subscription is still open."""


class RedisSignal:
    """Publishes and receives hints on one Redis channel."""

    complete = False

    def __init__(self, url: str, channel: str) -> None:
        with requires("?signal=redis://…", "redis", "redis"):
            from redis.asyncio import Redis
            from redis.asyncio.retry import Retry
            from redis.backoff import NoBackoff
        self._channel = f"holdfast:{channel}"
        self._shown = redact(url)
        from_url: Any = getattr(Redis, "from_url")  # noqa: B009  # it has no types
        self._make: Callable[[], Any] = lambda: from_url(
            url, retry=Retry(NoBackoff(), 0), socket_timeout=None, socket_connect_timeout=LIMIT
        )
        self._client: Any = None
        self._waiting: list[str] = []
        self._publishing: asyncio.Task[None] | None = None
        self._warned = False

    # -- publishing

    def publish(self, hint: str) -> None:
        """Publish a hint soon; hints that arrive meanwhile are published together."""
        self._waiting.append(hint)
        del self._waiting[:-HINTS_WAITING]
        if self._publishing is None:
            self._publishing = asyncio.get_running_loop().create_task(self._publish())

    async def _publish(self) -> None:
        try:
            while self._waiting:
                hints, self._waiting = self._waiting, []
                if self._client is None:
                    self._client = self._make()
                try:
                    async with asyncio.timeout(LIMIT):
                        await self._client.publish(self._channel, ",".join(dict.fromkeys(hints)))
                    self._warned = False
                except Exception as error:  # noqa: BLE001  # whatever it is, polling works without it
                    if not self._warned:
                        logger.warning(
                            "notifications through %s fail, so workers find jobs by polling; check that server: %s",
                            self._shown,
                            error,
                        )
                    self._warned = True
        finally:
            self._publishing = None

    # -- listening

    async def listen(self, on_hint: Callable[[str], None], ready: Callable[[], None]) -> None:
        """Listen until cancelled or disconnected."""
        client = self._make()
        try:
            async with client.pubsub() as pubsub:
                await pubsub.subscribe(self._channel)
                asked = False
                while True:
                    message = await pubsub.get_message(ignore_subscribe_messages=False, timeout=SUBSCRIPTION_PROBE)
                    if message is None:
                        if asked:
                            raise ConnectionError(f"{self._shown} did not answer a PING in {SUBSCRIPTION_PROBE:g} s")
                        asked = True
                        await pubsub.ping()
                        continue
                    asked = False
                    if message["type"] == "subscribe":
                        ready()
                    elif message["type"] == "message":
                        on_hint(message["data"].decode())
        finally:
            await client.aclose()

    async def request(self, kinds: set[int]) -> None:
        """Nothing to request: here hints are published whether or not a process listens."""

    def release(self) -> None:
        """Drop the client: redis-py closes its sockets when it is collected."""
        self._client = None

    async def close(self) -> None:
        if self._publishing is not None:
            self._publishing.cancel()
            await asyncio.wait([self._publishing])
        if self._client is not None:
            await self._client.aclose()
            self._client = None
