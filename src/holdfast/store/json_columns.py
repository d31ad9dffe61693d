"""The JSON columns of a stored job. A damaged value affects only its job."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from ..core.job import Attempt, Record, raw_text
from ..core.retry import Backoff

to_json = msgspec.json.encode
_tags = msgspec.json.Decoder(tuple[str, ...]).decode
_meta = msgspec.json.Decoder(dict[str, Any]).decode
_retry = msgspec.json.Decoder(Backoff).decode
_history = msgspec.json.Decoder(tuple[Attempt, ...]).decode


def json_or_null(value: Any) -> str | None:
    return to_json(value).decode() if value else None


def read_json(decode: Callable[[Any], Any], text: Any, otherwise: Any, name: str, damage: dict[str, str]) -> Any:
    """The decoded text; `otherwise` if it is damaged."""
    try:
        return decode(text)
    except (ValueError, TypeError, RecursionError):  # msgspec's errors are ValueErrors
        damage[name] = raw_text("NULL" if text is None else text)
        return otherwise


def set_lists(made: Record, columns: Sequence[Any], damage: dict[str, str]) -> None:
    """Set the tags, meta, retry and history of a job from its columns, where they are not NULL."""
    tags, meta, retry, history = columns
    if tags is not None:
        made.tags = read_json(_tags, tags, (), "tags", damage)
    if meta is not None:
        made.meta = read_json(_meta, meta, {}, "meta", damage)
    if retry is not None:
        made.retry = read_json(_retry, retry, None, "retry", damage)
    if history is not None:
        made.history = read_json(_history, history, (), "history", damage)
