"""Checks the meta of a job before it is stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import msgspec

from ..core.errors import InvalidJob
from .values import encode_value


def checked_meta(meta: Any) -> dict[str, Any]:
    """The checked meta of a job: plain JSON."""
    if not isinstance(meta, Mapping) or not all(isinstance(key, str) for key in cast("Mapping[Any, Any]", meta)):
        raise InvalidJob(f"meta must be a dict with string keys, not {meta!r:.100}")
    return msgspec.json.decode(encode_value(dict(cast("Mapping[str, Any]", meta)), exact=True, what="meta"))
