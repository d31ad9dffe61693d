"""OpenTelemetry: one trace from the request through the enqueue to the run, across processes and HTTP.

A job carries the trace context in its meta (`trace_ids.py`). Spans are created if OpenTelemetry is configured in this
process. If it was not imported, this module does not import it: the cost is one lookup in `sys.modules`. A process
without OpenTelemetry still propagates the trace context of a request.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
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
"""Milliseconds that an exiting process waits for its spans to be exported."""
_arrived: ContextVar[Carrier | None] = ContextVar("holdfast_trace", default=None)
"""The trace context of the current request, in a process without OpenTelemetry."""
_NO_TRACE = nullcontext()
_found: tuple[Any, Tracer] | None = None


def tracer() -> Tracer | None:
    """The tracer of Holdfast; None if OpenTelemetry is not configured."""
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
    """Whether an enqueue in the current context has a trace to propagate."""
    return _arrived.get() is not None or tracer() is not None


@contextmanager
def enqueuing(jobs: Sequence[NewJob]) -> Generator[Sequence[NewJob]]:
    """Wrap an enqueue in a span; yields the jobs with the trace context in their meta."""
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
    """Wrap a run in a span whose parent is the job's enqueue."""
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
    """The record with the current span as its trace context, for a run in a child process."""
    if tracer() is None:
        return record
    return msgspec.structs.replace(record, meta={**record.meta, **_current()})


@contextmanager
def continued(meta: Mapping[str, Any]) -> Generator[None]:
    """Run the block in the trace of a job: for child processes and manual claims."""
    if tracer() is None or trace_id_of(meta) is None:
        yield
        return
    from opentelemetry import context

    before = context.attach(_context(meta))
    try:
        yield
    finally:
        context.detach(before)


def arriving(headers: Mapping[bytes, bytes]) -> AbstractContextManager[None]:
    """Run the block in the trace of a request's headers, if they have one and no span is active."""
    return _arriving(headers) if b"traceparent" in headers else _NO_TRACE


@contextmanager
def _arriving(headers: Mapping[bytes, bytes]) -> Generator[None]:
    carrier = {
        name.decode(): value.decode("latin-1")
        for name, value in headers.items()
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
    """Export pending spans, in a process that is about to exit."""
    if tracer() is not None and _found is not None and hasattr(_found[0], "force_flush"):
        _found[0].force_flush(FLUSH_MILLIS)


def _in_a_span() -> bool:
    """Whether other instrumentation has already started a span."""
    if tracer() is None:
        return False
    from opentelemetry import trace

    return trace.get_current_span().get_span_context().is_valid


def _about(operation: str, kind: str, queue: str) -> dict[str, Any]:
    """Span attributes by OpenTelemetry's semantic conventions for messaging."""
    return {
        "messaging.system": "holdfast",
        "messaging.operation.name": operation,
        "messaging.operation.type": kind,
        "messaging.destination.name": queue,
    }


def _stamped(jobs: Sequence[NewJob], carrier: Carrier) -> list[NewJob]:
    # A trace context set by the caller is kept.
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
