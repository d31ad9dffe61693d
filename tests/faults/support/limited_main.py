"""One worker of limited tasks, everything of whose store is journalled: `python -m support.limited_main --url … …`."""

from __future__ import annotations

import argparse
import asyncio
import os
from pathlib import Path

from holdfast import Context, Holdfast, Worker, limit
from holdfast.core.clock import SystemClock
from holdfast.store.open import open_store
from holdfast.testing.history import JournalFile, recorded

from .gates import Gates
from .processes import end_with_parent

RUNNING = 2


def build(url: str, journal: str) -> Holdfast:
    """An app with a task whose keys run two at a time, and one whose keys start evenly."""
    store = recorded(open_store(url, SystemClock()), JournalFile(journal), str(os.getpid()))
    app = Holdfast(store, lease=1.5, poll=0.1, max_crashes=1000, max_attempts=0)
    gates = Gates(Path(journal))

    @app.task(name="limited", limit=limit(key="key", concurrency=RUNNING))
    async def limited(ctx: Context, key: int, seconds: float, gate: int | None = None) -> None:
        await asyncio.sleep(seconds)
        if gate is not None:
            await gates.wait(gate, ctx.fence)

    @app.task(name="rated", limit=limit(key="key", rate="20/s", burst=3))
    async def rated(key: int) -> None: ...

    return app


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--journal", required=True)
    parser.add_argument("--concurrency", type=int, default=8)
    given = parser.parse_args()
    end_with_parent()
    app = build(given.url, given.journal)

    async def work() -> None:
        async with app:
            await Worker(app, concurrency=given.concurrency).run()

    asyncio.run(work())


if __name__ == "__main__":
    main()
