"""Fills a folder on a small disk from several stores, frees space, and checks the answers of each."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from holdfast.core.clock import SystemClock
from holdfast.core.errors import OutcomeUnknown, StoreUnavailable
from holdfast.store.open import open_store
from holdfast.store.protocol import Batch, Store
from holdfast.testing.build import new_job
from holdfast.testing.verbs import enqueue, every


class Reported:
    """The ids of what was acknowledged, and of what was surely not written."""

    def __init__(self) -> None:
        self.written: set[str] = set()
        self.refused: set[str] = set()


async def fill(store: Store, name: str, reported: Reported) -> None:
    number = 0
    while True:
        ids = {f"{name}-{number}", f"{name}-{number}-twin"}
        number += 1
        try:
            await store.write(Batch(inserts=[new_job(id, payload=b"x" * 1000) for id in sorted(ids)]))
        except OutcomeUnknown as error:
            print("unknown:", error)
            return
        except StoreUnavailable as error:
            print("refused:", error)
            reported.refused |= ids
            return
        reported.written |= ids


async def main(folder: Path, count: int) -> None:
    ballast = folder / "ballast"
    ballast.write_bytes(bytes(500_000))
    stores = [open_store(f"file://{folder}/jobs", SystemClock()) for _ in range(count)]
    for store in stores:
        await store.open()
    reported = Reported()
    await asyncio.gather(*(fill(store, f"{number}", reported) for number, store in enumerate(stores)))
    assert len(reported.written) > 100, reported.written
    assert {record.id for record in await every(stores[0], page=500)} >= reported.written
    ballast.unlink()
    for number, store in enumerate(stores):
        await enqueue(store, f"after-{number}")
    found = {record.id for record in await every(stores[0], page=500)}
    assert reported.written <= found, reported.written - found
    assert not reported.refused & found, reported.refused & found
    assert not list((folder / "jobs" / ".aside").iterdir())
    for store in stores:
        await store.close()
    print("recovered")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
