"""Prometheus metrics: counters of this process and gauges of the store, as one page of text."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import TimeoutError as TooSlow
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ..core.clock import Clock
from ..core.errors import HoldfastError, MissingExtra
from ..core.job import TERMINAL, State
from ..core.operations import QueueStats
from ..store.protocol import Finding
from .events import EventSource
from .tally import METRICS, OTHER, SECONDS, Tally

if TYPE_CHECKING:
    from prometheus_client.core import Metric as Family
    from prometheus_client.registry import CollectorRegistry

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
PREFIX = "holdfast"
"""Default prefix of all metric names; the setting `metrics_prefix` changes it."""
SCRAPE_TIMEOUT = 4.0
"""Timeout in seconds for the store's answer."""
Seen = tuple[list[QueueStats], int, tuple[Finding, ...]]
"""All queues, the store's time in microseconds, and its warnings."""
LOOP_TIMEOUT = 5.0
"""Seconds that the event loop has to answer another thread."""
MAX_AGE = 2.0
"""Seconds for which the store's answer is cached for all scrapes."""
MAX_QUEUES = 100
"""Queues exported by name; the rest are summed, since clients can create any number of names."""


class Depths:
    """The queue statistics of a store, cached for `MAX_AGE`. `ask`: `app.queues`."""

    def __init__(self, ask: Callable[[], Awaitable[Seen]], clock: Clock) -> None:
        self._ask = ask
        self._clock = clock
        self._asking = asyncio.Lock()
        self._seen: Seen | None = None
        self._asked: float | None = None

    async def read(self) -> Seen | None:
        """The result of `ask`; None if the store does not answer in time."""
        async with self._asking:
            now = self._clock.monotonic()
            if self._asked is None or now - self._asked >= MAX_AGE:
                try:
                    async with asyncio.timeout(SCRAPE_TIMEOUT):
                        self._seen = await self._ask()
                except (HoldfastError, TimeoutError):
                    self._seen = None
                self._asked = self._clock.monotonic()
            return self._seen

    def read_on(self, loop: asyncio.AbstractEventLoop) -> Seen | None:
        """`read` on its loop, for another thread; None if the loop is busy, has ended, or is this thread's."""
        here = asyncio._get_running_loop()  # pyright: ignore[reportPrivateUsage]  # noqa: SLF001  # does not raise
        if not loop.is_running() or here is loop:
            return None
        reading = asyncio.run_coroutine_threadsafe(self.read(), loop)
        try:
            return reading.result(LOOP_TIMEOUT)
        except TooSlow:
            reading.cancel()
            return None


class Metrics:
    """The metrics of one process, or of a supervisor with its workers."""

    def __init__(self, active: Callable[[], int] = lambda: 0, *, prefix: str = PREFIX) -> None:
        if find_spec("prometheus_client") is None:
            raise MissingExtra("the Prometheus export", "server")
        self.tally = Tally()
        self._active = active
        self._prefix = prefix
        """Prefix of the exported names, instead of `holdfast`."""

    def listen(self, events: EventSource) -> None:
        """Count the events of an app from now on."""
        self.tally.listen(events)

    def page(self, seen: Seen | None) -> bytes:
        """The page in Prometheus text format. `seen`: the result of `Depths.read`."""
        from prometheus_client import generate_latest

        return generate_latest(self.registry(lambda: seen))

    def registry(self, read: Callable[[], Seen | None]) -> CollectorRegistry:
        """The metrics as a `CollectorRegistry`; `read` is called at every scrape."""
        from prometheus_client import CollectorRegistry

        metrics = self

        class Collector:
            def collect(self) -> Iterator[Family]:
                return metrics.families(read())

            def describe(self) -> list[Family]:
                return []

        registry = CollectorRegistry(auto_describe=False)
        registry.register(Collector())  # type: ignore[arg-type]
        return registry

    def families(self, seen: Seen | None) -> Iterator[Family]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        sums = dict(self.tally.sums)
        gauges = self._gauges(seen)
        for name, metric in METRICS.items():
            labels, shown = metric.labels, self._prefix + name.removeprefix(PREFIX)
            if metric.kind == "gauge":
                family: Any = GaugeMetricFamily(shown, metric.help, labels=labels)
                for values, number in gauges.get(name, ()):
                    family.add_metric(values, number)
            elif metric.kind == "counter":
                family = CounterMetricFamily(shown.removesuffix("_total"), metric.help, labels=labels)
                if not labels:
                    sums.setdefault((name,), 0.0)
                for key, number in sums.items():
                    if key[0] == name:
                        family.add_metric(key[1:], number)
            else:
                family = HistogramMetricFamily(shown, metric.help, labels=labels)
                for values, buckets, total in _histograms(name, sums):
                    family.add_metric(values, buckets, total)
            yield family

    def _gauges(self, seen: Seen | None) -> dict[str, list[tuple[tuple[str, ...], float]]]:
        found: dict[str, list[tuple[tuple[str, ...], float]]] = {
            "holdfast_worker_active_jobs": [((), self._active())],
            "holdfast_store_up": [((), float(seen is not None))],
        }
        if seen is None:
            return found
        queues, now = deepest(seen[0]), seen[1]
        found["holdfast_queue_depth"] = [
            ((queue.name, state.value), queue.counts.get(state, 0)) for queue in queues for state in State
        ]
        found["holdfast_queue_oldest_age_seconds"] = [
            ((queue.name,), 0.0 if queue.oldest is None else max(0, now - queue.oldest) / 1_000_000) for queue in queues
        ]
        found["holdfast_store_warnings"] = [((), len(seen[2]))]
        found["holdfast_queue_paused"] = [((queue.name,), float(queue.paused)) for queue in queues]
        return found


def deepest(queues: list[QueueStats]) -> list[QueueStats]:
    """The `MAX_QUEUES` queues with the most unfinished jobs, and the sum of the others as one queue."""

    def depth(queue: QueueStats) -> tuple[int, int]:
        ended = sum(queue.counts.get(state, 0) for state in TERMINAL)
        return sum(queue.counts.values()) - ended, ended

    named = [queue for queue in queues if queue.name != OTHER]
    shown = {queue.name for queue in sorted(named, key=depth, reverse=True)[:MAX_QUEUES]}
    rest = [queue for queue in queues if queue.name not in shown]
    if not rest:
        return queues
    counts = {state.value: sum(queue.counts.get(state, 0) for queue in rest) for state in State}
    # Paused only if all are, so that an alert that ignores paused queues still covers the active ones.
    late = min((queue.oldest for queue in rest if queue.oldest is not None), default=None)
    other = QueueStats(OTHER, counts, late, paused=all(queue.paused for queue in rest))
    return [*(queue for queue in queues if queue.name in shown), other]


def _histograms(
    name: str, sums: dict[tuple[str, ...], float]
) -> Iterator[tuple[tuple[str, ...], list[tuple[str, float]], float]]:
    """Each set of labels with its cumulative buckets and its sum."""
    for values in sorted({key[1:-1] for key in sums if key[0] == name}):
        count, buckets = 0.0, list[tuple[str, float]]()
        for number, bound in enumerate([*map(float, SECONDS), float("inf")]):
            count += sums.get((name, *values, str(number)), 0.0)
            buckets.append(("+Inf" if bound == float("inf") else str(bound), count))
        yield values, buckets, sums.get((name, *values, "sum"), 0.0)
