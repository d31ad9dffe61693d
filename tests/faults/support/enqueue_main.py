"""Enqueues for ever, one by one, together, and in bulk; journals each id once it is acknowledged. To be killed."""

from __future__ import annotations

import argparse
import asyncio
import random

from .journal import Journal
from .processes import end_with_parent
from .tasks import build

PLENTY = 5000
"""Jobs after which it enqueues one by one, with pauses: a busy machine kills it late, and the test reads them all."""


async def enqueue_for_ever(url: str, journal: Journal, seed: int) -> None:
    chance = random.Random(seed)
    app, acknowledged = build(url, journal), 0
    async with app:
        while True:
            way = chance.randrange(3) if acknowledged < PLENTY else 0
            if acknowledged >= PLENTY:
                await asyncio.sleep(0.005)
            if way == 0:
                handles = [await app.enqueue("work", 1)]
            elif way == 1:
                handles = await asyncio.gather(*[app.enqueue("work", n) for n in range(chance.randrange(2, 30))])
            else:
                handles = await app.enqueue_many([("work", n) for n in range(chance.choice([10, 300, 2500]))])
            for handle in handles:
                journal.write("acked", handle.id)
            acknowledged += len(handles)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--journal", required=True)
    parser.add_argument("--seed", type=int, required=True)
    given = parser.parse_args()
    end_with_parent()
    asyncio.run(enqueue_for_ever(given.url, Journal(given.journal), given.seed))


if __name__ == "__main__":
    main()
