"""Hints by way of Redis (`?signal=redis://…`): Postgres stays the only truth, and Redis going away loses hints only.

A hint is published after the commit, from a task of its own: no enqueue ever waits for Redis.
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
"""Hints that may wait to be published; beyond it the oldest are let go, as polling finds the jobs anyway."""
LIMIT = 2.0
"""Seconds that one publication may take."""
SUBSCRIPTION_PROBE = 15.0
"""Seconds between two looks whether the subscription still lives."""


class RedisSignal:
    """Publishes and hears hints on one Redis channel."""

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
        self._said: list[str] = []
        self._saying: asyncio.Task[None] | None = None
        self._quiet = False

    # -- saying

    def say(self, hint: str) -> None:
        """Publish soon; hints that gather meanwhile leave together."""
        self._said.append(hint)
        del self._said[:-HINTS_WAITING]
        if self._saying is None:
            self._saying = asyncio.get_running_loop().create_task(self._publish())

    async def _publish(self) -> None:
        try:
            while self._said:
                said, self._said = self._said, []
                if self._client is None:
                    self._client = self._make()
                try:
                    async with asyncio.timeout(LIMIT):
                        await self._client.publish(self._channel, ",".join(dict.fromkeys(said)))
                    self._quiet = False
                except Exception as error:  # noqa: BLE001  # whatever it is, polling does without it
                    if not self._quiet:
                        logger.warning("hints through %s are lost for now, polling goes on: %s", self._shown, error)
                    self._quiet = True
        finally:
            self._saying = None

    # -- hearing

    async def listen(self, hear: Callable[[str], None], ready: Callable[[], None]) -> None:
        """Listen until cancelled or cut off."""
        client = self._make()
        try:
            async with client.pubsub() as heard:
                await heard.subscribe(self._channel)
                asked = False
                while True:
                    message = await heard.get_message(ignore_subscribe_messages=False, timeout=SUBSCRIPTION_PROBE)
                    if message is None:
                        if asked:
                            raise ConnectionError(f"{self._shown} does not answer")
                        asked = True
                        await heard.ping()
                        continue
                    asked = False
                    if message["type"] == "subscribe":
                        ready()
                    elif message["type"] == "message":
                        hear(message["data"].decode())
        finally:
            await client.aclose()

    async def attend(self, kinds: set[int]) -> None:
        """Whoever publishes here does so whether or not somebody listens."""

    def release(self) -> None:
        """The loop has ended: redis-py closes its sockets when the client is collected."""
        self._client = None

    async def close(self) -> None:
        if self._saying is not None:
            self._saying.cancel()
            await asyncio.wait([self._saying])
        if self._client is not None:
            await self._client.aclose()
            self._client = None
