"""Events that a program of a run writes itself: answers about its jobs, runs of their code, and their final states."""

from __future__ import annotations

from collections.abc import Iterable

from ...core import waiting
from ...core.chunks import Chunk
from ...core.job import Record
from ...core.lifecycle import history
from .journal import Entry, Past
from .recorded import digest


def acknowledged(job: str, *, key: str = "", expect: str = "") -> Entry:
    """An enqueue has returned with this job."""
    return Entry("acked", job=job, key=key, expect=expect)


def denied(job: str) -> Entry:
    """Every call that could have created this job got StoreUnavailable (nothing written), but the job exists."""
    return Entry("denied", job=job)


def began(job: str, fence: int) -> Entry:
    """The code of a job has begun."""
    return Entry("began", job=job, fence=fence)


def ran(job: str, fence: int) -> Entry:
    """The code of a job has reached its end."""
    return Entry("ran", job=job, fence=fence)


def got(job: str, fence: int, step: str, value: object) -> Entry:
    """A job got the result of one of its steps, from this or an earlier attempt."""
    return Entry("got", job=job, fence=fence, what=step, result=repr(value))


def emitted(job: str, fence: int, value: object) -> Entry:
    """A job is about to emit this chunk. The values of a job's chunks differ."""
    return Entry("emitted", job=job, fence=fence, result=repr(value))


def received(job: str, chunk: Chunk, reader: str = "") -> Entry:
    """A reader that reads the stream of a job to its end got this chunk."""
    return Entry("received", job=job, fence=chunk.fence, seq=chunk.position, result=repr(chunk.value), holder=reader)


def calm() -> Entry:
    """Faults have stopped."""
    return Entry("calm")


def held_by_expired_holder(job: str, holder: str) -> Entry:
    """More than lease + sweep after the last fault, a claim still belongs to a holder with an expired lease."""
    return Entry("held", job=job, holder=holder)


def left(what: str) -> Entry:
    """Something is left after everything has ended: a process, a lock, a file, a key."""
    return Entry("left", what=what)


def final(records: Iterable[Record]) -> list[Entry]:
    """The jobs in the store at the end."""
    return [
        Entry(
            "final", job=record.id, state=record.state, fence=record.fence, reset_count=record.reset_count,
            attempt=record.attempt, max_attempts=record.max_attempts, key=record.key or "", task=record.task,
            result=digest(record.result), what=record.error or "", waiting_for=waiting.write(record.waiting_for) or "",
            past=[Past(it.fence, it.reset_count, it.started_at, it.ended_at, it.outcome) for it in history(record)],
        )
        for record in records
    ]  # fmt: skip
