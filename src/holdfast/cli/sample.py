"""One sample of a store's state, as `holdfast top` shows it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ..app import Holdfast
from ..client.inspection import Stats
from ..client.reasons import Reasons
from ..client.timeseries import Rate
from ..core.clock import SystemClock
from ..core.job import TERMINAL
from ..views import Job, WorkerInfo

SAMPLE_SHOWN = 100
"""Jobs read per state: more than a terminal has lines."""
RATES_SPAN = 900
"""Seconds over which rates and times of queues are computed, as in the dashboard."""
SLOW_EVERY = 5.0
"""Seconds between two reads of what changes slowly: reasons and rates."""


class Slow(msgspec.Struct):
    """The part of a sample that is read less often."""

    at: float
    """Seconds of the monotonic clock."""
    why: Reasons
    rates: list[Rate]


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
    slow: Slow

    @property
    def ended(self) -> int:
        """Number of ended jobs in all queues."""
        return sum(self.stats.counts[state] for state in TERMINAL)

    def rate(self, queue: str) -> tuple[float, float | None, float | None]:
        """Ended claims of a queue per minute, their mean wait and their mean run time, over the last 15 minutes."""
        found = [one for one in self.slow.rates if one.queue == queue]
        count = sum(one.count for one in found)
        if not count:
            return 0.0, None, None
        waited, ran = sum(one.waited for one in found), sum(one.ran for one in found)
        return count * 60 / RATES_SPAN, waited / count, ran / count


async def take_sample(app: Holdfast, before: Sample | None = None) -> Sample:
    """Read a sample from the store; what changes slowly may be that of the sample before."""
    clock = SystemClock()
    if before is not None and clock.monotonic() - before.slow.at < SLOW_EVERY:
        slow = before.slow
    else:
        rates = await app.timeseries.rates(RATES_SPAN, RATES_SPAN, by_queue=True)
        slow = Slow(clock.monotonic(), await app.explain(), rates)
    return Sample(
        clock.monotonic(),
        clock.now(),
        await app.stats(),
        await app.workers(),
        (await app.jobs(state="running", limit=SAMPLE_SHOWN)).jobs,
        (await app.jobs(state=["failed", "dead"], limit=SAMPLE_SHOWN)).jobs,
        latency((await app.jobs(state="succeeded", limit=SAMPLE_SHOWN)).jobs),
        slow,
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
