"""What a program of a run writes itself: what it was told about its jobs, what they ran, and how it all ended."""

from __future__ import annotations

from collections.abc import Iterable

from ...core import waiting
from ...core.job import Record
from ...core.lifecycle import history
from .journal import Entry, Past
from .recorded import digest


def acknowledged(job: str, *, key: str = "", expect: str = "") -> Entry:
    """An enqueue has returned with this job."""
    return Entry("acked", job=job, key=key, expect=expect)


def denied(job: str) -> Entry:
    """Every call that could have made this job was told that nothing was written, and yet it is there."""
    return Entry("denied", job=job)


def began(job: str, fence: int) -> Entry:
    """A job's own code has begun."""
    return Entry("began", job=job, fence=fence)


def ran(job: str, fence: int) -> Entry:
    """A job's own code has reached its end."""
    return Entry("ran", job=job, fence=fence)


def got(job: str, fence: int, step: str, value: object) -> Entry:
    """A job was given what a step of it had returned, now or in an earlier attempt."""
    return Entry("got", job=job, fence=fence, what=step, result=repr(value))


def calm() -> Entry:
    """Faults have stopped."""
    return Entry("calm")


def held_by_the_dead(job: str, holder: str) -> Entry:
    """Long enough after the faults have stopped, a claim is still with a holder whose lease has ended."""
    return Entry("held", job=job, holder=holder)


def left(what: str) -> Entry:
    """Something is there that should not be, when everything has ended: a process, a lock, a file, a key."""
    return Entry("left", what=what)


def final(records: Iterable[Record]) -> list[Entry]:
    """The jobs as the store has them at the end."""
    return [
        Entry(
            "final", job=record.id, state=record.state, fence=record.fence, reset_count=record.reset_count,
            attempt=record.attempt, max_attempts=record.max_attempts, key=record.key or "", task=record.task,
            result=digest(record.result), what=record.error or "", waiting_for=waiting.write(record.waiting_for) or "",
            past=[Past(it.fence, it.reset_count, it.started_at, it.ended_at, it.outcome) for it in history(record)],
        )
        for record in records
    ]  # fmt: skip
