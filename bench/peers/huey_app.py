"""Huey on the file that BENCH_FILE names, every commit synced as in Holdfast."""

from __future__ import annotations

import os
import time

from huey import SqliteHuey

huey = SqliteHuey(filename=os.environ["BENCH_FILE"], fsync=True)
ran: list[float] = []
"""When each job ran, in this process."""
latencies: list[float] = []


@huey.task()
def nothing() -> None:
    """Returns nothing, so that Huey has no result to store: a write less than Holdfast's."""
    ran.append(time.monotonic())


@huey.task()
def stamp(sent: int) -> None:
    latencies.append((time.monotonic_ns() - sent) / 1e9)


@huey.task()
def take(text: str) -> None: ...
