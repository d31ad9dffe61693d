"""A bucket whose requests can be delayed, as in a process that sleeps during one."""

from __future__ import annotations

import asyncio


class DelayedPuts:
    """Wraps a bucket. While `shut`, puts below a prefix wait: before they are made, or before they answer."""

    def __init__(self, bucket, prefix, *, answered):
        self._bucket = bucket
        self._prefix = prefix
        self._answered = answered
        self._open = asyncio.Event()
        self._open.set()
        self.reached = asyncio.Event()

    def shut(self):
        self.reached.clear()
        self._open.clear()

    def open(self):
        self._open.set()

    async def _wait(self):
        self.reached.set()
        await self._open.wait()

    async def get(self, key):
        return await self._bucket.get(key)

    async def put_if_absent(self, key, data):
        mine = key.startswith(self._prefix)
        if mine and not self._answered:
            await self._wait()
        created = await self._bucket.put_if_absent(key, data)
        if mine and self._answered:
            await self._wait()
        return created

    async def list(self, prefix, after=None):
        return await self._bucket.list(prefix, after)

    async def delete(self, keys):
        await self._bucket.delete(keys)
