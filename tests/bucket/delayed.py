"""A bucket whose every request takes its time, and is counted by kind."""

from __future__ import annotations

import asyncio
from collections import Counter


class Delayed:
    """In front of any bucket."""

    def __init__(self, bucket, seconds):
        self._bucket = bucket
        self.seconds = seconds
        self.requests = Counter()

    async def _take(self, kind):
        self.requests[kind] += 1
        await asyncio.sleep(self.seconds)

    async def get(self, key):
        await self._take("get")
        return await self._bucket.get(key)

    async def put_if_absent(self, key, data):
        await self._take("put")
        return await self._bucket.put_if_absent(key, data)

    async def list(self, prefix, after=None):
        await self._take("list")
        return await self._bucket.list(prefix, after)

    async def delete(self, keys):
        await self._take("delete")
        await self._bucket.delete(keys)


class InMemory:
    """The least that is a bucket."""

    def __init__(self, clock):
        self.objects = {}
        self._clock = clock

    async def get(self, key):
        found = self.objects.get(key)
        return None if found is None else found[0]

    async def put_if_absent(self, key, data):
        if key in self.objects:
            return False
        self.objects[key] = (data, self._clock.now())
        return True

    async def list(self, prefix, after=None):
        from holdfast.store.bucket.protocol import Listed

        keys = sorted(key for key in self.objects if key.startswith(prefix) and (after is None or key > after))
        return [Listed(key, self.objects[key][1], len(self.objects[key][0])) for key in keys]

    async def delete(self, keys):
        for key in keys:
            self.objects.pop(key, None)
