"""Conversion between rows of holdfast_job and Records."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any

import msgspec

from ...core import waiting
from ...core.damage import DAMAGED_ID
from ...core.job import STORED, LimitKey, NewJob, Record, State, raw_text
from ...core.operations import Ask
from ..json_columns import json_or_null, set_lists, to_json
from ..protocol import LARGE
from . import sql
from .sql import INLINE_PAYLOAD
from .step import Step

Row = tuple[Any, ...]

TEXT = {state: state.value for state in State}
"""States as plain str: sqlite3 binds a str directly, but searches for adapters before it binds a subclass."""
QUEUED, RUNNING = State.QUEUED.value, State.RUNNING.value
_BLOCKED, _SCHEDULED = State.BLOCKED.value, State.SCHEDULED.value

RUN_AT, ATTEMPT, FENCE, PLAIN, LIMIT_KEY = 4, 11, 13, 14, 15
"""Columns of `sql.SELECT_READY`; PLAIN: whether all columns that it leaves out have their initial values."""

_bounds = msgspec.json.Decoder(tuple[int, int, int, int]).decode


_INTEGERS = frozenset({
    "seq", "priority", "run_at", "max_attempts", "created_at", "attempt", "reset_count", "fence", "token", "pid",
    "quarantined", "crashes", "cancel", "started_at", "finished_at", "expires_at", "saves", "changed_at",
})  # fmt: skip
_BYTES = frozenset({"payload", "result", "progress", "checkpoint", "extra"})
_OPTIONAL = frozenset({
    "timeout", "key", "holder", "pid", "started_at", "finished_at", "expires_at", "changed_at", "result", "error",
    "traceback", "progress", "checkpoint", "tags", "meta", "retry", "history", "waiting_for", "limit_key", "bounds",
    "extra",
})  # fmt: skip
_DEFAULTS: dict[str, Any] = {"codec": "damaged"}
_COUNTED = ("priority", "run_at", "max_attempts", "created_at", "attempt", "reset_count", "fence", "crashes", "saves")
"""Numbers that are never NULL, and to which the code adds."""


def _columns(name: str) -> tuple[str, ...]:
    return ("limit_key", "bounds") if name == "limit_key" else (name,)


COLUMNS = tuple(column for name in STORED for column in _columns(name))
_counted = itemgetter(*map(COLUMNS.index, _COUNTED))
FEW = (
    "seq", "id", "task", "priority", "run_at", "payload", "codec", "max_attempts", "timeout", "key", "created_at",
    "attempt", "reset_count", "fence", "quarantined", "limit_key", "bounds",
)  # fmt: skip
"""The columns of `sql.SELECT_READY`; the one at PLAIN is checked like `quarantined`, as a number."""


def _fits(name: str, kind: type) -> bool:
    if kind is type(None):
        return name in _OPTIONAL
    if name == "timeout":
        return kind is float or kind is int
    return kind is (int if name in _INTEGERS else bytes if name in _BYTES else str)


@lru_cache(1024)
def _sound(kinds: tuple[type, ...]) -> bool:
    """Whether values of these types are valid in the columns: SQLite itself accepts any value in any column."""
    return all(map(_fits, COLUMNS, kinds))


@lru_cache(1024)
def _sound_few(kinds: tuple[type, ...]) -> bool:
    return all(map(_fits, FEW, kinds))


def is_plain(row: Row) -> bool:
    """Whether a row of `sql.SELECT_READY` describes its job fully."""
    if row[PLAIN] != 1 or not _sound_few(tuple(map(type, row))):
        return False
    if not (-LARGE < row[RUN_AT] < LARGE and -LARGE < row[ATTEMPT] < LARGE and -LARGE < row[FENCE] < LARGE):
        return False
    return row[LIMIT_KEY] is None or _numbers(row[LIMIT_KEY + 1]) is not None


def integer(value: Any) -> int:
    """A value as SQLite converts it to a number, limited to -LARGE … LARGE."""
    if not isinstance(value, int | float):
        found = re.match(r"\s*[+-]?\d{1,30}", "" if value is None else raw_text(value))
        value = 0 if found is None else int(found[0])
    return int(max(-LARGE, min(value, LARGE)))


def _in_range(numbers: Sequence[int]) -> bool:
    return max(numbers) < LARGE and min(numbers) > -LARGE


def _mended(row: Row) -> tuple[Row, dict[str, str]]:
    """The row with invalid values replaced by defaults, and the invalid values as text."""
    values, damage = list(row), dict[str, str]()
    for at, name in enumerate(COLUMNS):
        if not _fits(name, row[at].__class__) or (name in _COUNTED and not _in_range(row[at : at + 1])):
            damage[name] = raw_text("NULL" if row[at] is None else row[at])
            otherwise = integer(row[at]) if name in _INTEGERS else b"" if name in _BYTES else ""
            values[at] = None if name in _OPTIONAL else _DEFAULTS.get(name, otherwise)
            if name == "id":
                values[at] = f"{DAMAGED_ID}{row[0]}"
    return tuple(values), damage


def record(row: Row) -> Record:
    """A Record from a row with the columns of `sql.JOB`. Damaged values affect only this job."""
    damage: dict[str, str] = {}
    if not _sound(tuple(map(type, row[: len(COLUMNS)]))) or not _in_range(_counted(row)):
        row, damage = _mended(row)
    made = Record(*row[:30])
    made.quarantined = row[19] == 1
    made.cancel = row[21] == 1
    set_lists(made, row[30:34], damage)
    waiting_for, limit_key, bounds, made.extra, made.saves, made.changed_at = row[34:40]
    made.waiting_for = waiting.read(waiting_for)
    if limit_key is not None:
        made.limit_key = limit_key_of(limit_key, bounds)
        if _numbers(bounds) is None:
            damage["limit_key"] = raw_text(bounds)
    if damage:
        made.damage = damage
    return made


def limit_key_of(name: str, bounds: Any) -> LimitKey:
    """The limit key of a job. One whose numbers are damaged has no bounds: its job ends when it is claimed."""
    numbers = _numbers(bounds) if isinstance(bounds, str) else None
    return LimitKey(name) if numbers is None else LimitKey(name, *numbers)


@lru_cache(1024)
def _numbers(bounds: str | None) -> tuple[int, int, int, int] | None:
    """The numbers of a limit key, None if they are damaged. Cached: thousands of limit keys often have the same."""
    try:
        numbers = _bounds(bounds or "")
    except ValueError:
        return None
    return numbers if all(0 <= number < 2**53 for number in numbers) else None


@lru_cache(1024)
def _bounds_text(running: int, interval: int, burst: int, weight: int) -> str:
    return to_json((running, interval, burst, weight)).decode()


def limit_key_columns(limit_key: LimitKey | None) -> tuple[str | None, str | None]:
    """The name of a limit key, and its numbers."""
    if limit_key is None:
        return None, None
    return limit_key.name, _bounds_text(limit_key.concurrency, limit_key.interval, limit_key.burst, limit_key.weight)


def claimed(row: Row, queue: str, ask: Ask, now: int, quarantined: bool) -> Record:
    """The claimed record of a job whose other columns have their initial values (PLAIN)."""
    (
        seq, id, task, priority, run_at, payload, codec, max_attempts, timeout, key, created_at,
        attempt, reset_count, fence, _, limit_key, bounds,
    ) = row  # fmt: skip
    made = Record(
        seq, id, queue, task, RUNNING, priority, run_at, payload, codec, max_attempts, timeout, key, created_at,
        attempt + 1, reset_count, fence + 1, ask.token, ask.holder.id, None, quarantined, 0, False, now,
    )  # fmt: skip
    if limit_key is not None:
        made.limit_key = limit_key_of(limit_key, bounds)
    return made


def first_state(new: NewJob, now: int, run_at: int) -> str:
    return _BLOCKED if new.waiting_for is not None else _SCHEDULED if run_at > now else QUEUED


def new_row(new: NewJob, now: int, run_at: int, state: str) -> Row:
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
        waiting.write(new.waiting_for),
        *limit_key_columns(new.limit_key),
        new.extra,
    )


def saved_row(kept: Record, settled: int | None) -> Sequence[Any]:
    """The values of `sql.SAVE`. Damaged values are written back unchanged."""
    raw = kept.damage or {}
    meta = raw["meta"] if "meta" in raw and not kept.meta else json_or_null(kept.meta)
    history = raw["history"] if "history" in raw and not kept.history else json_or_null(kept.history)
    return (
        str(kept.state), kept.run_at, kept.attempt, kept.reset_count, kept.holder, kept.pid, int(kept.quarantined),
        kept.crashes, int(kept.cancel), kept.started_at, kept.finished_at, kept.expires_at, kept.result, kept.error,
        kept.traceback, kept.progress, kept.checkpoint, meta, history, waiting.write(kept.waiting_for), kept.extra,
        kept.saves, kept.changed_at, settled, kept.seq,
    )  # fmt: skip


def row_of(step: Step, id: str) -> Row | None:
    """The row of a job by its id; or by its `seq`, by which jobs with damaged ids are named."""
    row = step.one(sql.GET, id)
    if row is None and id.startswith(DAMAGED_ID) and id[len(DAMAGED_ID) :].isdecimal():
        found = step.one(sql.GET_BY_SEQ, int(id[len(DAMAGED_ID) :]))
        row = found if found is not None and not isinstance(found[1], str) else None
    return row


def text_of(value: Any) -> str:
    """The value of a text column as a str, also if it is damaged."""
    return value if isinstance(value, str) else raw_text(value)
