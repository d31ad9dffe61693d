"""Between a row of holdfast_job and a Record."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec

from ...job import Ask, Attempt, Lane, NewJob, Record, State
from ...retry import Backoff
from .sql import INLINE_PAYLOAD

log = logging.getLogger("holdfast")

Row = tuple[Any, ...]

WORD = {state: state.value for state in State}
"""The plain word of a state: sqlite3 binds a str at once, but asks around before it binds a subclass of str."""
QUEUED, RUNNING = State.QUEUED.value, State.RUNNING.value
_BLOCKED, _SCHEDULED = State.BLOCKED.value, State.SCHEDULED.value

PLAIN = 14
"""The column of `sql.SELECT_READY` that says whether all that it leaves out is as at the start."""

to_json = msgspec.json.encode
_tags = msgspec.json.Decoder(tuple[str, ...]).decode
_meta = msgspec.json.Decoder(dict[str, Any]).decode
_retry = msgspec.json.Decoder(Backoff).decode
_history = msgspec.json.Decoder(tuple[Attempt, ...]).decode
_bounds = msgspec.json.Decoder(tuple[int, int, int, int]).decode


def record(row: Row) -> Record:
    """A Record from a row with the columns of `sql.JOB`."""
    made = Record(*row[:30])
    made.suspect = row[19] == 1
    made.cancel = row[21] == 1
    tags, meta, retry, history, made.waits, lane, bounds, made.extra, made.saves, made.changed_at = row[30:40]
    if tags is not None:
        made.tags = _read(_tags, tags, (), made.id)
    if meta is not None:
        made.meta = _read(_meta, meta, {}, made.id)
    if retry is not None:
        made.retry = _read(_retry, retry, None, made.id)
    if history is not None:
        made.history = _read(_history, history, (), made.id)
    if lane is not None:
        made.lane = lane_of(lane, bounds, made.id)
    return made


def lane_of(name: str, bounds: str, id: str) -> Lane:
    """The lane of a job. One whose numbers cannot be read has no bounds."""
    return Lane(name, *_read(_numbers, bounds, (), id))


@lru_cache(1024)
def _numbers(bounds: str) -> tuple[int, int, int, int]:
    """The numbers of a lane. Those of thousands of lanes are often the same."""
    return _bounds(bounds)


@lru_cache(1024)
def _bounds_text(running: int, interval: int, burst: int, weight: int) -> str:
    return to_json((running, interval, burst, weight)).decode()


def lane_columns(lane: Lane | None) -> tuple[str | None, str | None]:
    """The name of a lane, and its numbers."""
    if lane is None:
        return None, None
    return lane.name, _bounds_text(lane.running, lane.interval, lane.burst, lane.weight)


def claimed(row: Row, queue: str, ask: Ask, now: int, suspect: bool) -> Record:
    """The claim on a job whose row of `sql.SELECT_READY` says that all else is as at the start."""
    (
        seq,
        id,
        task,
        priority,
        run_at,
        payload,
        codec,
        max_attempts,
        timeout,
        key,
        created_at,
        attempt,
        life,
        fence,
        _,
        lane,
        bounds,
    ) = row
    made = Record(
        seq, id, queue, task, RUNNING, priority, run_at, payload, codec, max_attempts, timeout, key, created_at,
        attempt + 1, life, fence + 1, ask.token, ask.holder.id, None, suspect, 0, False, now,
    )  # fmt: skip
    if lane is not None:
        made.lane = lane_of(lane, bounds, id)
    return made


def _read(decode: Any, text: str, otherwise: Any, id: str) -> Any:
    """What cannot be decoded harms this one job only, and not its payload."""
    try:
        return decode(text)
    except (msgspec.DecodeError, ValueError):
        log.warning("job %s has a column that is not the JSON it should be: %.80r", id, text)
        return otherwise


def json_or_null(value: Any) -> str | None:
    return to_json(value).decode() if value else None


def first_state(new: NewJob, now: int, run_at: int) -> str:
    """Where a new job begins."""
    return _BLOCKED if new.waits is not None else _SCHEDULED if run_at > now else QUEUED


def new_row(new: NewJob, now: int, run_at: int, state: str) -> Row:
    """The values of `sql.INSERT`."""
    return (
        new.id,
        new.queue,
        new.task,
        state,
        new.priority,
        run_at,
        new.payload if len(new.payload) <= INLINE_PAYLOAD else None,
        new.codec,
        new.max_attempts,
        new.timeout,
        new.key,
        now,
        json_or_null(new.tags) if new.tags else None,
        json_or_null(new.meta) if new.meta else None,
        json_or_null(new.retry) if new.retry is not None else None,
        new.nonce,
        new.waits,
        *lane_columns(new.lane),
        new.extra,
    )


def saved_row(kept: Record, settled: int | None) -> Sequence[Any]:
    """The values of `sql.SAVE`."""
    return (
        WORD[State(kept.state)],
        kept.run_at,
        kept.attempt,
        kept.life,
        kept.holder,
        kept.pid,
        int(kept.suspect),
        kept.deaths,
        int(kept.cancel),
        kept.started_at,
        kept.finished_at,
        kept.expires_at,
        kept.result,
        kept.error,
        kept.traceback,
        kept.progress,
        kept.checkpoint,
        json_or_null(kept.meta),
        json_or_null(kept.history),
        kept.waits,
        kept.extra,
        kept.saves,
        kept.changed_at,
        settled,
        kept.seq,
    )
