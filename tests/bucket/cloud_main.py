"""A process that makes many requests of a bucket in the cloud at once, and ends as soon as the last is answered."""

from __future__ import annotations

import asyncio
import sys

from holdfast.store.bucket.cloud import Cloud

COUNT = 20


async def main(endpoint: str, name: str) -> None:
    bucket = Cloud("s3", "jobs", "busy", {"endpoint": endpoint})

    async def put_and_get(number: int) -> None:
        key, data = f"{name}/{number}", bytes([number]) * 200
        assert await bucket.put_if_absent(key, data)
        assert await bucket.get(key) == data

    await asyncio.gather(*(put_and_get(number) for number in range(COUNT)))
    print("done", flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
