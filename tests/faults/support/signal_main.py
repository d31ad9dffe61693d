"""Sends a signal, and dies by kill -9 before one of its writes. To be run by a test, once for each of them."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from typing import Any

from holdfast.app import parts_of

from .journal import Journal
from .processes import end_with_parent
from .tasks import build


async def send(url: str, journal: Journal, name: str, dies_at: int) -> None:
    async with build(url, journal) as app:
        written = 0

        def dying(write: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
            async def write_or_die(*args: Any) -> Any:
                nonlocal written
                if written == dies_at:
                    os.kill(os.getpid(), signal.SIGKILL)
                written += 1
                return await write(*args)

            return write_or_die

        parts_of(app).session.store.put_record = dying(parts_of(app).session.store.put_record)
        parts_of(app).session.commit.change = dying(parts_of(app).session.commit.change)
        await app.signal(name, "sent")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--journal", required=True)
    parser.add_argument("--signal", required=True)
    parser.add_argument("--dies-at", type=int, required=True)
    given = parser.parse_args()
    end_with_parent()
    asyncio.run(send(given.url, Journal(given.journal), given.signal, given.dies_at))


if __name__ == "__main__":
    main()
