"""One sample of a store's state, as `holdfast top` shows it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ..app import Holdfast
from ..client.inspection import Stats
from ..core.clock import SystemClock
from ..core.job import TERMINAL
from ..views import Job, WorkerInfo

SAMPLE_SHOWN = 100
"""Jobs read per state: more than a terminal has lines."""


class Sample(msgspec.Struct):
    """The state of a store at one time."""

    at: float
    """Seconds of the monotonic clock."""
    now: int
    stats: Stats
    workers: list[WorkerInfo]
    running: list[Job]
    failures: list[Job]
    latency: str

    @property
    def ended(self) -> int:
        """Number of ended jobs in all queues."""
        return sum(self.stats.counts[state] for state in TERMINAL)


async def take_sample(app: Holdfast) -> Sample:
    """Read a sample from the store."""
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
    """The median wait and run time of the jobs as text; empty without jobs."""
    waits = sorted(
        max(0.0, (job.started_at - max(job.run_at, job.created_at)).total_seconds()) for job in jobs if job.started_at
    )
    runs = sorted(
        (job.finished_at - job.started_at).total_seconds() for job in jobs if job.started_at and job.finished_at
    )
    if not waits or not runs:
        return ""
    return f"waited {_short(waits[len(waits) // 2])}, ran {_short(runs[len(runs) // 2])} (median of {len(runs)})"


def _short(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
