"""Conversion between rows of holdfast.job or holdfast.ended and Records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ...core import waiting
from ...core.job import STORED, Attempt, LimitKey, Record, raw_text
from ...core.retry import Backoff

COLUMNS = STORED
PLAIN = COLUMNS.index("tags")
"""Columns before this one come from the driver as a Record has them."""

to_json = msgspec.json.encode
_tags = msgspec.json.Decoder(tuple[str, ...]).decode
_meta = msgspec.json.Decoder(dict[str, Any]).decode
_retry = msgspec.json.Decoder(Backoff).decode
_history = msgspec.json.Decoder(tuple[Attempt, ...]).decode
_limit_key = msgspec.json.Decoder(LimitKey).decode


def record(row: Any, at: int = 0) -> Record:
    """A Record from a row that has its columns in order, beginning with column `at`.

    Damaged values affect only this job.
    """
    damage: dict[str, str] = {}
    made = Record(*row[at : at + PLAIN])
    tags, meta, retry, history, waiting_for, limit_key, made.extra, made.saves, made.changed_at = row[
        at + PLAIN : at + PLAIN + 9
    ]
    if tags is not None:
        made.tags = _read(_tags, tags, (), "tags", damage)
    if meta is not None:
        made.meta = _read(_meta, meta, {}, "meta", damage)
    if retry is not None:
        made.retry = _read(_retry, retry, None, "retry", damage)
    if history is not None:
        made.history = _read(_history, history, (), "history", damage)
    made.waiting_for = waiting.read(waiting_for)
    if limit_key is not None:
        made.limit_key = _read(_limit_key, limit_key, None, "limit_key", damage)
    if damage:
        made.damage = damage
    return made


def _read(decode: Any, text: str, otherwise: Any, name: str, damage: dict[str, str]) -> Any:
    try:
        return decode(text)
    except (ValueError, RecursionError):  # msgspec's errors are ValueErrors
        damage[name] = raw_text(text)
        return otherwise


def json_or_null(value: Any) -> str | None:
    return to_json(value).decode() if value else None


def row(kept: Record) -> Sequence[Any]:
    """The values of a Record's columns, in order. Damaged values are written back unchanged."""
    raw = kept.damage or {}
    retry, limit_key = (None if value is None else to_json(value).decode() for value in (kept.retry, kept.limit_key))
    plain = [getattr(kept, name) for name in COLUMNS[:PLAIN]]
    plain[4] = str(kept.state)
    tags, meta, history = json_or_null(kept.tags), json_or_null(kept.meta), json_or_null(kept.history)
    lists = (tags or raw.get("tags"), meta or raw.get("meta"), retry or raw.get("retry"), history or raw.get("history"))
    waiting_for = waiting.write(kept.waiting_for)
    return (*plain, *lists, waiting_for, limit_key or raw.get("limit_key"), kept.extra, kept.saves, kept.changed_at)
