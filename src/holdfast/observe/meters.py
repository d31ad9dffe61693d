"""OpenTelemetry metrics of enqueues, claims, runs and queues, named by the semantic conventions for messaging.

They are recorded if a meter provider is configured in this process. If OpenTelemetry was not imported, this module does
not import it: the cost is one lookup in `sys.modules`.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from ..core.clock import Clock, SystemClock
from ..core.job import NewJob, Record, State
from ..core.lifecycle import Outcome
from ..core.validation import type_name
from ..version import __version__
from .events import Events, JobEvent
from .tally import ENDS, SECONDS, LabelValues

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

    from .metrics import Seen

SYSTEM = {"messaging.system": "holdfast"}
DURATIONS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
"""Upper bounds in seconds of histogram buckets, as the conventions advise; a view of the SDK replaces them."""
FLUSH_MILLIS = 5000
"""Milliseconds that an exiting process waits for its metrics, and for its spans, to be exported."""
_clock = SystemClock()
_found: tuple[Any, Meters] | None = None


API_MODULES = ("opentelemetry.metrics", "opentelemetry.metrics._internal")
"""Where the providers of the API alone are defined, which record nothing."""


def meters() -> Meters | None:
    """The instruments of Holdfast; None if no meter provider is configured."""
    global _found  # noqa: PLW0603  # a provider is set once per process, and looked for once per job
    if "opentelemetry.metrics" not in sys.modules:
        return None
    from opentelemetry import metrics

    provider = metrics.get_meter_provider()
    if type(provider).__module__ in API_MODULES:
        return None
    if _found is None or _found[0] is not provider:
        _found = provider, Meters(provider)
    return _found[1]


@contextmanager
def enqueuing(jobs: Sequence[NewJob]) -> Generator[None]:
    """Count and time an enqueue."""
    found = meters()
    if found is None:
        yield
        return
    began, error = _clock.monotonic(), None
    try:
        yield
    except BaseException as raised:
        error = type_name(raised)
        raise
    finally:
        found.enqueued(jobs, _clock.monotonic() - began, error)


async def running(record: Record, run: Awaitable[Outcome]) -> Outcome:
    """Time a run."""
    found = meters()
    if found is None:
        return await run
    began = _clock.monotonic()
    outcome = await run
    found.ran(record, _clock.monotonic() - began, outcome.error_kind)
    return outcome


def listen(events: Events) -> None:
    """Count the claims and ends of an app from now on, if a provider is configured."""
    if (found := meters()) is not None:
        found.listen(events)


def observe_queues(ask: Callable[[], Awaitable[Seen]], clock: Clock) -> Callable[[], None]:
    """Report the depths of all queues while a worker runs on this loop; returns the function that ends it."""
    found = meters()
    if found is None:
        return lambda: None
    from .metrics import Depths

    depths, loop = Depths(ask, clock), asyncio.get_running_loop()
    read = lambda: depths.read_on(loop)  # noqa: E731  # a def here hides what is returned
    found.readers[read] = None
    return lambda: found.readers.pop(read, None)


def flush() -> None:
    """Export what was recorded, in a process that is about to exit."""
    if meters() is not None and _found is not None and hasattr(_found[0], "force_flush"):
        _found[0].force_flush(FLUSH_MILLIS)


class Meters:
    """The instruments of one meter provider."""

    def __init__(self, provider: MeterProvider) -> None:
        meter = provider.get_meter("holdfast", __version__)
        self._sent = meter.create_counter(
            "messaging.client.sent.messages", "{message}", "Jobs that this process tried to enqueue."
        )
        self._operations = meter.create_histogram(
            "messaging.client.operation.duration",
            "s",
            "Time of an enqueue.",
            explicit_bucket_boundaries_advisory=DURATIONS,
        )
        self._consumed = meter.create_counter("messaging.client.consumed.messages", "{message}", "Claimed jobs.")
        self._process = meter.create_histogram(
            "messaging.process.duration", "s", "Time of a run.", explicit_bucket_boundaries_advisory=DURATIONS
        )
        self._wait = meter.create_histogram(
            "holdfast.job.wait", "s", "From due time to claim.", explicit_bucket_boundaries_advisory=SECONDS
        )
        self._ended = meter.create_counter("holdfast.job.ended", "{job}", "Ended claims, by outcome.")
        meter.create_observable_gauge("holdfast.queue.depth", [self._depths], "{job}", "Jobs in the store.")
        meter.create_observable_gauge(
            "holdfast.queue.age", [self._ages], "s", "Time since the oldest ready job was due."
        )
        self.readers: dict[Callable[[], Seen | None], None] = {}
        """Each reads the queues of one worker's store."""
        self._values = LabelValues()
        self._listening = WeakSet[Events]()

    def enqueued(self, jobs: Sequence[NewJob], seconds: float, error: str | None) -> None:
        """Jobs were enqueued, or an error was raised."""
        queues = [self._values.known("queue", job.queue) for job in jobs]
        about: dict[str, Any] = {**SYSTEM, "messaging.operation.name": "enqueue"}
        if error is not None:
            about["error.type"] = error
        for queue in set(queues):
            self._sent.add(queues.count(queue), {**about, "messaging.destination.name": queue})
        if len(set(queues)) == 1:
            about["messaging.destination.name"] = queues[0]
        self._operations.record(seconds, {**about, "messaging.operation.type": "send"})

    def ran(self, record: Record, seconds: float, error: str | None) -> None:
        """A run has ended."""
        about = {**self._about("run", record.queue), "messaging.holdfast.task": self._task(record.task)}
        self._process.record(seconds, about if error is None else {**about, "error.type": error})

    def listen(self, events: Events) -> None:
        """Count the claims and ends of an app, once."""
        if events not in self._listening:
            self._listening.add(events)
            events.on("lease_acquired", self._claimed)
            for name in ENDS:
                events.on(name, self._end)

    def _claimed(self, event: JobEvent) -> None:
        about = self._about("claim", event.queue)
        self._consumed.add(1, about)
        if event.waited is not None:
            self._wait.record(event.waited, about)

    def _end(self, event: JobEvent) -> None:
        outcome, task = event.name.removeprefix("job_"), self._task(event.job_type)
        own = {"messaging.holdfast.task": task, "messaging.holdfast.outcome": outcome}
        self._ended.add(1, {**self._about("settle", event.queue), **own})

    def _about(self, operation: str, queue: str) -> dict[str, Any]:
        known = self._values.known("queue", queue)
        return {**SYSTEM, "messaging.operation.name": operation, "messaging.destination.name": known}

    def _task(self, name: str) -> str:
        return self._values.known("task", name)

    def _depths(self, _: CallbackOptions) -> Iterator[Observation]:
        from opentelemetry.metrics import Observation

        for queues, _now in self._read():
            for queue in queues:
                about = {**SYSTEM, "messaging.destination.name": queue.name}
                for state in State:
                    yield Observation(queue.counts.get(state, 0), {**about, "messaging.holdfast.state": state.value})

    def _ages(self, _: CallbackOptions) -> Iterator[Observation]:
        from opentelemetry.metrics import Observation

        for queues, now in self._read():
            for queue in queues:
                age = 0.0 if queue.oldest is None else max(0, now - queue.oldest) / 1_000_000
                yield Observation(age, {**SYSTEM, "messaging.destination.name": queue.name})

    def _read(self) -> Iterator[tuple[Any, int]]:
        """On the exporter's thread."""
        from .metrics import deepest

        for read in list(self.readers):
            if (seen := read()) is not None:
                yield deepest(seen[0]), seen[1]
