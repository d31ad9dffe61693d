"""Validation of store calls from remote clients. Clients validate too, but any program with a token can call these.

Every field is checked before anything is stored, because a value that no app produces could break readers. Sizes are
bounded, numbers fit every store, texts contain only characters that every store keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from ..codec import check_json
from ..codec.meta import checked_meta
from ..core import follow_ups
from ..core import internal as extras
from ..core.errors import InvalidJob, PayloadTooLarge
from ..core.job import HISTORY_LIMIT, Attempt, LimitKey, NewJob, State
from ..core.lifecycle import COMPANY
from ..core.operations import Ask, Change, Holder, Note, Output, Patch, Settlement, Where
from ..core.validation import (
    PAGE_LIMIT,
    WEEK,
    checked_attempts,
    checked_cursor,
    checked_name,
    checked_priority,
    checked_seconds,
    checked_tags,
    checked_text,
)
from ..core.waiting import Waiting
from ..store.protocol import Batch
from ..tasks.limits import MAX_BOUND, MAX_BURST_SPAN, MAX_LIMIT_NAME, MAX_WEIGHT
from .limits import MIB

STATES = frozenset(state.value for state in State)
ENDS = STATES - {State.RUNNING.value}
UNIQUE = frozenset({"", "until_start", "until_end", "window"})
MAX_RPC_TEXT = MIB
"""Maximum characters of an error or a traceback."""
MAX_RPC_NAMES = 1000
"""Maximum queues or tasks of one holder or claim request."""
MAX_RPC_ITEMS = 10 * PAGE_LIMIT
"""Maximum operations, holders or ids of one call, which blocks other clients; a client sends 1000 to 2000."""
MAX_RPC_NAME_LENGTH = 1024
"""Maximum characters of `waiting_for`, and of the names of records and filters, which contain keys."""
MAX_RPC_INT = 2**53
"""Upper bound of times (microseconds) and sizes (bytes): integers that every JSON parser keeps."""
INT32, INT64 = 2**31, 2**63
"""Exclusive upper bounds of signed 32 and 64 bit integers."""
ADVICE = "nothing was written. Use the same version of Holdfast in the client and the server"


def check_batch(batch: Batch, max_payload: int) -> None:
    """Refuse a batch with an operation that no app produces."""
    _check_count(MAX_RPC_ITEMS, sum(len(getattr(batch, kind)) for kind in batch.__struct_fields__))
    for job in batch.inserts:
        _check_job(job, max_payload)
    for note in batch.notes:
        _check_note(note, max_payload)
    for end in batch.settles:
        _check_end(end, max_payload)
    for change in batch.changes:
        _check_change(change, max_payload)
    for ask in batch.asks:
        _check_ask(ask)


def check_holders(holders: Sequence[Holder]) -> None:
    """Refuse holders that no worker or manual claim produces."""
    _check_count(MAX_RPC_ITEMS, len(holders))
    for holder in holders:
        checked_text(holder.id, "a holder's id")
        if not 0 < holder.lease <= WEEK or not 0 <= holder.started_at < MAX_RPC_INT or not 0 <= holder.pid < INT32:
            raise InvalidJob(f"holder {holder.id!r}: lease, started_at or pid is out of range; {ADVICE}")
        for text in (holder.node, holder.version, holder.kind, holder.state, holder.release, holder.process):
            if len(text) > 256 or not text.isprintable():
                raise InvalidJob(
                    f"holder {holder.id!r}: node, version, kind, state, release or process is over 256 characters or"
                    f" not printable; {ADVICE}"
                )
        if not 0 <= holder.memory < MAX_RPC_INT or not 0 <= holder.cpu < MAX_RPC_INT:
            raise InvalidJob(f"holder {holder.id!r}: cpu or memory is out of range; {ADVICE}")
        if not 0 <= holder.slots <= MAX_BOUND:
            raise InvalidJob(f"holder {holder.id!r}: slots must be from 0 to {MAX_BOUND}, not {holder.slots!s:.50}")
        _check_names(holder.queues, holder.tasks)


def check_record(kind: str, name: str, value: bytes | None, expect: int | None, max_payload: int) -> None:
    """Refuse a record whose name is not valid in every store, or whose value is too large."""
    check_kinds([kind])
    checked_text(name, "a record's name", MAX_RPC_NAME_LENGTH)
    if value is not None:
        _check_size(name, value, max_payload, of="record")
    if expect is not None:
        _check_number(name, "version", expect, of="record")


def check_kinds(kinds: Sequence[str]) -> None:
    """Refuse invalid kinds of records, or too many."""
    _check_count(MAX_RPC_NAMES, len(kinds))
    for kind in kinds:
        checked_text(kind, "a record's kind", MAX_RPC_NAME_LENGTH)


def _check_since(since: int) -> None:
    _check_number("stats_by_minute", "since", since, least=-INT64 + 1, of="call")


def _check_ids(ids: Sequence[str]) -> None:
    _check_count(MAX_RPC_ITEMS, len(ids))
    for id in ids:
        checked_text(id, "an id")


def _check_keys(keys: Sequence[str]) -> None:
    _check_count(MAX_RPC_ITEMS, len(keys))
    for key in keys:
        checked_text(key, "key")


def _check_count(maximum: int, count: int) -> None:
    if not 0 <= count <= maximum:
        raise InvalidJob(f"one call takes at most {maximum} items, not {count}; split it")


def _check_expired(limit: int, holder: str | None) -> None:
    _check_count(PAGE_LIMIT, limit)
    _check_ids([] if holder is None else [holder])


def _check_find(where: Where, cursor: str | None, limit: int) -> None:
    _check_count(PAGE_LIMIT, limit)
    checked_cursor(cursor)
    if not STATES.issuperset(where.states):
        raise InvalidJob(f"the filter has an unknown state {min(set(where.states) - STATES)!r:.50}; {ADVICE}")
    waiting_for = None if where.waiting_for is None else where.waiting_for.name
    for text in (where.queue, where.task, where.tag, waiting_for):
        if text is not None:
            checked_text(text, "a part of a filter", MAX_RPC_NAME_LENGTH)
    if where.finished_before is not None:
        _check_number("find", "finished_before", where.finished_before, least=-INT64 + 1, of="call")


def _check_transitions(since: str | None, limit: int) -> None:
    checked_cursor(since)
    _check_count(100 * PAGE_LIMIT, limit)


def _check_output(id: str, position: int, limit: int, _stream: bool) -> None:
    _check_ids([id])
    _check_number(id, "position", position)
    _check_count(16 * MIB, limit)


CHECKS: dict[str, Callable[..., None]] = {
    "heartbeat": check_holders,
    "leave": _check_ids,
    "get": _check_ids,
    "expired": _check_expired,
    "tidy": partial(_check_count, 10 * PAGE_LIMIT),
    "find": _check_find,
    "key_owners": _check_keys,
    "transitions": _check_transitions,
    "output": _check_output,
    "stats_by_minute": _check_since,
}
"""Validators of the arguments, by the name of the call."""


# -- operations


def _check_job(job: NewJob, max_payload: int) -> None:
    id = checked_text(job.id, "an id")
    checked_name(job.task, "task")
    checked_name(job.queue, "queue")
    checked_name(job.codec, "codec")
    checked_priority(job.priority)
    checked_attempts(job.max_attempts)
    checked_tags(job.tags)
    checked_seconds(job.delay, "delay")
    checked_seconds(job.window, "window")
    if job.key is not None:
        checked_text(job.key, "key")
    if job.timeout is not None:
        checked_seconds(job.timeout, "timeout", positive=True)
    if job.run_at is not None and not 0 <= job.run_at < MAX_RPC_INT:
        raise InvalidJob(f"job {id!r}: run_at is out of range; {ADVICE}")
    if job.unique not in UNIQUE:
        raise InvalidJob(
            f"job {id!r}: unique must be one of {', '.join(sorted(UNIQUE - {''}))}, not {job.unique!r:.50}"
        )
    _check_number(id, "nonce", job.nonce)
    if job.max_depth is not None:
        _check_number(id, "max_depth", job.max_depth, INT32)
    if job.fingerprint:
        checked_text(job.fingerprint, "a fingerprint")
    _check_meta(id, job.meta, max_payload)
    _check_waiting_for(id, job.waiting_for)
    if job.limit_key is not None:
        _check_limit_key(id, job.limit_key)
    _check_extra(id, job.extra, max_payload)
    _check_size(id, job.payload, max_payload)
    if job.codec == "json":
        check_json(job.payload, f"the payload of job {id!r}")


def _check_limit_key(id: str, limit_key: LimitKey) -> None:
    checked_text(limit_key.name, f"job {id!r}: its limit key", MAX_LIMIT_NAME)
    sound = (
        0 <= limit_key.concurrency <= MAX_BOUND
        and 0 <= limit_key.weight <= MAX_WEIGHT
        and 1 <= limit_key.burst <= MAX_BOUND
    )
    if not sound or not limit_key.interval >= 0 or limit_key.interval * limit_key.burst > MAX_BURST_SPAN:
        raise InvalidJob(f"job {id!r}: concurrency, rate, burst or weight of its limit is out of range; {ADVICE}")


def _check_extra(id: str, data: bytes | None, max_payload: int) -> None:
    if data is None:
        return
    _check_size(id, data, max_payload)
    try:
        extras.check(id, data)
    except ValueError as error:
        raise InvalidJob(f"job {id!r}: its internal metadata (extra) is not valid: {error}; {ADVICE}") from None
    for job in follow_ups.jobs_in(data):
        _check_job(msgspec.structs.replace(job, id=id), max_payload)


def _check_meta(id: str, meta: dict[str, Any], max_payload: int) -> None:
    if not meta:
        return
    checked_meta(meta)
    size = sum(len(name) for name in meta) + len(str(meta))
    if size > max_payload:
        raise PayloadTooLarge(
            f"job {id!r:.200}: meta of {size} characters is over max_payload ({max_payload}) of this server; send less"
            " data"
        )


def _check_note(note: Note, max_payload: int) -> None:
    id = _check_claim(note.id, note.seq, note.fence, note.token)
    for part in (note.progress, note.checkpoint):
        if isinstance(part, bytes):
            _check_size(id, part, max_payload)
    _check_number(id, "saves", note.saves, INT32)
    if isinstance(note.pid, int):
        _check_number(id, "pid", note.pid, INT32)
    if isinstance(note.meta, dict):
        _check_meta(id, note.meta, max_payload)
    if isinstance(note.rest, float):
        checked_seconds(note.rest, "rest")
    if isinstance(note.output, Output):
        _check_number(id, "output", note.output.at, MAX_RPC_INT)
        _check_number(id, "output", note.output.keep, MAX_RPC_INT)
        _check_size(id, note.output.data, 16 * MIB)


def _check_end(end: Settlement, max_payload: int) -> None:
    id = _check_claim(end.id, end.seq, end.fence, end.token)
    if end.state not in ENDS:
        raise InvalidJob(f"job {id!r:.200}: a claim cannot end in state {end.state!r:.50}; {ADVICE}")
    if not 0 < len(end.outcome) <= 32 or not end.outcome.isprintable():
        raise InvalidJob(f"job {id!r:.200}: invalid outcome {end.outcome!r:.50}; {ADVICE}")
    _check_number(id, "nonce", end.nonce)
    _check_number(id, "attempt", end.attempt, INT32 - 1, least=-1)
    _check_number(id, "crashes", end.crashes, INT32 - 1, least=-COMPANY)
    if end.expected_heartbeat is not None:
        _check_number(id, "expected_heartbeat", end.expected_heartbeat)
    for name, seconds in (("delay", end.delay), ("keep", end.keep), ("keep", end.cancelled_keep)):
        if seconds is not None:
            checked_seconds(seconds, name)
    checked_seconds(end.key_keep, "key_keep")
    if end.key is not None:
        checked_text(end.key, "key")
    if end.task:
        checked_name(end.task, "task")
    if end.result is not None:
        _check_size(id, end.result, max_payload)
    _check_texts(id, end.error, end.traceback)
    _check_waiting_for(id, end.waiting_for)


def _check_change(change: Change, max_payload: int) -> None:
    id = checked_text(change.id, "an id")
    _check_number(id, "fence", change.expected_fence)
    # The stored state of a damaged job may be any text.
    if len(change.expected_state) > 64 or not change.expected_state.isprintable():
        raise InvalidJob(f"job {id!r}: expected_state {change.expected_state!r:.50} is not valid; {ADVICE}")
    if change.expected_task:  # set by a proxying server; "": the job does not exist
        checked_name(change.expected_task, "task")
    if change.expected_seq is not None:
        _check_number(id, "seq", change.expected_seq)
    if change.expected_reset_count is not None:
        _check_number(id, "reset_count", change.expected_reset_count)
    _check_waiting_for(id, change.expected_waiting_for)
    if change.patch is not None:
        _check_patch(id, change.patch, max_payload)


def _check_patch(id: str, patch: Patch, max_payload: int) -> None:
    if isinstance(patch.state, str) and patch.state not in ENDS:
        raise InvalidJob(f"job {id!r}: a change cannot set state {patch.state!r:.50}; {ADVICE}")
    for name, least in (("attempt", -1), ("reset_count", -1), ("crashes", -COMPANY)):
        if isinstance(number := getattr(patch, name), int):
            _check_number(id, name, number, INT32 - 1, least=least)
    for name in ("delay", "keep", "key_keep"):
        if isinstance(seconds := getattr(patch, name), float):
            checked_seconds(seconds, name)
    for name in ("result", "progress", "payload", "checkpoint"):
        if isinstance(data := getattr(patch, name), bytes):
            _check_size(id, data, max_payload)
    _check_texts(id, *(text for text in (patch.error, patch.traceback) if isinstance(text, str)))
    if isinstance(patch.task, str):
        checked_name(patch.task, "task")
    if isinstance(patch.queue, str):
        checked_name(patch.queue, "queue")
    if isinstance(patch.priority, int):
        checked_priority(patch.priority)
    if patch.fingerprint:
        checked_text(patch.fingerprint, "a fingerprint")
    if isinstance(patch.meta, dict):
        _check_meta(id, patch.meta, max_payload)
    if isinstance(patch.waiting_for, Waiting):
        _check_waiting_for(id, patch.waiting_for)
    if isinstance(patch.extra, bytes):
        _check_extra(id, patch.extra, max_payload)
    if isinstance(patch.history, tuple):
        if len(patch.history) > HISTORY_LIMIT:
            count = len(patch.history)
            raise InvalidJob(f"job {id!r}: a history has at most {HISTORY_LIMIT} lines, not {count}; {ADVICE}")
        for line in patch.history:
            _check_line(id, line)


def _check_line(id: str, line: Attempt) -> None:
    for name, number in (("attempt", line.number), ("reset_count", line.reset_count)):
        _check_number(id, name, number, INT32 - 1, least=-1)
    _check_number(id, "fence", line.fence)
    for at in (line.started_at, line.ended_at):
        if at is not None and not 0 <= at < MAX_RPC_INT:
            raise InvalidJob(f"job {id!r}: a time in its history is out of range; {ADVICE}")
    checked_text(line.outcome, "an outcome", 32)
    _check_texts(id, line.worker, line.error)


def _check_ask(ask: Ask) -> None:
    check_holders([ask.holder])
    _check_names(ask.queues, ask.tasks or ())
    _check_number(ask.holder.id, "token", ask.token, of="holder")
    if not 0 <= ask.limit <= 10 * PAGE_LIMIT:
        raise InvalidJob(f"a claim request must ask for 0 to {10 * PAGE_LIMIT} jobs, not {ask.limit}")


def _check_names(queues: Sequence[str], tasks: Sequence[str]) -> None:
    if max(len(queues), len(tasks)) > MAX_RPC_NAMES:
        count = max(len(queues), len(tasks))
        raise InvalidJob(
            f"a worker of a remote store can have at most {MAX_RPC_NAMES} queues and as many tasks, not {count}; use"
            " fewer"
        )
    for queue in queues:
        checked_name(queue, "queue")
    for task in tasks:
        checked_name(task, "task")


# -- fields of operations


def _check_claim(id: str, seq: int, fence: int, token: int) -> str:
    checked_text(id, "an id")
    for name, number in (("seq", seq), ("fence", fence), ("token", token)):
        _check_number(id, name, number)
    return id


def _check_number(id: str, name: str, number: int, maximum: int = INT64, *, least: int = 0, of: str = "job") -> None:
    if not least <= number < maximum:
        raise InvalidJob(
            f"{of} {id!r:.200}: {name} must be from {least} to {maximum - 1}, not {number!s:.50}; {ADVICE}"
        )


def _check_waiting_for(id: str, waiting_for: Waiting | None) -> None:
    if waiting_for is None:
        return
    if waiting_for.kind == "unknown":  # read from a damaged job; never written
        raise InvalidJob(f"job {id!r:.200}: waiting_for cannot be of kind 'unknown'; {ADVICE}")
    checked_text(waiting_for.name, f"job {id!r:.200}: what it waits for", MAX_RPC_NAME_LENGTH)


def _check_texts(id: str, *texts: str | None) -> None:
    for text in texts:
        if text is not None and (len(text) > MAX_RPC_TEXT or "\0" in text):
            raise InvalidJob(f"job {id!r:.200}: an error has at most {MAX_RPC_TEXT} characters and no \\u0000")


def _check_size(id: str, data: bytes, maximum: int, *, of: str = "job") -> None:
    if len(data) > maximum:
        raise PayloadTooLarge(
            f"{of} {id!r:.200}: {len(data)} bytes are over max_payload ({maximum}) of this server; send less data"
        )
