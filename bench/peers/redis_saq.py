"""SAQ on Redis."""

from __future__ import annotations

from typing import Any

from saq import Queue, Worker

from .redis_scaffold import CONCURRENCY, URL, Side, arrived, ran

queue: Any = None


async def nothing(ctx: dict[str, Any]) -> int:
    ran()
    return 1


async def stamp(ctx: dict[str, Any], *, sent: int) -> None:
    arrived(sent)


async def opened() -> None:
    global queue  # noqa: PLW0603  # made on the loop that uses it
    queue = Queue.from_url(URL)
    await queue.connect()


async def put() -> None:
    await queue.enqueue("nothing")


async def put_stamp(sent: int) -> None:
    await queue.enqueue("stamp", sent=sent)


async def work() -> None:
    await opened()
    await Worker(queue, [nothing, stamp], concurrency=CONCURRENCY).start()


if __name__ == "__main__":
    Side(put, put_stamp, work, opened=opened).serve()
