"""Debounces one key for ever with rising numbers; journals each number once it is acknowledged. To be killed."""

from __future__ import annotations

import argparse
import asyncio

from holdfast.app import parts_of

from .journal import Journal
from .processes import end_with_parent
from .tasks import build


async def debounce_for_ever(url: str, journal: Journal, first: int) -> None:
    app = build(url, journal)
    async with app:
        work = parts_of(app).registry.tasks["work"].using(key="draft", debounce=3600)
        number = first
        while True:
            journal.write("sent", n=number)
            handle = await work.enqueue(number)
            journal.write("acked", handle.id, n=number)
            number += 1


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--journal", required=True)
    parser.add_argument("--first", type=int, required=True)
    given = parser.parse_args()
    end_with_parent()
    asyncio.run(debounce_for_ever(given.url, Journal(given.journal), given.first))


if __name__ == "__main__":
    main()
