"""Sums behind the metrics: cheap to update in a busy worker, and merged over processes by addition."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

import msgspec

from .events import EventSource, JobEvent, RequestEvent

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)
"""Upper bounds in seconds of the buckets of every histogram."""
MAX_LABEL_VALUES = 500
"""Distinct values per label; the rest count as `OTHER`, since clients can create any number of names."""
OTHER = "(other)"


class Metric(msgspec.Struct, frozen=True):
    """One row of the table of metrics."""

    kind: str
    help: str
    labels: tuple[str, ...] = ()


_TYPE = ("job_type",)
_REQUEST = ("method", "path_template", "status_code")

METRICS: dict[str, Metric] = {
    "holdfast_jobs_submitted_total": Metric("counter", "Jobs stored.", _TYPE),
    "holdfast_jobs_idempotent_total": Metric("counter", "Enqueues that found an existing job with their key.", _TYPE),
    "holdfast_jobs_succeeded_total": Metric("counter", "Jobs that succeeded.", _TYPE),
    "holdfast_jobs_failed_total": Metric("counter", "Attempts that failed and will be retried.", _TYPE),
    "holdfast_jobs_dead_total": Metric("counter", "Jobs that became dead.", _TYPE),
    "holdfast_jobs_retried_total": Metric("counter", "Claims after the first attempt of a job."),
    "holdfast_lease_acquired_total": Metric("counter", "Claims."),
    "holdfast_lease_rejected_total": Metric("counter", "Settlements refused because the claim had ended."),
    "holdfast_worker_active_jobs": Metric("gauge", "Jobs running in this supervisor's workers."),
    "holdfast_job_duration_seconds": Metric("histogram", "From claim to settlement.", ("job_type", "outcome")),
    "holdfast_job_wait_seconds": Metric("histogram", "From due time to claim.", ("queue",)),
    "holdfast_http_requests_total": Metric("counter", "Requests answered.", _REQUEST),
    "holdfast_http_request_duration_seconds": Metric("histogram", "From request to start of the response.", _REQUEST),
    "holdfast_queue_depth": Metric("gauge", "Jobs in the store.", ("queue", "state")),
    "holdfast_queue_oldest_age_seconds": Metric("gauge", "Time since the oldest ready job was due.", ("queue",)),
    "holdfast_queue_paused": Metric("gauge", "1 if the queue is paused, else 0.", ("queue",)),
    "holdfast_store_up": Metric("gauge", "1 if the store responds, else 0."),
    "holdfast_store_warnings": Metric("gauge", "Durability warnings of the store, listed by the doctor command."),
}

Key = tuple[str, ...]
"""The metric's name, its label values, and for a histogram the bucket number or `sum`."""

_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_BUCKETS = tuple(map(str, range(len(SECONDS) + 1)))
_ENDED = {
    "job_succeeded": "holdfast_jobs_succeeded_total",
    "job_failed": "holdfast_jobs_failed_total",
    "job_dead": "holdfast_jobs_dead_total",
}
ENDS = (
    *_ENDED, "job_cancelled", "job_expired", "job_released", "job_snoozed", "job_paused", "job_refused", "job_lost",
)  # fmt: skip
"""The events that end a claim."""


class LabelValues:
    """The values of each label, bounded by `MAX_LABEL_VALUES`."""

    def __init__(self) -> None:
        self._known: dict[str, set[str]] = {}

    def known(self, label: str, value: str) -> str:
        """The value, or `OTHER` if there are too many."""
        values = self._known.setdefault(label, set())
        if value not in values:
            if len(values) >= MAX_LABEL_VALUES:
                return OTHER
            values.add(value)
        return value


class Tally:
    """Sums over the events of one process."""

    def __init__(self) -> None:
        self.sums: dict[Key, float] = {}
        self._known = LabelValues().known

    def listen(self, events: EventSource) -> None:
        """Count the events of a source from now on."""
        events.on("job_created", lambda event: self._count("holdfast_jobs_submitted_total", event))
        events.on("idempotent_submission", lambda event: self._count("holdfast_jobs_idempotent_total", event))
        events.on("lease_acquired", self._claimed)
        events.on("lease_lost", lambda _: self._add(("holdfast_lease_rejected_total",)))
        for name in ENDS:
            events.on(name, self._ended)
        events.on("http_request", self._answered)

    def take(self) -> tuple[tuple[Key, float], ...]:
        """The sums since the last call; resets them."""
        taken, self.sums = self.sums, {}
        return tuple(taken.items())

    def add_all(self, sums: Iterable[tuple[Key, float]]) -> None:
        """Add the sums of another process; `MAX_LABEL_VALUES` applies to all processes together."""
        for key, value in sums:
            metric, *rest = key
            labels = METRICS[metric].labels
            known = (self._known(label, name) for label, name in zip(labels, rest, strict=False))
            self._add((metric, *known, *rest[len(labels) :]), value)

    def _claimed(self, event: JobEvent) -> None:
        self._add(("holdfast_lease_acquired_total",))
        if event.attempt is not None and event.attempt > 1:
            self._add(("holdfast_jobs_retried_total",))
        if event.waited is not None:
            self._observe(("holdfast_job_wait_seconds", self._known("queue", event.queue)), event.waited)

    def _ended(self, event: JobEvent) -> None:
        metric = _ENDED.get(event.name)
        if metric is not None:
            self._count(metric, event)
        if event.ran is not None:
            outcome = event.name.removeprefix("job_")
            job_type = self._known("job_type", event.job_type)
            self._observe(("holdfast_job_duration_seconds", job_type, outcome), event.ran)

    def _answered(self, event: RequestEvent) -> None:
        method = event.method if event.method in _METHODS else OTHER
        labels = (method, self._known("path_template", event.path_template), str(event.status_code))
        self._add(("holdfast_http_requests_total", *labels))
        self._observe(("holdfast_http_request_duration_seconds", *labels), event.ran)

    def _count(self, metric: str, event: JobEvent) -> None:
        self._add((metric, self._known("job_type", event.job_type)))

    def _observe(self, key: Key, seconds: float) -> None:
        self._add((*key, _BUCKETS[bisect_left(SECONDS, seconds)]))
        self._add((*key, "sum"), seconds)

    def _add(self, key: Key, value: float = 1.0) -> None:
        self.sums[key] = self.sums.get(key, 0.0) + value
