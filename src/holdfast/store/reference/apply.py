"""How each operation changes a record: pure functions, used by every store that keeps records as Python values.

Before it applies an operation, the store checks in the same atomic step that fence, token, heartbeat and state match.
"""

from __future__ import annotations

import msgspec

from ...core.clock import MICROS
from ...core.job import HISTORY_LIMIT, TERMINAL, UNTIMED, NewJob, Record, State, ended_attempt
from ...core.operations import Note, Patch, Settlement

UNSET = msgspec.UNSET
LONGEST_DELAY_SECONDS = 1e12
"""Longer delays are shortened to this, so that every store can add it to a time."""
_PLAINLY_PATCHED = (
    "attempt", "reset_count", "quarantined", "crashes", "cancel", "result", "error", "traceback", "progress", "history",
    "payload", "checkpoint", "extra", "task", "queue", "priority",
)  # fmt: skip


def after(now: int, seconds: float) -> int:
    """The stored time (microseconds) that many seconds after `now`; never before it, at most LONGEST_DELAY_SECONDS."""
    return now + int(min(max(0.0, seconds), LONGEST_DELAY_SECONDS) * MICROS)


def expiry(now: int, keep: float | None) -> int | None:
    """When retention may remove an ended job; None: never."""
    return None if keep is None else after(now, keep)


def first_run_at(new: NewJob, now: int) -> int:
    """When a new job is due; the past means now."""
    return after(now, new.delay) if new.run_at is None else max(now, new.run_at)


def new_record(new: NewJob, seq: int, now: int) -> Record:
    """The record of a job that is stored now."""
    run_at = first_run_at(new, now)
    return Record(
        seq=seq,
        id=new.id,
        queue=new.queue,
        task=new.task,
        state=State.BLOCKED if new.waiting_for is not None else State.SCHEDULED if run_at > now else State.QUEUED,
        priority=new.priority,
        run_at=run_at,
        payload=new.payload,
        codec=new.codec,
        max_attempts=new.max_attempts,
        timeout=new.timeout,
        key=new.key,
        created_at=now,
        tags=new.tags,
        meta=new.meta,
        retry=new.retry,
        waiting_for=new.waiting_for,
        limit_key=new.limit_key,
        extra=new.extra,
    )


def note(record: Record, new: Note, now: int) -> None:
    if not new.progress is new.checkpoint is new.pid is new.meta is UNSET:
        record.changed_at = now
    if new.progress is not UNSET:
        record.progress = new.progress
    if new.checkpoint is not UNSET and new.saves > record.saves:
        record.checkpoint = new.checkpoint
        record.saves = new.saves
        record.crashes = min(record.crashes, 0)
    if new.pid is not UNSET:
        record.pid = new.pid
    if new.meta is not UNSET:
        record.meta = {**record.meta, **new.meta}


def notifies(new: Note) -> bool:
    """Whether listeners for notes of this job are notified."""
    return new.progress is not UNSET or (new.output is not UNSET and new.output.stream)


def output_position(last: tuple[int, int, int, int] | None, fence: int, at: int) -> int | None:
    """The position of a piece of output behind the last kept one (position, fence, at, size); None: already kept."""
    if last is None:
        return at
    position, its_fence, its_at, size = last
    if its_fence != fence:
        return position + size + at
    return position + at - its_at if at >= its_at + size else None


def settle(record: Record, end: Settlement, now: int) -> None:
    """End the record's claim. A job that would wait again ends cancelled if its cancellation was requested."""
    state, keep, outcome = end.state, end.keep, end.outcome
    if record.cancel and state not in TERMINAL:
        state, keep, outcome = State.CANCELLED, end.cancelled_keep, "cancelled"
    record.attempt = end.attempt
    record.quarantined = end.quarantined
    record.crashes = end.crashes
    record.error = end.error
    record.traceback = end.traceback
    record.result = end.result
    record.cancel = False
    record.waiting_for = None if state in TERMINAL else end.waiting_for
    if state in TERMINAL:
        record.state = state
        record.finished_at = now
        record.expires_at = expiry(now, keep)
        return
    record.history = (*record.history, ended_attempt(record, now, outcome, end.error))[-HISTORY_LIMIT:]
    if end.delay is not None:
        record.run_at = after(now, end.delay)
    record.state = state if record.run_at > now or state in UNTIMED else State.QUEUED
    record.holder = record.started_at = record.pid = None


def minute(now: int) -> int:
    """The beginning of the minute, in microseconds."""
    return now - now % (60 * MICROS)


def ended(record: Record, end: Settlement, now: int) -> tuple[str, int, int]:
    """The outcome of a claim that ends now, and how long it waited and ran. To be called before `settle`."""
    outcome = "cancelled" if record.cancel and end.state not in TERMINAL else end.outcome
    started = now if record.started_at is None else record.started_at
    return outcome, max(0, started - record.run_at), max(0, now - started)


def patch(record: Record, wanted: Patch, now: int) -> None:
    record.changed_at = now
    for name in _PLAINLY_PATCHED:
        value = getattr(wanted, name)
        if value is not UNSET:
            setattr(record, name, value)
    if wanted.meta is not UNSET:
        record.meta = {**record.meta, **wanted.meta}
    if wanted.delay is not UNSET:
        record.run_at = after(now, wanted.delay)
    if wanted.waiting_for is not UNSET:
        record.waiting_for = wanted.waiting_for
    elif wanted.state is not UNSET:
        record.waiting_for = None
    if wanted.state is UNSET:
        if wanted.keep is not UNSET and record.state in TERMINAL:
            record.expires_at = expiry(now, wanted.keep)
        return
    record.state = wanted.state
    if wanted.state in TERMINAL:
        record.finished_at = now
        record.expires_at = None if wanted.keep is UNSET else expiry(now, wanted.keep)
    else:
        record.finished_at = record.expires_at = record.holder = record.started_at = record.pid = None


def asks_to_stop(record: Record, wanted: Patch) -> bool:
    """Whether this patch, applied to the record, requests the cancellation of a running job: its holder is notified."""
    return wanted.cancel is True and record.state == State.RUNNING


def removable(record: Record, now: int) -> bool:
    """Whether the retention of an ended job is over, as at once with a retention of 0."""
    return record.state in TERMINAL and record.expires_at is not None and record.expires_at <= now
