"""What another Holdfast sends was checked there, and is checked again: with a token, anybody can pretend to be one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..checks import (
    PAGE_LIMIT,
    WEEK,
    checked_attempts,
    checked_name,
    checked_priority,
    checked_seconds,
    checked_tags,
    checked_text,
)
from ..codec import check_json
from ..errors import InvalidJob, PayloadTooLarge
from ..job import Ask, Holder, NewJob, Note, Settlement, State
from ..store.protocol import Batch
from .limits import MIB

ENDS = frozenset(state.value for state in State) - {State.RUNNING.value}
TEXT_MOST = MIB
"""Characters of an error or a traceback."""
NAMES_MOST = 1000
"""Queues or tasks of one holder or wish."""
TIME_MOST = 2**53


def check_batch(batch: Batch, max_payload: int) -> None:
    """Refuse a batch of which something could not have come from an app."""
    for job in batch.inserts:
        _check_job(job, max_payload)
    for note in batch.notes:
        _check_note(note, max_payload)
    for end in batch.settles:
        _check_end(end, max_payload)
    for ask in batch.asks:
        _check_ask(ask)


def check_holders(holders: Sequence[Holder]) -> None:
    """Refuse holders that no worker and no claim by hand could be."""
    for holder in holders:
        checked_text(holder.id, "a holder's id")
        if not 0 < holder.lease <= WEEK or not 0 <= holder.started_at < TIME_MOST or not 0 <= holder.pid < 2**31:
            raise InvalidJob(f"holder {holder.id!r}: its lease, start or pid makes no sense")
        if max(len(holder.node), len(holder.version), len(holder.kind)) > 256 or not holder.node.isprintable():
            raise InvalidJob(f"holder {holder.id!r}: its node, version or kind makes no sense")
        _check_names(holder.queues, holder.tasks)


def check_count(most: int, place: int = -1) -> Callable[..., None]:
    """Refuses calls with a number above this, as their last argument or in another place."""

    def check(*arguments: Any) -> None:
        if not 0 <= arguments[place] <= most:
            raise InvalidJob(f"at most {most} at a time, not {arguments[place]}")

    return check


CHECKS: dict[str, Callable[..., None]] = {
    "beat": check_holders,
    "expired": check_count(PAGE_LIMIT, 0),
    "tidy": check_count(10 * PAGE_LIMIT),
    "find": check_count(PAGE_LIMIT),
    "moves": check_count(100 * PAGE_LIMIT),
    "output": check_count(16 * MIB),
}
"""By the name of the call: what its arguments must be like."""


def _check_job(job: NewJob, max_payload: int) -> None:
    checked_text(job.id, "an id")
    checked_name(job.task, "task")
    checked_name(job.queue, "queue")
    checked_name(job.codec, "codec")
    checked_priority(job.priority)
    checked_attempts(job.max_attempts)
    checked_tags(job.tags)
    checked_seconds(job.delay, "delay")
    if job.key is not None:
        checked_text(job.key, "key")
    if job.timeout is not None:
        checked_seconds(job.timeout, "timeout", positive=True)
    if job.run_at is not None and not 0 <= job.run_at < TIME_MOST:
        raise InvalidJob(f"job {job.id!r}: its time makes no sense")
    _check_size(job.id, job.payload, max_payload)
    if job.codec == "json":
        check_json(job.payload)


def _check_note(note: Note, max_payload: int) -> None:
    for part in (note.progress, note.checkpoint):
        if isinstance(part, bytes):
            _check_size(note.id, part, max_payload)


def _check_end(end: Settlement, max_payload: int) -> None:
    if end.state not in ENDS or not 0 < len(end.outcome) <= 32:
        raise InvalidJob(f"job {end.id!r:.200}: a claim cannot end {end.state!r:.50}")
    if end.result is not None:
        _check_size(end.id, end.result, max_payload)
    if max(len(end.error or ""), len(end.traceback or "")) > TEXT_MOST:
        raise InvalidJob(f"job {end.id!r:.200}: an error has at most {TEXT_MOST} characters")


def _check_ask(ask: Ask) -> None:
    check_holders([ask.holder])
    _check_names(ask.queues, ask.tasks or ())
    if not 0 <= ask.limit <= 10 * PAGE_LIMIT:
        raise InvalidJob(f"at most {10 * PAGE_LIMIT} jobs at a time, not {ask.limit}")


def _check_names(queues: Sequence[str], tasks: Sequence[str]) -> None:
    if max(len(queues), len(tasks)) > NAMES_MOST:
        raise InvalidJob(f"at most {NAMES_MOST} queues or tasks at a time")
    for queue in queues:
        checked_name(queue, "queue")


def _check_size(id: str, data: bytes, most: int) -> None:
    if len(data) > most:
        raise PayloadTooLarge(f"job {id!r:.200}: {len(data)} bytes are over max_payload ({most}) of this server")
