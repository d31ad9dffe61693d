"""One look at a store, as `holdfast top` shows it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ..app import Holdfast
from ..client.inspection import Stats
from ..core.clock import SystemClock
from ..core.job import TERMINAL
from ..views import Job, WorkerInfo

SAMPLE_SHOWN = 100
"""Jobs of each state that are read: more than a terminal has lines."""


class Sample(msgspec.Struct):
    """What one look found."""

    at: float
    """Seconds of a steady clock."""
    now: int
    stats: Stats
    workers: list[WorkerInfo]
    running: list[Job]
    failures: list[Job]
    latency: str

    @property
    def ended(self) -> int:
        """Jobs that have ended, over all queues."""
        return sum(self.stats.counts[state] for state in TERMINAL)


async def look(app: Holdfast) -> Sample:
    """Ask the store."""
    clock = SystemClock()
    return Sample(
        clock.monotonic(),
        clock.now(),
        await app.stats(),
        await app.workers(),
        (await app.jobs(state="running", limit=SAMPLE_SHOWN)).jobs,
        (await app.jobs(state=["failed", "dead"], limit=SAMPLE_SHOWN)).jobs,
        latency((await app.jobs(state="succeeded", limit=SAMPLE_SHOWN)).jobs),
    )


def latency(jobs: Sequence[Job]) -> str:
    """How long the newest of these waited and ran, in the median."""
    waiting_for = sorted(
        max(0.0, (job.started_at - max(job.run_at, job.created_at)).total_seconds()) for job in jobs if job.started_at
    )
    runs = sorted(
        (job.finished_at - job.started_at).total_seconds() for job in jobs if job.started_at and job.finished_at
    )
    if not waiting_for or not runs:
        return ""
    return f"waited {_short(waiting_for[len(waiting_for) // 2])}, ran {_short(runs[len(runs) // 2])} (median of {len(runs)})"


def _short(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
