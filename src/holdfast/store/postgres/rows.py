"""Between a row of holdfast.job (or holdfast.ended) and a Record."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import msgspec

from ...job import Attempt, Lane, Record
from ...retry import Backoff

log = logging.getLogger("holdfast")

COLUMNS = Record.__struct_fields__
PLAIN = COLUMNS.index("tags")
"""Columns before this one come from the driver as they stand in a Record."""

to_json = msgspec.json.encode
_tags = msgspec.json.Decoder(tuple[str, ...]).decode
_meta = msgspec.json.Decoder(dict[str, Any]).decode
_retry = msgspec.json.Decoder(Backoff).decode
_history = msgspec.json.Decoder(tuple[Attempt, ...]).decode
_lane = msgspec.json.Decoder(Lane).decode


def record(row: Any, at: int = 0) -> Record:
    """A Record from a row that has its columns in order, beginning with column `at`."""
    made = Record(*row[at : at + PLAIN])
    tags, meta, retry, history, made.waits, lane, made.extra, made.saves, made.changed_at = row[
        at + PLAIN : at + PLAIN + 9
    ]
    if tags is not None:
        made.tags = _read(_tags, tags, (), made.id)
    if meta is not None:
        made.meta = _read(_meta, meta, {}, made.id)
    if retry is not None:
        made.retry = _read(_retry, retry, None, made.id)
    if history is not None:
        made.history = _read(_history, history, (), made.id)
    if lane is not None:
        made.lane = _read(_lane, lane, None, made.id)
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


def row(kept: Record) -> Sequence[Any]:
    """The values of a Record's columns, in order."""
    retry, lane = (None if value is None else to_json(value).decode() for value in (kept.retry, kept.lane))
    plain = [getattr(kept, name) for name in COLUMNS[:PLAIN]]
    plain[4] = str(kept.state)
    lists = (json_or_null(kept.tags), json_or_null(kept.meta), retry, json_or_null(kept.history))
    return (*plain, *lists, kept.waits, lane, kept.extra, kept.saves, kept.changed_at)
