"""OpenTelemetry: one trace from the request that enqueues, through the enqueue, into the run, over processes and HTTP.

A job carries the trace in its meta (`trace_ids.py`). Spans are made where somebody has configured OpenTelemetry in this
process; where nobody has imported it, nothing of it is imported here, and a look into `sys.modules` is the whole cost.
A process without it still hands on the trace that came with a request.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import msgspec

from ..core.job import NewJob, Record
from ..core.lifecycle import Outcome
from ..version import __version__
from .trace_ids import PARENT, STATE, trace_id_of

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Tracer

Carrier = dict[str, str]
FLUSH_MILLIS = 5000
"""Milliseconds that the end of a process waits for its spans to be sent."""
_arrived: ContextVar[Carrier | None] = ContextVar("holdfast_trace", default=None)
"""The trace of the request that is being answered, where OpenTelemetry is not there to keep it."""
_found: tuple[Any, Tracer] | None = None


def tracer() -> Tracer | None:
    """Makes our spans; None where nobody has configured OpenTelemetry."""
    global _found  # noqa: PLW0603  # a provider is set once per process, and looked for once per job
    if "opentelemetry.trace" not in sys.modules:
        return None
    from opentelemetry import trace

    provider = trace.get_tracer_provider()
    if isinstance(provider, trace.ProxyTracerProvider):
        return None
    if _found is None or _found[0] is not provider:
        _found = provider, provider.get_tracer("holdfast", __version__)
    return _found[1]


def wanted() -> bool:
    """Whether an enqueue of now has a trace to carry on."""
    return _arrived.get() is not None or tracer() is not None


@contextmanager
def enqueuing(jobs: Sequence[NewJob]) -> Generator[Sequence[NewJob]]:
    """Around an enqueue: a span for it, and the jobs with the trace in their meta."""
    ours = tracer()
    if ours is None:
        carrier = _arrived.get()
        yield jobs if carrier is None else _stamped(jobs, carrier)
        return
    from opentelemetry.trace import SpanKind

    names, first = {job.task for job in jobs}, jobs[0]
    about: dict[str, Any] = {**_about("enqueue", "send", first.queue), "messaging.batch.message_count": len(jobs)}
    if len(jobs) == 1:
        about |= {"messaging.message.id": first.id, "holdfast.task": first.task}
        del about["messaging.batch.message_count"]
    name = f"enqueue {first.task}" if len(names) == 1 else "enqueue"
    with ours.start_as_current_span(name, kind=SpanKind.PRODUCER, attributes=about):
        yield _stamped(jobs, _current())


async def running(record: Record, run: Awaitable[Outcome], ours: Tracer) -> Outcome:
    """Around a run: a span that goes on from the job's enqueue."""
    from opentelemetry.trace import SpanKind, Status, StatusCode

    about = {
        **_about("run", "process", record.queue),
        "messaging.message.id": record.id,
        "holdfast.task": record.task,
        "holdfast.attempt": record.attempt,
        "holdfast.worker": record.holder or "",
    }
    with ours.start_as_current_span(
        f"run {record.task}", _context(record.meta), kind=SpanKind.CONSUMER, attributes=about
    ) as span:
        outcome = await run
        span.set_attribute("holdfast.outcome", outcome.kind)
        if outcome.error is not None:
            span.set_status(Status(StatusCode.ERROR, outcome.error))
        return outcome


def handed_on(record: Record) -> Record:
    """The record for a process of its own: it goes on from the span of now."""
    if tracer() is None:
        return record
    return msgspec.structs.replace(record, meta={**record.meta, **_current()})


@contextmanager
def continued(meta: Mapping[str, Any]) -> Generator[None]:
    """What runs inside belongs to the trace that a job carries: for children, and for claims by hand."""
    if tracer() is None or trace_id_of(meta) is None:
        yield
        return
    from opentelemetry import context

    before = context.attach(_context(meta))
    try:
        yield
    finally:
        context.detach(before)


@contextmanager
def arriving(headers: Iterable[tuple[bytes, bytes]]) -> Generator[None]:
    """Around the answer to a request: what it enqueues belongs to the trace that its headers name, if they do."""
    carrier = {
        name.decode(): value.decode("latin-1")
        for name, value in headers
        if name in (b"traceparent", b"tracestate") and len(value) <= 512
    }
    if trace_id_of(carrier) is None or _in_a_span():
        yield
    elif tracer() is not None:
        with continued(carrier):
            yield
    else:
        before = _arrived.set(carrier)
        try:
            yield
        finally:
            _arrived.reset(before)


def flush() -> None:
    """Send what was gathered, in a process that is about to end at once."""
    if tracer() is not None and _found is not None and hasattr(_found[0], "force_flush"):
        _found[0].force_flush(FLUSH_MILLIS)


def _in_a_span() -> bool:
    """Whether somebody else's instrumentation has begun a span already."""
    if tracer() is None:
        return False
    from opentelemetry import trace

    return trace.get_current_span().get_span_context().is_valid


def _about(operation: str, kind: str, queue: str) -> dict[str, Any]:
    """Attributes, by OpenTelemetry's conventions for messaging."""
    return {
        "messaging.system": "holdfast",
        "messaging.operation.name": operation,
        "messaging.operation.type": kind,
        "messaging.destination.name": queue,
    }


def _stamped(jobs: Sequence[NewJob], carrier: Carrier) -> list[NewJob]:
    # What the caller has put there by hand stays.
    return [job if PARENT in job.meta else msgspec.structs.replace(job, meta={**job.meta, **carrier}) for job in jobs]


def _current() -> Carrier:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: Carrier = {}
    TraceContextTextMapPropagator().inject(carrier)
    return carrier


def _context(meta: Mapping[str, Any]) -> Context:
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier = {name: value for name in (PARENT, STATE) if isinstance(value := meta.get(name), str)}
    return TraceContextTextMapPropagator().extract(carrier, Context())
