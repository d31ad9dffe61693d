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

from ..core.internal import flow_of
from ..core.job import NewJob, Record
from ..core.lifecycle import Outcome
from ..core.validation import type_name
from ..version import __version__
from . import meters
from .trace_ids import PARENT, STATE, trace_id_of

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, SpanContext, Tracer

Carrier = dict[str, str]
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
    """Whether an enqueue in the current context is measured, or has a trace to propagate."""
    return _arrived.get() is not None or watched()


def watched() -> bool:
    """Whether OpenTelemetry is configured, for traces or for metrics."""
    return tracer() is not None or meters.meters() is not None


@contextmanager
def enqueuing(jobs: Sequence[NewJob]) -> Generator[Sequence[NewJob]]:
    """Wrap an enqueue in a span and measure it; yields the jobs with the trace context in their meta."""
    with meters.enqueuing(jobs), _enqueue_span(jobs) as stamped:
        yield stamped


@contextmanager
def _enqueue_span(jobs: Sequence[NewJob]) -> Generator[Sequence[NewJob]]:
    ours = tracer()
    if ours is None:
        carrier = _arrived.get()
        yield jobs if carrier is None else _stamped(jobs, carrier)
        return
    from opentelemetry.trace import SpanKind

    about, queues, tasks = _about("enqueue", "send"), {job.queue for job in jobs}, {job.task for job in jobs}
    if len(jobs) == 1:
        about["messaging.message.id"] = jobs[0].id
    else:
        about["messaging.batch.message_count"] = len(jobs)
    if len(queues) == 1:
        about["messaging.destination.name"] = jobs[0].queue
    if len(tasks) == 1:
        about["messaging.holdfast.task"] = jobs[0].task
    name = f"enqueue {jobs[0].queue}" if len(queues) == 1 else "enqueue"
    links = [link for job in jobs if PARENT in job.meta for link in _links(job.meta, {"messaging.message.id": job.id})]
    with ours.start_as_current_span(name, kind=SpanKind.PRODUCER, attributes=about, links=links) as span:
        try:
            yield _stamped(jobs, _current())
        except BaseException as error:
            span.set_attribute("error.type", type_name(error))
            raise


async def running(record: Record, run: Awaitable[Outcome]) -> Outcome:
    """Measure a run, and wrap it in a span whose parent is the job's enqueue."""
    ours = tracer()
    return await meters.running(record, run if ours is None else _run_in_span(record, run, ours))


async def _run_in_span(record: Record, run: Awaitable[Outcome], ours: Tracer) -> Outcome:
    from opentelemetry.trace import Link, SpanKind, Status, StatusCode, get_current_span

    about = {
        **_about("run", "process"),
        "messaging.destination.name": record.queue,
        "messaging.message.id": record.id,
        "messaging.client.id": record.holder or "",
        "messaging.holdfast.task": record.task,
        "messaging.holdfast.attempt": record.attempt,
    }
    if (flow := flow_of(record)) is not None:
        about["messaging.message.conversation_id"] = flow
    links = _links(record.meta)
    if (around := get_current_span().get_span_context()).is_valid:  # the worker was started inside a span
        links.append(Link(around))
    with ours.start_as_current_span(
        f"run {record.queue}", _context(record.meta), kind=SpanKind.CONSUMER, attributes=about, links=links
    ) as span:
        outcome = await run
        span.set_attribute("messaging.holdfast.outcome", outcome.kind)
        if outcome.error is not None:
            kind = outcome.error_kind or outcome.kind
            span.set_attribute("error.type", kind)
            span.set_status(Status(StatusCode.ERROR, outcome.error))
            if outcome.traceback is not None:
                fields = {"exception.type": kind, "exception.message": outcome.error}
                span.add_event("exception", {**fields, "exception.stacktrace": outcome.traceback})
        return outcome


def current_span() -> SpanContext | None:
    """The span that a run is in, for the one call of its batch."""
    if tracer() is None:
        return None
    from opentelemetry.trace import get_current_span

    return get_current_span().get_span_context()


@contextmanager
def calling(task: str, runs: Sequence[SpanContext | None]) -> Generator[None]:
    """Wrap the one call of a batch in a span of a separate trace, with a link to the span of each run."""
    ours = tracer()
    if ours is None:
        yield
        return
    from opentelemetry.context import Context
    from opentelemetry.trace import Link

    about = {"messaging.batch.message_count": len(runs), "messaging.holdfast.task": task}
    links = [Link(run) for run in runs if run is not None and run.is_valid]
    with ours.start_as_current_span(f"call {task}", Context(), attributes=about, links=links):
        yield


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
    """Export pending spans, in a process that is about to exit or may be killed."""
    if tracer() is not None and _found is not None and hasattr(_found[0], "force_flush"):
        _found[0].force_flush(meters.FLUSH_MILLIS)


def _in_a_span() -> bool:
    """Whether other instrumentation has already started a span."""
    if tracer() is None:
        return False
    from opentelemetry import trace

    return trace.get_current_span().get_span_context().is_valid


def _about(operation: str, kind: str) -> dict[str, Any]:
    """Span attributes by OpenTelemetry's semantic conventions for messaging."""
    return {**meters.SYSTEM, "messaging.operation.name": operation, "messaging.operation.type": kind}


def _links(meta: Mapping[str, Any], about: Mapping[str, Any] | None = None) -> list[Link]:
    """A link to the span in which a job was enqueued, if its meta names one."""
    from opentelemetry.trace import Link, get_current_span

    enqueued = get_current_span(_context(meta)).get_span_context()
    return [Link(enqueued, about)] if enqueued.is_valid else []


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
