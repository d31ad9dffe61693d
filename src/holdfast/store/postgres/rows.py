"""Conversion between rows of holdfast.job or holdfast.ended and Records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ...core import waiting
from ...core.job import STORED, LimitKey, Record
from ..json_columns import json_or_null, read_json, set_lists, to_json

COLUMNS = STORED
PLAIN = COLUMNS.index("tags")
"""Columns before this one come from the driver as a Record has them."""

_limit_key = msgspec.json.Decoder(LimitKey).decode


def record(row: Any, at: int = 0) -> Record:
    """A Record from a row that has its columns in order, beginning with column `at`.

    Damaged values affect only this job.
    """
    damage: dict[str, str] = {}
    made = Record(*row[at : at + PLAIN])
    at += PLAIN
    set_lists(made, row[at : at + 4], damage)
    waiting_for, limit_key, made.extra, made.saves, made.changed_at = row[at + 4 : at + 9]
    made.waiting_for = waiting.read(waiting_for)
    if limit_key is not None:
        made.limit_key = read_json(_limit_key, limit_key, None, "limit_key", damage)
    if damage:
        made.damage = damage
    return made


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
